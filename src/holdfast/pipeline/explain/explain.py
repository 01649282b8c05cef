"""``holdfast explain``: maps of the images of a run, made again, and where each is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from holdfast.attribution import parse_methods
from holdfast.core.errors import HoldfastError, MachineError, SampleError, UserError
from holdfast.core.fingerprint import array_sha256
from holdfast.core.lazy import pd
from holdfast.core.names import WITHOUT_OBJECT
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.engine import Executor, ahead, core_count, thread_pool
from holdfast.pipeline.classifiers import EvaluateSpec, proved
from holdfast.pipeline.evaluation_rows import EvaluationIds, row_key
from holdfast.pipeline.explain.maps import ExplainedModel, Item, MapMaker, evaluated, segmented, trained
from holdfast.pipeline.jobs.execute import Made, batched_shard_size, choose_executor, execute
from holdfast.pipeline.jobs.plan import Job, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import Row, only_trouble
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

VERBS = ("evaluate", "train", "segment")
_COLUMNS = [
    "row_id", "task", "kind", "sample_id", "condition", "variant", "parameters", "model", "trained_on", "fold",
    "label", "image_sha256",
]  # fmt: skip
_SHOWN = ("sample_id", "condition", "variant", "parameters")
_REFUSED = " is not explained: "  # between a model and the reason
_GRADIENTS = 3  # an image with gradients takes so many times the memory of one without
_USUAL = 10**8  # parameters of a model whose count the run does not say
_TOGETHER = 1024  # images per part file at most; what is there is written every few seconds

ModelKey = tuple[str, str, int]
"""A model's name, what it was trained on, and the fold that tests it; '' and -1 if it was not trained in the run."""
ExplainPart = tuple[Condition, Row, str]  # A condition, the run's row of its image, and the text of a method
ExplainJob = Job[tuple[ModelKey, Sample], ExplainPart]


@dataclass(frozen=True)
class Explained:
    """What came out: what the command did, and the tables of ``stats.effects.attributions``."""

    summary: Summary
    shares: pd.DataFrame
    correlations: pd.DataFrame
    sanity: pd.DataFrame
    cascade: pd.DataFrame


def explain(
    path: Path, spec: ExplainSpec, *, progress: Progress = silent, executor: Executor | None = None
) -> Explained:
    """Make the maps that are not there yet, write where they are, and measure all of them."""
    run = Run.open(path)
    verb = str(run.spec().get("verb", ""))
    if verb not in VERBS:
        what = f"of holdfast {verb}" if verb else "of something else"
        raise UserError(f"{path} is a run {what}; explain needs one of holdfast eval, train or segment")
    with writing(path):
        summary = Summary()
        again = replace(spec_of(run), device=spec.device)
        collection = read(again)
        conditions = _conditions(again, spec.conditions)
        # Images that have rows: of one split of ``train``, those that were not trained on.
        tested = set(run.predictions.dataset().to_table(columns=["sample_id"])["sample_id"].unique().to_pylist())
        chosen = _chosen(collection, spec.limit, tested)
        prepared = prepare(again, collection, progress)
        _check_unchanged(run, chosen, prepared, summary)
        rows = _rows(run, {sample.sample_id for sample in chosen})
        if not rows:
            raise UserError(f"{path} has no answered row for these images and conditions; run holdfast eval first")
        worker = ExplainWorker(run, spec, again, prepared, conditions, chosen)
        parts, jobs = run.details("attributions"), worker.jobs(rows)
        lost = parts.stored_ids() - run.predictions.stored_ids()
        parts.drop(pc.field("row_id").isin(pa.array(lost, pa.string())) | worker.lacking(jobs))
        todo = plan(parts, jobs, worker.row_ids)
        # A process holds one model at a time, and loads each once: shards come model by model.
        largest = max(run.spec().get("model_parameters", {}).values(), default=_USUAL)
        where = choose_executor(
            todo, worker, executor, spec.device, run.spec().get("models", ()), conditions=conditions,
            parameters=largest, batch=_GRADIENTS * spec.batch_size,
        )  # fmt: skip
        size = min(_TOGETHER, batched_shard_size(todo.count, where, spec.batch_size))
        count = partial(Summary.count, key="row_id")
        summary.merge(execute(todo, worker, where, step="explain", size=size, count=count, progress=progress))
        refused = [text.partition(_REFUSED)[2] for text in summary.trouble if _REFUSED in text]
        if refused and not summary.rows and not summary.already:
            raise UserError(refused[0])
        if trouble := only_trouble(parts.dataset(), ("ok", "empty")):
            raise UserError(f"no map could be made: {trouble}")
        return _measured(run, parts, summary, spec.seed)


def _conditions(again: EvaluateSpec, asked: str) -> list[Condition]:
    """Return the conditions of the run that are explained; by default, none that takes the object away."""
    known = parse_conditions(again.scenarios, feather=again.feather)
    if not asked:
        keeping = [condition for condition in known if condition.scenario not in WITHOUT_OBJECT]
        kept = [each for each in keeping if not (each.definition.attack or each.definition.paints)]
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
            raise UserError(f"images of {condition.name} are {how} and were not kept, so they cannot be explained")
    return [condition for condition in known if condition.name in {other.name for other in chosen}]


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
        raise UserError("every image or mask changed since the run; run eval again")


def _rows(run: Run, samples: set[str]) -> list[dict[str, Any]]:
    wanted = (pc.field("status") == "ok") & pc.field("task").isin(["classify", "segment"])
    table = run.predictions.dataset().to_table(columns=_COLUMNS, filter=wanted)
    return [row for row in table.to_pylist() if row["sample_id"] in samples and row["kind"] != "attack"]


@dataclass
class ExplainWorker:
    """Makes the images of a run again and maps what its models look at, model after model."""

    opened: Run
    spec: ExplainSpec
    again: EvaluateSpec
    prepared: Prepared
    conditions: list[Condition]
    chosen: list[Sample]
    name: str = "explain"

    def __post_init__(self) -> None:
        self.methods = parse_methods(self.spec.methods)
        sources = list(dict.fromkeys(sample.source_id for sample in self.chosen))
        self._kept = set(sources[: self.spec.pictures])

    def jobs(self, rows: Sequence[Row]) -> list[ExplainJob]:
        """Return a job per model and sample, with conditions × methods, for the rows that can be explained."""
        models: dict[ModelKey, dict[tuple[str, ...], Row]] = {}
        for row in rows:
            model = (row["model"], row["trained_on"], int(row["fold"]) if row["trained_on"] else -1)
            models.setdefault(model, {})[tuple(row[name] for name in _SHOWN)] = row
        stored, jobs = stored_conditions(self.prepared.collection.samples), []
        for model, own in models.items():
            for sample in self.chosen:
                parts: list[ExplainPart] = []
                for condition in applicable(sample, self.conditions, stored):
                    key = row_key(self.again, self.prepared.collection.name, sample, condition, "")
                    if (shown := own.get(tuple(key[name] for name in _SHOWN))) is not None:
                        parts += [(condition, shown, method.text) for method in self.methods]
                jobs += [Job((model, sample), parts)] if parts else []
        return jobs

    def row_ids(self, job: ExplainJob) -> list[str]:
        """Return the keys of a job's maps."""
        return ["|".join((row["row_id"], method, self.spec.target)) for _, row, method in job.parts]

    def lacking(self, jobs: Sequence[ExplainJob]) -> ds.Expression:
        """Return which stored maps are made again: errors, and maps without a randomised twin that is asked for."""
        rows = {row["row_id"]: row for job in jobs for _, row, _ in job.parts}
        is_ok, again = pc.field("status") == "ok", pc.field("status") == "error"
        if self.spec.randomise or self.spec.cascade:
            again |= is_ok & pc.field("share_randomised").is_null()
        if self.spec.cascade:
            cascaded = [name for name, row in rows.items() if self._cascaded(row)]
            again |= is_ok & pc.field("cascade").is_null() & pc.field("row_id").isin(pa.array(cascaded, pa.string()))
        methods = pc.field("method").isin([method.text for method in self.methods])
        asked = pc.field("row_id").isin(pa.array(list(rows), pa.string()))
        return (pc.field("target") == self.spec.target) & methods & asked & again

    def _cascaded(self, row: Row) -> bool:
        """Return whether a row is cascaded: originals, or every image if there are no originals."""
        return row["condition"] == ORIGINAL or ORIGINAL not in {condition.name for condition in self.conditions}

    def load(self) -> dict[ModelKey, MapMaker | HoldfastError]:
        """Return no models: each is loaded when its first job comes, and makes room for the next."""
        return {}

    def fingerprints(self, resources: dict[ModelKey, MapMaker | HoldfastError]) -> list[str]:
        """Return nothing: every image's row id shows whether its model is still the same."""
        return []

    def run(self, resources: dict[ModelKey, MapMaker | HoldfastError], jobs: Sequence[ExplainJob]) -> Iterator[Made]:
        """Yield a row per map, and what could not be explained."""
        for model, alike in groupby(jobs, key=lambda job: job.item[0]):
            own, notes = list(alike), Summary()
            maker = self._maker(resources, model, notes)
            if isinstance(maker, HoldfastError):
                notes.add(own[0].item[1].sample_id, f"error: {model[0]}{_REFUSED}{maker}", len(own))
                notes.unmade += sum(len(job.parts) for job in own)
            else:
                batches = _batches(self._items(maker.subject, own, notes), self.spec.batch_size)
                # While maps of a batch are made, threads measure those of the batch before.
                for rows in _one_late(map(maker.rows, batches)):
                    yield from (row if isinstance(row, dict) else row.result() for row in rows)
            yield notes

    def _maker(
        self, resources: dict[ModelKey, MapMaker | HoldfastError], model: ModelKey, notes: Summary
    ) -> MapMaker | HoldfastError:
        if model not in resources:
            for other in [key for key, held in resources.items() if isinstance(held, MapMaker)]:
                del resources[other]
            try:
                subject = self._subject(*model)
                for method in self.methods:
                    method.check(subject.network)
                notes.notes += proved(subject.model, self.chosen, self.again.max_pixels)
                resources[model] = MapMaker(subject, self.spec, self.methods, self.opened.path)
            except MachineError:
                raise
            except HoldfastError as error:
                resources[model] = error
        return resources[model]

    def _subject(self, model: str, trained_on: str, fold: int) -> ExplainedModel:
        if trained_on:
            return trained(self.opened, model, trained_on, fold, self.spec.device)
        recorded = self.opened.spec()
        if recorded["verb"] == "segment":
            return segmented(self.opened, self.prepared.collection, model, self.spec.device)
        names = dict(zip(recorded.get("model_names", ()), recorded.get("models", ()), strict=False))
        if model not in names:
            raise UserError(f"{model} is not among the models of this run's last eval; run that again with it")
        return evaluated(self.again, self.prepared.collection, names[model])

    def _items(self, subject: ExplainedModel, jobs: Sequence[ExplainJob], notes: Summary) -> Iterator[Item]:
        """Yield the images, made again and checked, in the model's view."""
        ids = EvaluationIds(self.again, self.prepared, [subject.tested]) if subject.tested else None
        with thread_pool() as threads:
            make = partial(self._views, subject, ids)  # in turns with a network on the same cores
            on_cores = subject.network.device == "cpu"
            all_views = map(make, jobs) if on_cores else ahead(threads, make, jobs, 2 * core_count())
            for job, views in zip(jobs, all_views, strict=True):
                notes.unmade += len(job.parts) - sum(
                    len(view.methods or ()) for _, view in views if isinstance(view, Item)
                )
                for sample, view in views:
                    if isinstance(view, Item):
                        yield view
                    else:
                        notes.add(sample.sample_id, view)

    def _views(
        self, subject: ExplainedModel, ids: EvaluationIds | None, job: ExplainJob
    ) -> list[tuple[Sample, Item | str]]:
        """Return the images of a job, or why there is none."""
        (model, _, _), sample = job.item
        rows = {condition: row for condition, row, _ in job.parts}
        views: list[tuple[Sample, Item | str]] = []
        for rendering in render_conditions(
            sample, list(rows), self.prepared.pool, seed=self.again.seed, max_pixels=self.again.max_pixels
        ):
            condition, rendered, row = rendering.condition, rendering.rendered, rows[rendering.condition]
            if ids is not None and ids.of(sample, condition, [0]) != [row["row_id"]]:
                views.append((sample, f"skipped: {model} or what it saw changed since the run"))
                continue
            if rendered is None or rendered.mask is None:
                views.append((sample, f"skipped: {rendering.error or 'there is no mask for this image'}"))
                continue
            image = over_matte(rendered.image, self.again.matte, sample)
            if row["image_sha256"] and array_sha256(image) != row["image_sha256"]:
                views.append((sample, "skipped: the image is no longer what the models saw"))
                continue
            try:
                view, mask = subject.see(image), subject.see_mask(rendered.mask)
            except SampleError as error:
                views.append((sample, f"error: {error}"))
                continue
            methods = [method for other, _, method in job.parts if other == condition]
            kept = sample.source_id in self._kept
            item = Item(row["row_id"], row["label"], view, mask, kept, self._cascaded(row), methods)
            views.append((sample, item))
        return views


def _one_late(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield each batch after the next has been made."""
    before = None
    for batch in batches:
        if before is not None:
            yield before
        before = batch
    if before is not None:
        yield before


def _batches(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Yield batches of images of one shape, as they come."""
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
        reason = next(iter(summary.trouble), "no image of it could be made again")
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
