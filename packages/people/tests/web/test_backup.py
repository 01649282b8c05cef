"""The backups of packages/people/docs/serving.md, made while people vote, and restored elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_server_crash import stored, votes_of

from holdfast_people.web.services.server_state import ServeOptions, open_server
from web_server import new_session, open_campaign, server_process

GUIDE = Path(__file__).parents[2] / "docs" / "serving.md"
PEOPLE = 3


def commands(row: str, column: int, **names: str) -> list[str]:
    """The commands of a cell in the guide's table, with other names."""
    line = next(line for line in GUIDE.read_text().splitlines() if line.startswith(f"| {row} |"))
    cell = line.split(" | ")[column]
    if "the same" in cell:
        cell = line.split(" | ")[1]
    found = re.findall("`([^`]+)`", cell)
    assert found, cell
    for old, new in names.items():
        found = [command.replace(old, new) for command in found]
    return found


def give(commands: list[str], folder: Path) -> None:
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_made_while_people_vote_has_every_acknowledged_vote(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if missing := [name for name in ("sqlite3", "pg_dump", "tar") if shutil.which(name) is None]:
        pytest.skip(f"{' and '.join(missing)} not installed; `make system` installs them as root")
    url = str(request.getfixturevalue("postgres_url")) if kind == "postgresql" else ""
    column = 2 if url else 1
    name = url.partition("?")[0].rpartition("/")[2]
    new = f"restored_{name}"
    known = {
        "postgresql://USER@HOST/NAME": f"'{url}'",
        "postgresql://USER@HOST/NEW": f"'{url.replace(f'/{name}?', f'/{new}?')}'",
        " NEW": f" {new}",
    }
    folder = tmp_path / "people"
    state = open_server(ServeOptions(state=folder, database=url))
    campaign = open_campaign(state, tmp_path)
    sessions = [new_session(state) for _ in range(PEOPLE)]
    sent: list[dict[str, Any]] = [{} for _ in sessions]
    acknowledged: list[set[str]] = [set() for _ in sessions]
    database = ("--database", url) if url else ()
    with server_process(folder, *database) as server:
        voters = [
            threading.Thread(target=votes_of, args=(server.url, *one))
            for one in zip(sessions, [campaign] * PEOPLE, sent, acknowledged, strict=True)
        ]
        for voter in voters:
            voter.start()
        wait_for_votes(acknowledged, 30)
        promised = set().union(*acknowledged)
        give(commands("back up", column, **known), tmp_path)
        give(commands("and the rest of `--state`", column), tmp_path)
        wait_for_votes(acknowledged, len(promised) + 10)  # no one had to wait for the backup to end
        server.kill()
        for voter in voters:
            voter.join(30)
    state.close()

    shutil.rmtree(folder)
    if url:
        (tmp_path / "restored").mkdir(mode=0o700)
    give(commands("restore", column, **known), tmp_path)
    give(commands("and the rest", column), tmp_path)
    restored = url.replace(f"/{name}?", f"/{new}?")
    again = ("--database", restored) if url else ()
    with server_process(tmp_path / "restored", *again) as server:
        headers = {"authorization": f"Bearer {sessions[0]}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=30, trust_env=False) as client:
            body = next(iter(sent[0].values())) | {"key": str(uuid.uuid4())}
            assert client.post("/api/review/votes", json=body).status_code == 200  # the old session continues
            # Images to judge are where they lay; copies of control images came with the folder.
            for own in sent[0].values():
                assert client.get(f"/media/places/{own['place']}").status_code == 200
    state = open_server(ServeOptions(state=tmp_path / "restored", database=restored))
    after = stored(state)
    state.close()
    assert len(after) == len(set(after))
    assert promised <= set(after) <= {key for own in sent for key in own} | {body["key"]}


def wait_for_votes(acknowledged: list[set[str]], number: int) -> None:
    deadline = time.monotonic() + 60
    while sum(map(len, acknowledged)) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)
