"""Read Parquet and JSON that a stranger wrote; how much a file unpacks to is known before any of it is unpacked.

A file's own account of its size can be false, so the headers of its pages are read: an unpacked page is never larger
than its header says, whatever is inside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.core.errors import UserError, first_line
from holdfast.core.schema import newer_version

MAX_ROWS = 5_000_000
MAX_UNPACKED = 2 << 30  # bytes of a file's pages, and of its rows in memory
MAX_TEXT, MAX_JSON = 20_000, 1 << 20  # characters of a text, and of one that is JSON
MAX_DEPTH = 20
_LIMITS: dict[str, Any] = {"thrift_string_size_limit": 1 << 24, "thrift_container_size_limit": 1 << 20}
_PAGES, _FOOTER = 200_000, 1 << 23  # in memory a directory is two hundred times as large at worst
_HEADER = 1 << 16
_DEEP = 12
# Thrift's types: of one length (true, false, byte, double), numbers, texts, lists and sets, structs.
_PLAIN, _NUMBERS, _TEXT, _LISTS, _STRUCT = {1: 0, 2: 0, 3: 1, 7: 8}, (4, 5, 6), 8, (9, 10), 12


def read_foreign(
    data: bytes, schema: pa.Schema, name: str, *, json_columns: tuple[str, ...] = (), older: bool = False
) -> pa.Table:
    """Return the table with exactly these columns and types; a UserError says in one sentence what is wrong."""
    # ``data``: the file. ``schema``: what it has to be. ``name``: of the file, for sentences. ``json_columns``: texts
    # that have to be JSON, without NaN and not too deep. ``older``: columns may be missing; they are null then.
    table = read_coded(
        data, schema, name, lambda facts, _: _check_schema(facts.schema.to_arrow_schema(), schema, name, older=older)
    )
    for column in table.column_names:
        _check_texts(table[column], column, name, is_json=column in json_columns)
    try:
        for field in schema:
            if field.name not in table.column_names:
                table = table.append_column(field.name, pa.nulls(len(table), field.type))
        table = table.select(schema.names).cast(schema)
    except pa.ArrowException as error:
        raise UserError(f"{name} has values that cannot be read: {first_line(error)}") from None
    return table.replace_schema_metadata(None)


def read_coded(data: bytes, schema: pa.Schema, name: str, check: Callable[[pq.FileMetaData, int], object]) -> pa.Table:
    """Return the table as the file has it; a UserError says why it cannot be read."""
    # Texts stay dictionaries, so that one long text in a million rows is not a million long texts. ``data``: the file.
    # ``schema``: which columns hold texts. ``name``: of the file, for sentences. ``check``: called with what the file
    # says of itself and how many bytes its pages unpack to, before any is unpacked; raises if the columns are not
    # those of the schema.
    try:
        unpacked = check_size(data, name)
        metadata = pq.ParquetFile(pa.BufferReader(data), **_LIMITS).metadata
        if newer := newer_version(metadata.metadata):
            raise UserError(f"{name} {newer}")
        check(metadata, unpacked)
        columns = metadata.schema.to_arrow_schema().names
        texts = [path for path in _text_columns(schema) if path.partition(".")[0] in columns]
        file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, read_dictionary=texts, **_LIMITS)
        table = file.read(use_threads=False)
        table.validate(full=True)
        table = table.unify_dictionaries()  # without which Arrow groups no column
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError, OverflowError, LookupError) as error:
        raise UserError(f"{name} is not a Parquet file that can be read: {first_line(error)}") from None
    return table


def _text_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns that hold texts."""
    lists = [field.name for field in schema if pa.types.is_list(field.type) and _is_text(field.type.value_type)]
    return [field.name for field in schema if _is_text(field.type)] + [f"{name}.list.element" for name in lists]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_dictionary(kind))


def check_size(data: bytes, name: str) -> int:
    """Return how many bytes the pages of all columns unpack to; a UserError if they are too many."""
    # The directory of columns is read here, too: Arrow's own ends the process over some that are broken.
    unpacked = values = pages = packed = 0
    for start, end in _columns(data, name):
        packed += end - start
        if packed > len(data):  # else one page could be read a hundred thousand times
            raise UserError(f"{name} is not a Parquet file that can be read: its columns are larger than itself")
        for size, count in _pages(data, start, end, name):
            unpacked, values, pages = unpacked + size, values + count, pages + 1
            if unpacked > MAX_UNPACKED or values > 100 * MAX_ROWS or pages > _PAGES:
                raise UserError(f"{name} unpacks to more than {MAX_UNPACKED >> 30} GB: it looks like a bomb")
    return unpacked


def _columns(data: bytes, name: str) -> Iterator[tuple[int, int]]:
    """Yield where the pages of each column of each row group begin and end."""
    broken = UserError(f"{name} is not a Parquet file that can be read: its directory is broken")
    length = int.from_bytes(data[-8:-4], "little")
    if len(data) < 12 or data[:4] != b"PAR1" or data[-4:] != b"PAR1" or length > min(len(data) - 12, _FOOTER):
        raise broken
    try:
        footer, _ = _struct(data[len(data) - 8 - length : len(data) - 8], 0, 0)
        if footer[3] > MAX_ROWS:
            raise UserError(f"{name} has {footer[3]} rows; {MAX_ROWS} are the most that one file may have")
        for group in footer.get(4, []):
            for chunk in group[1]:
                facts = chunk[3]
                if 1 in chunk or 8 in chunk or 9 in chunk:
                    raise broken  # in another file, or encrypted
                # 0 if there is none: of a column without values, of one without a dictionary
                start = min((offset for offset in (_size(facts, 9, 0), _size(facts, 11, 0)) if offset), default=0)
                size = _size(facts, 7)
                if start < 0 or size < 0:
                    raise broken
                yield start, start + size
    except (IndexError, ValueError, KeyError, TypeError, AttributeError):
        raise broken from None


def _pages(data: bytes, start: int, end: int, name: str) -> Iterator[tuple[int, int]]:
    """Yield the unpacked bytes and the number of values of each page of a column, as its header states them."""
    if not 0 <= start <= end <= len(data):
        raise UserError(f"{name} is not a Parquet file that can be read: a column lies outside of it")
    while start < end:
        try:
            header, size = _struct(data[start : min(end, start + _HEADER)], 0, 0)
        except (IndexError, ValueError):
            raise UserError(f"{name} is not a Parquet file that can be read: a page has no header") from None
        packed, unpacked = _size(header, 3), _size(header, 2)
        counts = [_size(part, 1, 0) for key in (5, 7, 8) if isinstance(part := header.get(key), dict)]
        if packed < 0 or unpacked < 0 or min(counts, default=0) < 0 or start + size + packed > end:
            raise UserError(f"{name} is not a Parquet file that can be read: a page is larger than its column")
        yield unpacked, sum(counts)
        start += size + packed


def _size(struct: Mapping[int, Any], field: int, otherwise: int = -1) -> int:
    """Return a number of a struct, or −1 if the field holds something else."""
    value = struct.get(field, otherwise)
    return value if isinstance(value, int) else -1


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError("too long a number")


def _struct(data: bytes, place: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return field number → value of a struct in Thrift's compact protocol, and the place behind it."""
    fields: dict[int, Any] = {}
    field = 0
    while byte := data[place]:
        place += 1
        if byte > 15:
            field += byte >> 4
        else:
            field, place = _number(data, place)
        if field in fields:
            raise ValueError("a field is there twice")
        fields[field], place = _value(data, place, byte & 15, depth)
    return fields, place + 1


def _list(data: bytes, place: int, depth: int) -> tuple[list[Any], int]:
    """Return the values of a list and the place behind it."""
    count, kind = data[place] >> 4, data[place] & 15
    place += 1
    if count == 15:
        count, place = _varint(data, place)
    if count > len(data) - place:
        raise ValueError("a list is longer than the file")
    values: list[Any] = []
    for _ in range(count):
        value, behind = _value(data, place, kind, depth)
        place = max(behind, place + 1)  # true and false take a byte here
        values.append(value)
    return values, place


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Return a number with its sign and the place behind it; most have one byte and take no further call."""
    number, place = (data[place], place + 1) if data[place] < 128 else _varint(data, place)
    return (number >> 1) ^ -(number & 1), place


def _value(data: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value of a struct or a list, and the place behind it; texts and floats are skipped."""
    if kind in _NUMBERS:
        return _number(data, place)
    if kind == _TEXT:
        length, place = _varint(data, place)
        return None, place + length
    if kind in _PLAIN:
        return None, place + _PLAIN[kind]
    if kind != _STRUCT and kind not in _LISTS:
        raise ValueError("there is no such value")
    if depth >= _DEEP:
        raise ValueError("too deep")
    return _struct(data, place, depth + 1) if kind == _STRUCT else _list(data, place, depth + 1)


def _check_schema(given: pa.Schema, wanted: pa.Schema, name: str, *, older: bool) -> None:
    strange = [column for column in given.names if column not in wanted.names]
    missing = [] if older else [column for column in wanted.names if column not in given.names]
    if strange or missing or len(set(given.names)) < len(given.names):
        what = f"has {strange[0]!r:.80}" if strange else f"lacks {missing[0]}" if missing else "has a column twice"
        raise UserError(f"{name} is not a table of Holdfast's: it {what}")
    for field in given:
        kind = wanted.field(field.name).type
        if not _fits(field.type, kind):
            raise UserError(f"{name} is not a table of Holdfast's: its {field.name} is {field.type!s:.80}, not {kind}")


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_dictionary(given):
        given = given.value_type
    if _is_text(wanted):
        return bool(pa.types.is_string(given))
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(given)) and _fits(given.value_type, wanted.value_type)
    return bool(given == wanted)


def _check_texts(values: pa.ChunkedArray, column: str, name: str, *, is_json: bool) -> None:
    """Raise a UserError for texts that are too long, have control characters, or together exceed the memory limit."""
    if pa.types.is_list(values.type):
        values = pa.chunked_array([chunk.flatten() for chunk in values.chunks], values.type.value_type)
    if not _is_text(values.type):
        return
    total, seen = 0, set[str]()
    for chunk in values.chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if not len(encoded):
            continue
        lengths = np.append(pc.binary_length(encoded.dictionary).fill_null(0).to_numpy(zero_copy_only=False), 0)
        places = encoded.indices.fill_null(len(lengths) - 1).to_numpy(zero_copy_only=False)
        total += int(lengths[places].sum(dtype=np.int64))
        seen.update(text for text in encoded.dictionary.to_pylist() if text is not None)
    if total > MAX_UNPACKED:
        raise UserError(f"{name} unpacks to more than {MAX_UNPACKED >> 30} GB: it looks like a bomb")
    for text in seen:
        if len(text) > (MAX_JSON if is_json else MAX_TEXT):
            raise UserError(f"{name} has a {column} of {len(text)} characters, more than any has")
        if is_steering(text):
            raise UserError(f"{name} has a control character in its {column}")
        if is_json and text:
            parse_foreign_json(text, f"{column} of {name}")


def is_steering(text: str) -> bool:
    """Return whether a text has characters that move a terminal's cursor or turn the direction of text."""
    if text.isascii() and text.isprintable():
        return False
    return any(
        (ord(character) < 32 and character not in "\n\t") or 127 <= ord(character) < 160 or character in "\u2028\u2029"
        or "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069" for character in text
    )  # fmt: skip


def parse_foreign_json(text: str | bytes, name: str) -> Any:
    """Parse a stranger's JSON; a UserError for NaN, infinity, a repeated key, or nesting deeper than ``MAX_DEPTH``."""
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_distinct)
        _check_depth(value, MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is not JSON that Holdfast reads: {first_line(error)}") from None
    return value


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key is there twice")
    return unique


def _check_depth(value: Any, left: int) -> None:
    if isinstance(value, float) and not np.isfinite(value):
        raise ValueError("a number is not finite")  # 1e999
    if isinstance(value, (Mapping, list)):
        if not left:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check_depth(inner, left - 1)
