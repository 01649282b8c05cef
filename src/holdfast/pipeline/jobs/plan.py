"""Decide which rows a command still has to make.

Nothing here grows with the number of rows, except 16 bytes per row that is stored already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, islice, repeat
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from holdfast.pipeline.jobs.progress import Progress, silent, with_progress
from holdfast.store import Parts
from holdfast.store.parts import StoredIds

Item = TypeVar("Item")
Part = TypeVar("Part")

ERROR = "error"


@dataclass(slots=True)
class Job(Generic[Item, Part]):
    """One item (a sample, as a rule) and the rows it owes: one row per part, such as a condition and a model."""

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
    # beside the new row, it would count twice.

    rows: ds.Expression  # a cheap filter: task, protocol, models
    columns: tuple[str, ...]  # what ``covers`` looks at
    covers: Callable[[Mapping[str, Any]], bool]  # True if this command asks for the row's sample, condition and model


@dataclass(frozen=True)
class Plan(Generic[Item, Part]):
    """What a command owes: ``owed`` rows of ``count`` jobs; ``already`` rows are stored."""

    # ``details`` are tables whose rows belong to rows of ``table``, by the name under which a worker's rows carry them.

    table: Parts
    details: Mapping[str, Parts]
    jobs: Jobs[Item, Part]
    row_ids: Callable[[Job[Item, Part]], Sequence[str]]
    stored: StoredIds
    retried: NDArray[np.bool_] | None
    owed: int
    already: int
    count: int

    def shards(self, size: int, *, with_ids: bool = True) -> Iterator[list[Job[Item, Part]]]:
        """Yield the jobs that are owed, ``size`` at a time, made when they are asked for."""
        # Without ``with_ids``, jobs have no ids: they would be most of what travels to a worker.
        owed = (job for job in map(self._owed_by, self.jobs, repeat(with_ids)) if job.parts)
        while shard := list(islice(owed, size)):
            yield shard

    def _owed_by(self, job: Job[Item, Part], with_ids: bool) -> Job[Item, Part]:
        if not with_ids and not len(self.stored):
            return job
        ids = self.row_ids(job)
        if not len(self.stored):
            return Job(job.item, job.parts, ids)
        places = self.stored.places(ids)  # one call per job: it takes longer to begin than to search
        owed = places < 0
        if self.retried is not None:
            owed |= self.retried[places]
        if owed.all():
            return Job(job.item, job.parts, ids if with_ids else ())
        kept = owed.tolist()
        return Job(job.item, list(compress(job.parts, kept)), list(compress(ids, kept)) if with_ids else ())


def plan(
    table: Parts,  # holds the rows of this command, and maybe of others
    jobs: Jobs[Item, Part],  # everything that is asked for
    row_ids: Callable[[Job[Item, Part]], Sequence[str]],  # gives the ids of a job's rows, one per part
    *,
    scope: Scope | None = None,  # which stored rows are dropped where they are not planned; None: no row
    retry: bool = False,  # whether planned rows with a ``retried`` status are made again. Other rows with errors stay
    retried: Sequence[str] = (ERROR,),  # statuses of rows to try again
    details: Mapping[str, Parts] | None = None,  # tables beside; their rows go with those of ``table``
    progress: Progress = silent,
) -> Plan[Item, Part]:
    """Count the rows that a command owes, and drop the stored rows that it will replace."""
    beside = dict(details or {})
    stored = StoredIds(table.dataset(), table.key)
    planned = np.zeros(len(stored), np.bool_)
    failed = _failed(table, stored, retried) if retry and len(stored) else None
    owed = already = count = 0
    for job in with_progress(jobs, progress if len(stored) else silent, "plan", len(jobs)):
        done = 0
        if len(stored):
            places = stored.places(row_ids(job))
            places = places[places >= 0]
            planned[places] = True
            done = len(places) - (int(failed[places].sum()) if failed is not None else 0)
        owed, already, count = owed + len(job.parts) - done, already + done, count + (len(job.parts) > done)
    again = failed & planned if failed is not None else None
    dropped = _superseded(table, scope, stored, planned) if scope is not None and not planned.all() else []
    dropped += _ids_at(table, stored, again, retried) if again is not None and again.any() else []
    _drop(table, beside, dropped)
    return Plan(table, beside, jobs, row_ids, stored, again, owed, already, count)


def _failed(table: Parts, stored: StoredIds, statuses: Sequence[str]) -> NDArray[np.bool_]:
    """Return a flag per stored row: whether it has one of the statuses."""
    failed = np.zeros(len(stored), np.bool_)
    for batch in table.dataset().to_batches(columns=["row_id"], filter=pc.field("status").isin(list(statuses))):
        failed[stored.places(batch["row_id"].to_pylist())] = True
    return failed


def _superseded(table: Parts, scope: Scope, stored: StoredIds, planned: NDArray[np.bool_]) -> list[str]:
    superseded = []
    for batch in table.dataset().to_batches(columns=["row_id", *scope.columns], filter=scope.rows):
        unplanned = ~planned[stored.places(batch["row_id"].to_pylist())]
        rows = batch.filter(unplanned).to_pylist() if unplanned.any() else ()
        superseded += [row["row_id"] for row in rows if scope.covers(row)]
    return superseded


def _ids_at(table: Parts, stored: StoredIds, flags: NDArray[np.bool_], statuses: Sequence[str]) -> list[str]:
    ids = []
    for batch in table.dataset().to_batches(columns=["row_id"], filter=pc.field("status").isin(list(statuses))):
        names = batch["row_id"].to_pylist()
        ids += list(compress(names, flags[stored.places(names)].tolist()))
    return ids


def _drop(table: Parts, details: Mapping[str, Parts], ids: Sequence[str]) -> None:
    """Drop rows, and details without a row: a killed process may leave such details, which it wrote first."""
    table.drop_ids(ids)
    kept = table.stored_ids() if details else set()
    for part in details.values():
        part.drop_ids(part.stored_ids() - kept)
