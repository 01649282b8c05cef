"""Networks × conditions × folds → models, curves and rows of the one table: planning, resuming, and the workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
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
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.retry import drop_errors
from holdfast.pipeline.jobs.sharding import seeing
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared, begin_run, prepare, read
from holdfast.pipeline.train import architectures
from holdfast.pipeline.train.architectures import Architecture
from holdfast.pipeline.train.plan import (
    TrainingJob,
    TrainSpec,
    check,
    conditions_of,
    ids_of,
    make_jobs,
    scenarios_text,
    tested_on,
    with_folds,
)
from holdfast.pipeline.train.worker import OwedJob, TrainingWorker
from holdfast.scenarios import Condition
from holdfast.store import Run, write_table, writing

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
        training: what a process does with the jobs it is given.
        read: the images of a specification, each with its fold.
    """

    verb: str
    resolve: Callable[..., Architecture]
    build: Callable[..., Any]
    training: type[TrainingWorker]
    read: Callable[[Any], Collection] = _read


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
    with writing(out):
        collection = kind.read(spec)
        check_apart(collection.samples, out)
        conditions = conditions_of(spec, collection)
        # Whoever plans for other machines need not have their GPU.
        local = executor is None or isinstance(executor, LocalExecutor)
        device = resolve_device(spec.device) if local else spec.device
        networks = [kind.resolve(name, size=recipe.size, pretrained=spec.pretrained) for name in spec.architectures]
        names = [network.name for network in networks]
        if len(set(names)) < len(names):
            raise UserError(f"two of the architectures have one name: {', '.join(names)}")
        for network in networks:  # what cannot be built is known before the first image is read
            kind.build(network, len(collection.classes), recipe.size, seed=spec.seed)
        prepared = prepare(spec, collection, progress)
        recorded = asdict(spec) | {"verb": kind.verb, "dataset": collection.name, "classes": list(collection.classes)}
        recorded |= {"models": names, "trained_by": asdict(recipe), "scenarios": scenarios_text(spec)}
        recorded |= {"matte": list(spec.matte), "architectures": list(spec.architectures)}
        begin_run(run, recorded, prepared, summary, same=SAME)
        jobs = make_jobs(spec, prepared, conditions, networks)
        if spec.retry_errors:
            drop_errors(
                run.predictions, (row_id for job in jobs for _, ids in _planned(spec, prepared, job) for row_id in ids)
            )
        owed, summary.already = _owed(spec, prepared, jobs, run.predictions.stored_ids())
        for part in _work(spec, prepared, owed, run, device, progress, kind, executor):
            summary.merge(part)
        write_jobs(run)
    return run, summary


def _owed(
    spec: TrainSpec, prepared: Prepared, jobs: Sequence[TrainingJob], stored: set[str]
) -> tuple[list[OwedJob], int]:
    """Return the jobs with conditions whose rows are missing, and how many rows are stored."""
    owed, already = [], 0
    for job in jobs:
        missing = []
        for (name, condition), ids in _planned(spec, prepared, job):
            present = sum(row_id in stored for row_id in ids)
            already += present
            if present < len(ids):
                already -= present  # they are written anew with the others of their file
                missing.append((name, condition))
        if missing:
            owed.append(OwedJob(job, tuple(missing)))
    return owed, already


def _planned(
    spec: TrainSpec, prepared: Prepared, job: TrainingJob
) -> Iterator[tuple[tuple[str, Condition], list[str]]]:
    """Yield the conditions that a job is tested under, with the row ids of each."""
    for name, condition in job.tested:
        yield (name, condition), ids_of(spec, prepared, job, tested_on(job, condition, prepared.collection.samples))


def _work(
    spec: TrainSpec,
    prepared: Prepared,
    owed: Sequence[OwedJob],
    run: Run,
    device: str,
    progress: Progress,
    kind: TrainingKind,
    executor: Executor | None,
) -> Iterator[Summary]:
    """Do the jobs on as many processes as asked for; yield the summary of each shard."""
    executor = executor or LocalExecutor(spec.workers)
    workers = min(executor.width, max(1, len(owed)))
    if isinstance(executor, LocalExecutor):  # a single job is done in this process
        executor = LocalExecutor(workers)
    watch = (lambda done, total: progress("epochs", done, total)) if executor.shares_memory else None
    training = kind.training(spec, prepared, run.path.absolute(), device, watch)
    progress("jobs", 0, len(owed))
    done = 0
    seen = seeing(training, prepared.collection.samples, executor, prepared.pool.samples)
    for jobs, part in executor.map(seen, _shards(owed, workers)):
        done += jobs
        progress("jobs", done, len(owed))
        write_jobs(run)
        yield part


def _shards(owed: Sequence[OwedJob], workers: int) -> list[list[OwedJob]]:
    """Return shards in which jobs that share pictures stay together, as long as every worker has some."""
    together: dict[tuple[str, str], list[OwedJob]] = {}
    for owed_job in owed:
        together.setdefault(
            (owed_job.job.trained_on, owed_job.job.architecture.name if workers > 1 else ""), []
        ).append(owed_job)
    if len(together) < 2 * workers and workers > 1:
        return [[owed_job] for owed_job in owed]
    if workers == 1:  # a job at a time, in this order, so that progress is told after each
        return [[owed_job] for shard in together.values() for owed_job in shard]
    return list(together.values())


def write_jobs(run: Run) -> None:
    """Write ``jobs.parquet`` from what each job left."""
    records = [json.loads(file.read_text(encoding="utf8")) for file in sorted((run.path / "jobs").rglob("job.json"))]
    if records:
        write_table(run.path / "jobs.parquet", pa.Table.from_pylist(records, schema=JOBS))
