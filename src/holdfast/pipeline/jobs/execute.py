"""Run a worker on the jobs of a plan, and write its rows."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeGuard, TypeVar

import pyarrow as pa

from holdfast.core.errors import HoldfastError, UserError, machine_trouble
from holdfast.core.lazy import torch
from holdfast.core.names import parse_name
from holdfast.core.networks import resolve_device, several_gpus
from holdfast.core.places import address
from holdfast.core.schema import SCHEMA_VERSION
from holdfast.core.types import Sample
from holdfast.engine import Executor, LocalExecutor, core_count
from holdfast.pipeline.jobs.plan import Job, Plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import Row
from holdfast.scenarios import Condition
from holdfast.store import Parts

Made = Any  # what a worker yields: a Row, a pa.Table of many rows, or a Summary with notes for the user
Resources = TypeVar("Resources")
Item = TypeVar("Item")
Part = TypeVar("Part")
Shard = TypeVar("Shard")
Result = TypeVar("Result")

_BATCH_ROWS = 2000  # rows that are held as Python objects, which take ten times the memory of a table
_PAUSES = (1.0, 60.0)  # in this process, rows wait so many seconds for their part file, at first and at most
_TOLD_SECONDS = 0.5  # between two reports of progress inside a shard
_BATCHES = 4  # per shard: a half-empty last batch costs little, and so does a killed worker
_SHARDS = 3  # per worker at least, so that a slow worker is not waited for
# Processes on one GPU: on 16 cores 8 of them make 2,296 images a second, 4 make 2,077 and one makes 520. They take
# 5 to 12 s to start, in which one process makes up to 5,000 rows (410 a second; 200 maps or answers to questions).
_MOST, _PAYS = 8, 5000
_ROOM, _PICTURE = 2 << 30, 64 << 20  # bytes on a GPU: of a process without its models, and of an image in a batch
_BY_NAME = ("timm", "torchvision", "torch", "local-dir", "packaged", "embedded", "hf", "owl", "clip", "smp", "vlm")
AT_MOST = "HOLDFAST_GPU_PROCESSES"  # in the environment: how many processes may share a GPU; 1: only this one


class Worker(Protocol[Resources]):
    """What a verb writes: it turns jobs into rows. It holds settings only, so that it can travel to other processes.

    A class that names this one as its base need not write ``fingerprints``, if resources are a model or several.
    """

    name: str
    """What the worker runs, for errors: the models by name."""

    def load(self) -> Resources:
        """Load the models and whatever else cannot travel. It is called once per process, when the first job comes."""

    def fingerprints(self, resources: Resources) -> Sequence[str]:
        """Return one hash per loaded model. A process whose hashes differ from the planner's is refused."""
        models: Any = resources
        return [model.fingerprint for model in (models if isinstance(models, Sequence) else [models])]

    def run(self, resources: Resources, jobs: Any) -> Iterator[Made]:
        """Yield a row per part of each job, in any order; ``jobs.rows`` says which errors become rows.

        ``jobs`` is a list of jobs, or what the verb's ``pack`` made of it.
        """


def execute(
    plan: Plan[Item, Part],
    worker: Worker[Resources],
    executor: Executor | None = None,
    *,
    step: str,  # the name of this step for ``progress``
    size: int = 0,  # jobs per shard, which leaves one part file; 0: a size that keeps all workers busy
    # what this process has loaded. Work in this process uses it; other workers must load the same
    known: Resources | None = None,
    # turns a shard's jobs into what is sent to the worker; the jobs then carry no ids. None: the jobs
    pack: Callable[[list[Job[Item, Part]]], Any] | None = None,
    samples: Iterable[Sample] = (),  # of the jobs: a remote worker must see their files
    donors: Iterable[Sample] = (),  # whose files a remote worker must see, too
    count: Callable[[Summary, pa.Table], None] = Summary.count,  # counts a table of new rows into a summary
    progress: Progress = silent,
) -> Summary:
    """Make the missing rows of a plan; return what was made, with the plan's count of stored rows."""
    executor = executor or LocalExecutor(1)
    report = ProgressReport(plan, step, progress)
    work = ShardWork(plan, worker, known, report if executor.shares_memory else None, count)
    shards: Iterable[Any] = plan.shards(size or shard_size(plan.count, executor, 32), with_ids=pack is None)
    shards = map(pack, shards) if pack is not None else shards
    return report.merged(executor.map(seeing(work, samples, executor, donors), shards))


class ProgressReport:
    """Reports the progress of one step in rows, and merges the summaries of its shards."""

    def __init__(self, plan: Plan[Any, Any], step: str, progress: Progress) -> None:
        self._plan, self._step, self._progress = plan, step, progress
        self._summary, self._reported = Summary(already=plan.already), 0.0
        self._stored = plan.table.count()

    def merged(self, results: Iterable[Any]) -> Summary:
        """Merge the summaries of shards as they arrive."""
        self._progress(self._step, 0, self._plan.owed)
        for part in results:
            self._summary.merge(part)
            self._progress(self._step, self._summary.rows, self._plan.owed)
        self._check_stored()
        if self._summary.rows < self._plan.owed:  # some parts left no row that counts
            self._progress(self._step, self._plan.owed, self._plan.owed)
        return self._summary

    def _check_stored(self) -> None:
        """Raise a HoldfastError if planned rows are missing and nothing says why."""
        missing = self._plan.owed - self._summary.unmade - (self._plan.table.count() - self._stored)
        if missing > 0:
            raise HoldfastError(
                f"{missing} of {self._plan.owed} planned rows were not stored, and no error was reported: a process "
                "may have ended inside a model. What was finished is kept: run the same command again"
            )

    def within(self, rows: int) -> None:
        """Report, now and then, that a shard under way has made so many rows."""
        if time.monotonic() - self._reported > _TOLD_SECONDS:
            self._progress(self._step, min(self._summary.rows + rows, self._plan.owed), self._plan.owed)
            self._reported = time.monotonic()


class ShardWork(Generic[Resources]):
    """Runs a worker on one shard after the other and writes a part file for each. It travels without resources."""

    # ``report`` is None if another process does the work.

    def __init__(
        self,
        plan: Plan[Any, Any],
        worker: Worker[Resources],
        known: Resources | None,
        report: ProgressReport | None,
        count: Callable[[Summary, pa.Table], None],
    ) -> None:
        self._table, self._details, self._worker, self._count = plan.table, plan.details, worker, count
        self._expected = None if known is None else list(worker.fingerprints(known))
        self._resources, self._report, self._pause = known, report, _PAUSES[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_resources": None}

    def __call__(self, jobs: Any) -> Summary:
        """Do these jobs and write their rows."""
        rows = _Rows(self._table, self._details, self._count)
        try:
            for output in self._worker.run(self._loaded(), jobs):
                rows.add(output)
                if self._report is not None:
                    self._report.within(rows.length)
                    if rows.seconds() > self._pause:
                        rows.write()
                        self._pause = min(2 * self._pause, _PAUSES[1])
        except Exception as error:
            if self._report is not None:
                rows.write()
            else:  # another worker may do this shard again, and write these rows a second time
                self._resources = None  # they may hold work that was under way
            trouble = None if isinstance(error, HoldfastError) else machine_trouble(error)
            if trouble is not None:
                raise trouble from error
            raise
        # Named after what was asked for: a shard that is done twice may leave other rows the second time.
        remote = self._report is None and isinstance(jobs, list)
        rows.write(of=[row_id for job in jobs for row_id in job.ids] if remote else ())
        return rows.summary

    def _loaded(self) -> Resources:
        if self._resources is None:
            self._resources = self._worker.load()
            if self._expected is not None:
                check_same(self._worker.name, self._expected, list(self._worker.fingerprints(self._resources)))
        return self._resources


class _Rows:
    """Gathers rows and their details for one part file per table, and counts them."""

    def __init__(self, table: Parts, details: Mapping[str, Parts], count: Callable[[Summary, pa.Table], None]) -> None:
        self.summary, self.length = Summary(), 0
        self._table, self._details, self._count = table, details, count
        common = {"run_id": table.folder.parent.resolve().name, "schema_version": SCHEMA_VERSION}
        self._common = {name: value for name, value in common.items() if name in table.schema.names}
        self._start = 0.0
        self._forget()

    def _forget(self) -> None:
        self._rows: list[Row] = []
        self._batches: list[pa.RecordBatch] = []
        self._beside: dict[str, list[Row]] = {name: [] for name in self._details}

    def seconds(self) -> float:
        """Return for how many seconds rows have waited to be written; 0 if none waits."""
        return time.monotonic() - self._start if self._rows or self._batches else 0.0

    def add(self, output: Made) -> None:
        """Take a row with its details, many rows, or notes."""
        if not self._rows and not self._batches:
            self._start = time.monotonic()
        if isinstance(output, Summary):
            self.summary.merge(output)
        elif isinstance(output, pa.Table):
            self._batches += output.to_batches()
            self.length += len(output)
        else:
            for name, rows in self._beside.items():
                rows += output.pop(name, ())
            self._rows.append(self._common | output)
            self.length += 1
            if len(self._rows) == _BATCH_ROWS:
                self._pack()

    def _pack(self) -> None:
        self._batches.append(pa.RecordBatch.from_pylist(self._rows, schema=self._table.schema))
        self._rows = []

    def write(self, of: Sequence[str] = ()) -> None:
        """Write what was gathered, in files named after ``of`` or the rows. Details come first."""
        if self._rows:
            self._pack()
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches, self._table.schema).unify_dictionaries()
        ids = of or table["row_id"].to_pylist()
        for name, rows in self._beside.items():
            if rows:
                self._details[name].write(pa.Table.from_pylist(rows, schema=self._details[name].schema), of=ids)
        self._table.write(table, of=of)
        self._count(self.summary, table)
        self._forget()


def elsewhere(executor: Executor | None) -> TypeGuard[Executor]:
    """Return whether work leaves this process: it is then cut into shards, each of which writes one part of a table."""
    return executor is not None and not executor.shares_memory


def shard_size(count: int, executor: Executor, batch: int) -> int:
    """Return how many of ``count`` jobs a shard has: some batches, or fewer if workers would have none."""
    return max(1, min(_BATCHES * batch, -(-count // (_SHARDS * executor.width))))


def batched_shard_size(count: int, executor: Executor, batch: int, least: int = 1) -> int:
    """Return the size of shards of whole batches: then results are the same to the last bit, wherever they are made."""
    # In this process, one shard holds everything; elsewhere, a shard has ``least`` jobs or more.
    if executor.shares_memory:
        return count
    return batch * max(shard_size(count, executor, batch) // batch, -(-least // batch))


def process_count(
    rows: int, cores: int, free: int, each: int, *, gpus: int = 1, most: int = _MOST, pays: int = _PAYS
) -> int:
    """Return how many processes share GPUs of ``free`` bytes, ``each`` of which one takes; 1 means this one."""
    count = min(cores // 2, gpus * min(most, free // each))
    return count if rows >= pays and count > 1 else 1


def choose_executor(
    plan: Plan[Any, Any], worker: Worker[Any], executor: Executor | None, device: str, models: Iterable[str], *,
    parameters: int,  # of all models that a process holds
    batch: int,  # images at a time
    conditions: Iterable[Condition] = (), most: int = _MOST, pays: int = _PAYS,
) -> Executor:  # fmt: skip
    """Return what runs a plan: several processes that share a GPU if that is faster, else the executor as given.

    One process prepares images in one thread at a time, while the GPU waits. A user who asked for workers keeps them.
    """
    executor = executor or LocalExecutor(1)
    alone = not executor.shares_memory or multiprocessing.current_process().daemon  # a daemon may start no process
    if alone or plan.owed < pays or not resolve_device(device).startswith("cuda"):
        return executor
    gpus = several_gpus(device)
    # If several GPUs take turns, the fullest one says how many processes there are on each.
    free = min(torch.cuda.mem_get_info(place)[0] for place in (range(len(gpus)) if gpus else [resolve_device(device)]))
    each = _ROOM + 8 * parameters + batch * _PICTURE
    asked = os.environ.get(AT_MOST, "")
    most = min(most, int(asked)) if asked.isdecimal() else most
    count = process_count(plan.owed, core_count(), free, each, gpus=max(1, len(gpus)), most=most, pays=pays)
    if count == 1 or not can_travel(worker, plan, models, conditions):
        return executor
    return LocalExecutor(count, gpus, scriptless=True)


def can_travel(
    worker: Worker[Any], plan: Plan[Any, Any], models: Iterable[str], conditions: Iterable[Condition]
) -> bool:
    """Return whether other processes can do the work: nothing in it belongs to the user's script or this process."""
    own, named = [condition.definition for condition in conditions], [parse_name(name, tagged=False) for name in models]
    if any(name.scheme not in _BY_NAME or _is_of_script(name.name) for name in named) or any(
        each.attack or each.paints or not each.function.__module__.startswith("holdfast.") for each in own
    ):
        return False
    try:
        return b"__main__" not in pickle.dumps((worker, next(plan.shards(1))))
    except Exception:  # whatever an object raises that does not travel
        return False


def _is_of_script(architecture: str) -> bool:
    """Return whether the program's script has registered this architecture with timm."""
    timm: Any = sys.modules.get("timm")
    return (
        timm is not None
        and timm.is_model(architecture)
        and timm.model_entrypoint(architecture).__module__ == "__main__"
    )


def check_same(name: str, planned: object, loaded: object) -> None:
    """Raise a UserError if a worker has loaded something else than what the row ids were planned for."""
    if planned != loaded:
        raise UserError(
            f"{name} is not the same on a worker as on the machine of the command: other weights or versions, or "
            "another precision since only one of them has a GPU; start the command on a machine like the workers"
        )


def seeing(
    work: Callable[[Shard], Result], samples: Iterable[Sample], executor: Executor, donors: Iterable[Sample] = ()
) -> Callable[[Shard], Result]:
    """Return work that a machine without the images refuses, instead of making a row with an error per image."""
    # One image, one mask and one donor's image are looked for.
    if not executor.remote:
        return work
    samples = list(samples)
    images, masks = (sample.image for sample in samples), (sample.mask for sample in samples)
    backgrounds = (donor.image for donor in donors)
    seen = [path for path in map(_first_file, (images, masks, backgrounds)) if path]
    return _Seeing(work, seen) if seen else work


def _first_file(references: Iterable[object]) -> str:
    paths = (str(getattr(reference, "path", "")) for reference in references)
    return next((path for path in paths if path and not address(path) and Path(path).is_file()), "")


class _Seeing(Generic[Shard, Result]):
    def __init__(self, work: Callable[[Shard], Result], paths: list[str]) -> None:
        self._work, self._paths = work, paths

    def __call__(self, shard: Shard) -> Result:
        missing = next((path for path in self._paths if not Path(path).is_file()), "")
        if missing:
            raise UserError(
                f"the worker on {socket.gethostname()} does not see {missing}: images, masks and backgrounds must be "
                "readable under the same path on every machine, or be in s3://"
            )
        self._paths = []  # once is enough
        return self._work(shard)
