"""Sources: the datasets whose images people see, their rows in the database, and the images of the rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.core.types import Collection, Sample
from holdfast.data import load_collection
from holdfast.people.database import Database, insert_new
from holdfast.people.identity import is_id, one_line
from holdfast.people.tables import images, sources


def add_source(connection: Connection, *, name: str, reference: str, collection: Collection, now: float) -> int:
    """Let people see a dataset; adding it again brings its rows up to date and keeps their ids.

    Args:
        connection: a transaction.
        name: for the pages.
        reference: as ``load_collection`` takes it; a path is stored absolute, for a server started elsewhere.
        collection: what the reference reads as.
        now: UTC seconds.
    """
    reference = absolute_reference(reference)
    added = insert_new(connection, sources, ["reference"])
    connection.execute(added.values(name=one_line(name), reference=reference, created_at=now))
    # Locked, so that two who add the same one do not both add its images.
    known = select(sources.c.id).where(sources.c.reference == reference).with_for_update(key_share=True)
    source_id: int = connection.execute(known).scalar_one()
    stored = {row.sample_id: row for row in connection.execute(select(images).where(images.c.source_id == source_id))}
    new, changed = [], []
    for sample in collection.samples:
        values = _facts(sample)
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


def _facts(sample: Sample) -> dict[str, Any]:
    attributes = json.loads(canonical_json(dict(sample.attributes)))
    return {"label": sample.label, "condition": sample.condition, "attributes": attributes}


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
    """Return images by the numbers that pages know."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._collections: dict[int, tuple[Mapping[str, Sample], int]] = {}
        self._samples: dict[int, Sample] = {}

    def sample(self, image_id: int) -> Sample:
        """Return the sample of an image; its source is read at the first use.

        Raises:
            UserError: there is no such image, or its source cannot be read any more.
            SampleError: the source no longer has it.
        """
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
                samples = {sample.sample_id: sample for sample in load_collection(row.reference).samples}
                self._collections[row.source_id] = samples, read
        if row.sample_id not in samples:
            raise SampleError(f"{row.reference} no longer has the image {row.sample_id!r}")
        self._samples[image_id] = samples[row.sample_id]
        return self._samples[image_id]
