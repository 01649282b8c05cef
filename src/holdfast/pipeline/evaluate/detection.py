"""``holdfast eval`` with detectors: every picture under every condition, a row per object and one per picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.schema import DETECT, PREDICTIONS
from holdfast.core.types import ORIGINAL, Collection
from holdfast.engine import Executor
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.evaluate.detector_worker import Detection, FastDetection, TestedDetector, load_detectors
from holdfast.pipeline.evaluate.matching import as_detectors_see, best_threshold, for_detectors, is_right, judged
from holdfast.pipeline.evaluate.worker import SAME_RUN, RunSetup, recorded_evaluation
from holdfast.pipeline.evaluation_rows import Portion, split_portion
from holdfast.pipeline.generate.backgrounds import Painter, load_painter
from holdfast.pipeline.jobs.execute import choose_executor
from holdfast.pipeline.jobs.progress import Progress, Summary
from holdfast.pipeline.jobs.rows import Row
from holdfast.pipeline.samples import begin_run, prepare
from holdfast.scenarios import Condition, parse_conditions
from holdfast.store import Run

TABLES = ("objects", "images", "detections")  # what detectors leave below details/
_AT_ONCE = 1000  # pictures whose stored answers are read as Python objects
_FAST_SHARD = 4096  # photos of one piece of work with --fast; the processes that decode start once for each
_ON_ONE_GPU, _PAYS = 4, 3000  # processes that share a GPU, and rows from which on that pays
_LARGE = 8  # times the memory of a classifier's picture


def detect_objects(
    spec: EvaluateSpec,
    collection: Collection,
    conditions: Sequence[Condition],
    run: Run,
    executor: Executor,
    progress: Progress,
) -> Summary:
    """Make the rows of detectors that are not stored yet: the originals first, which decide the thresholds."""
    conditions = for_detectors(spec, conditions)
    _check_asked(spec, conditions)
    summary = Summary()
    collection = as_detectors_see(spec, collection)
    tested = load_detectors(spec if executor.shares_memory else replace(spec, device="cpu"), collection)
    painter = load_painter(spec, collection, conditions)
    prepared = prepare(spec, collection, progress)
    before = run.spec() if (run.path / "spec.json").is_file() else {}
    thresholds = _frozen(spec, before, tested)
    recorded = recorded_evaluation(spec, collection, tested, run, task=DETECT.name)
    recorded |= {"painter": painter.record()} if painter else {}
    recorded |= {key: before.get(key, {}) for key in ("thresholds", "threshold_models")}
    begin_run(run, recorded, prepared, summary, same=SAME_RUN)
    for each in tested:
        if spec.fast and not each.fast:
            summary.notes.append(f"{each.model.name} cannot use --fast; used the standard evaluator")
        if missing := sorted(set(collection.classes) - each.known):
            summary.notes.append(
                f"{each.model.name} has no output for {', '.join(missing)}: these objects do not count"
            )
    plain = [condition for condition in conditions if not condition.definition.paints]
    setup = RunSetup(spec, prepared, tested, run, summary, progress, executor, DETECT)
    asked, everyone = tuple(plain), tuple(range(len(tested)))  # ``asked`` decides about stored renderings
    if len(thresholds) < len(tested):
        clean = [condition for condition in plain if condition.scenario == ORIGINAL] or parse_conditions(ORIGINAL)
        whole = Portion(tuple(clean), everyone, asked, renderings=False)
        _make(setup, whole, "originals", thresholds)
        plain = [condition for condition in plain if condition.scenario != ORIGINAL]
        thresholds |= _decided(run, [each for each in tested if each.model.name not in thresholds], summary)
    recorded["thresholds"] = {**recorded["thresholds"], **thresholds}
    identities = {each.model.name: each.fingerprint for each in tested}
    recorded["threshold_models"] = {**recorded["threshold_models"], **identities}
    run.begin(recorded)
    settle(run, thresholds)
    if plain or any(sample.condition != ORIGINAL for sample in prepared.collection.samples):
        _make(setup, Portion(tuple(plain), everyone, asked), "eval", thresholds)
    if painter is not None:
        painter.unread(prepared.collection.samples, summary)
        painting = tuple(condition for condition in conditions if condition.definition.paints)
        _make(setup, Portion(painting, everyone, asked, renderings=False), "paint", thresholds, painter)
    return summary


def _check_asked(spec: EvaluateSpec, conditions: Sequence[Condition]) -> None:
    attacks = [condition.name for condition in conditions if condition.definition.attack]
    if attacks:
        raise UserError(f"{attacks[0]} is an attack on classifiers; leave it out for detectors")
    if spec.expect_accuracy is not None:
        raise UserError("--expect-accuracy is for classifiers; leave it out for detectors")


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


def _make(
    setup: RunSetup, whole: Portion, step: str, thresholds: Mapping[str, float], painter: Painter | None = None
) -> None:
    """Make the rows of a portion that are not stored yet."""
    fast = [place for place in whole.positions if setup.tested[place].fast] if painter is None else []
    for place, portion in enumerate(split_portion(whole, fast)):
        worker = FastDetection if fast and place == 0 else Detection
        plan = setup.plan(portion, painter=painter, details={name: setup.run.details(name) for name in TABLES})
        work, where, size = worker(setup.spec, setup.prepared, setup.run.path, thresholds), setup.executor, 0
        if worker is FastDetection:  # many small steps keep a process busy, not the GPU
            where = choose_executor(
                plan, work, where, setup.spec.device, setup.spec.models, batch=_LARGE * setup.spec.batch_size,
                parameters=sum(each.parameters for each in setup.tested), most=_ON_ONE_GPU, pays=_PAYS,
            )  # fmt: skip
            size = min(_FAST_SHARD, -(-plan.count // (1 if where.remote else where.width)))
        setup.execute(plan, work, step=step, conditions=portion.conditions, size=size, painter=painter, executor=where)


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
    run.predictions.drop_ids(ids)  # first: what is killed here is owed again
    for name in ("objects", "images"):
        table = run.details(name)
        table.drop_ids(ids)
        if changed[name]:
            table.write(pa.Table.from_pylist(changed[name], schema=table.schema), of=ids)
    judged_rows = [row | {"correct": outcomes[row["row_id"]]} for row in rows]
    run.predictions.write(pa.Table.from_pylist(judged_rows, schema=PREDICTIONS))
    return len(ids)
