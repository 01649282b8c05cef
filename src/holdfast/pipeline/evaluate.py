"""Images × conditions × models → the one table: planning, resuming, and the check of clean accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.schema import row_id
from holdfast.core.types import ORIGINAL, Sample
from holdfast.engine import LocalExecutor
from holdfast.pipeline.environment import environment
from holdfast.pipeline.evaluation import (
    PROTOCOL,
    TASK,
    EvaluateSpec,
    Evaluation,
    Job,
    Tested,
    check_attacks,
    load_models,
    row_key,
)
from holdfast.pipeline.generated.backgrounds import Painter, load_painter
from holdfast.pipeline.progress import Progress, silent
from holdfast.pipeline.samples import (
    Prepared,
    applicable,
    check_applicable,
    prepare,
    read,
    samples_table,
    stored_conditions,
)
from holdfast.pipeline.summary import Summary
from holdfast.scenarios import Condition, parse_conditions
from holdfast.store import Run, writing

__all__ = ["EvaluateSpec", "evaluate", "parse_matte"]


def evaluate(spec: EvaluateSpec, out: Path, *, progress: Progress = silent) -> tuple[Run, Summary]:
    """Run every model on every sample under every condition, and write the rows that are not there yet."""
    conditions = parse_conditions(spec.scenarios, feather=spec.feather)
    if not spec.models:
        raise UserError("no model was named; --models a,b lists them (holdfast ls models)")
    run, summary = Run(out), Summary()
    with writing(out):  # first of all: nobody should wait for models to hear that nothing can be written
        collection = read(spec)
        check_applicable(collection.samples, conditions)
        tested = load_models(spec, collection)
        check_attacks(conditions, tested)
        painter = load_painter(spec, collection, conditions)
        prepared = prepare(spec, collection, progress)
        recorded = asdict(spec) | {"verb": "evaluate", "dataset": collection.name}
        recorded["classes"] = list(collection.classes)
        recorded["model_names"] = [model.classifier.name for model in tested]
        recorded |= {"painter": painter.record()} if painter else {}
        run.begin(_jsonable(recorded), same=("verb", "dataset", "classes", "seed"))
        run.write_environment(environment())
        run.write_samples(samples_table(prepared))
        for problem in collection.problems:
            summary.add(problem.sample_id, problem.message)
        if spec.retry_errors:
            run.predictions.drop(pc.field("status") == "error")
        if spec.expect_accuracy is not None:
            only = [one for one in conditions if one.scenario == ORIGINAL] or parse_conditions(ORIGINAL)
            _pass(spec, prepared, tested, only, run, summary, progress, step="clean")
            _check_accuracy(run, spec.expect_accuracy, [model.classifier.name for model in tested])
        plain = [one for one in conditions if not one.definition.paints]
        painting = [one for one in conditions if one.definition.paints]
        already = _pass(spec, prepared, tested, plain, run, summary, progress, step="eval") if plain else 0
        if painter is not None:
            painter.unread(collection.samples, summary)
            already += _pass(spec, prepared, tested, painting, run, summary, progress, step="paint", painter=painter)
        summary.already = already
    return run, summary


def parse_matte(text: str) -> tuple[int, int, int]:
    """A colour by name or as R,G,B."""
    named = {"white": (255, 255, 255), "black": (0, 0, 0), "grey": (128, 128, 128)}
    if text in named:
        return named[text]
    try:
        red, green, blue = (int(part) for part in text.split(","))
    except ValueError:
        red = green = blue = -1
    if not all(0 <= value <= 255 for value in (red, green, blue)):
        raise UserError(f"--matte {text!r} is neither white, black, grey nor R,G,B with values 0 to 255")
    return red, green, blue


def _jsonable(value: dict[str, Any]) -> dict[str, Any]:
    return {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}


def _pass(
    spec: EvaluateSpec,
    prepared: Prepared,
    tested: list[Tested],
    conditions: list[Condition],
    run: Run,
    summary: Summary,
    progress: Progress,
    *,
    step: str,
    painter: Painter | None = None,
) -> int:
    """Write the rows of these conditions that are not there yet; returns how many were.

    With a painter all of them are made in this process: a generator is too large to be loaded once a worker.
    """
    others = run.predictions.stored_ids()
    jobs, owed, already = _plan(spec, prepared, tested, conditions, others, painter)
    run.predictions.drop_ids(_superseded(run, prepared, tested, conditions, others))
    done = 0
    progress(step, 0, owed)
    # A part file a shard: small enough that a kill costs little, large enough that a big run has only hundreds.
    # It also holds enough rows to fill a few batches of each model.
    size = max(8, len(jobs) // 500, 4 * spec.batch_size // max(1, len(conditions)))
    shards = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    work = Evaluation(spec, prepared, run.path, tested, painter)
    for part in LocalExecutor(1 if painter else spec.workers).map(work, shards):
        summary.merge(part)
        done += part.rows
        progress(step, done, owed)
    return already


def _plan(
    spec: EvaluateSpec,
    prepared: Prepared,
    tested: list[Tested],
    conditions: list[Condition],
    stored: set[str],
    painter: Painter | None,
) -> tuple[list[Job], int, int]:
    """The jobs, how many rows they owe and how many are stored; takes the planned ids out of ``stored``."""
    jobs, owed, already = [], 0, 0
    stored_as_images = stored_conditions(prepared.collection.samples)
    for sample in prepared.collection.samples:
        missing = []
        for condition in applicable(sample, conditions, stored_as_images):
            ids = row_ids(spec, prepared, tested, sample, condition, painter)
            left = [(position, one) for position, one in enumerate(ids) if one not in stored]
            stored.difference_update(ids)
            already += len(ids) - len(left)
            owed += len(left)
            if left:
                missing.append((condition, left))
        if missing:
            jobs.append(Job(sample, missing))
    return jobs, owed, already


def _superseded(
    run: Run, prepared: Prepared, tested: list[Tested], conditions: list[Condition], others: set[str]
) -> list[str]:
    """Which of the stored rows that are not planned stand for a planned one, measured before something changed.

    The image, the mask, the label, the donors, the weights: kept beside the new row, the old one would count twice.
    """
    if not others:
        return []
    samples = {sample.sample_id: sample for sample in prepared.collection.samples}
    planned = {(one.scenario, one.variant, one.parameters_json) for one in conditions}
    columns = ["row_id", "sample_id", "condition", "variant", "parameters"]
    here = (
        (pc.field("task") == TASK)
        & (pc.field("protocol") == PROTOCOL)
        & pc.field("model").isin([model.classifier.name for model in tested])
    )
    return [
        row["row_id"]
        for row in run.predictions.dataset().to_table(columns, here).to_pylist()
        if row["row_id"] in others
        and (sample := samples.get(row["sample_id"])) is not None
        and (
            (row["condition"], row["variant"], row["parameters"]) in planned
            if sample.condition == ORIGINAL
            else applicable(sample, conditions, ())
        )
    ]


def row_ids(
    spec: EvaluateSpec,
    prepared: Prepared,
    tested: list[Tested],
    sample: Sample,
    condition: Condition,
    painter: Painter | None,
) -> list[str]:
    """The names of a sample's rows under a condition, one a model."""
    definition = condition.definition
    pool = prepared.pool_fingerprint if definition.donor else ""
    painted = [painter.identity(sample)] if painter and definition.paints else []
    image = fingerprint([prepared.images[sample.sample_id], sample.label, pool, spec.matte, *painted])
    mask = prepared.masks[sample.sample_id] if definition.needs_mask else ""
    ids = []
    for model in tested:
        key = row_key(spec, prepared.collection.name, sample, condition, model.classifier.name)
        ids.append(row_id(key, image=image, mask=mask, model=model.fingerprint))
    return ids


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
