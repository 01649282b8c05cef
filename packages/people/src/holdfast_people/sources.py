"""Sources: datasets whose images people see, their rows in the database, and the pools of images to judge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from sqlalchemy import Connection, func, insert, select, update

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import canonical_json, fingerprint
from holdfast.core.schema import FRAMES, WALKS
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.data import load_collection
from holdfast.data.readers.listed import read_rows
from holdfast.store import Parts, Run, write_table
from holdfast_people.database import Database, insert_new
from holdfast_people.identity import is_id, one_line
from holdfast_people.tables import images, sources


def add_source(connection: Connection, *, name: str, reference: str, collection: Collection, now: float) -> int:
    """Let people see a dataset, its path stored absolute; adding it again updates its rows and keeps their ids."""
    reference = absolute_reference(reference)
    added = insert_new(connection, sources, ["reference"])
    connection.execute(added.values(name=one_line(name), reference=reference, created_at=now))
    # Locked, so that two who add the same one do not both add its images.
    known = select(sources.c.id).where(sources.c.reference == reference).with_for_update(key_share=True)
    source_id: int = connection.execute(known).scalar_one()
    stored = {row.sample_id: row for row in connection.execute(select(images).where(images.c.source_id == source_id))}
    new, changed = [], []
    for sample in collection.samples:
        attributes = json.loads(canonical_json(dict(sample.attributes)))
        values = {"label": sample.label, "condition": sample.condition, "attributes": attributes}
        image = stored.get(sample.sample_id)
        if image is None:
            new.append({"source_id": source_id, "sample_id": sample.sample_id, **values})
        elif any(getattr(image, key) != value for key, value in values.items()):
            changed.append((image.id, values))
    if new:
        connection.execute(insert(images), new)
    for image_id, values in changed:
        connection.execute(update(images).where(images.c.id == image_id).values(values))
    return source_id


def absolute_reference(text: str) -> str:
    """Return a dataset's name with an absolute path; options stay as they are."""
    if Path(text).expanduser().exists():
        return str(Path(text).expanduser().absolute())
    head, question, options = text.partition("?")
    scheme, colon, path = head.partition(":")
    if colon and Path(path).expanduser().exists():
        return f"{scheme}:{Path(path).expanduser().absolute()}{question}{options}"
    if Path(head).expanduser().exists():
        return f"{Path(head).expanduser().absolute()}{question}{options}"
    return text


def list_sources(connection: Connection) -> list[dict[str, Any]]:
    """Return all sources, oldest first: id, name, reference, created_at."""
    return [dict(row) for row in connection.execute(select(sources).order_by(sources.c.id)).mappings()]


class Shelf:
    """Return images by the numbers that pages know, also after the server's own ``folder`` was moved."""

    def __init__(self, database: Database, folder: Path | None = None) -> None:
        self._database = database
        self._folder = folder
        self._lock = Lock()
        self._collections: dict[int, tuple[Mapping[str, Sample], int]] = {}
        self._samples: dict[int, Sample] = {}

    def sample(self, image_id: int) -> Sample:
        """Return the sample of an image; its source is read at the first use."""
        known = self._samples.get(image_id)
        if known is not None:
            return known
        if not is_id(image_id):
            raise UserError(f"there is no image {image_id}")
        with self._database.reading() as connection:
            query = select(images.c.source_id, images.c.sample_id, sources.c.reference).join(sources)
            row = connection.execute(query.where(images.c.id == image_id)).one_or_none()
        if row is None:
            raise UserError(f"there is no image {image_id}")
        with self._lock:
            samples, read = self._collections.get(row.source_id, ({}, 0))
            # A number that was given after the reading may be of an image that came after it.
            if row.sample_id not in samples and image_id > read:
                with self._database.reading() as connection:
                    last = select(func.max(images.c.id)).where(images.c.source_id == row.source_id)
                    read = connection.scalar(last) or image_id
                samples = {sample.sample_id: sample for sample in load_collection(self._here(row.reference)).samples}
                self._collections[row.source_id] = samples, read
        if row.sample_id not in samples:
            raise SampleError(f"{row.reference} no longer has the image {row.sample_id!r}")
        self._samples[image_id] = samples[row.sample_id]
        return self._samples[image_id]

    def _here(self, reference: str) -> str:
        """Return a reference into the server's folder as it is called now."""
        kept = re.fullmatch(r"(\w+:)?(/.+)/((?:sentinels|pools)/[^?]+)(\?.*)?", reference)
        if kept is None or self._folder is None or Path(kept[2], kept[3]).exists():
            return reference
        moved = self._folder.absolute() / kept[3]
        return f"{kept[1] or ''}{moved}{kept[4] or ''}" if moved.exists() else reference


ONLY = ("accepted", "rejected", "all")
"""Which images of a dynamic evaluation to judge: accepted by its oracle, rejected, or both."""

_PERTURBED = "perturbed"


@dataclass(frozen=True)
class ReviewPool:
    """Images to judge."""

    reference: str  # what reads them again, wherever the server is started from
    collection: Collection  # as it was read
    originals: Collection | None = None  # what they were made of, if that is known
    walked: bool = False  # whether they come from ``holdfast perturb``


def open_pool(text: str, *, only: str, folder: Path) -> ReviewPool:
    """Read the images to judge: a dataset as ``eval`` takes it, or ``only`` some of a run of ``perturb``."""
    run = Path(text).expanduser()
    if (run / "spec.json").is_file():
        if Run.open(run).spec().get("verb") == "perturb":
            return _walked(Run.open(run.resolve()), only, folder)
        # generate and synth leave the same file next to the images that they made.
        if not (run / "manifest.parquet").is_file() and not any(run.glob("*.tar")):
            raise UserError(f"{text} is a run, which has no images; name the dataset it was made from")
    reference = absolute_reference(text)
    return ReviewPool(reference, load_collection(reference))


def _walked(run: Run, only: str, folder: Path) -> ReviewPool:
    """Return the images of a dynamic evaluation: the ends of validated walks, and rejected frames."""
    if only not in ONLY:
        raise UserError(f"--only is {', '.join(ONLY)}, not {only!r}")
    rows: list[dict[str, Any]] = []
    if only != "rejected":
        manifest = run.path / "images" / "manifest.parquet"
        if not manifest.is_file():
            raise UserError(f"{run.path} kept no images; run the same command again with --keep-images")
        rows += [row | {"path": f"images/{row['path']}", "oracle_accepted": True} for row in read_rows(manifest)]
        if not rows:
            raise UserError(f"{run.path} has no image that its oracle accepted")
    if only != "accepted":
        rejected = list(_rejected(run))
        if not rejected:
            raise UserError(
                f"{run.path} has no image that its oracle rejected; perturb keeps them among the frames of the first "
                "walks: run it again with --frames 100"
            )
        rows += rejected
    file = folder / f"{fingerprint([str(run.path), only])[:16]}.parquet"
    names = dict.fromkeys(name for row in rows for name in row)
    write_table(file, pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]))
    reference = f"manifest:{file.resolve()}?root={quote(str(run.path))}"
    return ReviewPool(reference, replace(load_collection(reference), name=run.run_id), _originals(run), walked=True)


def _rejected(run: Run) -> Iterator[dict[str, Any]]:
    """Return a manifest row per walk that ended with a rejected image and kept its frames."""
    details = run.path / "details"
    walks = {row["row_id"] for row in Parts(details / "walks", WALKS).rows(["row_id"]).to_pylist()}
    perturbed = {row["row_id"]: row for row in run.rows().to_pylist() if row["condition"] == _PERTURBED}
    for frame in Parts(details / "frames", FRAMES).rows().to_pylist():
        row = perturbed.get(frame["row_id"])
        if row is None or frame["row_id"] not in walks or frame["accepted"] or frame["step"] < 1:
            continue
        yield {name: row[name] for name in ("label", "source_id", "split", "fold", "parameters", "seed")} | {
            "path": frame["image"],
            "sample_id": f"{row['sample_id']}@rejected-{frame['row_id'][:8]}",
            "condition": _PERTURBED,
            "made_from": row["sample_id"],
            "made_against": row["model"],
            "generator": json.loads(row["parameters"])["generator"],
            "oracle": row["oracle"],
            "oracle_score": frame["oracle_score"],
            "oracle_accepted": False,
            "steps": frame["step"],
        }


def _originals(run: Run) -> Collection | None:
    """Return the images that the walks started from, or None if they are missing."""
    known = set(run.samples()["sample_id"].to_pylist())
    try:
        collection = load_collection(str(run.spec().get("data", "")))
    except UserError:
        return None
    wanted = [sample for sample in collection.samples if sample.sample_id in known]
    samples = tuple(sample for sample in wanted if sample.condition == ORIGINAL)
    return replace(collection, samples=samples) if samples else None
