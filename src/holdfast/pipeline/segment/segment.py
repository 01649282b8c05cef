"""``holdfast segment``: train segmenters within scenarios, or test those there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.conditions import WITHOUT_OBJECT
from holdfast.core.errors import UserError
from holdfast.core.schema import PREDICTIONS, SCHEMA_VERSION, SEGMENTS, row_id
from holdfast.core.types import Collection, Sample
from holdfast.data.labels import read_label_file
from holdfast.engine import Executor, LocalExecutor, core_count, share_of
from holdfast.models import load_segmenter
from holdfast.pipeline.evaluate.rows import row_key
from holdfast.pipeline.files import check_apart
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.retry import drop_errors
from holdfast.pipeline.jobs.sharding import check_same, elsewhere, seeing, shard_size
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared, begin_run, prepare, read
from holdfast.pipeline.segment import networks, testing
from holdfast.pipeline.segment.training import SegmentTrainingWorker
from holdfast.pipeline.specs import SegmentSpec as SegmentSpec
from holdfast.pipeline.train.pictures import Renderer, Showing, Team, showing, tensors_of
from holdfast.pipeline.train.plan import conditions_of, content_of
from holdfast.pipeline.train.train import TrainingKind, train
from holdfast.pipeline.train.worker import TESTED
from holdfast.scenarios import Condition
from holdfast.store import Run, writing

__all__ = ["SegmentSpec", "segment"]

SEGMENTERS = TrainingKind("segment", networks.resolve, networks.build, SegmentTrainingWorker)


def segment(
    spec: SegmentSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None
) -> tuple[Run, Summary]:
    """Train and test, or test only, and write the rows that are not there yet.

    ``executor`` says where; without it, jobs are done on ``spec.workers`` processes, and models tested in this one.
    """
    if bool(spec.models) == bool(spec.architectures):
        which = "not both" if spec.models else "one of them"
        raise UserError(
            f"segment trains --architectures smp:FPN@resnet50,… or tests --models embedded:unet,…: name {which}"
        )
    collection = read(spec)
    _check(spec, collection)
    if spec.architectures:
        return train(spec, out, progress=progress, kind=SEGMENTERS, executor=executor)
    return _evaluate(spec, collection, out, progress, executor or LocalExecutor(1))


def _check(spec: SegmentSpec, collection: Collection) -> None:
    testing.check_classes(collection.classes)
    if all(sample.mask is None for sample in collection.samples):
        raise UserError(
            f"segmentation needs masks, and none of the {len(collection)} images has one; --masks FOLDER names them, "
            "holdfast mask makes some"
        )
    gone = [one.name for one in conditions_of(spec, collection).values() if one.scenario in WITHOUT_OBJECT]
    if gone:
        raise UserError(f"{', '.join(gone)} takes the object out of the picture: there is nothing to segment")


def _evaluate(
    spec: SegmentSpec, collection: Collection, out: Path, progress: Progress, executor: Executor
) -> tuple[Run, Summary]:
    run, summary = Run(out), Summary()
    with writing(out):
        check_apart(collection.samples, out)
        conditions = conditions_of(spec, collection)
        # Where others ask the models, this process only has to know them.
        tested = _load(replace(spec, device="cpu") if elsewhere(executor) else spec, collection)
        prepared = prepare(spec, collection, progress)
        recorded = asdict(spec) | {"verb": "segment", "dataset": collection.name, "classes": list(collection.classes)}
        recorded |= {"models": list(spec.models), "architectures": [], "matte": list(spec.matte), "tests": "given"}
        same = ("verb", "dataset", "classes", "seed", "tests", "matte", "feather")
        begin_run(run, recorded, prepared, summary, same=same)
        plans = [
            (place, condition, _plan(spec, prepared, model, condition))
            for place, model in enumerate(tested)
            for condition in conditions.values()
        ]
        if spec.retry_errors:
            drop_errors(run.predictions, (one for *_, plan in plans for one in plan.values()))
        _forget(run, [(tested[place], condition, plan) for place, condition, plan in plans])
        stored = run.predictions.stored_ids()
        by_id = {sample.sample_id: sample for sample in collection.samples}
        owed = [
            (place, [((by_id[sample], made), one) for (sample, made), one in plan.items() if one not in stored])
            for place, _, plan in plans
        ]
        total = sum(len(shown) for _, shown in owed)
        summary.already = sum(len(plan) for *_, plan in plans) - total
        size = min(TESTED, shard_size(total, executor, TESTED)) if elsewhere(executor) else TESTED
        shards = [(place, shown[at : at + size]) for place, shown in owed for at in range(0, len(shown), size)]
        progress("segment", 0, total)
        showings = SegmentWorker(spec, prepared, run, tested)
        for part in executor.map(seeing(showings, collection.samples, executor, prepared.pool.samples), shards):
            summary.merge(part)
            progress("segment", summary.rows, total)
    return run, summary


def _load(spec: SegmentSpec, collection: Collection) -> list[testing.TestedSegmenter]:
    keys = dict(collection.keys)
    if spec.labels:
        keys.update(read_label_file(Path(spec.labels)))
    tested = []
    for name in spec.models:
        segmenter = load_segmenter(name, device=spec.device)
        if hasattr(segmenter, "batch_size"):
            segmenter.batch_size = spec.batch_size or segmenter.batch_size
        tested.append(testing.mapped(segmenter, collection.classes, keys))
    names = [model.segmenter.name for model in tested]
    if len(set(names)) < len(names):
        raise UserError(f"two of the models have one name: {', '.join(names)}; give one another with ?name=")
    return tested


Plan = dict[tuple[str, Condition], str]
"""Sample and what is made of it → row."""


def _key(spec: SegmentSpec, prepared: Prepared, shown: Showing, model: str) -> dict[str, Any]:
    own = {"task": spec.task, "protocol": spec.protocol}
    return row_key(spec, prepared.collection.name, *shown, model) | own


def _plan(spec: SegmentSpec, prepared: Prepared, model: testing.TestedSegmenter, condition: Condition) -> Plan:
    """What is shown, by sample and what is made of it, and the row it makes."""
    plan = {}
    for sample, made in showing(prepared.collection.samples, condition):
        image, mask = content_of(spec, prepared, sample, made)
        key = _key(spec, prepared, (sample, made), model.segmenter.name)
        plan[sample.sample_id, made] = row_id(key, image=image, mask=mask, model=model.fingerprint)
    return plan


def _forget(run: Run, work: Sequence[tuple[testing.TestedSegmenter, Condition, Plan]]) -> None:
    """Drop rows that stand for a planned one and were measured before something changed: they would count twice."""
    planned = {one for *_, plan in work for one in plan.values()}
    here = {
        (model.segmenter.name, condition.scenario, condition.variant, condition.parameters_json)
        for model, condition, _ in work
    }
    samples = {sample for *_, plan in work for sample, _ in plan}
    columns = ["row_id", "sample_id", "model", "condition", "variant", "parameters"]
    rows = run.predictions.rows(columns).to_pylist()
    stale = [
        row["row_id"]
        for row in rows
        if row["row_id"] not in planned
        and row["sample_id"] in samples
        and (row["model"], row["condition"], row["variant"], row["parameters"]) in here
    ]
    run.predictions.drop_ids(stale)
    testing.details(run.path).drop_ids(stale)


class SegmentWorker:
    """The work of a shard: pictures of one condition shown to one model, and a part of the table.

    Travels to other processes without its models, which are loaded there on first use.
    """

    def __init__(self, spec: SegmentSpec, prepared: Prepared, run: Run, tested: list[testing.TestedSegmenter]) -> None:
        self.spec = spec
        self.prepared = prepared
        self.run = run.path.absolute()
        self._team: Team | None = None
        self._fingerprints = [model.fingerprint for model in tested]
        self._tested: list[testing.TestedSegmenter] | None = tested

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tested": None, "_team": None}

    @property
    def tested(self) -> list[testing.TestedSegmenter]:
        """The models, loaded now if they are not."""
        if self._tested is None:
            tested = _load(self.spec, self.prepared.collection)
            check_same(
                f"one of {', '.join(self.spec.models)}", self._fingerprints, [model.fingerprint for model in tested]
            )
            self._tested = tested
        return self._tested

    def __call__(self, shard: tuple[int, Sequence[tuple[Showing, str]]]) -> Summary:
        """Show them and write their rows."""
        spec, run, model = self.spec, Run(self.run), self.tested[shard[0]]
        collection = self.prepared.collection
        shown = [one for one, _ in shard[1]]
        ids = {sample.sample_id: row for (sample, _), row in shard[1]}
        made_of = {sample.sample_id: made for sample, made in shown}
        folder = testing.pictures_folder(run.path)
        kept = {one: folder / f"{ids[one]}.png" for one in testing.chosen(collection) if one in ids}
        self._team = self._team or Team(share_of(spec.renderers) if spec.renderers else core_count())
        renderer = Renderer(
            self.prepared.pool, spec.settled().size, spec.seed, spec.max_pixels, spec.matte, hashed=True,
            team=self._team,
        )  # fmt: skip
        pictures = tensors_of(renderer, shown, collection.classes, masks=True)
        found: list[tuple[Sample, dict[str, Any]]] = [
            (sample, {"status": status, "error": error}) for sample, status, error in pictures.failed
        ]
        found += list(testing.outcomes(model, pictures, collection.classes, ids, kept))
        rows: list[dict[str, Any]] = []
        counted: list[dict[str, Any]] = []
        for sample, outcome in found:
            counted += outcome.pop(testing.DETAILS, [])
            key = _key(spec, self.prepared, (sample, made_of[sample.sample_id]), model.segmenter.name)
            known = {"row_id": ids[sample.sample_id], "run_id": run.run_id, "schema_version": SCHEMA_VERSION}
            rows.append(key | {"label": sample.label} | known | outcome)
        # The details first: a row that is there has its counts.
        testing.details(run.path).write(pa.Table.from_pylist(counted, schema=SEGMENTS), of=ids.values())
        run.predictions.write(pa.Table.from_pylist(rows, schema=PREDICTIONS))
        summary = Summary()
        summary.count(rows)
        return summary
