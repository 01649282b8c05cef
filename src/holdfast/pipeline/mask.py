"""Automatic masks for images that have none, with the doubtful ones first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from holdfast.annotate import load_annotator
from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import fingerprint
from holdfast.core.protocols import Annotator, MaskProposal
from holdfast.core.schema import plain_schema
from holdfast.core.types import Collection, Sample
from holdfast.data.reading import DOUBTFUL, KEPT
from holdfast.data.writers import encode_mask
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.files import IN_MEMORY, check_apart, file_name
from holdfast.pipeline.jobs.execute import Worker, execute
from holdfast.pipeline.jobs.plan import Job, Scope, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import only_trouble
from holdfast.pipeline.samples import Prepared, prepare, read
from holdfast.pipeline.specs import MaskSpec as MaskSpec
from holdfast.store import Parts, writing
from holdfast.store.run import write_csv

MASKS = plain_schema(
    "path text, sample_id text, label text, confidence float, area float, annotator text, status text, error text, "
    "row_id text"
)
"""``area``: share of the image."""


def make_masks(
    spec: MaskSpec,
    out: Path,
    *,
    progress: Progress = silent,
    executor: Executor | None = None,
    collection: Collection | None = None,
) -> tuple[Summary, list[dict[str, Any]]]:
    """Write ``out/<class>/<stem>.png`` and ``masks.csv``; return the rows, least sure first."""
    # ``executor`` says where; without it, on ``spec.workers`` processes of this machine. ``collection`` holds the
    # images if only some of the dataset are meant.
    annotator = load_annotator(spec.annotator)
    collection = collection or read(spec)
    check_apart(collection.samples, out)
    prepared = prepare(spec, collection, progress)
    samples = {sample.sample_id: sample for sample in prepared.collection.samples}
    parts = Parts(out / ".parts", MASKS)
    with writing(out, ".parts", f"{IN_MEMORY}/manifest.parquet"):
        parts.folder.mkdir(exist_ok=True)
        finished = [row for row in parts.rows().to_pylist() if row["status"] == "ok"]
        parts.drop_ids([row["row_id"] for row in finished if not (out / row["path"]).is_file()])
        ids = {name: _row_id(sample, spec, prepared, annotator) for name, sample in samples.items()}
        # Another mask maker, or another image, writes to the same file: what is recorded of the old mask is over.
        scope = Scope(pc.field("row_id").is_valid(), ("sample_id",), lambda row: row["sample_id"] in samples)
        jobs = [Job(sample, (sample,)) for sample in samples.values()]
        todo = plan(parts, jobs, lambda job: [ids[job.item.sample_id]], scope=scope)
        summary = Summary()
        summary.add_problems(collection.problems)
        for row in parts.rows().to_pylist():  # what failed before is reported again
            if row["status"] != "ok" and ids.get(row["sample_id"]) == row["row_id"]:
                summary.add(row["sample_id"], f"{row['status']}: {row['error']}")
        executor = executor or LocalExecutor(spec.workers)
        worker = MaskWorker(spec, out)
        masked = execute(
            todo, worker, executor, step="mask", size=8, known=annotator, samples=collection.samples, progress=progress
        )
        summary.merge(masked)
        rows = [row for row in parts.rows().to_pylist() if ids.get(row["sample_id"]) == row["row_id"]]
        rows.sort(key=lambda row: (row["confidence"], row["path"]))
        write_csv(out / "masks.csv", pa.Table.from_pylist(rows, schema=MASKS).drop_columns(["row_id"]))
        if trouble := only_trouble(ds.dataset(pa.Table.from_pylist(rows, schema=MASKS))):
            raise UserError(f"no mask could be made: {trouble}; {out / 'masks.csv'} lists all of them")
    return summary, rows


def _row_id(sample: Sample, spec: MaskSpec, prepared: Prepared, annotator: Annotator) -> str:
    kept = spec.keep and sample.mask is not None
    maker = f"kept {prepared.masks[sample.sample_id]}" if kept else annotator.fingerprint
    return fingerprint([sample.sample_id, prepared.images[sample.sample_id], maker])[:32]


class MaskWorker(Worker[Annotator]):
    """Proposes a mask per sample and writes it as a file."""

    def __init__(self, spec: MaskSpec, out: Path) -> None:
        self.name, self.spec, self.out = spec.annotator, spec, out

    def load(self) -> Annotator:
        """Load the mask maker."""
        return load_annotator(self.spec.annotator)

    def run(self, annotator: Annotator, jobs: Sequence[Job[Sample, Sample]]) -> Iterator[dict[str, Any]]:
        """Yield a row per sample."""
        for job in jobs:
            sample, kept = job.item, job.item.mask if self.spec.keep else None
            row = {
                "row_id": job.ids[0],
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
                yield row | {"status": "error", "error": str(error)}
                continue
            write_atomic(self.out / str(row["path"]), encode_mask(proposal.mask))
            yield row | {"confidence": proposal.confidence, "area": float(proposal.mask.mean())}


@dataclass(frozen=True)
class MaskCounts:
    """How many masks were made, failed and are doubtful; ``sure`` holds the ids of samples with other masks."""

    annotator: str
    count: int
    failed: int
    doubtful: int
    sure: frozenset[str]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], annotator: str) -> MaskCounts:
        """Return the counts of rows that ``make_masks`` returned."""
        failed = sum(row["status"] != "ok" for row in rows)
        sure = frozenset(row["sample_id"] for row in rows if row["status"] == "ok" and row["confidence"] >= DOUBTFUL)
        count = sum(row["annotator"] != KEPT for row in rows)
        return cls(annotator, count, failed, len(rows) - failed - len(sure), sure)


def best_annotator() -> str:
    """Return the better mask maker of those that are installed."""
    try:
        load_annotator("u2netp")
    except UserError:  # its network is not installed
        return "grabcut"
    return "u2netp"
