"""Decide which rows a command still has to make.

Nothing here grows with the number of rows, except two bits per row and a file while they are compared (``store.ids``).
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, islice
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from holdfast.pipeline.jobs.progress import Progress, silent, with_progress
from holdfast.store import Parts
from holdfast.store.ids import Bits, by_file, compare, table_ids

Item = TypeVar("Item")
Part = TypeVar("Part")

ERROR = "error"


@dataclass(slots=True)
class Job(Generic[Item, Part]):
    """One item (a sample, as a rule) and its missing rows: one row per part, such as a condition and a model."""

    # ``ids`` holds one row id per part; it is empty until a plan has filled it.

    item: Item
    parts: Sequence[Part]
    ids: Sequence[str] = ()


class Jobs(Protocol[Item, Part]):
    """Everything that a command asks for, stored or not. It is iterated several times and never held in memory."""

    def __len__(self) -> int:
        """Return about how many jobs there are, for progress."""

    def __iter__(self) -> Iterator[Job[Item, Part]]:
        """Yield the jobs, without ids."""


@dataclass(frozen=True)
class Scope:
    """The stored rows that a command answers for. Those that are not planned any more are superseded."""

    # The image, the mask, the label, the donors or the weights of such a row have changed since it was measured: kept
    # next to the new row, it would count twice.

    rows: ds.Expression  # a cheap filter: task, protocol, models
    columns: tuple[str, ...]  # what ``covers`` looks at
    covers: Callable[[Mapping[str, Any]], bool]  # True if this command asks for the row's sample, condition and model

    @classmethod
    def of_keys(
        cls, rows: ds.Expression, columns: tuple[str, ...], keys: Callable[[], Iterable[Mapping[str, Any]]]
    ) -> Scope:
        """Return the scope of rows that are alike in ``columns`` with one of ``keys``, the keys of planned rows."""
        planned = functools.cache(lambda: {tuple(key[name] for name in columns) for key in keys()})
        return cls(rows, columns, lambda row: tuple(row[name] for name in columns) in planned())


@dataclass(frozen=True)
class Plan(Generic[Item, Part]):
    """What a command has to do: ``owed`` rows of ``count`` jobs; ``already`` rows are stored."""

    # ``details`` are tables whose rows belong to rows of ``table``, by the name under which a worker's rows carry them.

    table: Parts
    details: Mapping[str, Parts]
    jobs: Jobs[Item, Part]
    row_ids: Callable[[Job[Item, Part]], Sequence[str]]
    stored: Bits | None  # of the rows that are planned, which are stored; None: nothing is
    owed: int
    already: int
    count: int

    def shards(self, size: int, *, with_ids: bool = True) -> Iterator[list[Job[Item, Part]]]:
        """Yield the missing jobs, ``size`` at a time, made when they are asked for."""
        # Without ``with_ids``, jobs have no ids: they would be most of what travels to a worker.
        owed = self._owed()
        while shard := list(islice(owed, size)):
            yield [Job(job.item, job.parts, self.row_ids(job)) for job in shard] if with_ids else shard

    def _owed(self) -> Iterator[Job[Item, Part]]:
        place = 0
        for job in self.jobs:
            parts = job.parts
            if self.stored is not None:
                stored = self.stored.span(place, len(parts))
                place += len(parts)
                parts = list(compress(parts, (~stored).tolist())) if stored.any() else parts
            if parts:
                yield job if parts is job.parts else Job(job.item, parts)


_ROW = ("row_id",)  # what rows of details have in common with those of their table


def plan(
    table: Parts,  # holds the rows of this command, and maybe of others
    jobs: Jobs[Item, Part],  # everything that is asked for
    row_ids: Callable[[Job[Item, Part]], Sequence[str]],  # gives the ids of a job's rows, one per part
    *,
    scope: Scope | None = None,  # which stored rows are dropped if they are not planned; None: no row
    retry: bool = False,  # whether planned rows with a ``retried`` status are made again. Other rows with errors stay
    retried: Sequence[str] = (ERROR,),  # statuses of rows to try again
    details: Mapping[str, Parts] | None = None,  # tables next to; their rows go with those of ``table``
    progress: Progress = silent,
) -> Plan[Item, Part]:
    """Count the missing rows of a command, and drop the stored rows that it will replace."""
    beside = dict(details or {})
    stored, sizes = None, array("L")
    if table.count():
        failed = retried if retry else ()
        ids = _ids(with_progress(jobs, progress, "plan", len(jobs)), row_ids, sizes)
        planned, stored = compare(table, ids, failed=failed)
        table.drop_rows(_replaced(table, planned, scope, failed))
    else:
        sizes.extend(len(job.parts) for job in jobs)
    for part in beside.values():  # a killed process may leave details without their row: it wrote them first
        if part.count():
            paired, _ = compare(part, (ids for ids, _ in table_ids(table, key=_ROW)), key=_ROW)
            part.drop_rows(~flags for _, flags in by_file(part, paired))
    rows, already = sum(sizes), stored.sum() if stored else 0
    starts = accumulate(sizes, initial=0)
    count = sum(
        size > (stored.span(start, size).sum() if stored else 0) for start, size in zip(starts, sizes, strict=False)
    )
    return Plan(table, beside, jobs, row_ids, stored, rows - already, already, int(count))


def _ids(
    jobs: Iterable[Job[Item, Part]], row_ids: Callable[[Job[Item, Part]], Sequence[str]], sizes: array[int]
) -> Iterator[Sequence[str]]:
    """Yield the ids of each job, and note how many they are."""
    for job in jobs:
        sizes.append(len(job.parts))
        yield row_ids(job)


def _replaced(table: Parts, planned: Bits, scope: Scope | None, failed: Sequence[str]) -> Iterator[NDArray[np.bool_]]:
    """Yield which rows of each part file go: planned ones that failed, and superseded ones."""
    for path, flags in by_file(table, planned):
        rows = ds.dataset(path, schema=table.schema, format="parquet")
        dropped = np.zeros(len(flags), np.bool_)
        if failed and flags.any():
            tried = rows.to_table({"failed": pc.field("status").isin(list(failed))})["failed"]
            dropped = flags & tried.to_numpy()
        if scope is not None and not flags.all():
            wanted = {name: pc.field(name) for name in scope.columns} | {"answered": scope.rows}
            others = rows.to_table(wanted).append_column("place", [np.arange(len(flags))]).filter(pa.array(~flags))
            strange = others.filter(others["answered"]).to_pylist()  # drops null like False
            dropped[[row["place"] for row in strange if scope.covers(row)]] = True
        yield dropped
