"""A campaign without image files: the queue does not look at images."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from sqlalchemy import Connection, select

from holdfast.core.types import Collection, Sample
from holdfast.data.images import BytesImage
from holdfast_people.campaigns import Sentinel, Settings, create_campaign
from holdfast_people.identity import find_invitation, invite
from holdfast_people.sources import add_source
from holdfast_people.tables import images

RIGHT = {"recognisable": "yes", "usable": "no"}
WRONG = {"recognisable": "no", "usable": "no"}
_keys = count()


def new_key() -> str:
    return f"key-{next(_keys)}"


@dataclass
class Small:
    """A campaign of quality about ``judged`` images; ``positive`` wants ``RIGHT`` and ``negative`` wants ``WRONG``."""

    id: int
    judged: list[int]
    positive: list[int]
    negative: list[int]
    training: list[int]

    def right(self, image_id: int | None) -> dict[str, str]:
        return WRONG if image_id in self.negative else RIGHT


def add_people(connection: Connection, number: int) -> list[int]:
    found = []
    for place in range(number):
        _, token = invite(connection, note="", name=f"person {place}", now=0.0)
        invitation = find_invitation(connection, token, now=0.0)
        assert invitation is not None
        found.append(invitation.person.id)
    return found


def make_small(connection: Connection, *, judged: int, pool: int = 2, now: float = 0.0, **settings: Any) -> Small:
    samples = [Sample(str(i), "cup", BytesImage(b"")) for i in range(judged + 2 * pool + 2)]
    collection = Collection("small", ("cup",), tuple(samples))
    source = add_source(connection, name="small", reference="small", collection=collection, now=now)
    ids = list(connection.scalars(select(images.c.id).where(images.c.source_id == source).order_by(images.c.id)))
    first, second, third = judged, judged + pool, judged + 2 * pool
    groups = Small(0, ids[:first], ids[first:second], ids[second:third], ids[third:])
    sentinels = [Sentinel(i, "positive", "cup", {"recognisable": ["yes"]}) for i in groups.positive]
    sentinels += [Sentinel(i, "negative", "shoe", {"recognisable": ["no"]}) for i in groups.negative]
    sentinels += [Sentinel(i, "training", "cup", {"recognisable": ["yes"]}) for i in groups.training]
    groups.id = create_campaign(
        connection,
        name="small",
        kind="quality",
        source_id=source,
        image_ids=groups.judged,
        sentinels=sentinels,
        settings=Settings(**{"at_least": 1, **settings}),
        now=now,
    )
    return groups
