"""``holdfast eval`` with detectors: every image under every condition, a row per object and one per image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.schema import PREDICTIONS
from holdfast.core.tasks import Task
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.engine import Executor
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.evaluate.detector_worker import Detection, FastDetection, TestedDetector, load_detectors
from holdfast.pipeline.evaluate.evaluating import Evaluating
from holdfast.pipeline.evaluate.matching import as_detectors_see, best_threshold, for_detectors, is_right, judged
from holdfast.pipeline.evaluate.worker import Evaluation
from holdfast.pipeline.evaluation_rows import Part, Portion, split_portion
from holdfast.pipeline.jobs.execute import choose_executor
from holdfast.pipeline.jobs.plan import Plan
from holdfast.pipeline.jobs.progress import Summary
from holdfast.pipeline.jobs.rows import Row
from holdfast.pipeline.samples import Prepared
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import supports
from holdfast.store import Run

_AT_ONCE = 1000  # images whose stored answers are read as Python objects
_FAST_SHARD = 4096  # images of one piece of work with --fast; the processes that decode start once for each
_ON_ONE_GPU, _PAYS = 4, 3000  # processes that share a GPU, and rows from which on that pays
_LARGE = 8  # times the memory of a classifier's image


class DetectorEvaluating(Evaluating):
    """One command on detectors: the originals first, which decide the thresholds."""

    def __init__(
        self,
        task: Task,
        spec: EvaluateSpec,
        collection: Collection,
        conditions: Sequence[Condition],
        run: Run,
        **options: Any,
    ) -> None:
        super().__init__(
            task, spec, as_detectors_see(spec, collection), for_detectors(spec, conditions), run, **options
        )
        self.thresholds: dict[str, float] = {}

    def load(self) -> list[TestedDetector]:
        """Return the detectors."""
        spec = self.spec if self.executor.shares_memory else replace(self.spec, device="cpu")
        return load_detectors(spec, self.collection)

    def facts(self) -> dict[str, Any]:
        """Return the thresholds of an earlier command."""
        self.thresholds = _frozen(self.spec, self.before, self.tested)
        return {key: self.before.get(key, {}) for key in ("thresholds", "threshold_models")}

    def begin(self) -> None:
        """Load and record; note what the detectors cannot do."""
        super().begin()
        for each in self.tested:
            if self.spec.fast and not each.fast:
                self.summary.notes.append(f"{each.model.name} cannot use --fast; used the standard evaluator")
            if missing := sorted(set(self.collection.classes) - each.known):
                self.summary.notes.append(
                    f"{each.model.name} has no output for {', '.join(missing)}: these objects do not count"
                )

    def decides_on_originals(self) -> bool:
        """Return whether a threshold is missing."""
        return len(self.thresholds) < len(self.tested)

    def originals_made(self) -> None:
        """Freeze the thresholds, and judge stored answers that had none."""
        unknown = [each for each in self.tested if each.model.name not in self.thresholds]
        self.thresholds |= _decided(self.run, unknown, self.summary)
        identities = {each.model.name: each.fingerprint for each in self.tested}
        recorded = self.run.spec()
        for name, values in (("thresholds", self.thresholds), ("threshold_models", identities)):
            recorded[name] = {**recorded[name], **values}
        self.run.begin(recorded)
        settle(self.run, self.thresholds)

    def portions(self, whole: Portion, prepared: Prepared, step: str) -> Sequence[Portion]:
        """Return what detectors see in a fast pass, and the rest."""
        return split_portion(whole, [place for place in whole.positions if self.tested[place].fast])

    def worker(self, portion: Portion, prepared: Prepared) -> Detection:
        """Return what turns jobs into rows."""
        fast = all(self.tested[place].fast for place in portion.positions) and all(map(supports, portion.conditions))
        kind = FastDetection if fast else Detection
        return kind(self.spec, prepared, self.run.path, self.task, self.thresholds)

    def placed(self, plan: Plan[Sample, Part], worker: Evaluation, portion: Portion) -> tuple[Executor, int]:
        """Return where a plan is executed: many small steps of the fast pass keep a process busy, not the GPU."""
        if not isinstance(worker, FastDetection):
            return self.executor, 0
        where = choose_executor(
            plan, worker, self.executor, self.spec.device, self.spec.models, batch=_LARGE * self.spec.batch_size,
            parameters=sum(each.parameters for each in self.tested), most=_ON_ONE_GPU, pays=_PAYS,
        )  # fmt: skip
        return where, min(_FAST_SHARD, -(-plan.count // (1 if where.remote else where.width)))


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
    """Yield the image's row, its objects and its predictions of answered images; some images at a time."""
    images = run.details("images").dataset().to_table(filter=wanted & (pc.field("status") == "ok"))
    for start in range(0, len(images), _AT_ONCE):
        some = images.slice(start, _AT_ONCE).to_pylist()
        ids = pa.array([row["row_id"] for row in some])
        beside: dict[str, dict[str, list[Row]]] = {}
        for name in ("objects", "detections"):
            beside[name] = defaultdict(list)
            for row in run.details(name).dataset().to_table(filter=pc.field("row_id").isin(ids)).to_pylist():
                beside[name][row["row_id"]].append(row)
        for row in some:
            yield row, beside["objects"][row["row_id"]], beside["detections"][row["row_id"]]


def settle(run: Run, thresholds: Mapping[str, float]) -> int:
    """Judge stored answers that were given before their threshold was known; return how many there were."""
    undecided = pc.field("threshold").is_null() & pc.field("model").isin(list(thresholds))
    changed: dict[str, list[Row]] = {"objects": [], "images": []}
    outcomes: dict[str, bool | None] = {}
    for image, objects, predictions in stored_answers(run, undecided):
        answered, columns = judged(objects, predictions, thresholds[image["model"]])
        outcomes[image["row_id"]] = is_right(answered, columns)
        changed["objects"] += answered
        changed["images"].append(image | columns)
    if not outcomes:
        return 0
    ids = list(outcomes)
    rows = run.predictions.dataset().to_table(filter=pc.field("row_id").isin(pa.array(ids))).to_pylist()
    run.predictions.drop_ids(ids)  # first: what is killed here is missing again
    for name in ("objects", "images"):
        table = run.details(name)
        table.drop_ids(ids)
        if changed[name]:
            table.write(pa.Table.from_pylist(changed[name], schema=table.schema), of=ids)
    judged_rows = [row | {"correct": outcomes[row["row_id"]]} for row in rows]
    run.predictions.write(pa.Table.from_pylist(judged_rows, schema=PREDICTIONS))
    return len(ids)
