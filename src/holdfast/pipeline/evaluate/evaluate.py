"""``holdfast eval``: run every model on every image under every condition."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow.compute as pc

from holdfast import registry
from holdfast.core.hooks import Hook, call_hooks
from holdfast.core.tasks import Task, check_supported
from holdfast.core.types import ORIGINAL
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.evaluate.asked import asked_features, check_not_mixed, check_together
from holdfast.pipeline.evaluate.evaluating import Evaluating, missing_masks
from holdfast.pipeline.evaluate.search import searched
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import check_answered
from holdfast.pipeline.samples import check_applicable, read
from holdfast.pipeline.tasks import recognised
from holdfast.scenarios import parse_conditions
from holdfast.stats.effects.sanity import sentences
from holdfast.store import Run, writing

__all__ = ["EvaluateSpec", "evaluate"]

LOG = logging.getLogger(__name__)


def evaluate(
    spec: EvaluateSpec,
    out: Path,
    *,
    progress: Progress = silent,
    executor: Executor | None = None,
    hooks: Sequence[Hook] = (),
) -> tuple[Run, Summary]:
    """Ask every model about every image under every condition, and write the rows that are not stored yet.

    Args:
        spec: the options.
        out: the run directory.
        progress: called with the name of a step, how much of it is done, and its total.
        executor: where work runs; by default, ``spec.workers`` processes of this machine.
        hooks: what accompanies this run apart from the installed hooks.

    Returns:
        The run, and what was made.
    """
    conditions = parse_conditions(spec.scenarios, feather=spec.feather)
    check_together(spec, out)
    asked = asked_features(spec, conditions)
    if spec.search:
        searched(conditions)  # says what is missing, before anything is read
    hooks = [*map(registry.hooks.get, registry.hooks), *hooks]
    run = Run(out)
    with writing(out):  # first: no one should wait for models to hear that nothing can be written
        check_not_mixed(run, spec)
        collection = read(spec)
        check_applicable(collection.samples or collection.empty, conditions)
        task = recognised(collection, spec.models)
        check_supported(task, asked)
        making: type[Evaluating] = registry.resolved(task.evaluation)
        work = making(
            task, spec, collection, conditions, run, executor=executor or LocalExecutor(spec.workers),
            progress=progress, hooks=hooks,
        )  # fmt: skip
        for note in missing_masks(spec, collection, conditions):
            LOG.warning("%s", note.partition(": ")[0])  # before the work; what to do is below its outcome
            work.summary.notes.append(note)
        with closing(work):
            work.begin()
            work.make_rows()
    check_answered(run, run.spec()["model_names"])
    work.summary.notes += broken_models(run, task)
    call_hooks(hooks, "on_run_end", work.begun)
    return run, work.summary


def broken_models(run: Run, task: Task) -> list[str]:
    """Return a sentence for each model whose answers to unchanged images look like those of a broken one."""
    original = pc.field("condition") == ORIGINAL
    return sentences(
        task.broken(
            lambda: run.predictions.dataset().filter(original),
            lambda name: run.details(name).dataset().to_table(filter=original),
        )
    )
