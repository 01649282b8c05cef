"""Export of a campaign: every vote, the accepted images as a dataset, its tables; results for the server's pages."""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, cast

import cv2
from sqlalchemy import Connection, Text, func, select
from sqlalchemy import cast as sql_cast

from holdfast.core.errors import HoldfastError, SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256, canonical_json
from holdfast.core.lazy import pd
from holdfast.core.types import Image, Sample
from holdfast.core.votes import FILE, VOTES, Votes
from holdfast.data.readers.listed import read_rows
from holdfast.data.writers import (
    encode_image,
    encode_mask,
    manifest_cell,
    manifest_table,
    published_paths,
    remove_published,
    unchanged_file,
)
from holdfast.stats.people.votes import accept, acceptance, agreement_of, answers, naturalness, reliability
from holdfast.store import read_json, write_json, write_table, writing
from holdfast.store.run import table_csv, write_csv, write_frame
from holdfast_people.campaigns import Campaign, get_campaign
from holdfast_people.database import Database
from holdfast_people.results import campaign_votes, person_names, votes_as_seen
from holdfast_people.sources import Shelf
from holdfast_people.tables import images, items, places, tasks, votes

SUMMARY = "export.json"
_FIRST = ("path", "label", "sample_id", "source_id", "split", "fold", "kind", "condition", "licence")
_LAST = ("people_votes", "people_yes", "published_sha256")
_BEGUN = "begun.json"
_THUMBNAIL = 160  # pixels of the longer side

Pictures = Callable[[Container[str]], dict[str, bytes]]  # makes JPEG thumbnails of some images, by sample_id


@dataclass(frozen=True)
class Exported:
    """What an export wrote; every image is accepted, rejected or undecided.

    ``problems`` names the images that could not be read, each with the reason.
    """

    path: Path
    accepted: int
    rejected: int
    undecided: int
    problems: tuple[str, ...]


def export_campaign(
    database: Database,
    shelf: Shelf,
    campaign_id: int,
    out: Path,
    *,
    now: float,
    page: Callable[[Path, Pictures], object] | None = None,
) -> Exported:
    """Write votes, tables and the accepted set; run again, it brings the folder up to date.

    ``OUT/votes.parquet`` (with questions and rule, what ``human:OUT`` reads) and ``votes.csv``; ``OUT/accepted/``: a
    dataset, images with the bytes they were judged by; ``OUT/results/``: the tables as Parquet and CSV.
    """
    votes = campaign_votes(database, shelf, campaign_id, now=now)
    if not votes.table.num_rows:
        raise UserError(f"the campaign {votes.campaign!r} has no votes yet, so there is nothing to export")
    _check_out(out, votes)
    tables = results(votes)
    query = select(images.c.sample_id, images.c.id).join(items, items.c.image_id == images.c.id)
    with database.reading() as connection:
        rows = connection.execute(query.where(items.c.campaign_id == campaign_id, items.c.role == "judge"))
        judged: dict[str, int] = {row.sample_id: row.id for row in rows}
    with writing(out, SUMMARY):
        write_json(out / SUMMARY, {"verb": "review", "campaign": votes.campaign})
        write_table(out / FILE, votes.to_arrow())
        write_atomic(out / "votes.csv", table_csv(votes.table))
        for name, frame in tables.items():
            write_frame(out / "results", name, frame)
        problems = _publish(tables["images"], shelf, judged, out / "accepted")
        decisions = tables["images"]["decision"].value_counts()
        counts = {name: int(decisions.get(name, 0)) for name in ("accepted", "rejected")}
        counts["undecided"] = len(judged) - sum(counts.values())  # also images that no one has voted on
        write_json(
            out / SUMMARY,
            {"verb": "review", "campaign": votes.campaign, "kind": votes.kind, "rule": votes.rule}
            | {"at_least": votes.at_least, "of": votes.of, **counts, "problems": problems, **votes.facts},
        )
        if page is not None:
            page(out, lambda wanted: thumbnails(shelf, judged, wanted))
    return Exported(out, **counts, problems=tuple(problems))


def results(votes: Votes) -> dict[str, pd.DataFrame]:
    """Return every table of a campaign by name; the server's page and the export show the same ones."""
    tables = {"images": accept(votes), "answers": answers(votes), "people": reliability(votes)}
    tables["acceptance"] = acceptance(tables["images"])
    tables["agreement"] = agreement_of(votes)
    if any(question.is_rating for question in votes.questions):
        tables["naturalness"] = naturalness(votes, resamples=2000)
    return tables


def thumbnails(shelf: Shelf, judged: Mapping[str, int], wanted: Container[str]) -> dict[str, bytes]:
    """Return small JPEGs of the images that can be read, by sample_id."""
    jpegs = {}
    for sample_id, image_id in judged.items():
        if sample_id in wanted:
            with suppress(HoldfastError):
                image = shelf.sample(image_id).image.load()
                scale = min(1.0, _THUMBNAIL / max(image.shape[:2]))
                size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
                small = cast(Image, cv2.resize(image, size, interpolation=cv2.INTER_AREA))
                jpegs[sample_id] = encode_image(small, format="jpeg", quality=80)
    return jpegs


def _check_out(out: Path, votes: Votes) -> None:
    if not out.exists() or (out.is_dir() and all(path.name.startswith(".") for path in out.iterdir())):
        return
    try:
        summary = json.loads((out / SUMMARY).read_text(encoding="utf8"))
        campaign = summary["campaign"] if summary.get("verb") == "review" else None
    except (OSError, ValueError, KeyError, AttributeError):
        campaign = None
    if campaign is None:
        raise UserError(f"{out} holds something else; name a new folder for --export")
    if campaign != votes.campaign:
        raise UserError(f"{out} holds the export of the campaign {campaign!r}; name a new folder for --export")


def _publish(decided: pd.DataFrame, shelf: Shelf, judged: Mapping[str, int], out: Path) -> list[str]:
    """Write the accepted images, then their manifest (the old one goes first); return what could not be read."""
    problems: list[str] = []
    chosen: dict[str, tuple[Sample, Mapping[str, Any]]] = {}
    for row in decided[decided["decision"] == "accepted"].to_dict("records"):
        try:
            if not row["sha256"]:
                raise SampleError("it cannot be read")
            chosen[str(row["sample_id"])] = shelf.sample(judged[row["sample_id"]]), cast(Mapping[str, Any], row)
        except HoldfastError as error:
            problems.append(f"{row['sample_id']}: {error}")
    paths = published_paths({name: sample for name, (sample, _) in chosen.items()})
    _remove_stale(out, set(paths.values()))
    rows = []
    for name, (sample, judged_as) in chosen.items():
        try:
            rows.append(_copy(sample, judged_as, paths[name], out))
        except SampleError as error:
            problems.append(f"{name}: {error}")
    manifest = manifest_table(rows, _FIRST, _LAST)
    if rows:
        write_csv(out / "manifest.csv", manifest)
        write_table(out / "manifest.parquet", manifest)
    (out / _BEGUN).unlink()
    return problems


def _copy(sample: Sample, judged: Mapping[str, Any], path: str, out: Path) -> dict[str, Any]:
    """Write one image as it was judged, with its mask, and return its row of the manifest."""
    data = unchanged_file(sample, judged["sha256"])
    if data is None:
        raise SampleError("it has changed while it was exported; run the same command again")
    write_atomic(out / path, data)
    row = {name: getattr(sample, name) for name in _FIRST if name != "path"}
    row |= {key: manifest_cell(value) for key, value in sample.attributes.items() if key not in (*_FIRST, *_LAST)}
    if sample.mask is not None:
        height, width = sample.image.load().shape[:2]
        row["mask"] = f"masks/{Path(path).with_suffix('.png').as_posix()}"
        write_atomic(out / row["mask"], encode_mask(sample.mask.load(height, width)))
    row |= {"people_votes": int(judged["votes"]), "people_yes": int(judged["yes"])}
    return {"path": path, **row, "published_sha256": bytes_sha256(data)}


def _remove_stale(out: Path, kept: set[str]) -> None:
    """Remove files that an earlier export published, or began to publish, and that are no longer accepted."""
    file, begun = out / "manifest.parquet", out / _BEGUN
    old = {str(row.get(key) or "") for row in (read_rows(file) if file.is_file() else ()) for key in ("path", "mask")}
    old |= set(read_json(begun).get("paths", ())) if begun.is_file() else set()
    write_json(begun, {"paths": sorted(old | kept)})
    file.unlink(missing_ok=True)
    (out / "manifest.csv").unlink(missing_ok=True)
    masks = {f"masks/{Path(path).with_suffix('.png').as_posix()}" for path in kept}
    remove_published(out, old - kept - masks - {""})


KEPT = 8  # campaigns whose results are kept, at about 100 kB each
Tables = dict[str, list[dict[str, Any]]]  # rows of each table by name; None if there is no number


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
        """Return the results at a moment, in UTC seconds, with every vote that was stored before this call."""
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
    """Return a hash of all that results depend on: votes (only added), tasks, images' facts (attributes as text)."""
    own = tasks.c.campaign_id == campaign.id
    counted = select(func.count(), func.max(votes.c.id)).join(places, places.c.id == votes.c.place_id)
    voted = connection.execute(counted.select_from(votes).join(tasks, tasks.c.id == places.c.task_id).where(own)).one()
    query = select(tasks.c.id, tasks.c.status, tasks.c.reason, tasks.c.expires_at).where(own).order_by(tasks.c.id)
    ended = [
        (row.id, "expired" if row.status == "open" and row.expires_at <= now else row.status, row.reason)
        for row in connection.execute(query)
    ]
    shown = (
        select(items.c.id, items.c.role, images.c.label, images.c.condition, sql_cast(images.c.attributes, Text))
        .join(images, images.c.id == items.c.image_id)
        .where(items.c.campaign_id == campaign.id)
        .order_by(items.c.id)
    )
    state = canonical_json([campaign, [*voted], ended, [[*row] for row in connection.execute(shown)]])
    return hashlib.sha256(state.encode()).hexdigest()


def _plain(rows: Any) -> list[dict[str, Any]]:
    """Return the records with None if there is no number."""
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in rows
    ]
