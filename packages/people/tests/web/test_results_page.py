"""The results page of a campaign: the export's numbers, for administrators only."""

from __future__ import annotations

import csv
import re
import uuid
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from crowd import NOW, careful, hire, make_pool, open_campaign, work
from holdfast.core.votes import read_votes
from holdfast.stats.people.votes import accept, acceptance
from holdfast_people import export
from holdfast_people.assignment import next_task
from holdfast_people.export import export_campaign, results
from holdfast_people.results import campaign_votes
from holdfast_people.sources import Shelf
from holdfast_people.tables import campaigns, images, people
from holdfast_people.voting import cast, finish
from web_server import Serving, serving


def verdict(sample_id: str) -> dict[str, str]:
    good = "yes" if "forest" not in sample_id else "no"
    return {"recognisable": good, "usable": "no"}


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[tuple[Serving, int]]:
    moment = [NOW]
    with serving(tmp_path / "state", clock=lambda: moment[0]) as server:
        where = server.state.database.engine.url.database
        database, _, campaign_id = open_campaign(tmp_path, make_pool(tmp_path / "pool"), where=where)
        for person in hire(database, ["Ada <b>", "Blaise", "Cleo", "Dora", "Emil"]):
            work(database, campaign_id, person, careful(verdict))
        database.close()
        moment[0] += 5000  # not before: the server takes back tasks whose time is over
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
    state = server.state
    export_campaign(state.database, state.shelf, campaign_id, out, now=state.now())
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
    with serving(tmp_path / "state", clock=lambda: NOW + 50) as server:
        where = server.state.database.engine.url.database
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
        assert ("No one has voted yet" in page.text) == (tasks == 0)


def test_results_are_kept_until_something_changes(tmp_path: Path) -> None:
    """A vote, a task that ends or expires, a new name or label: all are seen at once, and nothing is computed twice."""
    moment = [NOW + 1.0]
    with serving(tmp_path / "state", clock=lambda: moment[0]) as server:
        where = server.state.database.engine.url.database
        database, _, campaign_id = open_campaign(tmp_path, make_pool(tmp_path / "pool"), where=where)
        ada, blaise = hire(database, ["Ada", "Blaise"])
        state = server.state

        def now() -> Any:
            found = state.results.of(campaign_id, now=state.now())
            again = state.results.of(campaign_id, now=state.now())
            assert again.tables is found.tables and again.votes is found.votes
            fresh = results(campaign_votes(state.database, state.shelf, campaign_id, now=state.now(), hashes=False))
            told = {row["person"]: row for row in found.tables["people"]}
            for row in fresh["people"].to_dict("records"):
                for name in ("finished", "discarded", "expired"):
                    assert told[row["person"]][name] == row[name]
            return found

        def votes_of(answer: str) -> int:
            rows = now().tables["answers"]
            return sum(row["votes"] for row in rows if row["question"] == "usable" and row["answer"] == answer)

        assert not state.results.of(campaign_id, now=state.now()).tables
        work(database, campaign_id, ada, careful(verdict), tasks=1)
        first = votes_of("no")
        assert first > 0
        with database.writing() as connection:
            task: Any = next_task(connection, campaign_id, blaise, now=moment[0])
        said = {"recognisable": "yes", "usable": "yes"}

        def vote(place: Any) -> None:
            with database.writing() as connection:
                cast(connection, place_token=place.token, person_id=blaise, key=uuid.uuid4().hex, answers=said,
                     seconds=1.0, now=moment[0])  # fmt: skip

        assert set(now().names.values()) == {"Ada"}
        vote(task.places[0])
        assert set(now().names.values()) == {"Ada", "Blaise"}  # one vote of an open task
        with database.writing() as connection:
            connection.execute(update(people).where(people.c.id == ada).values(name="Ada L."))
        assert "Ada L." in now().names.values()
        moment[0] += 24 * 3600  # nothing is written when time runs out
        assert [row["expired"] for row in now().tables["people"] if now().names[row["person"]] == "Blaise"] == [1]
        with database.writing() as connection:
            task = next_task(connection, campaign_id, blaise, now=moment[0])
        before = now()
        for place in task.places:
            vote(place)
        voted = now()
        with database.writing() as connection:
            finish(connection, task_token=task.token, person_id=blaise, now=moment[0])
        assert before.tables is not voted.tables and now().tables is not voted.tables  # finished or discarded
        with database.writing() as connection:  # as a source does that is read again, with other labels
            connection.execute(update(images).values(label=images.c.label + " renamed"))
        categories = [row["value"] for row in now().tables["acceptance"] if row["by"] == "category"]
        assert categories and all(one.endswith(" renamed") for one in categories)
        set_status(server, campaign_id)
        assert now().campaign.status == "paused"
        database.close()


def set_status(server: Serving, campaign_id: int) -> None:
    with server.state.database.writing() as connection:
        connection.execute(update(campaigns).where(campaigns.c.id == campaign_id).values(status="paused"))


def test_only_some_campaigns_are_kept_and_none_whose_pictures_are_gone(
    campaign: tuple[Serving, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, campaign_id = campaign
    state = server.state
    monkeypatch.setattr(export, "KEPT", 0)
    first = state.results.of(campaign_id, now=state.now())
    assert first.tables and state.results.of(campaign_id, now=state.now()).tables is not first.tables
    monkeypatch.setattr(export, "KEPT", 1)
    (tmp_path / "pool").rename(tmp_path / "elsewhere")
    gone = export.LiveResults(state.database, Shelf(state.database))
    assert gone.of(campaign_id, now=state.now()).tables is not gone.of(campaign_id, now=state.now()).tables
