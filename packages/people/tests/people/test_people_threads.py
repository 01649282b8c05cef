"""Many people at once, on real databases: the rules hold afterwards, and nothing that was acknowledged is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random
from threading import Barrier
from typing import Any

from small_campaign import RIGHT, WRONG, Small, add_people, make_small, new_key
from sqlalchemy import func, select

from holdfast.core.errors import UserError
from holdfast_people.assignment import AssignedTask, expire_tasks, image_of_place, next_task
from holdfast_people.database import Database
from holdfast_people.tables import items, places, tasks, votes
from holdfast_people.voting import Outcome, cast, finish

WANTED = 3


class Clock:
    """Moves on by itself, a tenth of a second a look."""

    def __init__(self) -> None:
        self.ticks = count()

    def __call__(self) -> float:
        return next(self.ticks) / 10


class Reviewer:
    """Someone who answers, sends things twice, sometimes carelessly, and sometimes leaves a task lying."""

    def __init__(self, database: Database, small: Small, person: int, clock: Clock, *, careful: bool) -> None:
        self.database, self.small, self.person, self.clock, self.careful = database, small, person, clock, careful
        self.rng = Random(person)
        self.acknowledged: list[str] = []

    def __call__(self) -> None:
        for _ in range(200):
            with self.database.writing() as connection:
                task = next_task(connection, self.small.id, self.person, now=self.clock())
            if task is None:
                return
            try:
                self.judge(task)
            except UserError as error:  # too slow, and someone took it back
                assert "time of this task is up" in str(error)

    def judge(self, task: AssignedTask) -> None:
        failing = not self.careful and self.rng.random() < 0.3
        for place in task.places:
            if not self.careful and self.rng.random() < 0.02:
                return
            with self.database.reading() as connection:
                right = self.small.right(image_of_place(connection, place.token, self.person))
            answers = {**right, "recognisable": "yes" if right == WRONG else "no"} if failing else right
            vote = {"place_token": place.token, "person_id": self.person, "key": new_key(), "answers": answers}
            for _ in range(2 if self.rng.random() < 0.2 else 1):
                with self.database.writing() as connection:
                    cast(connection, **vote, seconds=0.1, now=self.clock())
            self.acknowledged.append(str(vote["key"]))
        for _ in range(2):
            with self.database.writing() as connection:
                finish(connection, task_token=task.token, person_id=self.person, now=self.clock())


def test_many_people_at_once(database: Database) -> None:
    clock = Clock()
    with database.writing() as connection:
        people = add_people(connection, 10)
        small = make_small(connection, judged=40, people_per_image=WANTED, images_per_task=6, repeats=1, minutes=0.5)
    reviewers = [
        Reviewer(database, small, person, clock, careful=place % 2 == 0) for place, person in enumerate(people)
    ]

    def sweep() -> None:
        for _ in range(30):
            with database.writing() as connection:
                expire_tasks(connection, now=clock())

    with ThreadPoolExecutor(12) as threads:
        for done in [threads.submit(work) for work in (*reviewers, sweep, sweep)]:
            done.result()  # no deadlock, no lost connection, no error
    with database.writing() as connection:
        expire_tasks(connection, now=1e9)
    with ThreadPoolExecutor(5) as threads:  # the careful ones come back for what was left
        list(threads.map(lambda reviewer: reviewer(), reviewers[::2]))
    check(database, small)
    with database.reading() as connection:
        kept = Counter(connection.scalars(select(votes.c.key)))
        assert kept.keys() >= {key for reviewer in reviewers for key in reviewer.acknowledged}
        assert set(kept.values()) == {1}
        counted = connection.scalars(select(items.c.counted).where(items.c.role == "judge"))
        assert set(counted) == {WANTED}


def check(database: Database, small: Small) -> None:
    """The counters are what the tasks say, and no one had an image twice."""
    with database.reading() as connection:
        query = select(places.c.item_id, tasks.c.status, places.c.person_id).join(tasks, tasks.c.id == places.c.task_id)
        had = connection.execute(query.where(places.c.role == "judge")).all()
        finished = Counter(row.item_id for row in had if row.status == "finished")
        held = Counter(row.item_id for row in had if row.status == "open")
        for item in connection.execute(select(items).where(items.c.role == "judge")):
            assert (item.counted, item.held) == (finished[item.id], held[item.id])
            assert item.counted + item.held <= WANTED
        assert max(Counter((row.item_id, row.person_id) for row in had).values()) == 1


def at_once(number: int, work: Callable[[int], Any]) -> list[Any]:
    barrier = Barrier(number)

    def go(place: int) -> Any:
        barrier.wait()
        return work(place)

    with ThreadPoolExecutor(number) as threads:
        return list(threads.map(go, range(number)))


def test_one_person_in_several_windows(database: Database) -> None:
    """One task however often it is asked for, one vote a key, one end."""
    with database.writing() as connection:
        (ann,) = add_people(connection, 1)
        small = make_small(connection, judged=3, people_per_image=1)

    def ask(_: int) -> str:
        with database.writing() as connection:
            task = next_task(connection, small.id, ann, now=0.0)
            assert task is not None
            return task.token

    assert len(set(at_once(6, ask))) == 1
    with database.writing() as connection:
        task = next_task(connection, small.id, ann, now=0.0)
        assert task is not None
        right = [small.right(image_of_place(connection, place.token, ann)) for place in task.places]
    for place, answers in zip(task.places, right, strict=True):
        vote = {"place_token": place.token, "person_id": ann, "key": new_key(), "answers": answers}

        def send(_: int, vote: dict[str, Any] = vote) -> None:
            with database.writing() as connection:
                cast(connection, **vote, seconds=1.0, now=1.0)

        at_once(4, send)

    def end(_: int) -> Outcome:
        with database.writing() as connection:
            return finish(connection, task_token=task.token, person_id=ann, now=2.0)

    assert set(at_once(6, end)) == {Outcome("finished")}
    with database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(votes)) == len(task.places)
    check(database, small)


def test_the_last_picture_is_given_to_no_more_than_wanted(database: Database) -> None:
    with database.writing() as connection:
        everyone = add_people(connection, 7)
        small = make_small(connection, judged=1, people_per_image=WANTED)

    def ask(place: int) -> bool:
        with database.writing() as connection:
            return next_task(connection, small.id, everyone[place], now=0.0) is not None

    assert sum(at_once(7, ask)) == WANTED


def test_a_vote_and_the_end_of_its_task_do_not_cross(database: Database) -> None:
    """The last way back either counts for the outcome or is refused; it never sneaks in behind it."""
    with database.writing() as connection:
        people = add_people(connection, 6)
        small = make_small(connection, judged=1, people_per_image=6, repeats=0, negatives=0)
    for person in people:
        with database.writing() as connection:
            task = next_task(connection, small.id, person, now=0.0)
            assert task is not None
            for place in task.places:
                vote = {"place_token": place.token, "person_id": person, "key": new_key(), "answers": RIGHT}
                cast(connection, **vote, seconds=1.0, now=0.0)
            images = [image_of_place(connection, place.token, person) for place in task.places]
        token = task.places[[image in small.positive for image in images].index(True)].token

        def race(which: int, task: AssignedTask = task, token: str = token, person: int = person) -> str:
            try:
                with database.writing() as connection:
                    if which:
                        return finish(connection, task_token=task.token, person_id=person, now=1.0).status
                    vote = {"place_token": token, "person_id": person, "key": new_key(), "answers": WRONG}
                    cast(connection, **vote, seconds=1.0, now=1.0)
                    return "changed"
            except UserError:
                return "refused"

        assert tuple(at_once(2, race)) in {("changed", "discarded"), ("refused", "finished")}
