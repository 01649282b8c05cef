"""Images × conditions → files, a manifest and COCO masks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.types import Sample
from holdfast.data.writers import encode_image, encode_mask, mask_rle, write_atomic
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.files import check_apart, file_name
from holdfast.pipeline.generate.backgrounds import Painter, load_painter
from holdfast.pipeline.generate.review import REVIEW, check_review, settle
from holdfast.pipeline.jobs.progress import Progress, silent, told
from holdfast.pipeline.jobs.retry import drop_errors
from holdfast.pipeline.jobs.sharding import seeing
from holdfast.pipeline.jobs.summary import Summary
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
from holdfast.pipeline.synth.row_ids import rendering_ids
from holdfast.scenarios import PAPER, Condition, make_condition, parse_conditions
from holdfast.store import Parts, write_json, writing
from holdfast.store.stored_ids import StoredIds


@dataclass
class RenderingOrder:
    """One sample and the renderings it still owes, with their ids; ``number`` names a tar or Parquet shard."""

    sample: Sample
    owed: list[tuple[Condition, str]]


@dataclass
class Batch:
    """The orders of one shard."""

    number: int
    orders: list[RenderingOrder] = field(default_factory=list)


def make_spec(**values: Any) -> SynthSpec:
    """A specification from untyped values; says which one is wrong."""
    spec = SynthSpec(**values)
    if spec.layout == "ximagenet12" and spec.format in SHARD_FORMATS:
        raise UserError("the XIMAGENET-12 layout is a tree of folders: use --format png or jpeg")
    if not 1 <= spec.quality <= 100:
        raise UserError(f"--quality {spec.quality} is not between 1 and 100")
    spec = replace(spec, review=spec.review or spec.review_votes is not None)
    if spec.review:
        check_review(oracle=spec.oracle, shards=spec.format in SHARD_FORMATS, margin=spec.review_margin)
    return spec


def synth(spec: SynthSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None) -> Summary:
    """Write every rendering that is not there yet, then the manifest and the COCO files.

    ``executor`` says where; without it, on ``spec.workers`` processes of this machine.
    """
    executor = executor or LocalExecutor(spec.workers)
    conditions = parse_conditions(spec.scenarios, feather=spec.feather)
    attack = next((one.scenario for one in conditions if one.definition.attack), None)
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
            broken = broken_rows(out, spec.format, parts, progress)
            for one in broken:
                summary.add(one, "file missing or changed since it was written; made again")
        for problem in prepared.collection.problems:
            summary.add(problem.sample_id, problem.message)
        wanted = WantedRenderings(spec, prepared, conditions, painter)
        # Another --max-pixels may do it.
        drop_errors(parts, (one for own in wanted.ids() for one in own))
        ids = told(wanted.ids(), progress, "compare", len(prepared.collection.samples))
        drop_superseded(out, spec.format, parts, ids, wanted.names())
        _write(spec, wanted, SynthWorker(spec, prepared, out), executor, summary, progress)
        if painter is not None:
            painter.unread(prepared.collection.samples, summary)
            # In this process: a generator is too large to be loaded once a worker.
            alone, work = LocalExecutor(1), SynthWorker(spec, prepared, out, painter)
            _write(spec, wanted, work, alone, summary, progress)
        if spec.review:
            settle(out, parts, spec.review_votes, summary)
        finish(out, parts, spec.format, progress)
    return summary


def _claim(out: Path, spec: SynthSpec, painter: Painter | None) -> None:
    path = out / "spec.json"
    if path.exists():
        old = json.loads(path.read_text(encoding="utf8"))
        for name in ("format", "layout"):
            if old.get(name) != getattr(spec, name):
                raise UserError(f"{out} was written with --{name} {old.get(name)}; choose another --out")
        margin = old.get("review_margin")
        if spec.review_votes is not None and old.get("review") and margin != spec.review_margin:
            raise UserError(
                f"the pictures of {out} went to people by --review-margin {margin}; give the same with --review-votes, "
                "or all would be painted anew"
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
    """Do what is not there yet: what is painted where the work can paint, the rest where it cannot."""
    wanted = replace(wanted, paints=work.painter is not None)
    batches, owed, already = _plan(spec, wanted, Parts(work.out / "manifest", MANIFEST), executor.width, progress)
    summary.already += already
    step, before = "paint" if work.painter else "synth", summary.rows
    progress(step, 0, owed)
    seen = seeing(work, work.prepared.collection.samples, executor, work.prepared.pool.samples)
    for part in executor.map(seen, batches):
        summary.merge(part)
        progress(step, summary.rows - before, owed)


@dataclass(frozen=True)
class WantedRenderings:
    """Every rendering that is asked for, whether it is there or not.

    Their ids are made a sample at a time, anew whenever they are gone through: images × conditions do not fit into
    memory.
    """

    spec: SynthSpec
    prepared: Prepared
    conditions: list[Condition]
    painter: Painter | None
    paints: bool | None = None  # only those that are painted, or only the others

    def samples(self) -> Iterator[tuple[Sample, list[Condition]]]:
        """Each sample with what is to be made of it."""
        stored = stored_conditions(self.prepared.collection.samples)
        for sample in self.prepared.collection.samples:
            conditions = applicable(sample, self.conditions, stored)
            if self.paints is not None:
                conditions = [one for one in conditions if one.definition.paints == self.paints]
            if conditions:
                yield sample, conditions

    def orders(self) -> Iterator[RenderingOrder]:
        """The same with ids."""
        for sample, conditions in self.samples():
            ids = rendering_ids(
                self.prepared, sample, conditions, self.painter,
                seed=self.spec.seed, format=self.spec.format, quality=self.spec.quality,
            )  # fmt: skip
            yield RenderingOrder(sample, list(zip(conditions, ids, strict=True)))

    def ids(self) -> Iterator[list[str]]:
        """The ids, those of a sample at a time."""
        for order in self.orders():
            yield [one for _, one in order.owed]

    def names(self) -> Iterator[str]:
        """What the renderings are called as samples of their own."""
        for sample, conditions in self.samples():
            yield from (_rendering_name(sample, condition) for condition in conditions)


def _plan(
    spec: SynthSpec, wanted: WantedRenderings, parts: Parts, width: int, progress: Progress = silent
) -> tuple[Iterator[Batch], int, int]:
    """What is not there yet, shard by shard, made when asked for; how many renderings are owed, and are there."""
    stored = StoredIds(parts.dataset())
    several = owed = already = 0
    samples = len(wanted.prepared.collection.samples)
    for left, there in (
        ((len(order.owed), there) for order, there in told(_left(wanted, stored), progress, "plan", samples))
        if len(stored)
        else ((len(conditions), 0) for _, conditions in wanted.samples())  # there is no need of ids
    ):
        several, owed, already = several + (left > 0), owed + left, already + there
    # Small enough to keep all workers busy and to lose little when killed; a part file takes as long as an image.
    balanced = min(32, several // (4 * width))
    size = 64 if spec.format in SHARD_FORMATS else max(1, balanced, several // 2000)
    first = 1 + last_shard(parts)
    orders = (order for order, _ in _left(wanted, stored) if order.owed)
    starts = range(0, several, size)
    return (Batch(first + index, list(islice(orders, size))) for index, _ in enumerate(starts)), owed, already


def _left(wanted: WantedRenderings, stored: StoredIds) -> Iterator[tuple[RenderingOrder, int]]:
    """Each order without what is stored, and how much of it is."""
    for order in wanted.orders():
        there = stored.places([one for _, one in order.owed]) >= 0
        left = [one for one, known in zip(order.owed, there.tolist(), strict=True) if not known]
        yield RenderingOrder(order.sample, left), len(order.owed) - len(left)


def _rendering_name(sample: Sample, condition: Condition) -> str:
    """The id of a rendering as a sample of its own."""
    return f"{folder_name(condition, 'plain')}/{sample.sample_id}"


class SynthWorker:
    """The work of a shard: render, encode, write, and record."""

    def __init__(self, spec: SynthSpec, prepared: Prepared, out: Path, painter: Painter | None = None) -> None:
        self.spec = spec
        self.prepared = prepared
        self.out = out
        self.painter = painter

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "prepared": self.prepared.for_workers()}

    def __call__(self, batch: Batch) -> Summary:
        """Do these orders."""
        summary, rows, files = Summary(), [], []
        if self.painter is not None:
            wanted = [(order.sample, [condition for condition, _ in order.owed]) for order in batch.orders]
            self.painter.prepare(wanted, self.spec.max_pixels)
        for order in batch.orders:
            for row, content, mask in self._order(order, batch.number):
                rows.append(row)
                if row["status"] == "pending":
                    write_atomic(f"{self.out}/{REVIEW}/{row['path']}", content)
                elif row["status"] != "ok":
                    summary.add(order.sample.sample_id, f"{row['status']}: {row['error']}")
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

    def _order(self, order: RenderingOrder, shard: int) -> Iterator[tuple[dict[str, Any], bytes, bytes]]:
        sample, ids, name = order.sample, dict(order.owed), file_name(order.sample)
        in_place: dict[str, Any] = {}
        for rendering in render_conditions(
            sample, list(ids), self.prepared.pool, seed=self.spec.seed, max_pixels=self.spec.max_pixels,
            painter=self.painter,
        ):  # fmt: skip
            rendered = rendering.rendered
            details = rendering.details if rendered is None else rendered.details
            row = self._row(sample, rendering.condition, ids[rendering.condition], shard)
            row |= {name: details.get(name) for name in DETAILS}
            if rendered is None:
                yield row | {"status": rendering.status, "error": rendering.error}, b"", b""
                continue
            opaque = rendered.image.shape[2] == 3
            kind: Literal["png", "jpeg"] = "jpeg" if self.spec.format == "jpeg" and opaque else "png"
            content = encode_image(rendered.image, format=kind, quality=self.spec.quality)
            folder = folder_name(rendering.condition, self.spec.layout)
            row |= {
                "status": rendering.status,
                "error": rendering.error or None,
                "path": f"{folder}/{name}.{'jpg' if kind == 'jpeg' else 'png'}",
                "sha256": bytes_sha256(content),
                "height": rendered.image.shape[0],
                "width": rendered.image.shape[1],
            }
            yield row, content, self._mask(row, rendering, name, in_place)

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

    def _row(self, sample: Sample, condition: Condition, one: str, shard: int) -> dict[str, Any]:
        return {
            "row_id": one,
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
    """The folder of a condition: its id, and what sets it apart from the paper's default."""
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
