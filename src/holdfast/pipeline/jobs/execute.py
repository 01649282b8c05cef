"""Run a worker on the jobs of a plan, and write its rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from holdfast.core.errors import HoldfastError, machine_trouble
from holdfast.core.schema import SCHEMA_VERSION
from holdfast.core.types import Sample
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.jobs.plan import Job, Plan
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.sharding import check_same, seeing, shard_size
from holdfast.pipeline.jobs.summary import Summary
from holdfast.store import Parts

Row = dict[str, Any]
"""A row of the table; under the name of a details table, it carries the list of its rows there.

``run_id`` and ``schema_version`` are filled in, where the table has these columns.
"""

Made = Any
"""What a worker yields: a Row, a pa.Table of many rows, or a Summary with notes for the user."""

Resources = TypeVar("Resources")
Item = TypeVar("Item")
Part = TypeVar("Part")

_BATCH_ROWS = 2000  # rows that are held as Python objects, which take ten times the memory of a table
_KEPT_SECONDS = 60  # in this process, a kill costs no more work than this


class Worker(Protocol[Resources]):
    """What a verb writes: it turns jobs into rows. It holds settings only, so that it can travel to other processes."""

    name: str
    """What the worker runs, for errors: the models by name."""

    def load(self) -> Resources:
        """Load the models and whatever else cannot travel. It is called once per process, when the first job comes."""

    def fingerprints(self, resources: Resources) -> Sequence[str]:
        """Return one hash per loaded model. A process whose hashes differ from the planner's is refused."""

    def run(self, resources: Resources, jobs: Any) -> Iterator[Made]:
        """Yield a row per part of each job, in any order; ``failures`` says which errors become rows.

        ``jobs`` is a list of jobs, or what the verb's ``pack`` made of it.
        """


def execute(
    plan: Plan[Item, Part],
    worker: Worker[Resources],
    executor: Executor | None = None,
    *,
    step: str,
    size: int = 0,
    known: Resources | None = None,
    pack: Callable[[list[Job[Item, Part]]], Any] | None = None,
    samples: Iterable[Sample] = (),
    donors: Iterable[Sample] = (),
    progress: Progress = silent,
) -> Summary:
    """Make the rows that a plan owes; return what was made, with the plan's count of stored rows.

    Args:
        plan: from ``plan.plan``.
        worker: makes rows of jobs.
        executor: where the work runs; None: in this process.
        step: the name of this step for ``progress``.
        size: jobs per shard, which leaves one part file; 0: a size that keeps all workers busy.
        known: what this process has loaded. Work in this process uses it; other workers must load the same.
        pack: turns a shard's jobs into what is sent to the worker; the jobs then carry no ids. None: the jobs.
        samples: of the jobs: a remote worker must see their files.
        donors: whose files a remote worker must see, too.
        progress: told about every shard.
    """
    executor = executor or LocalExecutor(1)
    work = ShardWork(plan.table, plan.details, worker, known, in_process=executor.shares_memory)
    shards: Iterable[Any] = plan.shards(size or shard_size(plan.count, executor, 32), with_ids=pack is None)
    shards = map(pack, shards) if pack is not None else shards
    results = executor.map(seeing(work, samples, executor, donors), shards)
    return merged(results, plan, step, progress)


def merged(results: Iterable[Any], plan: Plan[Any, Any], step: str, progress: Progress) -> Summary:
    """Merge the summaries of shards as they arrive, and report progress in rows."""
    summary = Summary(already=plan.already)
    progress(step, 0, plan.owed)
    for part in results:
        summary.merge(part)
        progress(step, summary.rows, plan.owed)
    return summary


class ShardWork(Generic[Resources]):
    """Runs a worker on one shard after the other and writes a part file for each. It travels without resources."""

    def __init__(
        self,
        table: Parts,
        details: Mapping[str, Parts],
        worker: Worker[Resources],
        known: Resources | None,
        *,
        in_process: bool,
    ) -> None:
        self._table, self._details, self._worker = table, details, worker
        self._expected = None if known is None else list(worker.fingerprints(known))
        self._in_process = in_process
        self._resources = known

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_resources": None}

    def __call__(self, jobs: Any) -> Summary:
        """Do these jobs and write their rows."""
        rows = _Rows(self._table, self._details)
        try:
            for output in self._worker.run(self._loaded(), jobs):
                rows.add(output)
                if self._in_process and rows.seconds() > _KEPT_SECONDS:
                    rows.write()
        except Exception as error:
            if self._in_process:
                rows.write()
            else:  # another worker may do this shard again, and write these rows a second time
                self._resources = None  # they may hold work that was under way
            trouble = None if isinstance(error, HoldfastError) else machine_trouble(error)
            if trouble is not None:
                raise trouble from error
            raise
        rows.write()
        return rows.summary

    def _loaded(self) -> Resources:
        if self._resources is None:
            self._resources = self._worker.load()
            if self._expected is not None:
                check_same(self._worker.name, self._expected, list(self._worker.fingerprints(self._resources)))
        return self._resources


class _Rows:
    """Gathers rows and their details for one part file per table, and counts them."""

    def __init__(self, table: Parts, details: Mapping[str, Parts]) -> None:
        self.summary = Summary()
        self._table, self._details = table, details
        common = {"run_id": table.folder.parent.resolve().name, "schema_version": SCHEMA_VERSION}
        self._common = {name: value for name, value in common.items() if name in table.schema.names}
        self._start = 0.0
        self._forget()

    def _forget(self) -> None:
        self._rows: list[Row] = []
        self._batches: list[pa.RecordBatch] = []
        self._beside: dict[str, list[Row]] = {name: [] for name in self._details}

    def seconds(self) -> float:
        """Return for how many seconds rows have waited to be written; 0 where none waits."""
        return time.monotonic() - self._start if self._rows or self._batches else 0.0

    def add(self, output: Made) -> None:
        """Take a row with its details, many rows, or notes."""
        if not self._rows and not self._batches:
            self._start = time.monotonic()
        if isinstance(output, Summary):
            self.summary.merge(output)
        elif isinstance(output, pa.Table):
            self._batches += output.to_batches()
        else:
            for name, rows in self._beside.items():
                rows += output.pop(name, ())
            self._rows.append(self._common | output)
            if len(self._rows) == _BATCH_ROWS:
                self._pack()

    def _pack(self) -> None:
        self._batches.append(pa.RecordBatch.from_pylist(self._rows, schema=self._table.schema))
        self._rows = []

    def write(self) -> None:
        """Write what was gathered. Details come first: a row that is stored has its details."""
        if self._rows:
            self._pack()
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches, self._table.schema).unify_dictionaries()
        ids = table["row_id"].to_pylist()
        for name, rows in self._beside.items():
            if rows:
                self._details[name].write(pa.Table.from_pylist(rows, schema=self._details[name].schema), of=ids)
        self._table.write(table)
        self.summary.count(table)
        self._forget()
