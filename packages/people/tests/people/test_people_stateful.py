"""Whole campaigns against a model that knows the rules in another way: from images, not from roles or counters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from small_campaign import RIGHT, WRONG, Small, add_people, make_small, new_key
from sqlalchemy import select

from holdfast.core.errors import UserError
from holdfast_people.assignment import AssignedTask, expire_tasks, get_task, image_of_place, next_task, why_nothing
from holdfast_people.campaigns import progress, set_status
from holdfast_people.database import Database
from holdfast_people.tables import items
from holdfast_people.voting import cast, finish

PEOPLE = 4


@dataclass
class Known:
    """What the model remembers of a task."""

    token: str
    person: int
    status: str
    expires_at: float
    places: list[str]
    images: list[int]
    answers: dict[str, dict[str, str]] = field(default_factory=dict)
    last: dict[str, Any] | None = None

    @property
    def is_repeat(self) -> list[bool]:
        return [image in self.images[:position] for position, image in enumerate(self.images)]


class Campaigns(RuleBasedStateMachine):
    """People come, judge well or badly, go back, stay away, come again; the clock moves."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.connection = database.engine.connect()  # one transaction for the whole example, given up in the end
        self.now = 1000.0
        self.tasks: list[Known] = []
        self.status = "open"

    def teardown(self) -> None:
        self.connection.close()

    @initialize(
        judged=st.integers(1, 7),
        wanted=st.integers(1, 3),
        repeats=st.integers(0, 2),
        room=st.integers(0, 2),
        sentinels=st.tuples(st.integers(0, 2), st.integers(0, 1)),
        seed=st.integers(0, 99),
    )
    def begin(self, judged: int, wanted: int, repeats: int, room: int, sentinels: tuple[int, int], seed: int) -> None:
        self.wanted, self.repeats, self.sentinels = wanted, repeats, sentinels
        self.per_task = max(1, repeats) + room
        self.people = add_people(self.connection, PEOPLE)
        self.small: Small = make_small(
            self.connection,
            judged=judged,
            people_per_image=wanted,
            images_per_task=self.per_task + repeats + sum(sentinels),
            repeats=repeats,
            positives=sentinels[0],
            negatives=sentinels[1],
            minutes=1.0,
            most_failures=2,
            seed=seed,
            now=self.now,
        )
        self.rng = Random(seed)

    def of(self, person: int, *states: str) -> list[Known]:
        return [task for task in self.tasks if task.person == person and task.status in states]

    def times(self, image: int, *states: str) -> int:
        return sum(image in task.images for task in self.tasks if task.status in states)

    def free(self, image: int) -> bool:
        return self.times(image, "open", "finished") < self.wanted

    def expire(self) -> int:
        late = [task for task in self.tasks if task.status == "open" and task.expires_at <= self.now]
        for task in late:
            task.status = "expired"
        return len(late)

    @rule(person=st.integers(0, PEOPLE - 1))
    def ask(self, person: int) -> None:
        who = self.people[person]
        if not [task for task in self.of(who, "open") if task.expires_at > self.now]:
            self.expire()
        got = next_task(self.connection, self.small.id, who, now=self.now, rng=self.rng)
        if running := self.of(who, "open"):
            assert got is not None
            assert got.token == running[0].token
            self.looks_like(got, running[0])
            return
        judged = set(self.small.judged)
        again = [task for task in self.of(who, "expired") if all(self.free(i) for i in task.images if i in judged)]
        seen = {image for task in self.tasks if task.person == who for image in task.images}
        left = {image for image in judged - seen if self.free(image)}
        if self.status != "open" or len(self.of(who, "discarded")) >= 2 or not (again or left):
            assert got is None
            assert why_nothing(self.connection, self.small.id, who)
            return
        assert got is not None
        if again:
            assert got.token == again[-1].token
            again[-1].status, again[-1].expires_at = "open", self.now + 60
            self.looks_like(got, again[-1])
        else:
            self.is_right(who, got, left)

    @rule()
    def all_ask(self) -> None:
        for person in range(PEOPLE):
            self.ask(person)

    def looks_like(self, got: AssignedTask, known: Known) -> None:
        assert (got.status, got.expires_at) == (known.status, known.expires_at)
        assert [place.token for place in got.places] == known.places
        assert [place.answers for place in got.places] == [known.answers.get(token) for token in known.places]

    def is_right(self, who: int, got: AssignedTask, left: set[int]) -> None:
        shown = [image_of_place(self.connection, place.token, who) for place in got.places]
        known = Known(got.token, who, "open", self.now + 60, [p.token for p in got.places], [i for i in shown if i])
        assert [place.position for place in got.places] == list(range(len(shown)))
        often = Counter(known.images)
        judged = set(known.images) & set(self.small.judged)
        number = min(self.per_task, len(left))
        assert judged <= left
        assert len(judged) == number
        assert sorted(often[image] for image in judged)[::-1] == sorted(
            [2] * min(self.repeats, number) + [1] * (number - min(self.repeats, number)), reverse=True
        )
        for there, wanted in zip((self.small.positive, self.small.negative), self.sentinels, strict=True):
            assert sum(often[image] for image in there) == len(set(there) & set(known.images)) == wanted
        if len(shown) >= 4:
            assert all(one != other for one, other in pairwise(shown))
        # Those that fewest people had come first.
        had = {image: self.times(image, "finished") for image in left}
        assert max(had[image] for image in judged) <= min((had[image] for image in left - judged), default=99)
        self.looks_like(got, known)
        self.tasks.append(known)

    @precondition(lambda self: self.tasks)
    @rule(which=st.integers(0, 99), place=st.integers(0, 99), well=st.booleans())
    def vote(self, which: int, place: int, well: bool) -> None:
        task = self.tasks[which % len(self.tasks)]
        self.cast(task, place % len(task.places), well)

    def cast(self, task: Known, position: int, well: bool) -> None:
        token, image = task.places[position], task.images[position]
        right = self.small.right(image)
        answers = right if well else (RIGHT if right == WRONG else WRONG)
        vote = {"place_token": token, "key": new_key(), "answers": answers, "seconds": 1.0}
        if task.status == "open" and task.expires_at > self.now:
            cast(self.connection, **vote, person_id=task.person, now=self.now)
            task.answers[token], task.last = answers, vote
        else:
            with pytest.raises(UserError):
                cast(self.connection, **vote, person_id=task.person, now=self.now)
        with pytest.raises(UserError, match="no such image"):
            cast(self.connection, **vote | {"key": new_key()}, person_id=task.person + 1, now=self.now)

    @precondition(lambda self: any(task.last for task in self.tasks))
    @rule(which=st.integers(0, 99))
    def send_again(self, which: int) -> None:
        sent = [task for task in self.tasks if task.last]
        task = sent[which % len(sent)]
        assert task.last is not None
        cast(self.connection, **task.last, person_id=task.person, now=self.now)

    @precondition(lambda self: self.tasks)
    @rule(which=st.integers(0, 99), complete=st.booleans(), badly=st.integers(0, 30))
    def end(self, which: int, complete: bool, badly: int) -> None:
        task = self.tasks[-1 - which % len(self.tasks)]
        if complete and task.status == "open" and task.expires_at > self.now:
            for position, token in enumerate(task.places):
                if token not in task.answers or badly == position:
                    self.cast(task, position, badly != position)
        if task.status in ("finished", "discarded"):
            for _ in range(2):
                assert (
                    finish(self.connection, task_token=task.token, person_id=task.person, now=self.now).status
                    == task.status
                )
        elif task.status == "expired" or task.expires_at <= self.now or len(task.answers) < len(task.places):
            with pytest.raises(UserError):
                finish(self.connection, task_token=task.token, person_id=task.person, now=self.now)
        else:
            failed = self.failures(task)
            outcome = finish(self.connection, task_token=task.token, person_id=task.person, now=self.now)
            assert outcome.status == ("discarded" if failed else "finished")
            assert outcome.reason in failed or (outcome.reason == "" and not failed)
            task.status = outcome.status

    def failures(self, task: Known) -> set[str]:
        failed = set()
        for position, (token, image) in enumerate(zip(task.places, task.images, strict=True)):
            answers = task.answers[token]
            if image in self.small.positive and answers["recognisable"] != "yes":
                failed.add("positive")
            if image in self.small.negative and answers["recognisable"] != "no":
                failed.add("negative")
            if task.is_repeat[position] and answers != task.answers[task.places[task.images.index(image)]]:
                failed.add("repeat")
        return failed

    @rule(seconds=st.sampled_from([1.0, 20.0, 59.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def sweep(self) -> None:
        assert expire_tasks(self.connection, now=self.now) == self.expire()

    @rule(status=st.sampled_from(["open", "open", "paused", "closed"]))
    def switch(self, status: str) -> None:
        set_status(self.connection, self.small.id, status)
        self.status = status
        if status == "closed":
            for task in self.tasks:
                task.status = "expired" if task.status == "open" else task.status

    @invariant()
    def counters_say_what_the_tasks_say(self) -> None:
        if not self.tasks:
            return
        rows = self.connection.execute(select(items).where(items.c.campaign_id == self.small.id)).all()
        for row in rows:
            judged = row.role == "judge"
            assert row.held == (self.times(row.image_id, "open") if judged else 0)
            assert row.counted == (self.times(row.image_id, "finished") if judged else 0)
            assert row.held + row.counted <= self.wanted or not judged
        for person in self.people:
            had = [i for task in self.tasks if task.person == person for i in set(task.images)]
            assert max(Counter(i for i in had if i in self.small.judged).values(), default=0) <= 1
        told = progress(self.connection, self.small.id, now=self.now)
        assert told["counted"] == sum(row.counted for row in rows)
        assert told["finished_images"] == sum(row.counted == self.wanted for row in rows)
        late = sum(task.status == "open" and task.expires_at <= self.now for task in self.tasks)
        states = Counter(task.status for task in self.tasks)
        assert told["open_tasks"] == states["open"] - late
        assert told["expired_tasks"] == states["expired"] + late
        assert told["discarded_tasks"] == states["discarded"]
        assert sum(person["counted"] for person in told["people"]) == told["counted"]
        newest = self.tasks[-1]
        self.looks_like(get_task(self.connection, newest.token, newest.person), newest)


def test_campaigns_keep_their_rules(database: Database) -> None:
    run_state_machine_as_test(
        lambda: Campaigns(database),
        settings=settings(
            max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
