from __future__ import annotations

from typing import Any

import pytest
from small_campaign import WRONG, add_people, make_small, new_key
from sqlalchemy import Connection, select

from holdfast.core.errors import UserError
from holdfast_people.assignment import get_task, image_of_place, image_of_training, next_task, training, why_nothing
from holdfast_people.campaigns import (
    KINDS,
    Sentinel,
    Settings,
    create_campaign,
    get_campaign,
    list_campaigns,
    progress,
    set_status,
)
from holdfast_people.database import Database
from holdfast_people.tables import images
from holdfast_people.voting import Outcome, cast, finish

STRANGE = ["", "x", "\x00" * 43, "\ud800", "a" * 43]


def judge(connection: Connection, small: Any, person: int, *, now: float = 0.0, wrong: bool = False) -> Outcome:
    task = next_task(connection, small.id, person, now=now)
    assert task is not None
    for place in task.places:
        image = image_of_place(connection, place.token, person)
        answers = WRONG if wrong else small.right(image)
        cast(connection, place_token=place.token, person_id=person, key=new_key(), answers=answers, seconds=1, now=now)
    return finish(connection, task_token=task.token, person_id=person, now=now)


def test_the_kinds_ask_what_they_should() -> None:
    assert [question.id for question in KINDS["quality"]] == ["recognisable", "usable"]
    for questions in KINDS.values():
        for question in questions:
            assert len(question.answers) == len(question.keys) == len(set(question.keys))
            assert question.tolerance < len(question.answers)
    assert [question.tolerance for question in KINDS["naturalness"]] == [1]


@pytest.mark.parametrize(
    "settings",
    [
        {"people_per_image": 0},
        {"at_least": 11},
        {"images_per_task": 4},
        {"images_per_task": 5, "repeats": 2},
        {"minutes": float("nan")},
        {"most_failures": 0},
        {"repeats": -1},
    ],
)
def test_settings_that_no_task_can_have_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Settings(**settings)


def test_a_campaign_needs_the_sentinels_of_its_settings(database: Database) -> None:
    with database.writing() as connection:
        small = make_small(connection, judged=3, people_per_image=2)
        source = get_campaign(connection, small.id).source_id
        good = [Sentinel(small.positive[0], "positive", "cup", {"recognisable": ["yes"]})]
        good += [Sentinel(small.negative[0], "negative", "shoe", {"recognisable": ["no"]})]

        def create(**changes: Any) -> int:
            usual = {"name": "n", "kind": "quality", "source_id": source, "image_ids": small.judged}
            return create_campaign(
                connection, **usual | {"sentinels": good, "settings": Settings(), "now": 0.0} | changes
            )

        for message, changes in {
            "1 negative sentinels and the campaign 0": {"sentinels": good[:1]},
            "2 positive sentinels and the campaign 1": {"settings": Settings(positives=2)},
            "at least one image": {"image_ids": []},
            "is given twice": {"image_ids": [*small.judged, small.judged[0]]},
            "uses it as one sentinel": {"image_ids": [small.positive[0]]},
            "has no image 999": {"image_ids": [999]},
            "there is no image 999": {"sentinels": [*good, Sentinel(999, "training", "cup", {"usable": ["yes"]})]},
            "source 999 has no image": {"source_id": 999},
            "needs a name": {"name": " \n"},
            "'small' already": {"name": "small"},
            "not 'beauty'": {"kind": "beauty"},
            "no question 'recognisable'": {"kind": "oracle"},
            "needs a right answer": {"sentinels": [*good, Sentinel(small.training[0], "training", "cup")]},
            "must be of no, yes": {
                "sentinels": [*good, Sentinel(small.training[0], "training", "cup", {"usable": ["maybe"]})]
            },
            "not 'judge'": {"sentinels": [*good, Sentinel(small.training[0], "judge", "cup", {"usable": ["yes"]})]},
        }.items():
            with pytest.raises(UserError, match=message):
                create(**changes)
        assert [campaign.name for campaign in list_campaigns(connection)] == ["small"]
        create(sentinels=[], settings=Settings(positives=0, negatives=0))
        assert [campaign.name for campaign in list_campaigns(connection)] == ["n", "small"]


def test_a_campaign_of_one_image_and_no_sentinels(database: Database) -> None:
    with database.writing() as connection:
        ann, bob = add_people(connection, 2)
        small = make_small(connection, judged=1, people_per_image=2, positives=0, negatives=0, repeats=0)
        for person in (ann, bob):
            task = next_task(connection, small.id, person, now=0.0)
            assert task is not None
            assert len(task.places) == 1
            assert judge(connection, small, person) == Outcome("finished")
        assert next_task(connection, small.id, ann, now=0.0) is None
        assert why_nothing(connection, small.id, ann) == "all images of this campaign have been judged"
        assert progress(connection, small.id, now=0.0)["finished_images"] == 1


def test_the_last_task_is_a_small_one_with_all_its_sentinels(database: Database) -> None:
    with database.writing() as connection:
        (ann,) = add_people(connection, 1)
        small = make_small(connection, judged=17, people_per_image=1)
        assert judge(connection, small, ann) == Outcome("finished")
        task = next_task(connection, small.id, ann, now=0.0)
        assert task is not None
        shown = [image_of_place(connection, place.token, ann) for place in task.places]
        assert len(shown) == 4  # the one left, its repeat, a positive and a negative
        assert len(set(shown)) == 3
        assert sum(image in small.judged for image in shown) == 2


def test_sentinels_are_used_again_only_when_all_were_seen(database: Database) -> None:
    with database.writing() as connection:
        (ann,) = add_people(connection, 1)
        small = make_small(connection, judged=12, pool=3, people_per_image=1, images_per_task=4, repeats=0)
        met = []
        for _ in range(6):
            task = next_task(connection, small.id, ann, now=0.0)
            assert task is not None
            shown = [image_of_place(connection, place.token, ann) for place in task.places]
            met += [image for image in shown if image in small.positive]
            judge(connection, small, ann)
        assert sorted(met[:3]) == sorted(met[3:]) == small.positive


def test_reasons_for_nothing(database: Database) -> None:
    with database.writing() as connection:
        ann, bob, eve = add_people(connection, 3)
        small = make_small(connection, judged=2, people_per_image=2, most_failures=1)
        why = lambda person: why_nothing(connection, small.id, person)  # noqa: E731
        assert judge(connection, small, eve, wrong=True) == Outcome("discarded", "positive")
        assert next_task(connection, small.id, eve, now=0.0) is None
        assert "could not be used" in why(eve)
        judge(connection, small, ann)
        assert next_task(connection, small.id, ann, now=0.0) is None
        assert "wait for others" in why(ann)
        assert next_task(connection, small.id, bob, now=0.0) is not None
        assert "may come back" in why(ann)
        set_status(connection, small.id, "paused")
        assert next_task(connection, small.id, ann, now=0.0) is None
        assert why(ann) == "this campaign is paused"
        assert judge(connection, small, bob) == Outcome("finished")  # who has a task may end it
        with pytest.raises(UserError, match="not 'gone'"):
            set_status(connection, small.id, "gone")


def test_a_closed_campaign_takes_its_tasks_back(database: Database) -> None:
    with database.writing() as connection:
        (ann,) = add_people(connection, 1)
        small = make_small(connection, judged=2, people_per_image=1)
        task = next_task(connection, small.id, ann, now=0.0)
        assert task is not None
        set_status(connection, small.id, "closed")
        assert get_task(connection, task.token, ann).status == "expired"
        with pytest.raises(UserError, match="taken back"):
            finish(connection, task_token=task.token, person_id=ann, now=1.0)
        assert next_task(connection, small.id, ann, now=1.0) is None
        set_status(connection, small.id, "open")
        again = next_task(connection, small.id, ann, now=2.0)
        assert again is not None
        assert again.token == task.token
        assert again.expires_at == 2.0 + 30 * 60


def test_training_pictures_have_tokens_and_answers(database: Database) -> None:
    with database.writing() as connection:
        (ann,) = add_people(connection, 1)
        small = make_small(connection, judged=2, people_per_image=1)
        pictures = training(connection, small.id)
        assert [image_of_training(connection, picture.token) for picture in pictures] == small.training
        assert [picture.expected for picture in pictures] == [{"recognisable": ["yes"]}] * 2
        task = next_task(connection, small.id, ann, now=0.0)
        assert task is not None
        for token in [*STRANGE, task.places[0].token]:
            assert image_of_training(connection, token) is None


def test_strangers_see_nothing_of_a_task(database: Database) -> None:
    with database.writing() as connection:
        ann, bob = add_people(connection, 2)
        small = make_small(connection, judged=2, people_per_image=1)
        task = next_task(connection, small.id, ann, now=0.0)
        assert task is not None
        with pytest.raises(UserError, match="no such task"):
            get_task(connection, task.token, bob)
        with pytest.raises(UserError, match="no such task"):
            finish(connection, task_token=task.token, person_id=bob, now=0.0)
        assert image_of_place(connection, task.places[0].token, bob) is None
        for token in STRANGE:
            assert image_of_place(connection, token, ann) is None
            with pytest.raises(UserError, match="no such task"):
                get_task(connection, token, ann)
            with pytest.raises(UserError, match="no such task"):
                finish(connection, task_token=token, person_id=ann, now=0.0)
        for number in (0, -1, 999, 2**70):
            with pytest.raises(UserError, match="there is no campaign"):
                get_campaign(connection, number)
        known = {row.sample_id for row in connection.execute(select(images))}
        assert not any(place.token in known for place in task.places)
