"""``holdfast train``: networks × conditions × folds → models, curves and rows of the one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.schema import JOBS
from holdfast.core.types import Collection
from holdfast.engine import Executor, LocalExecutor
from holdfast.models.torch_classifier import resolve_device
from holdfast.pipeline.files import check_apart
from holdfast.pipeline.jobs.execute import execute
from holdfast.pipeline.jobs.plan import Plan, plan
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import begin_run, prepare, read
from holdfast.pipeline.train import architectures
from holdfast.pipeline.train.architectures import Architecture
from holdfast.pipeline.train.plan import (
    TestedPicture,
    TrainingJob,
    TrainingJobs,
    TrainSpec,
    check,
    conditions_of,
    ids_of,
    make_jobs,
    scenarios_text,
    scope_of,
    with_folds,
)
from holdfast.pipeline.train.worker import TrainingWorker
from holdfast.store import Parts, Run, write_table, writing

__all__ = ["TrainSpec", "train"]

SAME = (
    "verb", "dataset", "classes", "seed", "folds", "train_split", "validation", "trained_by", "balance",
    "early_stopping", "matte", "feather",
)  # fmt: skip
"""What must not change when a run is continued; networks and scenarios may be added."""


def _read(spec: TrainSpec) -> Collection:
    return with_folds(read(spec), spec)


@dataclass(frozen=True)
class TrainingKind:
    """What is trained.

    Attributes:
        verb: of the command line.
        resolve: from the name of a network, the size of images and whether it is pretrained to an architecture.
        build: the untrained network of an architecture, for a number of classes, a size of images and a seed.
        worker: trains and tests.
        read: the images of a specification, each with its fold.
        details: the tables of a run beside its rows.
    """

    verb: str
    resolve: Callable[..., Architecture]
    build: Callable[..., Any]
    worker: type[TrainingWorker]
    read: Callable[[Any], Collection] = _read
    details: Callable[[Path], Mapping[str, Parts]] = lambda run: {}


CLASSIFIERS = TrainingKind("train", architectures.resolve, architectures.build, TrainingWorker)


def train(
    spec: TrainSpec,
    out: Path,
    *,
    progress: Progress = silent,
    kind: TrainingKind = CLASSIFIERS,
    executor: Executor | None = None,
) -> tuple[Run, Summary]:
    """Train what is not trained yet, test what is not tested yet, and write models, curves and rows.

    ``executor`` says where the jobs are done; without it, on ``spec.workers`` processes of this machine.
    """
    check(spec)
    recipe = spec.settled()
    run, summary = Run(out), Summary()
    executor = executor or LocalExecutor(spec.workers)
    with writing(out):
        collection = kind.read(spec)
        check_apart(collection.samples, out)
        conditions = conditions_of(spec, collection)
        # Whoever plans for other machines need not have their GPU.
        device = resolve_device(spec.device) if isinstance(executor, LocalExecutor) else spec.device
        networks = _networks(spec, kind, len(collection.classes))
        prepared = prepare(spec, collection, progress)
        recorded = asdict(spec) | {"verb": kind.verb, "dataset": collection.name, "classes": list(collection.classes)}
        recorded |= {"models": [network.name for network in networks], "trained_by": asdict(recipe)}
        recorded |= {"scenarios": scenarios_text(spec), "matte": list(spec.matte)}
        begin_run(run, recorded | {"architectures": list(spec.architectures)}, prepared, summary, same=SAME)
        jobs = TrainingJobs(make_jobs(spec, prepared, conditions, networks), prepared.collection.samples)
        todo = plan(
            run.predictions, jobs, lambda job: ids_of(spec, prepared, job), retry=spec.retry_errors,
            scope=scope_of(spec, collection.name, jobs), details=kind.details(run.path), progress=progress,
        )  # fmt: skip
        worker = kind.worker(spec, prepared.collection, prepared.pool, run.path.absolute(), device)
        summary.merge(_execute(todo, worker, executor, run, progress))
        write_jobs(run)
    return run, summary


def _networks(spec: TrainSpec, kind: TrainingKind, classes: int) -> list[Architecture]:
    """Return the architectures; UserError where one cannot be built, before the first image is read."""
    size = spec.settled().size
    networks = [kind.resolve(name, size=size, pretrained=spec.pretrained) for name in spec.architectures]
    names = [network.name for network in networks]
    if len(set(names)) < len(names):
        raise UserError(f"two of the architectures have one name: {', '.join(names)}")
    for network in networks:
        kind.build(network, classes, size, seed=spec.seed)
    return networks


def _execute(
    todo: Plan[TrainingJob, TestedPicture], worker: TrainingWorker, executor: Executor, run: Run, progress: Progress
) -> Summary:
    """Train and test; after every shard, ``jobs.parquet`` lists the trainings that have ended."""
    workers = min(executor.width, max(1, todo.count))
    if isinstance(executor, LocalExecutor):  # a single job is done in this process
        executor = LocalExecutor(workers)
    if executor.shares_memory:
        worker.watch = lambda done, total: progress("epochs", done, total)
    # The folds of a network share pictures: they stay together, as long as every worker has some.
    folds = worker.spec.folds
    size = folds if workers > 1 and todo.count >= 2 * workers * folds else 1

    def recorded(step: str, done: int, total: int) -> None:
        progress(step, done, total)
        write_jobs(run)

    return execute(
        todo, worker, executor, step="train", size=size, samples=worker.collection.samples,
        donors=worker.pool.samples, progress=recorded,
    )  # fmt: skip


def write_jobs(run: Run) -> None:
    """Write ``jobs.parquet`` from what each job left."""
    records = [json.loads(file.read_text(encoding="utf8")) for file in sorted((run.path / "jobs").rglob("job.json"))]
    if records:
        write_table(run.path / "jobs.parquet", pa.Table.from_pylist(records, schema=JOBS))
