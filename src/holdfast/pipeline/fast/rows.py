"""Rows by columns: what a run knows of a unit's rows, filled as answers come, and the part files made of them.

Who drives a GPU should do little else, or the GPU waits: rows get their names and become tables in another process.
``image_sha256`` stays empty: the pictures are made on the device, and fetching them to hash them would take longer than
all the rest.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.files import completed
from holdfast.core.schema import KEY, PREDICTIONS, SCHEMA_VERSION
from holdfast.core.types import Sample
from holdfast.data.images import FileImage
from holdfast.data.labels import NOT_PROBABILITIES
from holdfast.engine import Processes
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.evaluate.planning import Names
from holdfast.pipeline.evaluate.worker import (
    DETAILS,
    EvaluateSpec,
    Job,
    Tested,
    row_key,
    shared_key,
    stored_details,
    unloaded,
)
from holdfast.pipeline.fast import answers
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared
from holdfast.scenarios import Condition
from holdfast.store import Run

PART_ROWS, PARTS, PART_SECONDS = 10_000, 1000, 10.0
"""A part file is written when so many rows are done (more where there would be more than so many files), or so long
after the last: a kill costs no more than that, and little is left to write when the last answer is there."""

BEHIND = 4
"""Part files that may wait to be written before the run waits for them."""

_NOWHERE = FileImage("")


class Chunk:
    """The rows that a unit of samples owes, by sample, condition and model, and what is known of them so far."""

    def __init__(self, jobs: Sequence[Job], conditions: Sequence[Condition], positions: Sequence[int]) -> None:
        self.samples: list[Sample] = [job.sample for job in jobs]
        self.donors: dict[int, dict[str, Any]] = {}
        self.failed: dict[int, tuple[str, str]] = {}  # row → status, reason
        self.owed = np.zeros((len(jobs), len(conditions), len(positions)), np.bool_)
        place_of = {condition: place for place, condition in enumerate(conditions)}
        column_of = {position: column for column, position in enumerate(positions)}
        for place, job in enumerate(jobs):
            for condition, rows in job.owed:
                mine = self.owed[place, place_of[condition]]
                if len(rows) == len(positions):
                    mine[:] = True
                else:
                    mine[[column_of[position] for position, _ in rows]] = True
        self.left = int(self.owed.sum())
        self.slots = np.full(self.owed.shape, -1, np.int64)
        self.slots[self.owed] = np.arange(self.left)
        self.packed = np.zeros((self.left, answers.WIDTH), np.float32)

    def fail(self, place: int, condition: int, status: str, reason: str) -> None:
        """A sample under a condition has no picture."""
        slots = self.slots[place, condition]
        self.fail_rows(slots[slots >= 0], status, reason)
        slots[:] = -1

    def fail_rows(self, rows: NDArray[np.int64], status: str, reason: str) -> None:
        """Rows have no answer."""
        self.failed.update(dict.fromkeys(rows.tolist(), (status, reason)))
        self.left -= len(rows)

    def answer(self, rows: NDArray[np.int64], packed: NDArray[np.float32]) -> None:
        """Rows have their answers, as ``answers.pack`` made them."""
        self.packed[rows] = packed
        self.left -= len(rows)


@dataclass(frozen=True)
class Finished:
    """A chunk on its way to the table: its samples without pixels but with the hashes that name them."""

    samples: list[Sample]
    images: list[str]
    masks: list[str]
    owed: NDArray[np.bool_]
    packed: NDArray[np.float32]
    donors: dict[int, dict[str, Any]]
    failed: dict[int, tuple[str, str]]

    @classmethod
    def of(cls, chunk: Chunk, prepared: Prepared) -> Finished:
        """What of a chunk its rows are made of."""
        samples = [replace(sample, image=_NOWHERE, mask=None) for sample in chunk.samples]
        images, masks = ([of[sample.sample_id] for sample in samples] for of in (prepared.images, prepared.masks))
        return cls(samples, images, masks, chunk.owed, chunk.packed, chunk.donors, chunk.failed)


@dataclass(frozen=True)
class Recording:
    """Makes a table of finished chunks; ``prepared`` and ``tested`` are without samples and networks.

    Where it ``writes``, the table becomes a part file at once. On many machines it does not: a piece of work must leave
    one file, whose name follows from its rows, and chunks are finished in another order each time.
    """

    spec: EvaluateSpec
    prepared: Prepared
    tested: Sequence[Tested]
    conditions: Sequence[Condition]
    positions: Sequence[int]
    folder: Path
    writes: bool = True

    @classmethod
    def of(
        cls,
        spec: EvaluateSpec,
        prepared: Prepared,
        positions: Sequence[int],
        tested: Sequence[Tested],
        conditions: Sequence[Condition],
        folder: Path,
        *,
        writes: bool = True,
    ) -> Recording:
        """For the models at these positions."""
        prepared = replace(prepared.for_workers(), pool=DonorPool([]))
        return cls(spec, prepared, [*map(unloaded, tested)], conditions, tuple(positions), folder, writes)

    def __call__(self, chunks: Sequence[Finished]) -> tuple[Path | pa.Table | None, Summary]:
        """The part file or the table that is still to be written, and what was made; nothing of no chunks."""
        if not chunks:
            return None, Summary()
        run = Run(self.folder)
        table = self.table(chunks, run.run_id)
        written = run.predictions.write(table) if self.writes else None
        summary = Summary(table.num_rows)
        for chunk in chunks:
            sample_of = np.nonzero(chunk.owed)[0]
            for row, (status, reason) in chunk.failed.items():
                summary.add(chunk.samples[sample_of[row]].sample_id, f"{status}: {reason}")
                summary.errors += status == "error"
            unusable = chunk.packed[:, answers.USABLE] == 0
            unusable[list(chunk.failed)] = False
            for row in np.flatnonzero(unusable).tolist():
                summary.add(chunk.samples[sample_of[row]].sample_id, f"error: {NOT_PROBABILITIES}")
                summary.errors += 1
        return written or table, summary

    def table(self, chunks: Sequence[Finished], run_id: str) -> pa.Table:
        """The rows of finished chunks, model by model."""
        sample_of, condition_of, column_of = np.nonzero(np.concatenate([chunk.owed for chunk in chunks]))
        packed = np.concatenate([chunk.packed for chunk in chunks])
        ids = self._ids(chunks)
        firsts = np.cumsum([0, *(len(chunk.packed) for chunk in chunks)])
        failed = {
            first + row: why for chunk, first in zip(chunks, firsts, strict=False) for row, why in chunk.failed.items()
        }
        answered = np.ones(len(packed), np.bool_)
        answered[list(failed)] = False
        known = self._known(chunks)
        labels = [sample.label for chunk in chunks for sample in chunk.samples]
        tables = []
        for column in np.unique(column_of):
            model = self.tested[self.positions[column]]
            truth_of = {label: place for place, label in enumerate(model.labels.classes)}
            truths = np.array([truth_of.get(label, -1) for label in labels])
            for good in (True, False):
                rows = np.flatnonzero((column_of == column) & (answered == good))
                if not len(rows):
                    continue
                made = known(sample_of[rows], condition_of[rows])
                made |= {"model": _constant(model.classifier.name, len(rows)), "row_id": ids.take(pa.array(rows))}
                if good:
                    made |= answers.columns(packed[rows], model.labels, truths[sample_of[rows]])
                else:
                    reasons = [failed[row] for row in rows.tolist()]
                    made |= {
                        "status": pa.array([one for one, _ in reasons]),
                        "error": pa.array([one for _, one in reasons]),
                    }
                tables.append(_whole(made, len(rows), run_id))
        return pa.concat_tables(tables).unify_dictionaries()

    def _ids(self, chunks: Sequence[Finished]) -> pa.Array:
        """The names of the rows, in order."""
        samples = [sample for chunk in chunks for sample in chunk.samples]
        images, masks = (
            {sample.sample_id: one for sample, one in zip(samples, values, strict=True)}
            for values in ([i for chunk in chunks for i in chunk.images], [m for chunk in chunks for m in chunk.masks])
        )
        names = Names(self.spec, replace(self.prepared, images=images, masks=masks), self.tested)
        owed = np.concatenate([chunk.owed for chunk in chunks])
        there = owed.any(2)
        made = [
            one
            for sample, condition in np.argwhere(there).tolist()
            for one in names.of(samples[sample], self.conditions[condition], self.positions)
        ]
        return pa.array(made, pa.string()).filter(pa.array(owed[there].reshape(-1)))

    def _known(
        self, chunks: Sequence[Finished]
    ) -> Callable[[NDArray[np.int64], NDArray[np.int64]], dict[str, pa.Array]]:
        """What is known of rows, whatever the model, by the places of their samples and conditions.

        Few keys differ in more than the sample's names, and few facts are known: each is told once, and looked up.
        """
        samples = [sample for chunk in chunks for sample in chunk.samples]
        kinds: dict[tuple[Any, ...], int] = {}
        keys: list[dict[str, Any]] = []  # of each kind of samples, under each condition
        kind_of = []
        for sample in samples:
            kind = shared_key(sample, self.conditions[0])
            if kind not in kinds:
                kinds[kind] = len(kinds)
                keys += [row_key(self.spec, self.prepared.collection.name, sample, one, "") for one in self.conditions]
            kind_of.append(kinds[kind])
        facts: list[dict[str, Any]] = []  # of each sample, as it is and with its donor
        for chunk in chunks:
            for place, sample in enumerate(chunk.samples):
                told = stored_details(sample)
                facts += [told, told | chunk.donors.get(place, {})]
        kinds_of = np.array(kind_of)
        lends = np.array([bool(condition.definition.donor) for condition in self.conditions])
        columns = {}
        for name in (*KEY.names, "label", *DETAILS):
            if name in ("sample_id", "source_id", "label"):
                values = [getattr(sample, name) for sample in samples]
            else:
                values = [one.get(name) for one in (facts if name in DETAILS else keys)]
            columns[name] = _column(values, PREDICTIONS.field(name).type)

        def looked_up(sample: NDArray[np.int64], condition: NDArray[np.int64]) -> dict[str, pa.Array]:
            by_sample, by_fact = pa.array(sample), pa.array(2 * sample + lends[condition])
            by_key = pa.array(kinds_of[sample] * len(lends) + condition)
            made = {}
            for name, column in columns.items():
                own = name in ("sample_id", "source_id", "label")
                made[name] = column.take(by_sample if own else by_fact if name in DETAILS else by_key)
            return made

        return looked_up


class Writer:
    """Has tables made of finished chunks: in a process of its own (``apart``), or in a thread."""

    def __init__(self, recording: Recording, *, apart: bool) -> None:
        self._process = Processes(recording, 1) if apart else None
        self._thread = None if apart else ThreadPoolExecutor(1)
        self._recording = recording
        self._waiting: list[Chunk] = []
        self._pending: deque[Future[tuple[Path | pa.Table | None, Summary]]] = deque()
        self._tables: list[pa.Table] = []
        if apart:
            self._submit([])  # it starts now, while networks are compiled

    def begin(self, prepared: Prepared, owed: int) -> None:
        """Rows of these samples will come, so many."""
        self._prepared = prepared
        self._enough = max(PART_ROWS, owed // PARTS)
        self._last = time.monotonic()

    def add(self, chunk: Chunk) -> None:
        """Take a finished chunk."""
        self._waiting.append(chunk)
        rows = sum(len(one.packed) for one in self._waiting)
        if rows >= self._enough or time.monotonic() - self._last >= PART_SECONDS:
            self._send()

    def done(self, *, everything: bool = False) -> Iterator[Summary]:
        """What has been made since; at the end, or where that has fallen behind, waits for it."""
        if everything and self._waiting:
            self._send()
        while self._pending and (everything or len(self._pending) > BEHIND or self._pending[0].done()):
            try:
                summary = self._take(self._pending.popleft())
            except BrokenProcessPool as error:
                raise HoldfastError(
                    "the process that writes rows was killed (out of memory?); what was finished is kept: run the same "
                    "command again"
                ) from error
            yield summary
        if everything and self._tables:
            tables, self._tables = self._tables, []
            Run(self._recording.folder).predictions.write(pa.concat_tables(tables).unify_dictionaries())

    def close(self) -> None:
        """End it when the file in hand is whole; what is not written yet is forgotten."""
        rest = [one for one in self._pending if not one.cancel()]
        for one in wait(rest).done:
            with suppress(Exception):  # whatever it is, the run has ended
                self._take(one)
        if self._process is not None:
            self._process.close()
        if self._thread is not None:
            self._thread.shutdown()

    def _take(self, made: Future[tuple[Path | pa.Table | None, Summary]]) -> Summary:
        written, summary = made.result()
        if isinstance(written, Path):
            completed(written)  # who sends files to a store hears nothing of what another process writes
        elif written is not None:
            self._tables.append(written)
        return summary

    def _send(self) -> None:
        self._last = time.monotonic()
        chunks, self._waiting = self._waiting, []
        self._submit([Finished.of(chunk, self._prepared) for chunk in chunks])

    def _submit(self, chunks: list[Finished]) -> None:
        if self._process is not None:
            self._pending.append(self._process.submit(chunks))
        elif self._thread is not None:
            self._pending.append(self._thread.submit(self._recording, chunks))


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.array(values, kind)
    return pa.array(values, kind.value_type).dictionary_encode()


def _whole(made: dict[str, Any], count: int, run_id: str) -> pa.Table:
    made |= {"run_id": _constant(run_id, count), "schema_version": pa.array(np.full(count, SCHEMA_VERSION, np.int32))}
    columns = []
    for field in PREDICTIONS:
        column = made.get(field.name)
        columns.append(pa.nulls(count, field.type) if column is None else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=PREDICTIONS)


def _constant(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([text]))
