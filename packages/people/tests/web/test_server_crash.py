"""kill -9 while people vote: what was acknowledged is there after the restart, once."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select

from holdfast_people.tables import votes
from holdfast_people.web.services.server_state import ServeOptions, ServerState, open_server
from web_server import new_session, open_campaign, server_process

PEOPLE = 4


def stored(state: ServerState) -> list[str]:
    with state.database.reading() as connection:
        return list(connection.scalars(select(votes.c.key)))


def votes_of(url: str, session: str, campaign: int, sent: dict[str, Any], acknowledged: set[str]) -> None:
    """Vote as fast as the server answers, until it does not."""
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {session}"}, trust_env=False) as client:
        try:
            places = client.post(f"/api/review/campaigns/{campaign}/task").json()["task"]["pictures"]
            for turn in range(100_000):
                key = str(uuid.uuid4())
                sent[key] = {
                    "place": places[turn % len(places)]["token"], "key": key, "seconds": 0.5,
                    "answers": {"recognisable": "yes", "usable": "yes"},
                }  # fmt: skip
                if client.post("/api/review/votes", json=sent[key]).status_code == 200:
                    acknowledged.add(key)
        except httpx.TransportError:
            return


def test_every_acknowledged_vote_outlives_kill_9(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    state = open_server(ServeOptions(state=folder))
    campaign = open_campaign(state, tmp_path)
    sessions = [new_session(state) for _ in range(PEOPLE)]
    sent: list[dict[str, Any]] = [{} for _ in sessions]
    acknowledged: list[set[str]] = [set() for _ in sessions]
    with server_process(folder) as server:
        voters = [
            threading.Thread(target=votes_of, args=(server.url, *one))
            for one in zip(sessions, [campaign] * PEOPLE, sent, acknowledged, strict=True)
        ]
        for voter in voters:
            voter.start()
        deadline = time.monotonic() + 60
        while sum(map(len, acknowledged)) < 40 and time.monotonic() < deadline:
            time.sleep(0.01)
        server.kill()
        for voter in voters:
            voter.join(30)
    promised = set().union(*acknowledged)
    assert len(promised) >= 40
    with server_process(folder) as server:
        after = stored(state)
        assert len(after) == len(set(after))
        assert promised <= set(after) <= {key for one in sent for key in one}
        # The browsers send again what they were not told was saved: once more, and for some the second time.
        for session, own in zip(sessions, sent, strict=True):
            with httpx.Client(
                base_url=server.url, headers={"authorization": f"Bearer {session}"}, timeout=30, trust_env=False
            ) as client:
                for key in list(own)[-3:]:
                    assert client.post("/api/review/votes", json=own[key]).status_code == 200
    finally_there = stored(state)
    assert sorted(finally_there) == sorted(key for one in sent for key in one)
    state.close()
