"""``holdfast explain``: maps of the pictures of a run, made again, and where each lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.conditions import WITHOUT_OBJECT
from holdfast.core.errors import HoldfastError, MachineError, SampleError, UserError
from holdfast.core.fingerprint import array_sha256
from holdfast.core.schema import ATTRIBUTIONS
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.explain import AttributionMethod, parse_methods
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.evaluation_rows import EvaluationIds, row_key
from holdfast.pipeline.explain.maps import ExplainedModel, Item, MapMaker, evaluated, segmented, trained
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import (
    Prepared,
    applicable,
    evenly,
    over_matte,
    prepare,
    read,
    render_conditions,
    stored_conditions,
)
from holdfast.pipeline.specs import ExplainSpec as ExplainSpec
from holdfast.pipeline.thumbnails import spec_of
from holdfast.scenarios import Condition, parse_conditions
from holdfast.stats.effects import attributions
from holdfast.store import Parts, Run, write_table, writing

if TYPE_CHECKING:
    import pandas as pd

VERBS = ("evaluate", "train", "segment")
_COLUMNS = [
    "row_id", "task", "kind", "sample_id", "condition", "variant", "parameters", "model", "trained_on", "fold",
    "label", "image_sha256",
]  # fmt: skip
_PART = 256
"""Rows of a part file, about: what a kill may cost."""


def details(run: Path) -> Parts:
    """Return the table of attributions, keyed by ids of the one table."""
    return Parts(run / "details" / "attributions", ATTRIBUTIONS, key=("row_id", "method", "target"))


@dataclass(frozen=True)
class Explained:
    """What came out: what the command did, and the tables of ``stats.effects.attributions``."""

    summary: Summary
    shares: pd.DataFrame
    correlations: pd.DataFrame
    sanity: pd.DataFrame
    cascade: pd.DataFrame


def explain(path: Path, spec: ExplainSpec, *, progress: Progress = silent) -> Explained:
    """Make the maps that are not there yet, write where they lie, and measure all of them."""
    run, methods = Run.open(path), parse_methods(spec.methods)
    verb = str(run.spec().get("verb", ""))
    if verb not in VERBS:
        what = f"of holdfast {verb}" if verb else "of something else"
        raise UserError(f"{path} is a run {what}; explain needs one of holdfast eval, train or segment")
    with writing(path):
        summary = Summary()
        again = replace(spec_of(run), device=spec.device)
        collection = read(again)
        conditions = _conditions(again, spec.conditions)
        chosen = _chosen(collection, spec.limit, _tested(run))
        prepared = prepare(again, collection, progress)
        _check_unchanged(run, chosen, prepared, summary)
        rows = _rows(run, {sample.sample_id for sample in chosen})
        if not rows:
            raise UserError(f"{path} has no answered row for these images and conditions; run holdfast eval first")
        parts = details(path)
        parts.drop_ids(sorted(parts.stored_ids() - run.predictions.stored_ids()))
        work = _Work(run, spec, again, prepared, conditions, chosen, rows, methods, parts)
        work.all(summary, progress)
        return _measured(run, parts, summary, spec.seed)


def _conditions(again: EvaluateSpec, asked: str) -> list[Condition]:
    """Return the conditions of the run that are explained; by default, none that takes the object away."""
    known = parse_conditions(again.scenarios, feather=again.feather)
    if not asked:
        kept = [condition for condition in known if not (condition.definition.attack or condition.definition.paints)]
        kept = [condition for condition in kept if condition.scenario not in WITHOUT_OBJECT]
        if not kept:
            raise UserError("no condition of this run keeps the object and can be made again; name some: --conditions")
        return kept
    chosen = parse_conditions(asked, feather=again.feather)
    names = [other.name for other in known]
    for condition in chosen:
        if condition.name not in names:
            raise UserError(f"{condition.name} is not among this run's conditions: {', '.join(names)}")
        if condition.definition.attack or condition.definition.paints:
            how = "made against each model" if condition.definition.attack else "painted by a generator"
            raise UserError(f"pictures of {condition.name} are {how} and were not kept, so they cannot be explained")
    return [condition for condition in known if condition.name in {other.name for other in chosen}]


def _tested(run: Run) -> set[str]:
    """Return the images that have rows: of one split of ``train``, those that were not trained on."""
    return set(run.predictions.dataset().to_table(columns=["sample_id"])["sample_id"].unique().to_pylist())


def _chosen(collection: Collection, limit: int, tested: set[str]) -> list[Sample]:
    masked = [sample for sample in collection.samples if sample.mask is not None]
    if not masked:
        raise UserError(
            f"none of the {len(collection)} images of this run has a mask, so nothing says where the object is; make "
            "masks with holdfast mask and run eval again with --masks"
        )
    masked = [sample for sample in masked if sample.sample_id in tested] or masked
    return evenly(masked, limit) if limit else masked


def _check_unchanged(run: Run, chosen: list[Sample], prepared: Prepared, summary: Summary) -> None:
    """Remove from ``chosen`` what has changed since the run, and report it."""
    recorded = {row["sample_id"]: row for row in run.samples().to_pylist()}
    for sample in list(chosen):
        before = recorded.get(sample.sample_id)
        now = (prepared.images[sample.sample_id], prepared.masks[sample.sample_id])
        if before is None or now != (before["image_fingerprint"], before["mask_fingerprint"]):
            chosen.remove(sample)
            summary.add(sample.sample_id, "skipped: the image or its mask changed since the run")
    if not chosen:
        raise UserError(
            "every image or mask changed since the run, so nobody knows what the models saw; run eval again"
        )


def _rows(run: Run, samples: set[str]) -> list[dict[str, Any]]:
    wanted = (pc.field("status") == "ok") & pc.field("task").isin(["classify", "segment"])
    table = run.predictions.dataset().to_table(columns=_COLUMNS, filter=wanted)
    return [row for row in table.to_pylist() if row["sample_id"] in samples and row["kind"] != "attack"]


Key = tuple[str, str, str, str]


@dataclass
class _Work:
    run: Run
    spec: ExplainSpec
    again: EvaluateSpec
    prepared: Prepared
    conditions: list[Condition]
    chosen: list[Sample]
    rows: list[dict[str, Any]]
    methods: list[AttributionMethod]
    parts: Parts
    stale: set[tuple[str, str]] = field(default_factory=set)

    def all(self, summary: Summary, progress: Progress) -> None:
        """Explain model after model."""
        done = self._done()
        models: dict[tuple[str, str, int], dict[Key, dict[str, Any]]] = {}
        for row in self.rows:
            fold = int(row["fold"]) if row["trained_on"] else -1
            key = (row["sample_id"], row["condition"], row["variant"], row["parameters"])
            models.setdefault((row["model"], row["trained_on"], fold), {})[key] = row
        reached = {id(row) for own in models.values() for _, _, row in self._planned(own)}
        owed = len(reached) * len(self.methods)
        finished, failed = 0, []
        progress("explain", 0, owed)
        for (model, trained_on, fold), own in models.items():
            planned = self._planned(own)
            summary.already += sum(
                (row["row_id"], method.text) in done for _, _, row in planned for method in self.methods
            )
            left = [
                job for job in planned if any((job[2]["row_id"], method.text) not in done for method in self.methods)
            ]
            if not left:
                continue
            try:
                subject = self._subject(model, trained_on, fold)
                for method in self.methods:
                    method.check(subject.network)
            except MachineError:
                raise
            except HoldfastError as error:
                failed.append(str(error))
                summary.add(left[0][0].sample_id, f"error: {model} is not explained: {error}", len(left))
                continue
            for written in self._explain(subject, model, left, done, summary):
                finished += written
                progress("explain", finished + summary.already, owed)
        if failed and not finished and not summary.already:
            raise UserError(failed[0])

    def _done(self) -> set[tuple[str, str]]:
        """Return what is stored; errors, and maps without a randomised twin that is asked for, are made again."""
        columns = ["row_id", "method", "target", "status", "share_randomised", "cascade"]
        cascaded = {row["row_id"] for row in self.rows if self.spec.cascade and self._cascaded(row)}
        done: set[tuple[str, str]] = set()
        for row in self.parts.rows(columns).to_pylist():
            if row["target"] == self.spec.target:
                randomise = self.spec.randomise or self.spec.cascade
                lacking = (randomise and row["share_randomised"] is None) or (
                    row["row_id"] in cascaded and row["cascade"] is None
                )
                again = row["status"] == "error" or (row["status"] == "ok" and lacking)
                (self.stale if again else done).add((row["row_id"], row["method"]))
        return done

    def _cascaded(self, row: dict[str, Any]) -> bool:
        """Return whether a row is cascaded: originals, or every picture where there are no originals."""
        return row["condition"] == ORIGINAL or ORIGINAL not in {condition.name for condition in self.conditions}

    def _write(self, rows: list[dict[str, Any]]) -> None:
        """Add rows, in the place of those that they were made again for."""
        for method in self.methods:
            old = [row["row_id"] for row in rows if (row["row_id"], method.text) in self.stale]
            if old:
                here = (pc.field("target") == self.spec.target) & (pc.field("method") == method.text)
                self.parts.drop(here & pc.field("row_id").isin(pa.array(old, pa.string())))
        self.parts.write(pa.Table.from_pylist(rows, schema=ATTRIBUTIONS))

    def _planned(self, rows: dict[Key, dict[str, Any]]) -> list[tuple[Sample, Condition, dict[str, Any]]]:
        stored = stored_conditions(self.prepared.collection.samples)
        planned = []
        for sample in self.chosen:
            for condition in applicable(sample, self.conditions, stored):
                key = row_key(self.again, self.prepared.collection.name, sample, condition, "")
                row = rows.get((key["sample_id"], key["condition"], key["variant"], key["parameters"]))
                if row is not None:
                    planned.append((sample, condition, row))
        return planned

    def _subject(self, model: str, trained_on: str, fold: int) -> ExplainedModel:
        if trained_on:
            return trained(self.run, model, trained_on, fold, self.spec.device)
        recorded = self.run.spec()
        if recorded["verb"] == "segment":
            return segmented(self.run, self.prepared.collection, model, self.spec.device)
        names = dict(zip(recorded.get("model_names", ()), recorded.get("models", ()), strict=False))
        if model not in names:
            raise UserError(f"{model} is not among the models of this run's last eval; run that again with it")
        return evaluated(self.again, self.prepared.collection, names[model])

    def _explain(
        self,
        subject: ExplainedModel,
        model: str,
        left: Sequence[tuple[Sample, Condition, dict[str, Any]]],
        done: set[tuple[str, str]],
        summary: Summary,
    ) -> Iterator[int]:
        """Write the rows of one model as they come; yield how many."""
        shown = [sample.source_id for sample in self.chosen]
        kept = set(list(dict.fromkeys(shown))[: self.spec.pictures])
        looking = MapMaker(subject, self.spec, self.methods, self.run.path)
        waiting: list[dict[str, Any]] = []
        for items in _batches(self._items(subject, model, left, kept, summary), self.spec.batch_size):
            rows = looking.rows(items, done)
            summary.count(rows, key="row_id")
            waiting += rows
            if len(waiting) >= _PART:
                self._write(waiting)
                waiting = []
            yield len(rows)
        if waiting:
            self._write(waiting)

    def _items(
        self,
        subject: ExplainedModel,
        model: str,
        left: Sequence[tuple[Sample, Condition, dict[str, Any]]],
        kept: set[str],
        summary: Summary,
    ) -> Iterator[Item]:
        """Yield the pictures, made again and checked, in the model's view."""
        by_sample: dict[str, list[tuple[Sample, Condition, dict[str, Any]]]] = {}
        for job in left:
            by_sample.setdefault(job[0].sample_id, []).append(job)
        for group in by_sample.values():
            sample, rows = group[0][0], {condition: row for _, condition, row in group}
            for rendering in render_conditions(
                sample, list(rows), self.prepared.pool, seed=self.again.seed, max_pixels=self.again.max_pixels
            ):
                row = rows[rendering.condition]
                if not self._same(subject, sample, rendering.condition, row):
                    summary.add(sample.sample_id, f"skipped: {model} or what it saw changed since the run")
                    continue
                rendered = rendering.rendered
                if rendered is None or rendered.mask is None:
                    summary.add(sample.sample_id, f"skipped: {rendering.error or 'there is no mask for this picture'}")
                    continue
                image = over_matte(rendered.image, self.again.matte)
                if row["image_sha256"] and array_sha256(image) != row["image_sha256"]:
                    summary.add(sample.sample_id, "skipped: the picture is no longer what the models saw")
                    continue
                try:
                    view, mask = subject.see(image), subject.see_mask(rendered.mask)
                except SampleError as error:
                    summary.add(sample.sample_id, f"error: {error}")
                    continue
                yield Item(row["row_id"], row["label"], view, mask, sample.source_id in kept, self._cascaded(row))

    def _same(self, subject: ExplainedModel, sample: Sample, condition: Condition, row: dict[str, Any]) -> bool:
        """Return whether the row id is still that of this picture and these weights."""
        if subject.tested is None:
            return True
        return EvaluationIds(self.again, self.prepared, [subject.tested]).of(sample, condition, [0]) == [row["row_id"]]


def _batches(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Yield batches of pictures of one shape, as they come."""
    waiting: dict[tuple[int, ...], list[Item]] = {}
    for item in items:
        batch = waiting.setdefault(item.view.shape, [])
        batch.append(item)
        if len(batch) >= size:
            yield waiting.pop(item.view.shape)
    yield from waiting.values()


def _measured(run: Run, parts: Parts, summary: Summary, seed: int) -> Explained:
    """Return the measures of all maps of a run; write them to ``results/`` as Parquet."""
    frame = attributions.looks(run.rows(attributions.COLUMNS), parts.rows())
    if frame.empty:
        reason = next(iter(summary.trouble), "no picture of it could be made again")
        raise UserError(f"{run.path} has no map: {reason}")
    tables = {
        "shares": attributions.shares(frame, seed=seed),
        "correlations": attributions.correlations(frame, seed=seed),
        "sanity": attributions.sanity(frame, seed=seed),
        "cascade": attributions.cascades(frame, seed=seed),
    }
    for name, table in tables.items():
        file = "attributions" if name == "shares" else f"attribution_{name}"
        write_table(run.path / "results" / f"{file}.parquet", pa.Table.from_pandas(table, preserve_index=False))
    return Explained(summary, **tables)
