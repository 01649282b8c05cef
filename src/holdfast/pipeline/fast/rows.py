"""The rows of a fast pass: answers are gathered by unit of samples and become part files, column by column.

The process that drives a GPU should do little else, or the GPU waits: ids and tables are made in another process.
``image_sha256`` stays empty: the images are on the device, and fetching them would take longer than all the rest.
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
from holdfast.engine import Processes
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, unloaded
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.evaluation_rows import (
    RENDERED_COLUMNS,
    EvaluationIds,
    EvaluationJob,
    row_key,
    shared_key,
    stored_details,
)
from holdfast.pipeline.fast import answers
from holdfast.pipeline.jobs.progress import Summary
from holdfast.pipeline.samples import Prepared
from holdfast.scenarios import Condition
from holdfast.store import Run

PART_ROWS, PARTS, PART_SECONDS = 10_000, 1000, 10.0
"""A part file is written when it has so many rows (more if a run would have more than ``PARTS`` files), or so long
after the last: a kill costs no more than that, and little is left to write when the last answer arrives."""

BEHIND = 4  # part files that may wait to be written before the run waits for them
_NO_IMAGE = FileImage("")
_OF_SAMPLE = ("sample_id", "source_id", "label")


class Chunk:
    """The missing rows of a unit of samples, by sample, condition and model, and what is known about them so far."""

    def __init__(
        self, jobs: Sequence[EvaluationJob], conditions: Sequence[Condition], positions: Sequence[int]
    ) -> None:
        self.samples: list[Sample] = [job.item for job in jobs]
        self.donors: dict[int, dict[str, Any]] = {}
        self.failed: dict[int, tuple[str, str]] = {}  # row → status, reason
        self.owed = np.zeros((len(jobs), len(conditions), len(positions)), np.bool_)
        place_of = {condition: place for place, condition in enumerate(conditions)}
        column_of = {position: column for column, position in enumerate(positions)}
        grids: dict[int, NDArray[np.bool_]] = {}  # jobs with the same missing rows share one list of parts
        for place, job in enumerate(jobs):
            grid = grids.get(id(job.parts))
            if grid is None:
                grid = grids[id(job.parts)] = np.zeros(self.owed.shape[1:], np.bool_)
                for condition, position in job.parts:
                    grid[place_of[condition], column_of[position]] = True
            self.owed[place] = grid
        self.left = int(self.owed.sum())
        self.slots = np.full(self.owed.shape, -1, np.int64)
        self.slots[self.owed] = np.arange(self.left)
        self.packed = np.zeros((self.left, answers.WIDTH), np.float32)

    def fail(self, place: int, condition: int, status: str, reason: str) -> None:
        """Note that a sample has no image under a condition."""
        slots = self.slots[place, condition]
        self.fail_rows(slots[slots >= 0], status, reason)
        slots[:] = -1

    def fail_rows(self, rows: NDArray[np.int64], status: str, reason: str) -> None:
        """Note that rows have no answer."""
        self.failed.update(dict.fromkeys(rows.tolist(), (status, reason)))
        self.left -= len(rows)

    def answer(self, rows: NDArray[np.int64], packed: NDArray[np.float32]) -> None:
        """Store the answers of rows, as ``answers.pack`` makes them."""
        self.packed[rows] = packed
        self.left -= len(rows)


@dataclass(frozen=True)
class Finished:
    """A chunk on its way to the table: its samples without pixels, with the hashes that row ids are made from."""

    samples: list[Sample]
    images: list[str]
    masks: list[str]
    owed: NDArray[np.bool_]
    pictured: NDArray[np.bool_]  # by sample and condition: only what has an image has borrowed
    packed: NDArray[np.float32]
    donors: dict[int, dict[str, Any]]
    failed: dict[int, tuple[str, str]]

    @classmethod
    def of(cls, chunk: Chunk, prepared: Prepared) -> Finished:
        """Return what a chunk's rows are made of."""
        samples = [replace(sample, image=_NO_IMAGE, mask=None) for sample in chunk.samples]
        images, masks = ([of[sample.sample_id] for sample in samples] for of in (prepared.images, prepared.masks))
        pictured = np.asarray((chunk.slots >= 0).any(2))
        return cls(samples, images, masks, chunk.owed, pictured, chunk.packed, chunk.donors, chunk.failed)


class TableMaker:
    """Makes a table of finished chunks, and a part file of the table if it ``writes``."""

    # On many machines it does not write: a piece of work must leave one file whose name follows from its rows, and
    # chunks are finished in another order each time. It holds neither samples nor networks, so it can travel.

    def __init__(
        self,
        spec: EvaluateSpec,
        prepared: Prepared,
        positions: Sequence[int],
        tested: Sequence[Tested],
        conditions: Sequence[Condition],
        folder: Path,
        *,
        writes: bool = True,
    ) -> None:
        self.spec, self.positions, self.conditions = spec, tuple(positions), conditions
        self.prepared = replace(prepared.for_workers(), pool=DonorPool([]))
        self.tested = [*map(unloaded, tested)]
        self.folder, self.writes = folder, writes

    def __call__(self, chunks: Sequence[Finished]) -> tuple[Path, Summary] | pa.Table | None:
        """Return the part file and its counts, or the table that is still to be written; None without chunks."""
        if not chunks:
            return None
        run = Run(self.folder)
        table = self.table(chunks, run.run_id)
        if not self.writes:
            return table
        summary = Summary()
        summary.count(table)
        return run.predictions.write(table), summary

    def table(self, chunks: Sequence[Finished], run_id: str) -> pa.Table:
        """Return the rows of finished chunks, model by model."""
        sample_of, condition_of, column_of = np.nonzero(np.concatenate([chunk.owed for chunk in chunks]))
        packed = np.concatenate([chunk.packed for chunk in chunks])
        ids = self._ids(chunks)
        firsts = np.cumsum([0, *(len(chunk.packed) for chunk in chunks)])
        failed = {
            first + row: why for chunk, first in zip(chunks, firsts, strict=False) for row, why in chunk.failed.items()
        }
        answered = np.ones(len(packed), np.bool_)
        answered[list(failed)] = False
        common = self._common_columns(chunks)
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
                columns = common(sample_of[rows], condition_of[rows])
                columns |= {"model": _constant(model.classifier.name, len(rows)), "row_id": ids.take(pa.array(rows))}
                if good:
                    columns |= answers.columns(packed[rows], model.labels, truths[sample_of[rows]])
                else:
                    statuses, reasons = zip(*(failed[row] for row in rows.tolist()), strict=True)
                    columns |= {"status": pa.array(statuses), "error": pa.array(reasons)}
                tables.append(_with_all_columns(columns, len(rows), run_id))
        return pa.concat_tables(tables).unify_dictionaries()

    def _ids(self, chunks: Sequence[Finished]) -> pa.Array:
        """Return the row ids, in order."""
        samples = [sample for chunk in chunks for sample in chunk.samples]
        names = [sample.sample_id for sample in samples]
        images, masks = (
            dict(zip(names, (value for chunk in chunks for value in getattr(chunk, kind)), strict=True))
            for kind in ("images", "masks")
        )
        ids = EvaluationIds(self.spec, replace(self.prepared, images=images, masks=masks), self.tested)
        owed = np.concatenate([chunk.owed for chunk in chunks])
        wanted = owed.any(2)
        every_model = [
            row_id
            for sample, condition in np.argwhere(wanted).tolist()
            for row_id in ids.of(samples[sample], self.conditions[condition], self.positions)
        ]
        return pa.array(every_model, pa.string()).filter(pa.array(owed[wanted].reshape(-1)))

    def _common_columns(
        self, chunks: Sequence[Finished]
    ) -> Callable[[NDArray[np.int64], NDArray[np.int64]], dict[str, pa.Array]]:
        """Return a function from places of samples and conditions to the columns that do not depend on the model."""
        # Most rows share their key with others, except for the sample's names, and few facts are known: each is made
        # once, and looked up for every row.
        samples = [sample for chunk in chunks for sample in chunk.samples]
        kinds: dict[tuple[Any, ...], int] = {}
        keys: list[dict[str, Any]] = []  # of each kind of samples, under each condition
        kind_of = []
        for sample in samples:
            kind = shared_key(sample, self.conditions[0])
            if kind not in kinds:
                kinds[kind] = len(kinds)
                name = self.prepared.collection.name
                keys += [row_key(self.spec, name, sample, condition, "") for condition in self.conditions]
            kind_of.append(kinds[kind])
        facts: list[dict[str, Any]] = []  # of each sample, as it is and with its donor
        for chunk in chunks:
            for place, sample in enumerate(chunk.samples):
                stored = stored_details(sample)
                facts += [stored, stored | chunk.donors.get(place, {})]
        kinds_of = np.array(kind_of)
        borrows = np.array([bool(condition.definition.donor) for condition in self.conditions])
        borrowed = borrows & np.concatenate([chunk.pictured for chunk in chunks])
        columns = {}
        for name in (*KEY.names, "label", *RENDERED_COLUMNS):
            if name in _OF_SAMPLE:
                values = [getattr(sample, name) for sample in samples]
            else:
                values = [known.get(name) for known in (facts if name in RENDERED_COLUMNS else keys)]
            kind = PREDICTIONS.field(name).type
            is_word = pa.types.is_dictionary(kind)
            columns[name] = pa.array(values, kind.value_type).dictionary_encode() if is_word else pa.array(values, kind)

        def looked_up(sample: NDArray[np.int64], condition: NDArray[np.int64]) -> dict[str, pa.Array]:
            by_sample, by_fact = pa.array(sample), pa.array(2 * sample + borrowed[sample, condition])
            by_key = pa.array(kinds_of[sample] * len(borrows) + condition)
            return {
                name: column.take(by_sample if name in _OF_SAMPLE else by_fact if name in RENDERED_COLUMNS else by_key)
                for name, column in columns.items()
            }

        return looked_up


class Writer:
    """Has tables made of finished chunks: in a process of its own (``apart``), or in a thread."""

    def __init__(self, maker: TableMaker, *, apart: bool) -> None:
        self._process = Processes(maker, 1) if apart else None
        self._thread = None if apart else ThreadPoolExecutor(1)
        self._maker = maker
        self._waiting: list[Chunk] = []
        self._pending: deque[Future[tuple[Path, Summary] | pa.Table | None]] = deque()
        if apart:
            self._submit([])  # the process starts now, while networks are compiled

    def begin(self, prepared: Prepared, owed: int) -> None:
        """Expect about ``owed`` rows of these samples."""
        self._prepared = prepared
        self._enough = max(PART_ROWS, owed // PARTS)
        self._last = time.monotonic()

    def add(self, chunk: Chunk) -> None:
        """Take a finished chunk."""
        self._waiting.append(chunk)
        rows = sum(len(waiting.packed) for waiting in self._waiting)
        if rows >= self._enough or time.monotonic() - self._last >= PART_SECONDS:
            self._send()

    def done(self, *, everything: bool = False) -> Iterator[Summary | pa.Table]:
        """Yield what was made since the last call; wait for it at the end, or where too many parts are pending."""
        if everything and self._waiting:
            self._send()
        while self._pending and (everything or len(self._pending) > BEHIND or self._pending[0].done()):
            try:
                result = self._result(self._pending.popleft())
            except BrokenProcessPool as error:
                raise HoldfastError(
                    "the process that writes rows was killed (out of memory?); finished rows are kept: run the same "
                    "command again"
                ) from error
            if result is not None:
                yield result

    def close(self) -> None:
        """End when the file in hand is whole; forget what is not written yet."""
        running = [future for future in self._pending if not future.cancel()]
        for future in wait(running).done:
            with suppress(Exception):  # whatever it is, the run has ended
                self._result(future)
        if self._process is not None:
            self._process.close()
        if self._thread is not None:
            self._thread.shutdown()

    def _result(self, future: Future[tuple[Path, Summary] | pa.Table | None]) -> Summary | pa.Table | None:
        result = future.result()
        if not isinstance(result, tuple):
            return result
        completed(result[0])  # what sends files to a store does not see files of another process
        return result[1]

    def _send(self) -> None:
        self._last = time.monotonic()
        chunks, self._waiting = self._waiting, []
        self._submit([Finished.of(chunk, self._prepared) for chunk in chunks])

    def _submit(self, chunks: list[Finished]) -> None:
        if self._process is not None:
            self._pending.append(self._process.submit(chunks))
        elif self._thread is not None:
            self._pending.append(self._thread.submit(self._maker, chunks))


def _with_all_columns(columns: dict[str, Any], count: int, run_id: str) -> pa.Table:
    version = pa.array(np.full(count, SCHEMA_VERSION, np.int32))
    columns |= {"run_id": _constant(run_id, count), "schema_version": version}
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in PREDICTIONS
    ]
    return pa.Table.from_arrays(arrays, schema=PREDICTIONS)


def _constant(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([text]))
