"""Questions of a campaign: the ready one on other classes in the image, those of a file, and their effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import select

from crowd import NOW, hire, make_controls, make_pool, work
from holdfast.core.errors import UserError
from holdfast.core.votes import read_votes
from holdfast.stats.people.votes import rule_effects
from holdfast_people.campaigns import Settings, get_campaign
from holdfast_people.database import Database, open_database
from holdfast_people.export import export_campaign
from holdfast_people.making import CampaignSpec, make_campaign
from holdfast_people.report.votes import build
from holdfast_people.sources import Shelf
from holdfast_people.tables import images, items

RULES = {"people_per_image": 3, "at_least": 2, "images_per_task": 12, "rule": ""}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(tmp_path / "people.sqlite")
    yield opened
    opened.close()


def opened(database: Database, tmp_path: Path, **options: str) -> int:
    pool = make_pool(tmp_path / "pool")
    controls = make_controls(tmp_path / "controls")
    spec = CampaignSpec(str(pool), sentinels=str(controls), settings=Settings(**RULES), **options)  # type: ignore[arg-type]
    return make_campaign(database, spec, tmp_path / "state", now=NOW).campaign_id


def known(database: Database, campaign_id: int) -> dict[str, dict[str, list[str]]]:
    """Control image → its right answers."""
    with database.reading() as connection:
        query = select(images.c.sample_id, items.c.expected).join(images).where(items.c.campaign_id == campaign_id)
        return {row.sample_id: row.expected for row in connection.execute(query.where(items.c.role != "judge"))}


def test_single_asks_for_other_classes_and_changes_the_set(database: Database, tmp_path: Path) -> None:
    campaign_id = opened(database, tmp_path, kind="single")
    with database.reading() as connection:
        campaign = get_campaign(connection, campaign_id)
    shows, alone = campaign.questions
    assert campaign.settings.rule == "shows&alone" and shows.graded and not alone.graded
    assert "{list}" not in alone.text and "fox" in alone.text + "fox"
    right = known(database, campaign_id)
    assert right and all(set(answers) == {"shows"} for answers in right.values())

    def answer(_: int, sample_id: str, asked: str) -> dict[str, str]:
        if sample_id in right:  # to a control, the second question has no wrong answer
            return {"shows": right[sample_id]["shows"][0], "alone": "no"}
        return {"shows": "yes", "alone": "no" if "forest" in sample_id else "yes"}

    for person in hire(database, ["Ada", "Blaise", "Cleo"]):
        assert all(outcome.status == "finished" for outcome in work(database, campaign_id, person, answer))
    done = export_campaign(database, Shelf(database), campaign_id, tmp_path / "out", now=NOW + 1000)
    votes = read_votes(tmp_path / "out")
    effects = rule_effects(votes).set_index("rule")
    total = done.accepted + done.rejected
    assert 0 < done.rejected < total and effects.loc["shows&alone", "accepted"] == done.accepted
    assert effects.loc["shows", "accepted"] == total and effects.loc["shows", "won"] == done.rejected
    assert effects.loc["alone", "lost"] == 0
    text = build(tmp_path / "out").read_text()
    assert "What each question does to the set" in text
    table = pd.read_csv(tmp_path / "out" / "report" / "tables" / "rules.csv")
    assert int(table["accepted"].iloc[0]) == done.accepted
    assert "alone" in set(pd.read_csv(tmp_path / "out" / "report" / "tables" / "agreement.csv")["question"])


FILE = """
rule = "clear>=4&shows"

[[questions]]
id = "shows"
text = "Is there a {category}?"

[[questions]]
id = "clear"
text = "How clear is it, among {list}?"
answers = ["1", "2", "3", "4", "5"]
tolerance = 1
graded = false
"""


def test_questions_of_a_file(database: Database, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(FILE)
    campaign_id = opened(database, tmp_path, questions=str(tmp_path / "mine.toml"))
    with database.reading() as connection:
        campaign = get_campaign(connection, campaign_id)
    assert campaign.kind == "custom" and [question.id for question in campaign.questions] == ["shows", "clear"]
    assert campaign.questions[1].is_rating and campaign.questions[1].tolerance == 1
    right = known(database, campaign_id)

    def answer(_: int, sample_id: str, asked: str) -> dict[str, str]:
        if sample_id in right:
            return {"shows": right[sample_id]["shows"][0], "clear": "3"}
        return {"shows": "yes", "clear": "5" if "forest" in sample_id else "2"}

    for person in hire(database, ["Ada", "Blaise", "Cleo"]):
        work(database, campaign_id, person, answer)
    done = export_campaign(database, Shelf(database), campaign_id, tmp_path / "out", now=NOW + 1000)
    assert done.accepted and done.rejected and json.loads((tmp_path / "out" / "export.json").read_text())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("questions = 3", "must have 1 to 5 questions"),
        ("[[questions]]\nid = 'a'", "must have id and text"),
        ("[[questions]]\nid = 'a b'\ntext = 'x'", "needs an id"),
        ("[[questions]]\nid = 'a'\ntext = 'x'\nanswers = ['maybe', 'no']", "yes and no"),
        ("[[questions]]\nid = 'a'\ntext = 'x'\ngraded = false", "needs a graded question"),
        ("[[questions]]\nid = 'a'\ntext = 'x'\n[[questions]]\nid = 'a'\ntext = 'y'", "the same id"),
        ("rule = 'b'\n[[questions]]\nid = 'a'\ntext = 'x'", "should name questions"),
        ("intro = 'x'\n[[questions]]\nid = 'a'\ntext = 'x'", "may have"),
    ],
)
def test_mistakes_of_a_file(database: Database, tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UserError, match=sentence):
        opened(database, tmp_path, questions=str(tmp_path / "mine.toml"))
    with pytest.raises(UserError, match="questions of your own have no kind"):
        opened(database, tmp_path, kind="custom")
