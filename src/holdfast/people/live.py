"""Results of campaigns for the server's pages; they are computed again only when their data has changed."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Text, cast, func, select

from holdfast.core.fingerprint import canonical_json
from holdfast.core.votes import VOTES, Votes
from holdfast.people.campaigns import Campaign, get_campaign
from holdfast.people.database import Database
from holdfast.people.export import results
from holdfast.people.results import person_names, votes_as_seen
from holdfast.people.sources import Shelf
from holdfast.people.tables import images, items, places, tasks, votes

KEPT = 8
"""Campaigns whose results are kept, at about 100 kB each."""

Tables = dict[str, list[dict[str, Any]]]
"""Rows of each table by name; None where there is no number."""


@dataclass(frozen=True)
class CampaignResults:
    """Results of a campaign: its votes without their rows, the tables, and the names behind people's numbers."""

    campaign: Campaign
    votes: Votes
    tables: Tables
    names: dict[int, str]


class LiveResults:
    """Cache of results by the state of their data; computing them takes seconds for ten thousands of votes."""

    def __init__(self, database: Database, shelf: Shelf) -> None:
        self._database, self._shelf = database, shelf
        self._lock = Lock()
        self._kept: OrderedDict[int, tuple[str, Votes, Tables]] = OrderedDict()

    def of(self, campaign_id: int, *, now: float) -> CampaignResults:
        """Return the results at a moment, in UTC seconds, with every vote that was stored before this call.

        Raises:
            UserError: there is no such campaign.
        """
        # One at a time: who asks for the same meanwhile waits for it, and does not compute it a second time.
        with self._lock:
            # Read before the votes: of one that comes between the two the next call will know.
            with self._database.reading() as connection:
                campaign = get_campaign(connection, campaign_id)
                state = _state(connection, campaign, now)
            known = self._kept.get(campaign_id)
            if known is not None and known[0] == state:
                self._kept.move_to_end(campaign_id)
                _, votes, tables = known
            else:
                votes, tables = self._computed(campaign_id, state, now)
        with self._database.reading() as connection:
            names = person_names(connection, campaign_id) if tables else {}  # people may change theirs
        return CampaignResults(campaign, votes, tables, names)

    def _computed(self, campaign_id: int, state: str, now: float) -> tuple[Votes, Tables]:
        votes, whole = votes_as_seen(self._database, self._shelf, campaign_id, now=now, hashes=False)
        frames = results(votes) if votes.table.num_rows else {}
        tables = {name: _plain(frame.to_dict("records")) for name, frame in frames.items() if name != "images"}
        votes = replace(votes, table=VOTES.empty_table())
        self._kept.pop(campaign_id, None)
        if whole:  # else the source may be there again at the next call, and say what belongs together
            self._kept[campaign_id] = state, votes, tables
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return votes, tables


def _state(connection: Connection, campaign: Campaign, now: float) -> str:
    """Return a hash of everything that results depend on.

    Votes are never changed, only added; tasks open, end and expire; an image has other facts once its source is read
    anew. Attributes stay text: to compare them there is no need to parse them.
    """
    own = tasks.c.campaign_id == campaign.id
    counted = select(func.count(), func.max(votes.c.id)).join(places, places.c.id == votes.c.place_id)
    voted = connection.execute(counted.select_from(votes).join(tasks, tasks.c.id == places.c.task_id).where(own)).one()
    query = select(tasks.c.id, tasks.c.status, tasks.c.reason, tasks.c.expires_at).where(own).order_by(tasks.c.id)
    ended = [
        (row.id, "expired" if row.status == "open" and row.expires_at <= now else row.status, row.reason)
        for row in connection.execute(query)
    ]
    shown = (
        select(items.c.id, items.c.role, images.c.label, images.c.condition, cast(images.c.attributes, Text))
        .join(images, images.c.id == items.c.image_id)
        .where(items.c.campaign_id == campaign.id)
        .order_by(items.c.id)
    )
    state = canonical_json([campaign, [*voted], ended, [[*row] for row in connection.execute(shown)]])
    return hashlib.sha256(state.encode()).hexdigest()


def _plain(rows: Any) -> list[dict[str, Any]]:
    """Return the records with None where there is no number."""
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in rows
    ]
