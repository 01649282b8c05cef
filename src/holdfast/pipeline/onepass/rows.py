"""Rows by columns: what a run knows of a unit's rows, filled as answers come, and the part files made of them.

``image_sha256`` stays empty: the pictures are made on the device, and fetching them to hash them would take longer than
all the rest.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.schema import KEY, PREDICTIONS, SCHEMA_VERSION
from holdfast.core.types import Sample
from holdfast.data.labels import NOT_PROBABILITIES
from holdfast.pipeline.evaluation import DETAILS, EvaluateSpec, Job, Tested, row_key, shared_key, stored_details
from holdfast.pipeline.onepass import answers
from holdfast.pipeline.planning import Plan
from holdfast.pipeline.summary import Summary
from holdfast.scenarios import Condition
from holdfast.store import Run

PART_ROWS, PARTS, PART_SECONDS = 20_000, 1000, 10.0
"""A part file is written when so many rows are done (more where there would be more than so many files), or so long
after the last: a kill costs no more than that, and little is left to write when the last answer is there."""


class Chunk:
    """The rows that a unit of samples owes: who they are, and what is known of them so far."""

    def __init__(self, jobs: Sequence[Job], conditions: Sequence[Condition], positions: Sequence[int]) -> None:
        self.samples: list[Sample] = [job.sample for job in jobs]
        self.pairs: list[tuple[int, Condition]] = []  # sample, condition
        self.donors: dict[int, dict[str, Any]] = {}
        self.failed: dict[int, tuple[str, str]] = {}  # row → status, reason
        self.ids: list[str] = []
        pair_of, position_of = [], []
        self.slots = np.full((len(jobs), len(conditions), len(positions)), -1, np.int64)
        place_of = {condition: place for place, condition in enumerate(conditions)}
        column_of = {position: column for column, position in enumerate(positions)}
        for place, job in enumerate(jobs):
            for condition, owed in job.owed:
                slots = self.slots[place, place_of[condition]]
                for position, one in owed:
                    slots[column_of[position]] = len(self.ids)
                    self.ids.append(one)
                    pair_of.append(len(self.pairs))
                    position_of.append(position)
                self.pairs.append((place, condition))
        self.pair_of, self.position_of = np.array(pair_of, np.int64), np.array(position_of, np.int64)
        self.packed = np.zeros((len(self.ids), answers.WIDTH), np.float32)
        self.left = len(self.ids)

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


class Writer:
    """Makes part files of finished chunks in a thread of its own."""

    def __init__(self, spec: EvaluateSpec, plan: Plan, tested: Sequence[Tested], run: Run) -> None:
        self._spec, self._tested, self._run = spec, tested, run
        self._dataset = plan.prepared.collection.name
        self._enough = max(PART_ROWS, plan.owed // PARTS)
        self._threads = ThreadPoolExecutor(1)
        self._waiting: list[Chunk] = []
        self._pending: deque[Future[Summary]] = deque()
        self._last = time.monotonic()

    def add(self, chunk: Chunk) -> None:
        """Take a finished chunk."""
        self._waiting.append(chunk)
        rows = sum(len(one.ids) for one in self._waiting)
        if rows >= self._enough or time.monotonic() - self._last >= PART_SECONDS:
            self._submit()

    def done(self, *, everything: bool = False) -> Iterator[Summary]:
        """What has been written since; at the end, or where the thread has fallen behind, waits for it."""
        if everything:
            self._submit()
        while self._pending and (everything or len(self._pending) > 2 or self._pending[0].done()):
            yield self._pending.popleft().result()

    def close(self) -> None:
        """Let the thread go; what is not written yet is forgotten."""
        self._threads.shutdown(cancel_futures=True)

    def _submit(self) -> None:
        self._last = time.monotonic()
        if self._waiting:
            self._pending.append(self._threads.submit(self._write, self._waiting))
            self._waiting = []

    def _write(self, chunks: list[Chunk]) -> Summary:
        table = table_of(chunks, self._spec, self._dataset, self._tested, self._run.run_id)
        self._run.predictions.write(table)
        summary = Summary(table.num_rows)
        for chunk in chunks:
            for row, (status, reason) in chunk.failed.items():
                sample = chunk.samples[chunk.pairs[chunk.pair_of[row]][0]]
                summary.add(sample.sample_id, f"{status}: {reason}")
            unusable = chunk.packed[:, answers.USABLE] == 0
            unusable[list(chunk.failed)] = False
            for row in np.flatnonzero(unusable).tolist():
                sample = chunk.samples[chunk.pairs[chunk.pair_of[row]][0]]
                summary.add(sample.sample_id, f"error: {NOT_PROBABILITIES}")
        return summary


def table_of(
    chunks: Sequence[Chunk], spec: EvaluateSpec, dataset: str, tested: Sequence[Tested], run_id: str
) -> pa.Table:
    """The rows of finished chunks, model by model."""
    pairs = _pairs(chunks, spec, dataset)
    starts = np.cumsum([0, *(len(chunk.pairs) for chunk in chunks)])
    pair_of = np.concatenate([chunk.pair_of + start for chunk, start in zip(chunks, starts, strict=False)])
    position_of = np.concatenate([chunk.position_of for chunk in chunks])
    packed = np.concatenate([chunk.packed for chunk in chunks])
    ids = pa.array([one for chunk in chunks for one in chunk.ids], pa.string())
    firsts = np.cumsum([0, *(len(chunk.ids) for chunk in chunks)])
    failed = {
        first + row: why for chunk, first in zip(chunks, firsts, strict=False) for row, why in chunk.failed.items()
    }
    answered = np.ones(len(ids), np.bool_)
    answered[list(failed)] = False
    labels = np.array([chunk.samples[place].label for chunk in chunks for place, _ in chunk.pairs], object)
    tables = []
    for position in np.unique(position_of):
        model = tested[position]
        truth_of = {label: place for place, label in enumerate(model.labels.classes)}
        truths = np.array([truth_of.get(label, -1) for label in labels])
        for good in (True, False):
            rows = np.flatnonzero((position_of == position) & (answered == good))
            if not len(rows):
                continue
            made = {name: column.take(pa.array(pair_of[rows])) for name, column in pairs.items()}
            made |= {"model": _constant(model.classifier.name, len(rows)), "row_id": ids.take(pa.array(rows))}
            if good:
                made |= answers.columns(packed[rows], model.labels, truths[pair_of[rows]])
            else:
                reasons = [failed[int(row)] for row in rows]
                made |= {
                    "status": pa.array([one for one, _ in reasons]),
                    "error": pa.array([one for _, one in reasons]),
                }
            tables.append(_whole(made, len(rows), run_id))
    return pa.concat_tables(tables).unify_dictionaries()


def _pairs(chunks: Sequence[Chunk], spec: EvaluateSpec, dataset: str) -> dict[str, pa.Array]:
    """The columns that a sample under a condition has, whatever the model.

    Few keys differ in more than the sample's names, and few facts are known: each is told once, and looked up.
    """
    samples = [sample for chunk in chunks for sample in chunk.samples]
    keys: dict[tuple[Any, ...], dict[str, Any]] = {}
    place_of: dict[tuple[Any, ...], int] = {}
    facts: list[dict[str, Any]] = []  # of each sample, as it is and with its donor
    key_of, sample_of, fact_of = [], [], []
    lends = {condition: bool(condition.definition.donor) for chunk in chunks for _, condition in chunk.pairs}
    first = 0
    for chunk in chunks:
        for place, sample in enumerate(chunk.samples):
            told = stored_details(sample)
            facts += [told, told | chunk.donors.get(place, {})]
        for place, condition in chunk.pairs:
            sample = chunk.samples[place]
            shared = shared_key(sample, condition)
            if shared not in keys:
                place_of[shared] = len(keys)
                keys[shared] = row_key(spec, dataset, sample, condition, "")
            key_of.append(place_of[shared])
            sample_of.append(first + place)
            fact_of.append(2 * (first + place) + lends[condition])
        first += len(chunk.samples)
    made = {}
    for name in (*KEY.names, "label", *DETAILS):
        if name in ("sample_id", "source_id", "label"):
            values, places = [getattr(sample, name) for sample in samples], sample_of
        elif name in DETAILS:
            values, places = [one.get(name) for one in facts], fact_of
        else:
            values, places = [key[name] for key in keys.values()], key_of
        made[name] = _column(values, PREDICTIONS.field(name).type).take(pa.array(places))
    return made


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
