"""``holdfast segment``: train segmenters within scenarios, or test those there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.schema import PREDICTIONS, SCHEMA_VERSION, SEGMENTS, row_id
from holdfast.core.types import Collection, Sample
from holdfast.data.labels import read_label_file
from holdfast.engine import core_count
from holdfast.models import load_segmenter
from holdfast.pipeline.environment import environment
from holdfast.pipeline.evaluation import row_key
from holdfast.pipeline.files import check_apart
from holdfast.pipeline.progress import Progress, silent
from holdfast.pipeline.samples import Prepared, prepare, read, samples_table
from holdfast.pipeline.segmented import networks, testing
from holdfast.pipeline.segmented.training import SegmentTraining
from holdfast.pipeline.summary import Summary
from holdfast.pipeline.trained import recipes
from holdfast.pipeline.trained.pictures import Renderer, Showing, Team, showing, tensors_of
from holdfast.pipeline.trained.plan import TrainSpec, conditions_of, content_of
from holdfast.pipeline.trained.recipes import Recipe
from holdfast.pipeline.trained.train import Kind, train
from holdfast.pipeline.trained.work import TESTED
from holdfast.scenarios import Condition
from holdfast.stats.grid import WITHOUT_OBJECT
from holdfast.stats.segments import SEGMENT
from holdfast.store import Run, writing

__all__ = ["SegmentSpec", "segment"]

SIZE = 256
"""Pixels of the square pictures, as published with XIMAGENET-12."""

SEGMENTERS = Kind("segment", networks.resolve, networks.build, SegmentTraining)


@dataclass(frozen=True)
class SegmentSpec(TrainSpec):
    """What ``holdfast segment`` does: train ``architectures``, or test ``models``; never both in one run.

    Attributes:
        models: segmenters by name, tested as they are.
        labels: CSV that maps classes to their outputs.
    """

    models: tuple[str, ...] = ()
    labels: str | None = None

    @property
    def task(self) -> str:
        """As in the one table."""
        return SEGMENT

    @property
    def protocol(self) -> str:
        """The best class of every pixel, in pictures of so many pixels."""
        return f"argmax@{self.settled().size}"

    def settled(self) -> Recipe:
        """The recipe with what this asks for instead."""
        size = self.size or SIZE
        return recipes.find(self.recipe, epochs=self.epochs, batch_size=self.batch_size, size=size, rate=self.rate)


def segment(spec: SegmentSpec, out: Path, *, progress: Progress = silent) -> tuple[Run, Summary]:
    """Train and test, or test only, and write the rows that are not there yet."""
    if bool(spec.models) == bool(spec.architectures):
        which = "not both" if spec.models else "one of them"
        raise UserError(
            f"segment trains --architectures smp:FPN@resnet50,… or tests --models embedded:unet,…: name {which}"
        )
    collection = read(spec)
    _check(spec, collection)
    if spec.architectures:
        return train(spec, out, progress=progress, kind=SEGMENTERS)
    return _evaluate(spec, collection, out, progress)


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


def _evaluate(spec: SegmentSpec, collection: Collection, out: Path, progress: Progress) -> tuple[Run, Summary]:
    run, summary = Run(out), Summary()
    with writing(out):
        check_apart(collection.samples, out)
        conditions = conditions_of(spec, collection)
        tested = _load(spec, collection)
        prepared = prepare(spec, collection, progress)
        recorded = asdict(spec) | {"verb": "segment", "dataset": collection.name, "classes": list(collection.classes)}
        recorded |= {"models": list(spec.models), "architectures": [], "matte": list(spec.matte), "tests": "given"}
        run.begin(recorded, same=("verb", "dataset", "classes", "seed", "tests", "matte", "feather"))
        run.write_environment(environment())
        run.write_samples(samples_table(prepared))
        for problem in collection.problems:
            summary.add(problem.sample_id, problem.message)
        if spec.retry_errors:
            run.predictions.drop(pc.field("status") == "error")
        work = [
            (model, condition, _plan(spec, prepared, model, condition))
            for model in tested
            for condition in conditions.values()
        ]
        _forget(run, work)
        stored = run.predictions.stored_ids()
        owed = [
            (model, condition, {shown: one for shown, one in plan.items() if one not in stored})
            for model, condition, plan in work
        ]
        total = sum(len(plan) for *_, plan in owed)
        summary.already = sum(len(plan) for *_, plan in work) - total
        progress("segment", 0, total)
        team = Team(spec.renderers or core_count())
        for model, _, plan in owed:
            for part in _parts(spec, prepared, run, model, plan, team):
                summary.merge(part)
                progress("segment", summary.rows, total)
    return run, summary


def _load(spec: SegmentSpec, collection: Collection) -> list[testing.Tested]:
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


def _plan(spec: SegmentSpec, prepared: Prepared, model: testing.Tested, condition: Condition) -> Plan:
    """What is shown, by sample and what is made of it, and the row it makes."""
    plan = {}
    for sample, made in showing(prepared.collection.samples, condition):
        image, mask = content_of(spec, prepared, sample, made)
        key = _key(spec, prepared, (sample, made), model.segmenter.name)
        plan[sample.sample_id, made] = row_id(key, image=image, mask=mask, model=model.fingerprint)
    return plan


def _forget(run: Run, work: Sequence[tuple[testing.Tested, Condition, Plan]]) -> None:
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


def _parts(
    spec: SegmentSpec, prepared: Prepared, run: Run, model: testing.Tested, plan: Plan, team: Team
) -> Iterator[Summary]:
    """Show the pictures of one condition to one model, and write a part of the table at a time."""
    by_id = {sample.sample_id: sample for sample in prepared.collection.samples}
    shown = [(by_id[sample], made) for sample, made in plan]
    ids = {sample: row for (sample, _), row in plan.items()}
    made_of = dict(plan.keys())
    classes = prepared.collection.classes
    folder = testing.pictures_folder(run.path)
    kept = {one: folder / f"{ids[one]}.png" for one in testing.chosen(prepared.collection) if one in ids}
    renderer = Renderer(
        prepared.pool, spec.settled().size, spec.seed, spec.max_pixels, spec.matte, hashed=True, team=team
    )
    for start in range(0, len(shown), TESTED):
        pictures = tensors_of(renderer, shown[start : start + TESTED], classes, masks=True)
        found: list[tuple[Sample, dict[str, Any]]] = [
            (sample, {"status": status, "error": error}) for sample, status, error in pictures.failed
        ]
        found += list(testing.outcomes(model, pictures, classes, ids, kept))
        summary = Summary(len(found))
        rows: list[dict[str, Any]] = []
        counted: list[dict[str, Any]] = []
        for sample, outcome in found:
            counted += outcome.pop(testing.DETAILS, [])
            key = _key(spec, prepared, (sample, made_of[sample.sample_id]), model.segmenter.name)
            known = {"row_id": ids[sample.sample_id], "run_id": run.run_id, "schema_version": SCHEMA_VERSION}
            rows.append(key | {"label": sample.label} | known | outcome)
            if outcome["status"] != "ok":
                summary.add(sample.sample_id, f"{outcome['status']}: {outcome['error']}")
        # The details first: a row that is there has its counts.
        testing.details(run.path).write(pa.Table.from_pylist(counted, schema=SEGMENTS))
        run.predictions.write(pa.Table.from_pylist(rows, schema=PREDICTIONS))
        yield summary
