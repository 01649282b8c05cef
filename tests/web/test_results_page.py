"""The results page of a campaign: the export's numbers, for administrators only."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from crowd import NOW, careful, hire, make_pool, open_campaign, work
from holdfast.core.votes import read_votes
from holdfast.people.export import export_campaign
from holdfast.stats.votes import accept, acceptance
from web_server import Serving, serving


def verdict(sample_id: str) -> dict[str, str]:
    good = "yes" if "forest" not in sample_id else "no"
    return {"recognisable": good, "usable": "no"}


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[tuple[Serving, int]]:
    with serving(tmp_path / "state", clock=lambda: NOW + 5000) as server:
        where = server.house.database.engine.url.database
        database, _, campaign_id = open_campaign(tmp_path, make_pool(tmp_path / "pool"), where=where)
        for person in hire(database, ["Ada <b>", "Blaise", "Cleo", "Dora", "Emil"]):
            work(database, campaign_id, person, careful(verdict))
        database.close()
        yield server, campaign_id


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_the_same_numbers_as_the_export(campaign: tuple[Serving, int], tmp_path: Path) -> None:
    server, campaign_id = campaign
    admin = server.client("admin")
    page = admin.get(f"/admin/campaigns/{campaign_id}/results")
    assert page.status_code == 200
    text = words(page.text)
    out = tmp_path / "out"
    house = server.house
    export_campaign(house.database, house.shelf, campaign_id, out, now=house.now())
    votes = read_votes(out)
    table = acceptance(accept(votes))
    overall = table.iloc[0]
    assert f"accepted of the decided ({100 * overall['low']:.1f} to {100 * overall['high']:.1f})" in text
    for row in table[table["by"] == "nuisance"].to_dict("records"):
        counts = f"{row['images']} {row['accepted']} {row['rejected']} {row['undecided']}"
        assert f"{row['value']} {counts} {100 * row['estimate']:.1f} %" in text
    assert "Ada <b>" in text and "Ada <b>" not in page.text  # a name is text
    answer = admin.get(f"/api/campaigns/{campaign_id}/votes.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert len(rows) == votes.table.num_rows and "Ada" not in answer.text
    assert [row["answer"] for row in rows] == votes.table["answer"].to_pylist()
    assert f"/admin/campaigns/{campaign_id}/results" in admin.get(f"/admin/campaigns/{campaign_id}").text


def test_members_and_strangers_see_nothing(campaign: tuple[Serving, int]) -> None:
    server, campaign_id = campaign
    member, stranger = server.client(), server.stranger()
    for path in (f"/admin/campaigns/{campaign_id}/results", f"/api/campaigns/{campaign_id}/votes.csv"):
        assert member.get(path).status_code == 403
        assert stranger.get(path).status_code in (303, 401)
    admin = server.client("admin")
    assert admin.get("/admin/campaigns/999/results").status_code == 404
    assert admin.get("/api/campaigns/999/votes.csv").status_code == 404


@pytest.mark.parametrize("tasks", [0, 1])
def test_a_campaign_that_has_hardly_begun(tmp_path: Path, tasks: int) -> None:
    import uuid

    from holdfast.people.assignment import next_task
    from holdfast.people.voting import cast

    with serving(tmp_path / "state", clock=lambda: NOW + 50) as server:
        where = server.house.database.engine.url.database
        database, _, campaign_id = open_campaign(tmp_path, make_pool(tmp_path / "pool"), where=where)
        (person,) = hire(database, ["Ada"])
        for _ in range(tasks):
            with database.writing() as connection:
                task = next_task(connection, campaign_id, person, now=NOW)
                cast(
                    connection, place_token=task.places[0].token, person_id=person, key=uuid.uuid4().hex,
                    answers={"recognisable": "yes", "usable": "no"}, seconds=1.0, now=NOW,
                )  # fmt: skip
        database.close()
        page: Any = server.client("admin").get(f"/admin/campaigns/{campaign_id}/results")
        assert page.status_code == 200
        assert ("Nobody has voted yet" in page.text) == (tasks == 0)
