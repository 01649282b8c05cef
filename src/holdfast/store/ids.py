"""Compare the ids of a table with those that are planned, however many there are.

Both are sorted run by run into a file without a name, and joined a piece at a time. Memory holds a bit per id and one
piece; the disk needs 24 bytes per id meanwhile.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from holdfast.store.parts import Parts

Halves = NDArray[np.uint64]  # (n, 2): the first and the last eight bytes of each id
Records = NDArray[np.uint64]  # (n, 3): an id's halves, and its place among the ids of its side × 4 + which side it is

_STORED, _FAILED, _PLANNED = range(3)
_RUN = 1 << 18  # records that are sorted and written together
_PIECE = 1 << 21  # records that are joined together; more only if these would be more than 256 pieces
_IN_MEMORY = 1 << 26  # bytes of records; more go to the disk


class Bits:
    """Flags, eight to a byte."""

    def __init__(self, count: int) -> None:
        self._bytes, self._count = np.zeros(count // 8 + 1, np.uint8), count

    def __len__(self) -> int:
        return self._count

    def set(self, places: NDArray[np.uint64]) -> None:
        """Set the flags at these places."""
        flags = np.uint8(1) << (places & np.uint64(7)).astype(np.uint8)
        np.bitwise_or.at(self._bytes, (places >> np.uint64(3)).astype(np.int64), flags)

    def span(self, start: int, count: int) -> NDArray[np.bool_]:
        """Return some flags that follow one another."""
        flags = np.unpackbits(self._bytes[start >> 3 : (start + count + 7) >> 3], bitorder="little")
        return flags[start & 7 :][:count].view(np.bool_)

    def sum(self) -> int:
        """Return how many flags are set."""
        return int(np.bitwise_count(self._bytes).sum(dtype=np.int64))


def compare(
    table: Parts, planned: Iterable[Sequence[str]], *, failed: Sequence[str] = (), key: Sequence[str] = ()
) -> tuple[Bits, Bits]:
    """Return which rows of a table are planned, and which planned ids are stored, each in their order."""
    # ``planned``: ids, some at a time. ``failed``: rows with such a status do not count as stored. ``key``: the columns
    # that ids are made of, if they are not the table's own.
    counts = [0, 0]
    with tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(table.folder)) as file:
        runs = _Runs(file)
        for ids, kinds in table_ids(table, failed, key):
            runs.add(ids, kinds, counts[0])
            counts[0] += len(ids)
        for some in planned:
            runs.add(some, _PLANNED, counts[1])
            counts[1] += len(some)
        wanted, present = Bits(counts[0]), Bits(counts[1])
        for records in runs.pieces():
            fresh = np.r_[True, (records[1:, :2] != records[:-1, :2]).any(axis=1)]
            group = np.cumsum(fresh, dtype=np.int32) - 1  # equal ids have the same number
            kinds, places = records[:, 2] & np.uint64(3), records[:, 2] >> np.uint64(2)
            for kind, others, flags in (_PLANNED, kinds != _PLANNED, wanted), (_STORED, kinds == _PLANNED, present):
                has = np.zeros(len(records), np.bool_)
                has[group[kinds == kind]] = True
                flags.set(places[others & has[group]])
    return wanted, present


def by_file(table: Parts, flags: Bits) -> Iterator[tuple[Path, NDArray[np.bool_]]]:
    """Yield each part file of a table with the flags of its rows."""
    place = 0
    for path in table.paths():
        size = pq.read_metadata(path).num_rows
        yield path, flags.span(place, size)
        place += size


def table_ids(
    table: Parts, failed: Sequence[str] = (), key: Sequence[str] = ()
) -> Iterator[tuple[list[str], NDArray[np.uint64] | int]]:
    """Yield the ids of a table and which of them failed; if several columns name a row, their values joined by |."""
    named = key or table.key
    columns = [*named, *(["status"] if failed else [])]
    for path in table.paths():  # a dataset would remember what each says of itself: 200 MB for two thousand of them
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=columns, use_threads=False):
                values = [batch[name].to_pylist() for name in named]
                kinds = _among(batch["status"], failed).astype(np.uint64) * _FAILED if failed else _STORED
                yield values[0] if len(values) == 1 else list(map("|".join, zip(*values, strict=True))), kinds


def _among(column: pa.Array, values: Sequence[str]) -> NDArray[np.bool_]:
    flags = pc.is_in(column.cast(pa.string()), value_set=pa.array(values, pa.string()))
    return np.asarray(flags.to_numpy(zero_copy_only=False))


class _Runs:
    """Sorted records in a file, with an index of each run by the first byte of the id."""

    def __init__(self, file: tempfile.SpooledTemporaryFile[bytes]) -> None:
        self._file, self._edges, self._written = file, list[NDArray[np.int64]](), 0
        self._waiting, self._count = list[Records](), 0

    def add(self, ids: Sequence[str], kinds: NDArray[np.uint64] | int, first: int) -> None:
        """Take the ids of one side, which are its ``first`` and those that follow."""
        places = np.arange(first, first + len(ids), dtype=np.uint64) * np.uint64(4)
        self._waiting.append(np.column_stack([_halves(ids), places + np.asarray(kinds, np.uint64)]))
        self._count += len(ids)
        if self._count >= _RUN:
            self._write()

    def _write(self) -> None:
        run = np.concatenate([np.empty((0, 3), np.uint64), *self._waiting])
        run = run[np.argsort(run[:, 0])]
        self._edges.append(self._written + np.searchsorted(run[:, 0] >> np.uint64(56), np.arange(257, dtype=np.uint64)))
        self._file.write(run.tobytes())
        self._written += len(run)
        self._waiting, self._count = [], 0

    def pieces(self) -> Iterator[Records]:
        """Yield all records, sorted by their ids; equal ids are in one piece."""
        self._write()
        for first, last in pairwise(np.linspace(0, 256, 1 + min(256, 1 + self._written // _PIECE)).astype(int)):
            pieces = []
            for edges in self._edges:
                self._file.seek(int(edges[first]) * 24)
                pieces.append(self._file.read(int(edges[last] - edges[first]) * 24))
            records = np.frombuffer(b"".join(pieces), np.uint64).reshape(-1, 3)
            if len(records):
                yield records[np.lexsort((records[:, 1], records[:, 0]))]


def _halves(ids: Sequence[str]) -> Halves:
    text = "".join(ids)
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if data.hex() != text or set(map(len, ids)) != {32}:  # some were not made by row_id
        data = b"".join(map(_bytes, ids))
    return np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, 2)


def _bytes(name: str) -> bytes:
    """Return the 16 bytes that an id of ``row_id`` spells, or a hash of any other id."""
    if re.fullmatch("[0-9a-f]{32}", name):
        return bytes.fromhex(name)
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
