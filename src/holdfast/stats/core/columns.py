"""Text columns of Arrow tables as codes. A board reads a thousand small tables, so calls into Arrow are few."""

from __future__ import annotations

import weakref

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.stats.core.bootstrap import Codes

_KEPT = 200_000  # Tables with fewer rows keep their codes: 30 MB

_last: dict[str, tuple[weakref.ref[pa.Table], dict[str, tuple[Codes, list[str]]]]] = {}


def coded(column: pa.ChunkedArray) -> tuple[Codes, list[str]]:
    """Return codes into the sorted distinct values, −1 for nulls, and those values."""
    is_coded = pa.types.is_dictionary(column.type)
    if column.num_chunks == 1:
        array = column.chunk(0)
    else:
        array = (column.unify_dictionaries() if is_coded else column).combine_chunks()
    array = array if is_coded else array.dictionary_encode()
    # In Python, because there are a dozen words most often and calls into Arrow's kernels cost more.
    words = array.dictionary.to_pylist()
    names = sorted({*words} - {None})  # a foreign dictionary may hold a word twice
    place_of = {name: number for number, name in enumerate(names)} | {None: -1}
    place = np.array([*(place_of[word] for word in words), -1], np.intp)
    indices = array.indices.fill_null(len(words)) if array.indices.null_count else array.indices
    numbers = place[indices.to_numpy(zero_copy_only=False)]
    used = np.bincount(numbers + 1, minlength=len(names) + 1)[1:] > 0
    if used.all():
        return numbers, names
    smaller = np.append(np.cumsum(used) - 1, -1)  # a dictionary may hold words that no row has
    return smaller[numbers], [name for name, in_rows in zip(names, used, strict=True) if in_rows]


def codes_of(table: pa.Table, column: str) -> tuple[Codes, list[str]]:
    """Return ``coded`` of a column, read-only. The codes of the last table are kept, because many ask for them."""
    last = _last.get("table")  # read once: another thread may store its own meanwhile
    if last is None or last[0]() is not table:
        last = (weakref.ref(table), {})
        if len(table) < _KEPT:
            _last["table"] = last
        else:
            _last.clear()
    kept = last[1]
    if column not in kept:
        numbers, names = coded(table[column])
        numbers.flags.writeable = False
        kept[column] = numbers, names
    return kept[column]


def equals(table: pa.Table, column: str, value: str) -> NDArray[np.bool_]:
    """Return which rows hold a text."""
    numbers, names = codes_of(table, column)
    return np.asarray(numbers == (names.index(value) if value in names else -2))


def keep(table: pa.Table, column: str, value: str) -> pa.Table:
    """Return the rows that hold a text, without an Arrow expression, whose threads cost more than a thousand rows."""
    wanted = equals(table, column, value)
    return table if wanted.all() else table.filter(pa.array(wanted))
