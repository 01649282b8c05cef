"""Which rows are there already, in 16 bytes each: a table of hundreds of millions of rows still fits into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow.dataset as ds
from numpy.typing import NDArray

Halves = NDArray[np.uint64]
"""(n, 2): the first and the last eight bytes of each id."""


class StoredIds:
    """The ids of a table, sorted; each has a place, from 0 on."""

    def __init__(self, rows: ds.Dataset) -> None:
        parts = [_halves(batch["row_id"].to_pylist()) for batch in rows.to_batches(columns=["row_id"])]
        found = np.concatenate(parts) if parts else np.empty((0, 2), np.uint64)
        self._ids = found[np.lexsort((found[:, 1], found[:, 0]))]

    def __len__(self) -> int:
        return len(self._ids)

    def places(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Where each id stands, -1 where it is not there."""
        wanted = _halves(ids)
        found = np.full(len(wanted), -1, np.int64)
        place = np.searchsorted(self._ids[:, 0], wanted[:, 0])
        open_ = np.arange(len(wanted))
        while len(open_):  # once, but for ids that share their first half
            open_ = open_[place[open_] < len(self._ids)]
            here = self._ids[place[open_]]
            alike = here[:, 0] == wanted[open_, 0]
            same = alike & (here[:, 1] == wanted[open_, 1])
            found[open_[same]] = place[open_[same]]
            open_ = open_[alike & ~same]
            place[open_] += 1
        return found


def _halves(ids: Sequence[str]) -> Halves:
    try:
        data = bytes.fromhex("".join(ids))
    except ValueError:
        data = b""
    if len(data) != 16 * len(ids) or any(len(one) != 32 for one in ids):  # not made by row_id
        data = b"".join(hashlib.blake2b(one.encode(), digest_size=16).digest() for one in ids)
    return np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, 2)
