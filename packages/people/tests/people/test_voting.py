from __future__ import annotations

from random import Random
from typing import Any

import pytest
from small_campaign import RIGHT, WRONG, Small, add_people, make_small, new_key
from sqlalchemy import Connection, func, select

from holdfast.core.errors import UserError
from holdfast.core.votes import VoteQuestion, decide
from holdfast_people.assignment import AssignedTask, get_task, image_of_place, next_task
from holdfast_people.campaigns import Sentinel, Settings, create_campaign, get_campaign, progress
from holdfast_people.database import Database
from holdfast_people.tables import items, votes
from holdfast_people.voting import Outcome, _agree, cast, finish


def begin(connection: Connection, **settings: Any) -> tuple[int, Small, AssignedTask]:
    (ann,) = add_people(connection, 1)
    small = make_small(connection, judged=3, **{"people_per_image": 1, **settings})
    task = next_task(connection, small.id, ann, now=0.0)
    assert task is not None
    return ann, small, task


def stored(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(votes)) or 0


def test_sending_a_vote_again_counts_once(database: Database) -> None:
    with database.writing() as connection:
        ann, small, task = begin(connection)
        sent = []
        for place in task.places:
            answers = small.right(image_of_place(connection, place.token, ann))
            sent.append({"place_token": place.token, "person_id": ann, "key": new_key(), "answers": answers})
        for _ in range(2):
            for vote in sent:
                cast(connection, **vote, seconds=1.5, now=1.0)
        assert stored(connection) == len(task.places)
        first = finish(connection, task_token=task.token, person_id=ann, now=2.0)
        assert finish(connection, task_token=task.token, person_id=ann, now=3.0) == first == Outcome("finished")
        for vote in sent:  # the acknowledgement got lost, and the task was finished meanwhile
            cast(connection, **vote, seconds=1.5, now=9e9)
        assert stored(connection) == len(task.places)
        assert progress(connection, small.id, now=3.0)["counted"] == 3
        with pytest.raises(UserError, match="finished already"):
            cast(connection, **sent[0] | {"key": new_key()}, seconds=1.0, now=3.0)
        with pytest.raises(UserError, match="finished already"):
            cast(connection, **sent[0] | {"answers": {"recognisable": "no", "usable": "yes"}}, seconds=1.0, now=3.0)


def test_a_key_belongs_to_one_vote(database: Database) -> None:
    with database.writing() as connection:
        ann, _, task = begin(connection)
        vote = {"person_id": ann, "key": "k", "seconds": 1.0, "now": 1.0}
        cast(connection, place_token=task.places[0].token, answers=RIGHT, **vote)
        for token, answers in ((task.places[1].token, RIGHT), (task.places[0].token, WRONG)):
            with pytest.raises(UserError, match="used for another vote"):
                cast(connection, place_token=token, answers=answers, **vote)
        assert stored(connection) == 1


def test_the_way_back_changes_an_answer(database: Database) -> None:
    with database.writing() as connection:
        ann, _, task = begin(connection)
        for answers in (RIGHT, WRONG, RIGHT, WRONG):
            vote = {"place_token": task.places[2].token, "key": new_key(), "answers": answers}
            cast(connection, **vote, person_id=ann, seconds=1.0, now=1.0)
        assert [place.answers for place in get_task(connection, task.token, ann).places] == [
            None if place.position != 2 else WRONG for place in task.places
        ]
        assert stored(connection) == 4  # nothing is overwritten


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": {"recognisable": "yes"}}, "the answer to 'usable' must be one of yes, no"),
        ({"answers": {"recognisable": "yes", "usable": "maybe"}}, "the answer to 'usable'"),
        ({"answers": RIGHT | {"beautiful": "yes"}}, "no question 'beautiful'"),
        ({"answers": {}}, "the answer to 'recognisable'"),
        ({"key": ""}, "key"),
        ({"key": "x" * 37}, "key"),
        ({"key": "\x00"}, "key"),
        ({"place_token": "a" * 43}, "no such image"),
        ({"place_token": "\x00"}, "no such image"),
        ({"person_id": 999}, "no such image"),
        ({"now": 1800.0}, "time of this task is up"),
    ],
)
def test_votes_that_do_not_fit_are_refused(database: Database, changes: dict[str, Any], message: str) -> None:
    with database.writing() as connection:
        ann, _, task = begin(connection)
        vote = {"place_token": task.places[0].token, "person_id": ann, "key": "k", "answers": RIGHT}
        with pytest.raises(UserError, match=message):
            cast(connection, **vote | {"seconds": 1.0, "now": 1.0} | changes)
        assert stored(connection) == 0


@pytest.mark.parametrize(("sent", "kept"), [(-1.0, 0.0), (float("nan"), 0.0), (1e300, 86_400.0), (2.5, 2.5)])
def test_the_browsers_clock_is_not_trusted(database: Database, sent: float, kept: float) -> None:
    with database.writing() as connection:
        ann, _, task = begin(connection)
        vote = {"place_token": task.places[0].token, "person_id": ann, "key": "k", "answers": RIGHT}
        cast(connection, **vote, seconds=sent, now=1.0)
        assert connection.scalar(select(votes.c.seconds)) == kept


def test_an_unfinished_task_is_not_ended(database: Database) -> None:
    with database.writing() as connection:
        ann, _, task = begin(connection)
        vote = {"place_token": task.places[0].token, "person_id": ann, "key": "k", "answers": RIGHT}
        cast(connection, **vote, seconds=1.0, now=1.0)
        left = len(task.places) - 1
        with pytest.raises(UserError, match=f"{left} of {left + 1} images have no answer"):
            finish(connection, task_token=task.token, person_id=ann, now=1.0)
        assert get_task(connection, task.token, ann).status == "open"


@pytest.mark.parametrize("failing", ["positive", "negative", "repeat", "usable of the repeat"])
def test_one_failed_sentinel_discards_everything(database: Database, failing: str) -> None:
    with database.writing() as connection:
        ann, small, task = begin(connection)
        seen: set[int | None] = set()
        for place in task.places:
            image = image_of_place(connection, place.token, ann)
            answers = small.right(image)
            if image in seen and failing == "usable of the repeat":
                answers = RIGHT | {"usable": "yes"}
            if (image in seen and failing == "repeat") or (image in small.positive and failing == "positive"):
                answers = WRONG
            if image in small.negative and failing == "negative":
                answers = RIGHT
            seen.add(image)
            vote = {"place_token": place.token, "person_id": ann, "key": new_key(), "answers": answers}
            cast(connection, **vote, seconds=1.0, now=1.0)
        reason = failing.split()[-1]
        assert finish(connection, task_token=task.token, person_id=ann, now=2.0) == Outcome("discarded", reason)
        told = progress(connection, small.id, now=2.0)
        assert (told["counted"], told["held"], told["discarded_tasks"]) == (0, 0, 1)
        assert next_task(connection, small.id, ann, now=2.0) is None  # never to the same person
        (bob,) = add_people(connection, 1)
        fresh = next_task(connection, small.id, bob, now=2.0)
        assert fresh is not None
        assert {image_of_place(connection, place.token, bob) for place in fresh.places} >= set(small.judged)


def test_steps_of_naturalness_may_lie_one_apart(database: Database) -> None:
    with database.writing() as connection:
        small = make_small(connection, judged=4, people_per_image=3)
        source = get_campaign(connection, small.id).source_id
        sentinels = [
            Sentinel(small.positive[0], "positive", "cup", {"natural": ["4", "5"]}),
            Sentinel(small.negative[0], "negative", "cup", {"natural": ["1", "2"]}),
        ]
        number = create_campaign(
            connection,
            name="natural",
            kind="naturalness",
            source_id=source,
            image_ids=small.judged,
            sentinels=sentinels,
            settings=Settings(people_per_image=4, at_least=1),
            now=0.0,
        )
        expected = {("3", "4"): "finished", ("4", "3"): "finished", ("3", "3"): "finished", ("2", "4"): "discarded"}
        for person, (pair, status) in zip(add_people(connection, 4), expected.items(), strict=True):
            task = next_task(connection, number, person, now=0.0)
            assert task is not None
            seen: list[int | None] = []
            for place in task.places:
                image = image_of_place(connection, place.token, person)
                step = {small.positive[0]: "5", small.negative[0]: "1"}.get(image or 0, pair[image in seen])
                seen.append(image)
                vote = {"place_token": place.token, "person_id": person, "key": new_key()}
                cast(connection, **vote, answers={"natural": step}, seconds=1.0, now=1.0)
            assert finish(connection, task_token=task.token, person_id=person, now=2.0).status == status


def test_answers_agree_by_their_order() -> None:
    question = VoteQuestion("q", "?", ("none", "few", "many"), tolerance=1)
    assert _agree({"q": "none"}, {"q": "few"}, [question])
    assert not _agree({"q": "none"}, {"q": "many"}, [question])


@pytest.mark.parametrize(("of", "at_least"), [(10, 6), (5, 3), (4, 1)])
def test_no_vote_is_asked_for_where_the_verdict_cannot_turn(database: Database, of: int, at_least: int) -> None:
    """People come in waves and hold tasks side by side; what is accepted is what all of them together would accept."""
    lots = Random(of)
    with database.writing() as connection:
        crowd = add_people(connection, of)
        small = make_small(
            connection, judged=30, pool=6, people_per_image=of, at_least=at_least, images_per_task=12,
            stop="when-decided",
        )  # fmt: skip
        easy = {image: lots.choice([0.05, 0.5, 0.95]) for image in small.judged}
        opinion = {(who, image): lots.random() < easy[image] for who in crowd for image in small.judged}
        at_work = True
        while at_work:
            tasks = [(who, next_task(connection, small.id, who, now=0.0)) for who in lots.sample(crowd, len(crowd))]
            at_work = False
            for who, task in tasks:
                if task is None:
                    continue
                at_work = True
                for place in task.places:
                    image = image_of_place(connection, place.token, who)
                    answers = small.right(image) if image not in easy else RIGHT if opinion[who, image] else WRONG
                    cast(connection, place_token=place.token, person_id=who, key=new_key(), answers=answers,
                         seconds=1.0, now=0.0)  # fmt: skip
                assert finish(connection, task_token=task.token, person_id=who, now=0.0).status == "finished"
        rows = connection.execute(select(items).where(items.c.role == "judge")).all()
        state = progress(connection, small.id, now=0.0)
    assert (state["finished_images"], state["held"], state["wanted"]) == (30, 0, state["counted"])
    for row in rows:
        everyone = sum(opinion[who, row.image_id] for who in crowd)
        now = decide(row.yes, row.counted, at_least=at_least, of=of)
        assert now == decide(everyone, of, at_least=at_least, of=of) != "undecided"
        # The last vote was needed: without it the verdict was open.
        before = row.yes - 1 if now == "accepted" else row.yes
        assert decide(before, row.counted - 1, at_least=at_least, of=of) == "undecided"
    assert state["counted"] < 0.9 * 30 * of
