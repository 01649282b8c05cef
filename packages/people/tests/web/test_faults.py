"""A locked database and a full disk: a clear answer, nothing half done, and everything as before when it is over."""

from __future__ import annotations

import sqlite3
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event, func, select

from holdfast_people import database
from holdfast_people.tables import audit, invitations, votes
from web_server import Serving, open_campaign, serving

WAIT_S = 0.2


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setattr(database, "BUSY_S", WAIT_S)
    with serving(tmp_path / "state") as found:
        yield found


@contextmanager
def locked(server: Serving) -> Iterator[None]:
    """Another program holds the write lock."""
    with closing(sqlite3.connect(server.state.folder / "people.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def full(server: Serving) -> Iterator[None]:
    """SQLite may not take another page, which is how it learns of a full disk."""
    limit: list[int | None] = [1]

    def restrict(connection: Any, *_: Any) -> None:
        most = limit[0] or 2**31 - 1
        connection.execute(f"PRAGMA max_page_count={most}")  # never below what it has

    engine = server.state.database.engine
    event.listen(engine, "checkout", restrict)
    yield
    limit[0] = None


def vote(client: httpx.Client, place: str, key: str) -> httpx.Response:
    body = {"place": place, "key": key, "answers": {"recognisable": "yes", "usable": "no"}, "seconds": 1.0}
    return client.post("/api/review/votes", json=body)


def count(server: Serving, table: Any) -> int:
    with server.state.database.reading() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0


def check_503(answer: httpx.Response, words: str) -> None:
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"
    sentence = answer.json()["detail"] if answer.headers["content-type"] == "application/json" else answer.text
    assert words in sentence.lower() and "nothing was saved" in sentence and "sqlite" not in sentence.lower()


def test_a_locked_database_is_said_and_passes(server: Serving, tmp_path: Path) -> None:
    campaign = open_campaign(server.state, tmp_path)
    client, admin, browser = server.client(), server.client("admin"), server.browser_client()
    place = client.post(f"/api/review/campaigns/{campaign}/task").json()["task"]["pictures"][0]["token"]
    before = count(server, invitations), count(server, audit)
    key = str(uuid.uuid4())
    with locked(server):
        check_503(vote(client, place, key), "busy with another write")
        check_503(admin.post("/api/invitations", json={"note": "x"}), "busy with another write")
        check_503(browser.post("/logout"), "busy with another write")
        assert client.get("/api/me").status_code == 200  # reading continues
        assert client.get(f"/media/places/{place}").status_code == 200
        assert client.get("/api/health").status_code == 200
    assert (count(server, invitations), count(server, audit)) == before
    assert browser.get("/api/me").status_code == 200
    assert vote(client, place, key).status_code == 200 and count(server, votes) == 1


def test_a_full_database_is_said_and_passes(server: Serving, tmp_path: Path) -> None:
    campaign = open_campaign(server.state, tmp_path)
    client = server.client()
    pictures = client.post(f"/api/review/campaigns/{campaign}/task").json()["task"]["pictures"]
    keys = [str(uuid.uuid4()) for _ in range(400)]
    answers = []
    with full(server):
        for key in keys:  # some still fit into pages that are there
            answers.append(vote(client, pictures[0]["token"], key))
            if answers[-1].status_code != 200:
                break
        check_503(answers[-1], "the disk is full")
    saved = sum(answer.status_code == 200 for answer in answers)
    assert count(server, votes) == saved
    assert vote(client, pictures[0]["token"], keys[len(answers) - 1]).status_code == 200
    assert count(server, votes) == saved + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_really_full_disk_is_said_and_passes(small_disk: Path, tmp_path: Path) -> None:
    with serving(small_disk / "state") as server:
        campaign = open_campaign(server.state, tmp_path)
        client = server.client()
        place = client.post(f"/api/review/campaigns/{campaign}/task").json()["task"]["pictures"][0]["token"]
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        keys = [str(uuid.uuid4()) for _ in range(2000)]
        answers = []
        for key in keys:
            answers.append(vote(client, place, key))
            if answers[-1].status_code != 200:
                break
        check_503(answers[-1], "the disk is full")
        assert client.get("/api/me").status_code == 200
        filler.unlink()
        again = vote(client, place, keys[len(answers) - 1])
        assert again.status_code == 200 and count(server, votes) == len(answers)
