"""Work done elsewhere, as far as one process can: what travels is pickled, and shards come late, twice, or never."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.store import Run


class StoppedError(Exception):
    """The command was killed."""


class Carried:
    """Two workers that share nothing with who plans.

    They take shards from the last to the first. Every other shard is done by one of them whose answer is lost, and
    then by the other. After ``answers`` answers the command is killed.
    """

    width = 2
    shares_memory = False
    remote = True

    def __init__(self, answers: int | None = None) -> None:
        self.answers = answers
        self.done: list[int] = []  # shards of each call
        self.heaviest = 0  # bytes of work that travelled

    def map(self, work: Callable[[Any], Any], shards: Iterable[Any]) -> Iterator[Any]:
        sent = pickle.dumps(work)
        self.heaviest = max(self.heaviest, len(sent))
        workers = [pickle.loads(sent), pickle.loads(sent)]
        waiting = [pickle.dumps(shard) for shard in shards][::-1]
        self.done.append(len(waiting))
        for number, shard in enumerate(waiting):
            if number % 2 == 0:
                workers[1](pickle.loads(shard))
            if number == self.answers:
                raise StoppedError
            yield pickle.loads(pickle.dumps(workers[number // 2 % 2 if number % 2 else 0](pickle.loads(shard))))

    def close(self) -> None:
        pass


def rows_of(run: Run) -> list[dict[str, Any]]:
    return in_order(run.rows(), drop=("run_id",))


def in_order(table: pa.Table, drop: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    rows = [{key: value for key, value in row.items() if key not in drop} for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["row_id"], row.get("step", 0), str(row.get("class"))))


def assert_same(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    """Equal but for rounding."""
    assert [row["row_id"] for row in first] == [row["row_id"] for row in second]
    for one, other in zip(first, second, strict=True):
        for key, value in one.items():
            if isinstance(value, float) and not math.isnan(value):
                assert abs(value - other[key]) <= 1e-4, (key, one["row_id"])
            elif not isinstance(value, float):
                assert value == other[key], (key, one["row_id"])


def pictures(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.png"))}
