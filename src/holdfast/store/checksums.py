"""Checksums of Parquet files.

A Parquet file ends with its footer, the length of the footer and ``PAR1``. The format has room for a signature of 28
bytes behind the footer, which the length counts and readers pass over. Holdfast writes its checksum there: ``holdfast``
and the first 20 bytes of the SHA-256 of all other bytes. A file that another program rewrites has no checksum any more,
so it is never taken for damaged.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.errors import first_line
from holdfast.core.schema import newer_version

_MARK = b"holdfast"
_DIGEST = 20
_SEAL = len(_MARK) + _DIGEST
_TAIL = 8  # the length of the footer and PAR1
_CHUNK = 1 << 20


def add_checksum(path: Path) -> None:
    """Write the checksum into a Parquet file that is complete otherwise."""
    with path.open("r+b") as file:
        end = file.seek(-_TAIL, os.SEEK_END)
        tail = file.read(_TAIL)
        tail = (int.from_bytes(tail[:4], "little") + _SEAL).to_bytes(4, "little") + tail[4:]
        digest = _digest(file, end, tail)
        file.seek(end)
        file.write(_MARK + digest + tail)


def damage_of(path: Path) -> str:
    """Return what is wrong with a Parquet file, or "" if it is whole."""
    # A process looks at a file once, and again when the file has changed.
    status = path.stat()
    return _damage_of(str(path), status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=1 << 16)
def _damage_of(path: str, size: int, _modified: int, _inode: int) -> str:
    if not size:
        return "it is empty"
    with Path(path).open("rb") as file:
        end = max(0, size - _TAIL - _SEAL)
        file.seek(end)
        seal = file.read()
        if seal.startswith(_MARK) and len(seal) == _SEAL + _TAIL:
            same = _digest(file, end, seal[_SEAL:]) == seal[len(_MARK) : _SEAL]
            return "" if same else "its checksum does not match its contents"
    return _decoding_error(path)


def refusal_of(path: Path, schema: pa.Schema | None, key: tuple[str, ...]) -> str:
    """Return why a whole Parquet file is not read: it is newer, or another table than the schema's; "" if it is."""
    # Columns may be missing, since older versions wrote fewer; those of the key may not.
    status = path.stat()
    return _refusal_of(str(path), schema, key, status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=1 << 16)
def _refusal_of(
    path: str, schema: pa.Schema | None, key: tuple[str, ...], _size: int, _modified: int, _inode: int
) -> str:
    given = pq.read_schema(path)
    if newer := newer_version(given.metadata):
        return newer
    given = given.remove_metadata()  # which pyarrow 21 cannot hash
    difference = "" if schema is None else _difference(given, schema, key)
    return difference and f"does not belong there: {difference}. Move it to another folder"


@lru_cache(maxsize=256)  # most parts have one schema
def _difference(given: pa.Schema, wanted: pa.Schema, key: tuple[str, ...]) -> str:
    for field in wanted:
        if field.name not in given.names:
            if field.name in key:
                return f"it has no column {field.name}"
        elif _kind(given.field(field.name).type) not in ("null", _kind(field.type)):  # null: a column without values
            return f"its column {field.name} holds {given.field(field.name).type}, not {field.type}"
    return ""


def _kind(column: pa.DataType) -> str:
    """Return the kind of a column's values, which programs may store in several types."""
    if pa.types.is_dictionary(column):
        column = column.value_type
    if pa.types.is_string(column) or pa.types.is_large_string(column) or pa.types.is_string_view(column):
        return "text"
    if pa.types.is_integer(column) or pa.types.is_floating(column):
        return "number"
    return "list" if pa.types.is_list(column) or pa.types.is_large_list(column) else str(column)


def _digest(file: IO[bytes], end: int, tail: bytes) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while end > 0:
        chunk = file.read(min(_CHUNK, end))
        if not chunk:
            break
        digest.update(chunk)
        end -= len(chunk)
    digest.update(tail)
    return digest.digest()[:_DIGEST]


def _decoding_error(path: str) -> str:
    """Read a file that has no checksum from end to end, so that a damaged one is known by its name."""
    try:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches(use_threads=False):
                pass
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it cannot be read: {first_line(error)}"
    return ""
