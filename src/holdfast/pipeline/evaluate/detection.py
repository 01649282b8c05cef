"""``holdfast eval`` with detectors: every picture under every condition, a row per object and one per picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.annotate import load_guided
from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.objects import DETECTIONS, IMAGES, OBJECTS, Detections, Detector
from holdfast.core.schema import PREDICTIONS
from holdfast.core.tasks import DETECT
from holdfast.core.types import ORIGINAL, Collection, Problem
from holdfast.data.labels import LabelMap, class_keys, map_labels
from holdfast.engine import Executor
from holdfast.models import is_detector, load_detector
from holdfast.pipeline.classifiers import EvaluateSpec, check_names
from holdfast.pipeline.donors import load_sample
from holdfast.pipeline.evaluate.matching import best_threshold, is_right, judged
from holdfast.pipeline.evaluate.shown_objects import has_objects, shown_objects, with_foreground
from holdfast.pipeline.evaluate.worker import Evaluation, Loaded, ReadyRendering, WaitingRow
from holdfast.pipeline.evaluation_rows import EvaluationIds, EvaluationJob, Portion, plan_portion, row_key
from holdfast.pipeline.generate.backgrounds import Painter, load_painter
from holdfast.pipeline.jobs.execute import Row, execute
from holdfast.pipeline.jobs.progress import Progress
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared, Rendering, begin_run, prepare
from holdfast.pipeline.speed import parameter_count
from holdfast.scenarios import Condition, parse_conditions
from holdfast.store import Parts, Run

KEY_COLUMNS = ("row_id", "sample_id", "source_id", "condition", "variant", "parameters", "seed", "model", "donor_id")
_AT_ONCE = 1000  # pictures whose stored answers are read as Python objects
_TRUTH, _GIVEN = "_objects", "_detections"  # what a row carries until its details are made


@dataclass(frozen=True)
class TestedDetector:
    """A detector, and the class of the dataset that each of its outputs means (-1: none)."""

    model: Detector
    labels: LabelMap
    fingerprint: str

    @property
    def places(self) -> NDArray[np.int64]:
        """The place of each output's class in the dataset's list, -1 for none."""
        places = np.full(len(self.model.labels), -1, np.int64)
        for place, members in enumerate(self.labels.members):
            places[list(members)] = place
        return places

    @property
    def known(self) -> frozenset[str]:
        """The dataset's classes that the detector has an output for."""
        pairs = zip(self.labels.classes, self.labels.members, strict=True)
        return frozenset(name for name, members in pairs if members)

    def named(self, condition: Condition) -> str:
        """Return the fingerprint that goes into row ids, which is the same under every condition."""
        return self.fingerprint


def asks_detectors(spec: EvaluateSpec, collection: Collection) -> bool:
    """Return whether the models are detectors; UserError where they are mixed, or there are no boxes."""
    detectors = [name for name in spec.models if is_detector(name)]
    if not detectors:
        return False
    if len(detectors) < len(spec.models):
        others = ", ".join(name for name in spec.models if name not in detectors)
        raise UserError(f"{', '.join(detectors)} find objects and {others} name pictures; use two commands")
    if not has_objects((*collection.samples, *collection.empty)):
        raise UserError(
            f"{detectors[0]} is a detector, and {collection.name} has no boxes; name a file of boxes with --boxes"
        )
    return True


def load_detectors(spec: EvaluateSpec, collection: Collection) -> list[TestedDetector]:
    """Load the detectors and map the dataset's classes to their outputs; some classes may have none."""
    keys = class_keys(collection, spec.labels)
    tested = []
    for name in spec.models:
        detector = load_detector(name, device=spec.device, collection=collection)
        if hasattr(detector, "batch_size"):
            detector.batch_size = min(detector.batch_size, spec.batch_size)
        labels = map_labels(collection.classes, keys, detector.labels, some=True)
        tested.append(TestedDetector(detector, labels, fingerprint([detector.fingerprint, labels.fingerprint])))
    check_names([each.model.name for each in tested])
    return tested


def details_of(run: Path) -> dict[str, Parts]:
    """Return the three tables beside the one table, by name."""
    schemas = {"objects": OBJECTS, "images": IMAGES, "detections": DETECTIONS}
    return {name: Parts(run / "details" / name, schema) for name, schema in schemas.items()}


class Detection(Evaluation):
    """The worker: renders as ``Evaluation`` does, asks detectors, and gives every row its details."""

    def __init__(self, spec: EvaluateSpec, prepared: Prepared, run: Path, thresholds: Mapping[str, float]) -> None:
        super().__init__(spec, prepared, run)
        self.thresholds = dict(thresholds)

    def load(self) -> Loaded:
        """Load the detectors."""
        return Loaded(load_detectors(self.spec, self.prepared.collection))

    def run(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[Row]:
        """Yield the rows of these jobs with their objects and predictions, as batches fill."""
        known = {each.model.name: each.known for each in resources.tested}
        for row in super().run(resources, jobs):
            yield self._with_details(row, known[row["model"]])

    def _with_details(self, row: Row, known: frozenset[str]) -> Row:
        objects, predictions = row.pop(_TRUTH, []), row.pop(_GIVEN, [])
        key = {name: row.get(name) for name in KEY_COLUMNS}
        truth = [key | each for each in objects]
        for each in truth:
            if row["status"] != "ok" and each["status"] in ("ok", "removed"):
                each |= {"status": row["status"], "error": row.get("error")}
            elif each["label"] not in known and each["status"] == "ok":
                each |= {"status": "unknown_class", "error": "the model has no output for this class"}
        predictions = [key | each for each in predictions]
        answered, columns = judged(truth, predictions, self.thresholds.get(row["model"]))
        if row["status"] != "ok":
            columns |= {"n_predictions": None, "false_alarms": None}
        else:
            row["correct"] = is_right(answered, columns)
        images = [key | columns | {"status": row["status"], "error": row.get("error")}]
        return row | {"objects": answered, "images": images, "detections": predictions}

    def _prepared(
        self, resources: Loaded, job: EvaluationJob, rendering: Rendering, owed: list[tuple[int, str]]
    ) -> ReadyRendering:
        truth: list[Row] = []
        try:
            truth = self._truth(job, rendering)
        except SampleError as error:
            if rendering.rendered is not None:
                rendering = replace(rendering, rendered=None, error=str(error))
        ready = super()._prepared(resources, job, rendering, owed)
        ready.facts[_TRUTH] = truth
        return ready

    def _truth(self, job: EvaluationJob, rendering: Rendering) -> list[Row]:
        rendered = rendering.rendered
        if rendered is not None and not rendering.moved:
            return shown_objects(job.item, rendering, rendered.image.shape[:2], None)
        image, mask, _ = load_sample(job.item, self.spec.max_pixels)
        return shown_objects(job.item, rendering, image.shape[:2], mask)

    def _ask(self, model: Any, batch: Sequence[WaitingRow], painter: Painter | None) -> list[dict[str, Any]]:
        images = [image for _, _, image in batch]
        answers = model.model.detect(images)
        if len(answers) != len(images):
            raise SampleError(f"the model gave {len(answers)} answers to {len(images)} images")
        return [
            ready.facts | {"status": "ok", _GIVEN: _predictions(model, answer)}
            for (ready, _, _), answer in zip(batch, answers, strict=True)
        ]

    def _row(self, ready: ReadyRendering, model: Any, row_id: str) -> Row:
        sample, condition = ready.job.item, ready.rendering.condition
        key = row_key(self.spec, self.prepared.collection.name, sample, condition, model.model.name, DETECT)
        return key | {"label": sample.label or None, "row_id": row_id, _TRUTH: ready.facts.get(_TRUTH, [])}


def _predictions(model: TestedDetector, answer: Detections) -> list[Row]:
    """Return the predictions of the dataset's classes as columns of ``DETECTIONS``, the best first."""
    places = model.places[answer.labels]
    return [
        {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "score": score, "label": model.labels.classes[place]}
        for (x1, y1, x2, y2), score, place in zip(
            answer.boxes.tolist(), answer.scores.tolist(), places.tolist(), strict=True
        )
        if place >= 0
    ]


def detect_objects(
    spec: EvaluateSpec,
    collection: Collection,
    conditions: Sequence[Condition],
    run: Run,
    executor: Executor,
    progress: Progress,
) -> Summary:
    """Make the rows of detectors that are not stored yet: the originals first, which decide the thresholds."""
    if (
        spec.scenarios == EvaluateSpec.scenarios
    ):  # where nothing was asked for, conditions about one object belong to it
        conditions = [*conditions, *parse_conditions("objects", feather=spec.feather)]
    _check_asked(spec, conditions)
    summary = Summary()
    collection = _as_detectors_see(spec, collection)
    tested = load_detectors(spec if executor.shares_memory else replace(spec, device="cpu"), collection)
    painter = load_painter(spec, collection, conditions)
    prepared = prepare(spec, collection, progress)
    before = run.spec() if (run.path / "spec.json").is_file() else {}
    thresholds = _frozen(spec, before, tested)
    recorded = asdict(spec) | {"verb": "evaluate", "task": DETECT.name, "dataset": collection.name}
    recorded |= {"classes": list(collection.classes), "model_names": [each.model.name for each in tested]}
    counts = {each.model.name: count for each in tested if (count := parameter_count(each.model))}
    recorded["model_parameters"] = before.get("model_parameters", {}) | counts
    recorded |= {"models": list(spec.models), "matte": list(spec.matte), "fast": False}
    recorded |= {"painter": painter.record()} if painter else {}
    recorded |= {key: before.get(key, {}) for key in ("thresholds", "threshold_models")}
    begin_run(run, recorded, prepared, summary, same=("verb", "task", "dataset", "classes", "seed"))
    for each in tested:
        if missing := sorted(set(collection.classes) - each.known):
            summary.notes.append(
                f"{each.model.name} has no output for {', '.join(missing)}: these objects do not count"
            )
    plain = [condition for condition in conditions if not condition.definition.paints]
    steps = _Steps(spec, prepared, tested, run, executor, progress, summary, tuple(plain))
    if len(thresholds) < len(tested):
        clean = [condition for condition in plain if condition.scenario == ORIGINAL] or parse_conditions(ORIGINAL)
        steps.make(clean, "originals", thresholds, renderings=False)
        plain = [condition for condition in plain if condition.scenario != ORIGINAL]
        thresholds |= _decided(run, [each for each in tested if each.model.name not in thresholds], summary)
    recorded["thresholds"] = {**recorded["thresholds"], **thresholds}
    identities = {each.model.name: each.fingerprint for each in tested}
    recorded["threshold_models"] = {**recorded["threshold_models"], **identities}
    run.begin(recorded)
    settle(run, thresholds)
    if plain or any(sample.condition != ORIGINAL for sample in prepared.collection.samples):
        steps.make(plain, "eval", thresholds)
    if painter is not None:
        painter.unread(prepared.collection.samples, summary)
        painting = [condition for condition in conditions if condition.definition.paints]
        steps.make(painting, "paint", thresholds, painter=painter, renderings=False)
    return summary


def _check_asked(spec: EvaluateSpec, conditions: Sequence[Condition]) -> None:
    attacks = [condition.name for condition in conditions if condition.definition.attack]
    if attacks:
        raise UserError(f"{attacks[0]} is an attack on classifiers; leave it out for detectors")
    if spec.expect_accuracy is not None:
        raise UserError("--expect-accuracy is for classifiers; leave it out for detectors")
    if spec.fast:
        raise UserError("--fast cannot run detectors, whose networks keep their own preprocessing; leave it out")


def _as_detectors_see(spec: EvaluateSpec, collection: Collection) -> Collection:
    """Return the pictures that have boxes, with all objects as foreground; the others become problems."""
    every = (*collection.samples, *collection.empty)
    without = [sample for sample in every if sample.objects is None]
    boxed = tuple(sample for sample in collection.samples if sample.objects is not None)
    exact = all(getattr(sample.objects, "exact", False) for sample in boxed)
    problems = (*collection.problems, *(Problem(each.sample_id, "the image has no boxes") for each in without))
    classes = collection.object_classes or collection.classes
    problems = tuple(problem for problem in problems if problem.sample_id not in classes)  # no image: but objects
    seen = replace(collection, samples=boxed, problems=problems, classes=classes)
    return with_foreground(seen, None if exact else load_guided(spec.box_masks))


def _frozen(spec: EvaluateSpec, before: Mapping[str, Any], tested: Sequence[TestedDetector]) -> dict[str, float]:
    """Return the thresholds that are known: those of an earlier command on the same weights, or ``--threshold``."""
    stored, identities = before.get("thresholds", {}), before.get("threshold_models", {})
    thresholds = {}
    for each in tested:
        name = each.model.name
        if name in stored and identities.get(name) == each.fingerprint:
            if spec.threshold is not None and spec.threshold != stored[name]:
                raise UserError(
                    f"the threshold of {name} is frozen at {stored[name]:g} in this run; choose another --out for "
                    f"--threshold {spec.threshold:g}"
                )
            thresholds[name] = float(stored[name])
        elif spec.threshold is not None:
            thresholds[name] = spec.threshold
    return thresholds


@dataclass
class _Steps:
    """What the steps of one run share."""

    spec: EvaluateSpec
    prepared: Prepared
    tested: Sequence[TestedDetector]
    run: Run
    executor: Executor
    progress: Progress
    summary: Summary
    asked: tuple[Condition, ...]  # all conditions that paint nothing; they decide about stored renderings

    def make(
        self,
        conditions: Sequence[Condition],
        step: str,
        thresholds: Mapping[str, float],
        *,
        painter: Painter | None = None,
        renderings: bool = True,
    ) -> None:
        """Make the rows of these conditions that are not stored yet."""
        from holdfast.engine import LocalExecutor

        spec, prepared = self.spec, self.prepared
        ids = EvaluationIds(spec, prepared, self.tested, painter, DETECT)
        portion = Portion(tuple(conditions), tuple(range(len(self.tested))), self.asked, renderings)
        plan = plan_portion(
            self.run.predictions, ids, prepared, self.tested, portion, task=DETECT, details=details_of(self.run.path),
            retry=spec.retry_errors, progress=self.progress,
        )  # fmt: skip
        few = 4 * spec.batch_size // max(1, len(conditions))
        self.summary.merge(
            execute(
                plan, Detection(spec, prepared, self.run.path, thresholds),
                self.executor if painter is None else LocalExecutor(1), step=step,
                size=max(8, plan.count // 500, few), known=Loaded(self.tested, painter),
                samples=prepared.collection.samples, donors=prepared.pool.samples, progress=self.progress,
            )
        )  # fmt: skip


def _decided(run: Run, tested: Sequence[TestedDetector], summary: Summary) -> dict[str, float]:
    """Return the threshold of each detector with the best F1 on the originals."""
    thresholds = {}
    for each in tested:
        originals = (pc.field("model") == each.model.name) & (pc.field("condition") == ORIGINAL)
        pictures = ((objects, predictions) for _, objects, predictions in stored_answers(run, originals))
        threshold, f1 = best_threshold(pictures)
        thresholds[each.model.name] = threshold
        summary.notes.append(
            f"{each.model.name}: boxes count from a score of {threshold:.3f} on (F1 {f1:.2f} on originals)"
        )
    return thresholds


def stored_answers(run: Run, wanted: Any) -> Iterator[tuple[Row, list[Row], list[Row]]]:
    """Yield the picture's row, its objects and its predictions of answered pictures; some pictures at a time."""
    tables = details_of(run.path)
    if not tables["images"].folder.is_dir():
        return
    images = tables["images"].dataset().to_table(filter=wanted & (pc.field("status") == "ok"))
    for start in range(0, len(images), _AT_ONCE):
        some = images.slice(start, _AT_ONCE).to_pylist()
        ids = pa.array([row["row_id"] for row in some])
        beside: dict[str, dict[str, list[Row]]] = {}
        for name in ("objects", "detections"):
            beside[name] = defaultdict(list)
            if tables[name].folder.is_dir():
                for row in tables[name].dataset().to_table(filter=pc.field("row_id").isin(ids)).to_pylist():
                    beside[name][row["row_id"]].append(row)
        for row in some:
            yield row, beside["objects"][row["row_id"]], beside["detections"][row["row_id"]]


def settle(run: Run, thresholds: Mapping[str, float]) -> int:
    """Judge stored answers that were given before their threshold was known; return how many there were."""
    undecided = pc.field("threshold").is_null() & pc.field("model").isin(list(thresholds))
    changed: dict[str, list[Row]] = {"objects": [], "images": [], "detections": []}
    outcomes: dict[str, bool | None] = {}
    for image, objects, predictions in stored_answers(run, undecided):
        answered, columns = judged(objects, predictions, thresholds[image["model"]])
        outcomes[image["row_id"]] = is_right(answered, columns)
        changed["objects"] += answered
        changed["images"].append(image | columns)
    if not outcomes:
        return 0
    ids, tables = list(outcomes), details_of(run.path)
    rows = run.predictions.dataset().to_table(filter=pc.field("row_id").isin(pa.array(ids))).to_pylist()
    run.predictions.drop_ids(ids)  # first: what is killed here is owed again
    for name in ("objects", "images"):
        tables[name].drop_ids(ids)
        if changed[name]:
            tables[name].write(pa.Table.from_pylist(changed[name], schema=tables[name].schema), of=ids)
    judged_rows = [row | {"correct": outcomes[row["row_id"]]} for row in rows]
    run.predictions.write(pa.Table.from_pylist(judged_rows, schema=PREDICTIONS))
    return len(ids)
