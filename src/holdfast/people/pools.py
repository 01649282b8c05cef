"""Pools of images to judge: a dataset, a generated pool, a hard set, or images of a dynamic evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.schema import FRAMES, WALKS
from holdfast.core.types import ORIGINAL, Collection
from holdfast.data import load_collection
from holdfast.data.readers.manifest import read_rows
from holdfast.people.sources import absolute_reference
from holdfast.store import Parts, Run, write_table

ONLY = ("accepted", "rejected", "all")
"""Which images of a dynamic evaluation to judge: accepted by its oracle, rejected, or both."""

_PERTURBED = "perturbed"


@dataclass(frozen=True)
class ReviewPool:
    """Images to judge.

    Attributes:
        reference: what reads them again, wherever the server is started from.
        collection: as it was read.
        originals: what they were made of, where that is known.
        walked: whether they come from ``holdfast perturb``.
    """

    reference: str
    collection: Collection
    originals: Collection | None = None
    walked: bool = False


def open_pool(text: str, *, only: str, folder: Path) -> ReviewPool:
    """Read what a user names.

    Args:
        text: a dataset as ``holdfast eval`` takes it, what ``generate``, ``mine`` or ``synth`` made among them, or a
            run directory of ``holdfast perturb``.
        only: which images of such a run, one of ``ONLY``.
        folder: where a list of them is written, if one has to be.

    Raises:
        UserError: there is nothing to judge.
    """
    run = Path(text).expanduser()
    if (run / "spec.json").is_file():
        if Run.open(run).spec().get("verb") == "perturb":
            return _walked(Run.open(run.resolve()), only, folder)
        # generate and synth leave the same file beside the images that they made.
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
    """Return the images that the walks started from, or None where they are missing."""
    known = set(run.samples()["sample_id"].to_pylist())
    try:
        collection = load_collection(str(run.spec().get("data", "")))
    except UserError:
        return None
    samples = tuple(
        sample for sample in collection.samples if sample.sample_id in known and sample.condition == ORIGINAL
    )
    return replace(collection, samples=samples) if samples else None
