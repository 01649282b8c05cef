"""Images that a dataset has several times: for every statistic they are one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.types import ORIGINAL
from holdfast.store.run import Run


def copies_of(runs: Sequence[Run]) -> dict[str, str]:
    """Return image → the first image with the same pixels and label, for copies of another."""
    first: dict[tuple[str, str], str] = {}
    copies: dict[str, str] = {}
    for run in runs:
        samples = run.samples().select(["source_id", "image_fingerprint", "label", "condition"])
        samples = samples.filter(pc.equal(samples["condition"], ORIGINAL))  # renderings may well be equal
        prints = samples["image_fingerprint"]
        again = prints.value_counts()
        several = again.field("values").filter(pc.greater(again.field("counts"), 1))
        rows = samples.filter(pc.is_in(prints, several)).sort_by("source_id").to_pylist()
        for row in rows:
            if not row["image_fingerprint"] or not row["source_id"]:
                continue
            photo = first.setdefault((row["image_fingerprint"], row["label"]), row["source_id"])
            if photo != row["source_id"]:
                copies.setdefault(row["source_id"], photo)
    return {copy: _last(copies, photo) for copy, photo in copies.items()}


def _last(copies: Mapping[str, str], photo: str) -> str:
    """Return what an image is a copy of in the end."""
    seen = {photo}
    while copies.get(photo, photo) not in seen:
        photo = copies[photo]
        seen.add(photo)
    return photo


def as_photos(rows: pa.Table, copies: Mapping[str, str]) -> pa.Table:
    """Return a table in which the rows of copies belong to the image that they are copies of."""
    if not copies:
        return rows
    place, kind = rows.schema.get_field_index("source_id"), rows.schema.field("source_id").type
    names = [None if name is None else copies.get(name, name) for name in rows["source_id"].to_pylist()]
    return rows.set_column(place, "source_id", pa.array(names, pa.string()).cast(kind))
