"""Automatic masks for photos that have none, with the doubtful ones first."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.annotate import load_annotator
from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.protocols import Annotator, MaskProposal
from holdfast.core.types import Sample
from holdfast.data.writers import encode_mask, write_atomic
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.files import check_apart, file_name, write_csv
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.sharding import seeing
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared, prepare, read
from holdfast.pipeline.specs import MaskSpec as MaskSpec
from holdfast.store import Parts, writing

MASKS = pa.schema(
    [
        ("path", pa.string()),
        ("sample_id", pa.string()),
        ("label", pa.string()),
        ("confidence", pa.float32()),
        ("area", pa.float32()),  # share of the image
        ("annotator", pa.string()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("row_id", pa.string()),
    ]
)

KEPT = "the dataset's own"
"""Stands for the mask maker where there was none."""


def make_masks(
    spec: MaskSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None
) -> tuple[Summary, list[dict[str, Any]]]:
    """Write ``out/<class>/<stem>.png`` and ``masks.csv``; returns the rows, least sure first.

    ``executor`` says where; without it, on ``spec.workers`` processes of this machine.
    """
    executor = executor or LocalExecutor(spec.workers)
    annotator = load_annotator(spec.annotator)
    collection = read(spec)
    check_apart(collection.samples, out)
    prepared = prepare(spec, collection, progress)
    parts, summary = Parts(out / ".parts", MASKS), Summary()
    with writing(out):
        if not parts.folder.exists():
            _check_new(collection.samples, out)
            parts.folder.mkdir()
        ids = {
            fingerprint([s.sample_id, prepared.images[s.sample_id], _maker(s, spec, prepared, annotator)])[:32]: s
            for s in prepared.collection.samples
        }
        stored = parts.rows().to_pylist()
        rows = {row["row_id"]: row for row in stored if row["row_id"] in ids}
        # Another mask maker, or another image, writes to the same file: what is recorded of the old mask is over.
        names = {sample.sample_id for sample in ids.values()}
        parts.drop_ids([row["row_id"] for row in stored if row["row_id"] not in ids and row["sample_id"] in names])
        for row in rows.values():
            if row["status"] != "ok":
                summary.add(row["sample_id"], f"{row['status']}: {row['error']}")
        there = {one for one, row in rows.items() if row["status"] != "ok" or (out / row["path"]).is_file()}
        owed = [(one, sample) for one, sample in ids.items() if one not in there]
        summary.already = len(there)
        shards = [owed[start : start + 8] for start in range(0, len(owed), 8)]
        progress("mask", 0, len(owed))
        for made in executor.map(seeing(MaskWorker(spec, out), collection.samples, executor), shards):
            parts.write(pa.Table.from_pylist(made, schema=MASKS))
            rows.update({row["row_id"]: row for row in made})
            summary.count(made)
            progress("mask", summary.rows, len(owed))
        ordered = sorted(rows.values(), key=lambda row: (row["confidence"], row["path"]))
        write_csv(out / "masks.csv", pa.Table.from_pylist(ordered, schema=MASKS).drop_columns(["row_id"]))
    return summary, ordered


def _maker(sample: Sample, spec: MaskSpec, prepared: Prepared, annotator: Annotator) -> str:
    """What the mask depends on besides the image."""
    kept = spec.keep and sample.mask is not None
    return f"kept {prepared.masks[sample.sample_id]}" if kept else annotator.fingerprint


def _check_new(samples: Iterable[Sample], out: Path) -> None:
    """Masks that somebody else made are not for us to replace."""
    for sample in samples:
        path = out / f"{file_name(sample)}.png"
        if path.exists():
            raise UserError(f"{path} is there and was not made by holdfast mask; choose another --out")


class MaskWorker:
    """The work of a shard."""

    def __init__(self, spec: MaskSpec, out: Path) -> None:
        self.spec = spec
        self.out = out
        self._annotator: Annotator | None = None

    def __call__(self, shard: list[tuple[str, Sample]]) -> list[dict[str, Any]]:
        """Masks for these samples, as rows."""
        self._annotator = annotator = self._annotator or load_annotator(self.spec.annotator)
        rows = []
        for one, sample in shard:
            kept = sample.mask if self.spec.keep else None
            row = {
                "row_id": one,
                "path": f"{file_name(sample)}.png",
                "sample_id": sample.sample_id,
                "label": sample.label,
                "confidence": 0.0,
                "area": 0.0,
                "annotator": annotator.name if kept is None else KEPT,
                "status": "ok",
                "error": "",
            }
            try:
                image = sample.image.load(max_pixels=self.spec.max_pixels)
                height, width = image.shape[:2]
                proposal = MaskProposal(kept.load(height, width), 1.0) if kept else annotator.propose(image)
            except SampleError as error:
                rows.append(row | {"status": "error", "error": str(error)})
                continue
            write_atomic(self.out / str(row["path"]), encode_mask(proposal.mask))
            rows.append(row | {"confidence": proposal.confidence, "area": float(proposal.mask.mean())})
        return rows
