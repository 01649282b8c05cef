"""``holdfast people review`` as it is typed: the link it prints, and what --export writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from review_world import answer_sheet, campaign, drawn
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.data import load_collection
from web_server import serving


def typed(*words: str | Path) -> str:
    result = CliRunner().invoke(app, ["people", "review", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_link_lands_on_the_campaign(tmp_path: Path) -> None:
    words = [drawn(tmp_path / "pool", 0, 3), "--sentinels", drawn(tmp_path / "known", 50, 6), "--people", "4"]
    command = [
        sys.executable,
        "-m",
        "holdfast.cli.main",
        "people",
        "review",
        *words,
        "--state",
        tmp_path / "state",
        "--port",
        "0",
    ]
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = ""
        link = None
        while link is None and (line := process.stdout.readline()):
            said += line
            if kept := re.search(r"link is in (.+)$", line):
                text = Path(kept[1].strip()).read_text()
                link = re.search(r"(http://[^/\s]+)(/join/[^?\s]+\?next=(\S+))", text)
        assert link is not None, said
        assert "campaign 'pool, quality'" in said and "9 images to judge" in said
        with httpx.Client(base_url=link[1], follow_redirects=True, trust_env=False, timeout=30) as client:
            entrance = client.get(link[2])
            assert entrance.status_code == 200 and link[3] == "/review/1"
    finally:
        process.kill()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    pool, state = drawn(tmp_path / "pool", 0, 2), ["--state", tmp_path / "state"]
    for words, sentence in (
        ([], "name the images to judge"),
        ([pool, *state], "--sentinels DATA"),
        ([pool, "--people", "3", "--at-least", "5", *state], "at_least"),
        ([pool, "--export", tmp_path / "out", *state], "no POOL is needed"),
        (["--export", tmp_path / "out", *state], "has no campaign yet"),
        ([tmp_path / "nothing", *state], "does not exist"),
    ):
        with pytest.raises(UserError, match=sentence):
            typed(*words)
    with pytest.raises(UserError, match="has no campaign yet"):
        typed("--export", tmp_path / "out", "--state", tmp_path / "none")
    assert not (tmp_path / "none").exists()  # asking for results makes no database


def test_export_writes_the_accepted_set_and_every_vote(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with serving(state) as server:
        number = campaign(server.state, tmp_path, name="one")
        campaign(server.state, tmp_path, name="two")
        for person in range(2):
            client = server.client()
            while task := client.post(f"/api/review/campaigns/{number}/task").json()["task"]:
                sheet = answer_sheet(server.state)
                for place, one in enumerate(task["pictures"]):
                    role, yes = sheet[one["token"]]
                    # No one calls a disc one; the controls are answered as they should be.
                    if one["asked"] == "disc" and role in ("judge", "repeat"):
                        yes = False
                    vote = {"place": one["token"], "key": f"{person}{task['token'][:20]}{place:02d}", "seconds": 1.0}
                    answers = dict.fromkeys(("recognisable", "usable"), "yes" if yes else "no")
                    sent = client.post("/api/review/votes", json=vote | {"answers": answers})
                    assert sent.status_code == 200, sent.text
                assert client.post(f"/api/review/tasks/{task['token']}/finish").json() == {"status": "finished"}
    with pytest.raises(UserError, match=r"several campaigns; name one: --campaign NAME \(two, one\)"):
        typed("--export", tmp_path / "out", "--state", state)
    with pytest.raises(UserError, match="has no votes yet"):
        typed("--export", tmp_path / "out", "--campaign", "two", "--state", state)
    with pytest.raises(UserError, match="on"):
        typed("--export", tmp_path / "out", "--campaign", "on", "--state", state)
    said = typed("--export", tmp_path / "out", "--campaign", "one", "--state", state)
    assert "8 accepted, 4 rejected, 0 undecided" in said
    accepted = load_collection(str(tmp_path / "out" / "accepted"))
    assert sorted({one.label for one in accepted.samples}) == ["cross", "square"] and len(accepted) == 8
    votes = pq.read_table(tmp_path / "out" / "votes.parquet").to_pylist()
    assert {row["role"] for row in votes} == {"judge", "positive", "negative", "repeat"}
    assert len({row["person"] for row in votes}) == 2 and all(row["seconds"] == 1.0 for row in votes)
