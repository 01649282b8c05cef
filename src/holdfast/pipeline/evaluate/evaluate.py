"""Images × conditions × models → the one table: planning, resuming, and the check of clean accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.evaluate.planning import Names, Portion, make_plan, planned_ids
from holdfast.pipeline.evaluate.worker import (
    EvaluateSpec,
    Evaluation,
    Tested,
    check_attacks,
    know_models,
    load_models,
)
from holdfast.pipeline.fast import OnePass
from holdfast.pipeline.generate.backgrounds import Painter, load_painter
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.retry import drop_errors
from holdfast.pipeline.jobs.sharding import seeing
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared, begin_run, check_applicable, prepare, read
from holdfast.scenarios import Condition, parse_conditions
from holdfast.store import Run, writing

__all__ = ["EvaluateSpec", "evaluate", "row_ids"]


@dataclass(frozen=True)
class _Setup:
    """What the passes of one run share."""

    spec: EvaluateSpec
    prepared: Prepared
    tested: list[Tested]
    run: Run
    summary: Summary
    progress: Progress
    fast: OnePass | None


def evaluate(
    spec: EvaluateSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None
) -> tuple[Run, Summary]:
    """Run every model on every sample under every condition, and write the rows that are not there yet.

    ``executor`` says where; without it, on ``spec.workers`` processes of this machine. What ``spec.fast`` does in one
    pass is done in this process, or by workers of other machines.
    """
    executor = executor or LocalExecutor(spec.workers)
    conditions = parse_conditions(spec.scenarios, feather=spec.feather)
    if not spec.models:
        raise UserError("no model was named; --models a,b lists them (holdfast ls models)")
    run, summary = Run(out), Summary()
    with writing(out):  # first of all: nobody should wait for models to hear that nothing can be written
        _check_not_mixed(run, spec)
        collection = read(spec)
        check_applicable(collection.samples, conditions)
        fast = OnePass(spec, collection, conditions, run, executor) if spec.fast else None
        try:
            tested = _models(spec, collection, conditions, executor, fast)
            painter = load_painter(spec, collection, conditions)
            prepared = prepare(spec, collection, progress)
            recorded = asdict(spec) | {"verb": "evaluate", "dataset": collection.name}
            recorded["classes"] = list(collection.classes)
            recorded["model_names"] = [model.classifier.name for model in tested]
            recorded |= {"painter": painter.record()} if painter else {}
            begin_run(run, _jsonable(recorded), prepared, summary, same=("verb", "dataset", "classes", "seed"))
            setup = _Setup(spec, prepared, tested, run, summary, progress, fast)
            summary.already = _passes(setup, conditions, painter, executor)
        finally:
            if fast is not None:
                fast.close()
    return run, summary


def _models(
    spec: EvaluateSpec,
    collection: Collection,
    conditions: Sequence[Condition],
    executor: Executor,
    fast: OnePass | None,
) -> list[Tested]:
    """The models, loaded where this process asks them; of others only what a plan needs to know."""
    here = executor.shares_memory or (fast is not None and not executor.remote)
    if not here and not any(one.definition.paints for one in conditions):
        return know_models(spec, collection, conditions, fast.try_out if fast is not None else None)
    tested = load_models(spec, collection)
    check_attacks(conditions, tested)
    return [fast.try_out(model) for model in tested] if fast is not None else tested


def _passes(setup: _Setup, conditions: list[Condition], painter: Painter | None, executor: Executor) -> int:
    """All rows that are owed; returns how many were there."""
    expected = setup.spec.expect_accuracy
    if expected is not None:
        only = [one for one in conditions if one.scenario == ORIGINAL] or parse_conditions(ORIGINAL)
        _pass(setup, only, step="clean", executor=executor)
        _check_accuracy(setup.run, expected, [model.classifier.name for model in setup.tested])
    plain = [one for one in conditions if not one.definition.paints]
    painting = [one for one in conditions if one.definition.paints]
    already = _pass(setup, plain, step="eval", executor=executor) if plain else 0
    if painter is not None:
        painter.unread(setup.prepared.collection.samples, setup.summary)
        # In this process: a generator is too large to be loaded once a worker.
        already += _pass(setup, painting, step="paint", executor=LocalExecutor(1), painter=painter)
    return already


def _check_not_mixed(run: Run, spec: EvaluateSpec) -> None:
    """UserError where exact and fast answers would come to lie in one table."""
    if (run.path / "spec.json").exists() and bool(run.spec().get("fast")) != spec.fast:
        there, now = ("exact", "--fast") if spec.fast else ("--fast", "exact")
        raise UserError(
            f"{run.path} holds a run of {there} answers, which do not mix with {now} ones; choose another --out"
        )


def _jsonable(value: dict[str, Any]) -> dict[str, Any]:
    return {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}


def _pass(
    setup: _Setup, conditions: Sequence[Condition], *, step: str, executor: Executor, painter: Painter | None = None
) -> int:
    """Write the rows of these conditions that are not there yet; returns how many were."""
    names = Names(setup.spec, setup.prepared, setup.tested, painter)
    already = 0
    for portion in _portions(setup, tuple(conditions)):
        if setup.spec.retry_errors:
            drop_errors(setup.run.predictions, planned_ids(names, setup.prepared, portion))
        plan = make_plan(setup.run, names, setup.prepared, setup.tested, portion, setup.progress)
        already += plan.already
        results: Iterator[Summary]
        if setup.fast is not None and portion is setup.fast.portion:
            results = setup.fast.work(plan)
        else:
            # A part file a shard: small enough that a kill costs little, large enough that a big run has only hundreds.
            # It also holds enough rows to fill a few batches of each model.
            few = 4 * setup.spec.batch_size // max(1, len(portion.conditions))
            work = Evaluation(setup.spec, setup.prepared, setup.run.path, setup.tested, painter)
            seen = seeing(work, setup.prepared.collection.samples, executor, setup.prepared.pool.samples)
            results = executor.map(seen, plan.shards(max(8, plan.jobs // 500, few)))
        done = 0
        setup.progress(step, 0, plan.owed)
        for part in results:
            setup.summary.merge(part)
            done += part.rows
            setup.progress(step, done, plan.owed)
    return already


def _portions(setup: _Setup, conditions: tuple[Condition, ...]) -> list[Portion]:
    """The conditions and models that go one way, and the others."""
    everything = tuple(range(len(setup.tested)))
    if setup.fast is None or any(one.definition.paints for one in conditions):
        return [Portion(conditions, everything, conditions)]
    return setup.fast.split(conditions, setup.summary)


def row_ids(
    spec: EvaluateSpec,
    prepared: Prepared,
    tested: Sequence[Tested],
    sample: Sample,
    condition: Condition,
    painter: Painter | None,
) -> list[str]:
    """The names of a sample's rows under a condition, one a model."""
    return Names(spec, prepared, tested, painter).of(sample, condition, range(len(tested)))


def _check_accuracy(run: Run, expected: float, models: Sequence[str]) -> None:
    """Stop when clean accuracy is further off than sampling explains: preprocessing or labels are then wrong."""
    from scipy.stats import binomtest

    table = run.rows(["model", "condition", "status", "correct"])
    clean = table.filter(pc.field("condition") == ORIGINAL).filter(pc.field("status") == "ok")
    for model in models:
        right = clean.filter(pc.field("model") == model)["correct"].to_pylist()
        if not right:
            raise UserError(f"{model} answered for no original image, so --expect-accuracy cannot be checked")
        if binomtest(sum(right), len(right), expected).pvalue < 0.01:
            raise UserError(
                f"{model} is right on {sum(right)} of {len(right)} originals ({sum(right) / len(right):.1%}), "
                f"which sampling does not explain if {expected:.1%} is expected: check its preprocessing and --labels"
            )
