"""The ids of stored rows, in 16 bytes each, so that hundreds of millions of them fit into memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

Halves = NDArray[np.uint64]
"""(n, 2): the first and the last eight bytes of each id."""


class StoredIds:
    """The sorted ids of a table; each id has a place, counted from 0."""

    def __init__(self, rows: ds.Dataset) -> None:
        parts = [_halves(batch["row_id"].to_pylist()) for batch in _batches(rows)]
        halves = np.concatenate(parts) if parts else np.empty((0, 2), np.uint64)
        self._ids = halves[np.lexsort((halves[:, 1], halves[:, 0]))]

    def __len__(self) -> int:
        return len(self._ids)

    def places(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the place of each id, or -1 if it is not stored."""
        if not len(self._ids):
            return np.full(len(ids), -1, np.int64)
        wanted = _halves(ids)
        places = np.full(len(wanted), -1, np.int64)
        place = np.searchsorted(self._ids[:, 0], wanted[:, 0])
        open_ = np.arange(len(wanted))
        while len(open_):  # once, but for ids that share their first half
            open_ = open_[place[open_] < len(self._ids)]
            here = self._ids[place[open_]]
            alike = here[:, 0] == wanted[open_, 0]
            same = alike & (here[:, 1] == wanted[open_, 1])
            places[open_[same]] = place[open_[same]]
            open_ = open_[alike & ~same]
            place[open_] += 1
        return places


def _batches(rows: ds.Dataset) -> Iterator[pa.RecordBatch]:
    if not isinstance(rows, ds.FileSystemDataset):
        yield from rows.to_batches(columns=["row_id"])
        return
    for path in rows.files:  # a dataset would remember what each says of itself: 200 MB for two thousand of them
        with pq.ParquetFile(path, filesystem=rows.filesystem) as file:
            yield from file.iter_batches(columns=["row_id"], use_threads=False)


def _halves(ids: Sequence[str]) -> Halves:
    text = "".join(ids)
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if data.hex() != text or any(len(name) != 32 for name in ids):  # some were not made by row_id
        data = b"".join(map(_bytes, ids))
    return np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, 2)


def _bytes(name: str) -> bytes:
    """Return the 16 bytes that an id of ``row_id`` spells, or a hash of any other id."""
    if re.fullmatch("[0-9a-f]{32}", name):
        return bytes.fromhex(name)
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
