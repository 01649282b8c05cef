"""The table of votes that every statistic reads, made from the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, func, select

from holdfast.core.distribution import installed_version
from holdfast.core.errors import HoldfastError, SampleError, UserError
from holdfast.core.fingerprint import array_sha256, bytes_sha256
from holdfast.core.types import Sample
from holdfast.core.votes import VOTES, Votes, parse_rule
from holdfast_people.campaigns import Campaign, default_rule, get_campaign
from holdfast_people.database import Database
from holdfast_people.sources import Shelf
from holdfast_people.tables import images, items, people, places, tasks, votes

_THREADS = 4


@dataclass(frozen=True)
class Seen:
    """An image as its source has it now: nothing if it is gone, no hashes if it cannot be read."""

    sample: Sample | None = None
    sha256: str = ""
    pixels_sha256: str = ""


def campaign_votes(database: Database, shelf: Shelf, campaign_id: int, *, now: float, hashes: bool = True) -> Votes:
    """Return every vote, also discarded ones; with ``hashes`` all images are hashed, so that votes find them again."""
    return votes_as_seen(database, shelf, campaign_id, now=now, hashes=hashes)[0]


def votes_as_seen(
    database: Database, shelf: Shelf, campaign_id: int, *, now: float, hashes: bool
) -> tuple[Votes, bool]:
    """Return ``campaign_votes``, and whether the sources still have every image."""
    with database.reading() as connection:
        campaign = get_campaign(connection, campaign_id)
        rows = _rows(connection, campaign_id)
        judged = connection.scalars(
            select(items.c.image_id).where(items.c.campaign_id == campaign_id, items.c.role == "judge")
        ).all()
    seen = look_at(shelf, {row["image_id"] for row in rows}, hashes=hashes)
    # 1, 2, … in the order of first appearance; votes are only added, so a number never changes
    numbers = {
        name: {item: number for number, item in enumerate(dict.fromkeys(row[name] for row in rows), start=1)}
        for name in ("task_id", "person_id", "vote_id")
    }
    last = {row["place_id"]: row["vote_id"] for row in rows}  # rows come in the order of the votes
    records = []
    for row in rows:
        common = _facts(campaign, row, seen[row["image_id"]], now) | {
            "task": numbers["task_id"][row["task_id"]],
            "person": numbers["person_id"][row["person_id"]],
            "vote": numbers["vote_id"][row["vote_id"]],
            "superseded": last[row["place_id"]] != row["vote_id"],
        }
        common["counts"] = row["role"] == "judge" and common["task_status"] == "finished" and not common["superseded"]
        for question, answer in row["answers"].items():
            allowed = "|".join(row["expected"].get(question, ()))
            records.append(common | {"question": question, "answer": str(answer), "expected": allowed})
    table = pa.Table.from_pylist(records, schema=VOTES)
    whole = all(image.sample is not None for image in seen.values())
    return _votes(campaign, table, now=now, images=len(judged)), whole


def look_at(shelf: Shelf, image_ids: Iterable[int], *, hashes: bool) -> dict[int, Seen]:
    """Return the samples of images, with hashes of file and pixels if wanted."""

    def look(image_id: int) -> Seen:
        try:
            sample = shelf.sample(image_id)
        except HoldfastError:
            return Seen()
        if not hashes:
            return Seen(sample)
        try:
            stored = bytes_sha256(sample.image.read()) if hasattr(sample.image, "read") else sample.image.fingerprint()
            return Seen(sample, stored, array_sha256(sample.image.load()))
        except SampleError:
            return Seen(sample)

    wanted = sorted(image_ids)
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(wanted, threads.map(look, wanted), strict=True))


def rule_of(campaign: Campaign) -> str:
    """Return the campaign's rule; a kind with one question uses that one if the rule names another kind's."""
    questions = campaign.questions
    try:
        return parse_rule(campaign.settings.rule or default_rule(questions), questions).text
    except UserError:
        if len(questions) > 1:
            raise
        return questions[0].id


def person_names(connection: Connection, campaign_id: int) -> dict[int, str]:
    """Return the names behind the numbers of ``campaign_votes``; for administrators only."""
    query = (
        select(people.c.name, func.min(votes.c.id).label("first"))
        .join(tasks, tasks.c.person_id == people.c.id)
        .join(places, places.c.task_id == tasks.c.id)
        .join(votes, votes.c.place_id == places.c.id)
        .where(tasks.c.campaign_id == campaign_id)
        .group_by(people.c.id, people.c.name)
        .order_by("first")
    )
    return {number: row.name for number, row in enumerate(connection.execute(query), start=1)}


def _votes(campaign: Campaign, table: pa.Table, *, now: float, images: int) -> Votes:
    facts = {
        "images": images,  # to be judged, whether someone has yet or not
        "status": campaign.status,
        "settings": asdict(campaign.settings),
        "exported_at": _moment(now).isoformat(timespec="seconds"),
        "made_by": f"holdfast {installed_version()}",
    }
    settings = campaign.settings
    return Votes(
        table, campaign.name, campaign.kind, campaign.questions, rule_of(campaign), settings.at_least,
        settings.people_per_image, facts,
    )  # fmt: skip


def _rows(connection: Connection, campaign_id: int) -> list[dict[str, Any]]:
    # Images by themselves: their JSON is read once, and not with every vote.
    pictures = (
        select(
            items.c.id.label("item_id"), items.c.asked, items.c.expected, items.c.image_id, images.c.sample_id,
            images.c.label, images.c.condition, images.c.attributes,
        )
        .join(images, images.c.id == items.c.image_id)
        .where(items.c.campaign_id == campaign_id)
    )  # fmt: skip
    result = connection.execute(
        select(
            votes.c.id.label("vote_id"), votes.c.answers, votes.c.seconds, votes.c.created_at,
            places.c.id.label("place_id"), places.c.role, places.c.item_id,
            tasks.c.id.label("task_id"), tasks.c.person_id, tasks.c.status, tasks.c.reason, tasks.c.expires_at,
        )
        .join(places, places.c.id == votes.c.place_id)
        .join(tasks, tasks.c.id == places.c.task_id)
        .where(tasks.c.campaign_id == campaign_id)
        .order_by(votes.c.id)
    )  # fmt: skip
    names = [*result.keys()]
    rows = [dict(zip(names, row, strict=True)) for row in result]
    # after the votes, so that whatever someone has voted on is there
    shown = {row["item_id"]: dict(row) for row in connection.execute(pictures).mappings()}
    return [shown[row["item_id"]] | row for row in rows]


def _facts(campaign: Campaign, row: Mapping[str, Any], seen: Seen, now: float) -> dict[str, Any]:
    attributes = row["attributes"]
    over = row["status"] == "open" and row["expires_at"] <= now
    return {
        "campaign": campaign.name,
        "kind": campaign.kind,
        "sample_id": row["sample_id"],
        # Images of one prompt are one cluster; without the source each stands for itself.
        "source_id": str(attributes.get("prompt_id") or (seen.sample.source_id if seen.sample else row["sample_id"])),
        "label": row["label"],
        "asked": row["asked"],
        "condition": row["condition"],
        "nuisance": str(attributes.get("nuisance") or ""),
        "generator": str(attributes.get("generator") or ""),
        "model": str(attributes.get("made_against") or ""),
        "sha256": seen.sha256,
        "pixels_sha256": seen.pixels_sha256,
        "role": row["role"],
        "task_status": "expired" if over else row["status"],
        "task_reason": row["reason"],
        "seconds": row["seconds"],
        "voted_at": _moment(row["created_at"]),
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
