"""Images × conditions → files, a manifest and COCO masks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256, canonical_json, fingerprint
from holdfast.core.types import Image, Sample
from holdfast.data.native import encode_native
from holdfast.data.writers import encode_image, encode_mask, mask_rle
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.files import check_apart, file_name
from holdfast.pipeline.generate.backgrounds import REVIEW, Painter, check_review, load_painter, settle
from holdfast.pipeline.jobs.execute import ProgressReport, seeing
from holdfast.pipeline.jobs.plan import Job, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent, with_progress
from holdfast.pipeline.jobs.rows import only_trouble
from holdfast.pipeline.samples import (
    Prepared,
    Rendering,
    applicable,
    prepare,
    read,
    render_conditions,
    stored_conditions,
)
from holdfast.pipeline.specs import SynthSpec as SynthSpec
from holdfast.pipeline.synth.files import (
    DETAILS,
    MANIFEST,
    SHARD_FORMATS,
    broken_rows,
    drop_superseded,
    finish,
    last_shard,
    write_shard,
)
from holdfast.scenarios import PAPER, Condition, make_condition, parse_conditions
from holdfast.store import Parts, Run, write_json, writing


def rendering_ids(
    prepared: Prepared, sample: Sample, conditions: Sequence[Condition], painter: Painter | None, spec: SynthSpec
) -> Iterator[str]:
    """Yield row ids, which change with image, mask, donors, prompt, generator, condition and encoding."""
    # The text that is hashed is canonical JSON; conditions of a sample share most of it, so it is put together of
    # pieces.
    own = canonical_json([sample.sample_id, sample.source_id, sample.label, sample.split, sample.fold, sample.licence])
    image = encode_basestring(prepared.images[sample.sample_id])
    mask = encode_basestring(prepared.masks[sample.sample_id])
    encoding = canonical_json([spec.format, spec.quality if spec.format == "jpeg" else 0])
    middle = f'"encoding":{encoding},"image":{image},"mask":{mask}'
    for condition in conditions:
        definition = condition.definition
        what = _spelled(condition.scenario, condition.variant, condition.parameters_json)
        painted = f'"painted":{canonical_json(painter.identity(sample))},' if painter and definition.paints else ""
        pool = encode_basestring(prepared.lent(definition))
        text = f'{{"condition":{what},{middle},{painted}"pool":{pool},"sample":{own},"seed":{spec.seed}}}'
        yield hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=1024)
def _spelled(*texts: str) -> str:
    return canonical_json(texts)


MADE = ("ok", "pending", "rejected")  # rejected: by the oracle or by people, and kept with the reason
_NO_DETAILS: dict[str, Any] = dict.fromkeys(DETAILS)
RenderingJob = Job[Sample, Condition]  # A sample and the conditions that it lacks


@dataclass
class Batch:
    """The jobs of one shard; ``number`` names its tar or Parquet file."""

    number: int
    jobs: list[RenderingJob]


def make_spec(**values: Any) -> SynthSpec:
    """Return a specification from untyped values; raise a UserError that names a wrong one."""
    spec = SynthSpec(**values)
    if spec.layout == "ximagenet12" and spec.format in SHARD_FORMATS:
        raise UserError("the XIMAGENET-12 layout is a tree of folders: use --format png or jpeg")
    if spec.depth == "native" and spec.format != "png":
        raise UserError("--depth native writes files without loss: use --format png")
    if not 1 <= spec.quality <= 100:
        raise UserError(f"--quality {spec.quality} is not between 1 and 100")
    spec = replace(spec, review=spec.review or spec.review_votes is not None)
    if spec.review:
        check_review(oracle=spec.oracle, shards=spec.format in SHARD_FORMATS, margin=spec.review_margin)
    return spec


def synth(spec: SynthSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None) -> Summary:
    """Write every rendering that is not there yet, then the manifest and the COCO files."""
    executor = executor or LocalExecutor(spec.workers)
    conditions = parse_conditions(spec.scenarios, feather=spec.feather)
    attack = next((condition.scenario for condition in conditions if condition.definition.attack), None)
    if attack is not None:
        raise UserError(
            f"{attack} is made against a model, so there is nothing to write without one; use holdfast eval"
        )
    collection = read(spec)
    check_apart(collection.samples, out)
    painter = load_painter(spec, collection, conditions)
    prepared = prepare(spec, collection, progress)
    parts = Parts(out / "manifest", MANIFEST)
    summary = Summary()
    with writing(out):
        _claim(out, spec, painter)
        if spec.verify:
            for file in broken_rows(out, spec.format, parts, progress):
                summary.add(file, "file missing or changed since it was written; made again")
        summary.add_problems(prepared.collection.problems)
        wanted = WantedRenderings(spec, prepared, conditions, painter)
        ids = with_progress(map(wanted.row_ids, wanted), progress, "compare", len(prepared.collection.samples))
        drop_superseded(out, spec.format, parts, ids, wanted.names())
        _write(spec, wanted, SynthWorker(spec, prepared, out), executor, summary, progress)
        if painter is not None:
            painter.unread(prepared.collection.samples, summary)
            # In this process: a generator is too large to be loaded once a worker.
            _write(spec, wanted, SynthWorker(spec, prepared, out, painter), LocalExecutor(1), summary, progress)
        if spec.review:
            settle(out, parts, spec.review_votes, summary)
        finish(out, parts, spec.format, progress)
        if trouble := only_trouble(parts.dataset(), MADE):
            raise UserError(f"no image could be made: {trouble}; {out / 'manifest.csv'} lists all of them")
    return summary


def _claim(out: Path, spec: SynthSpec, painter: Painter | None) -> None:
    path = out / "spec.json"
    if path.exists():
        old = Run(out).spec()
        for name in ("format", "layout"):
            if old.get(name) != getattr(spec, name):
                raise UserError(f"{out} was written with --{name} {old.get(name)}; choose another --out")
        margin = old.get("review_margin")
        if spec.review_votes is not None and old.get("review") and margin != spec.review_margin:
            raise UserError(
                f"the images of {out} went to people by --review-margin {margin}; give the same with --review-votes, "
                "or all would be repainted"
            )
    write_json(path, asdict(spec) | {"verb": "synth"} | ({"painter": painter.record()} if painter else {}))


def _write(
    spec: SynthSpec,
    wanted: WantedRenderings,
    work: SynthWorker,
    executor: Executor,
    summary: Summary,
    progress: Progress,
) -> None:
    """Make the renderings that are not stored: painted ones if the worker can paint, the others if it cannot."""
    wanted = replace(wanted, paints=work.painter is not None)
    parts = Parts(work.out / "manifest", MANIFEST)
    todo = plan(parts, wanted, wanted.row_ids, retry=True, progress=progress)  # another --max-pixels may fix an error
    # Small enough to keep all workers busy and to lose little when killed; a part file takes as long as an image.
    size = max(1, min(32, todo.count // (4 * executor.width)), todo.count // 2000)
    size = 64 if spec.format in SHARD_FORMATS else size
    batches = (Batch(number, jobs) for number, jobs in enumerate(todo.shards(size), 1 + last_shard(parts)))
    seen = seeing(work, work.prepared.collection.samples, executor, work.prepared.pool.samples)
    report = ProgressReport(todo, "paint" if work.painter else "synth", progress)
    summary.merge(report.merged(executor.map(seen, batches)))


@dataclass(frozen=True)
class WantedRenderings:
    """Every rendering that is asked for, stored or not, as jobs of a plan: one per sample."""

    spec: SynthSpec
    prepared: Prepared
    conditions: list[Condition]
    painter: Painter | None
    paints: bool | None = None  # only those that are painted, or only the others

    def __len__(self) -> int:
        return len(self.prepared.collection.samples)

    def __iter__(self) -> Iterator[RenderingJob]:
        stored = stored_conditions(self.prepared.collection.samples)
        for sample in self.prepared.collection.samples:
            conditions = applicable(sample, self.conditions, stored)
            if self.paints is not None:
                conditions = [condition for condition in conditions if condition.definition.paints == self.paints]
            if conditions:
                yield Job(sample, conditions)

    def row_ids(self, job: RenderingJob) -> list[str]:
        """Return the row id of each rendering of a job."""
        return list(rendering_ids(self.prepared, job.item, job.parts, self.painter, self.spec))

    def names(self) -> Iterator[str]:
        """Yield the names of the renderings as samples of their own."""
        for job in self:
            yield from (_rendering_name(job.item, condition) for condition in job.parts)


def _rendering_name(sample: Sample, condition: Condition) -> str:
    """Return the id of a rendering as a sample of its own."""
    return f"{folder_name(condition, 'plain')}/{sample.sample_id}"


class SynthWorker:
    """The work of a shard: render, encode, write, and record."""

    def __init__(self, spec: SynthSpec, prepared: Prepared, out: Path, painter: Painter | None = None) -> None:
        self.spec, self.prepared, self.out, self.painter = spec, prepared, out, painter

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "prepared": self.prepared.for_workers()}

    def __call__(self, batch: Batch) -> Summary:
        """Render the jobs of a batch, write their files, and record them in one part."""
        summary, rows, files = Summary(), [], []
        if self.painter is not None:
            self.painter.prepare([(job.item, list(job.parts)) for job in batch.jobs], self.spec.max_pixels)
        for job in batch.jobs:
            for row, content, mask in self._renderings(job, batch.number):
                rows.append(row)
                if row["status"] == "pending":
                    write_atomic(f"{self.out}/{REVIEW}/{row['path']}", content)
                elif row["status"] != "ok":
                    summary.add(job.item.sample_id, f"{row['status']}: {row['error']}")
                    summary.errors += row["status"] == "error"
                elif self.spec.format in SHARD_FORMATS:
                    files.append((row, content, mask))
                else:
                    write_atomic(f"{self.out}/{row['path']}", content)
        if files:
            write_shard(self.out, self.spec.format, batch.number, files)
        Parts(self.out / "manifest", MANIFEST).write(pa.Table.from_pylist(rows, schema=MANIFEST))
        summary.rows = len(rows)
        return summary

    def _renderings(self, job: RenderingJob, shard: int) -> Iterator[tuple[dict[str, Any], bytes, bytes]]:
        """Yield the row, the image file and the mask file of each rendering."""
        sample, ids, name = job.item, dict(zip(job.parts, job.ids, strict=True)), file_name(job.item)
        in_place: dict[str, Any] = {}
        for rendering in render_conditions(
            sample, list(ids), self.prepared.pool, seed=self.spec.seed, max_pixels=self.spec.max_pixels,
            painter=self.painter,
        ):  # fmt: skip
            rendered = rendering.rendered
            details = rendering.details if rendered is None else rendered.details
            row = self._row(sample, rendering.condition, ids[rendering.condition], shard)
            row |= {name: details.get(name) for name in DETAILS} if details else _NO_DETAILS
            if rendered is None:
                yield row | {"status": rendering.status, "error": rendering.error}, b"", b""
                continue
            content, suffix = self._encoded(rendered.image)
            folder = folder_name(rendering.condition, self.spec.layout)
            row |= {
                "status": rendering.status,
                "error": rendering.error or None,
                "path": f"{folder}/{name}.{suffix}",
                "sha256": bytes_sha256(content),
                "height": rendered.image.shape[0],
                "width": rendered.image.shape[1],
            }
            yield row, content, self._mask(row, rendering, name, in_place)

    def _encoded(self, image: Image) -> tuple[bytes, str]:
        """Return the image as a file, and its suffix."""
        if self.spec.depth == "native" and (image.dtype != np.uint8 or image.shape[2] not in (3, 4)):
            return encode_native(image)
        kind: Literal["png", "jpeg"] = "jpeg" if self.spec.format == "jpeg" and image.shape[2] == 3 else "png"
        return encode_image(image, format=kind, quality=self.spec.quality), "jpg" if kind == "jpeg" else "png"

    def _mask(self, row: dict[str, Any], rendering: Rendering, name: str, in_place: dict[str, Any]) -> bytes:
        """Encode and write the mask; conditions that leave the foreground in place share one file."""
        mask = rendering.rendered.mask if rendering.rendered else None
        if mask is None:
            return b""
        shared = "standard_masks" if self.spec.layout == "ximagenet12" else "masks/original"
        folder = f"masks/{folder_name(rendering.condition, 'plain')}" if rendering.moved else shared
        facts = {} if rendering.moved else in_place
        if not facts:
            content = encode_mask(mask)
            facts |= {"mask_rle": mask_rle(mask), "mask_sha256": bytes_sha256(content), "content": content}
            if self.spec.format not in SHARD_FORMATS:
                write_atomic(f"{self.out}/{folder}/{name}.png", facts["content"])
        row |= {"mask_path": f"{folder}/{name}.png"} | {key: facts[key] for key in ("mask_rle", "mask_sha256")}
        return bytes(facts["content"])

    def _row(self, sample: Sample, condition: Condition, row_id: str, shard: int) -> dict[str, Any]:
        return {
            "row_id": row_id,
            "sample_id": _rendering_name(sample, condition),
            "source_id": sample.source_id,
            "label": sample.label,
            "kind": "generated" if condition.definition.paints else sample.kind,
            "scenario": condition.scenario,
            "variant": condition.variant,
            "parameters": condition.parameters_json,
            "seed": self.spec.seed,
            "licence": sample.licence,
            "split": sample.split,
            "fold": sample.fold,
            "shard": shard,
        }


@lru_cache(maxsize=1024)
def folder_name(condition: Condition, layout: str) -> str:
    """Return the folder of a condition: its id, and what sets it apart from the paper's default."""
    tag = condition.variant
    default = make_condition(condition.definition, tag).parameters == condition.parameters
    if layout == "ximagenet12" and tag == PAPER and default:
        return XIMAGENET12_FOLDERS.get(condition.scenario, condition.scenario)
    return condition.name if default else f"{condition.name}-{fingerprint(condition.parameters_json)[:6]}"


XIMAGENET12_FOLDERS = {
    "original": "image",
    "red": "image_r",
    "green": "image_g",
    "blue": "image_b",
    "grey": "image_grey",
    "rainbow": "image_rainbow",
    "segmented": "segmented_image",
    "transparent": "segmented_image_transparent",
    "random_background": "combine",
}
