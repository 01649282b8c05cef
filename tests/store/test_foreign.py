"""Directories of Parquet files that no writer would write."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.store import foreign

# Thrift's compact protocol: the field's number since the last one and its type in a byte; 0 ends a struct.
PAGE = b"\x25\x00\x15\x00" + b"\x11" * 1000 + b"\x00"  # unpacked and packed 0 bytes, and a thousand needless fields


def varint(value: int) -> bytes:
    rest = b"" if value < 128 else varint(value >> 7)
    return bytes([value & 127 | (128 if rest else 0)]) + rest


def number(value: int) -> bytes:
    return varint(value << 1)


def column(size: bytes, start: bytes) -> bytes:
    """Fields 7 and 9 of what a column says of itself, with their types."""
    return b"\x3c" + size + start + b"\x00\x00"


def file_of(columns: list[bytes], pages: bytes = b"") -> bytes:
    group = b"\x19\xfc" + varint(len(columns)) + b"".join(columns) + b"\x00"
    footer = b"\x36" + number(1) + b"\x19\x1c" + group + b"\x00"
    return b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def honest(size: int) -> bytes:
    return column(b"\x76" + number(size), b"\x26" + number(4))


def test_the_directory_of_these_tests_is_read() -> None:
    assert foreign.check_size(file_of([honest(len(PAGE))], PAGE), "it") == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (file_of([column(b"\x79\x15\x02", b"\x29\x15\x04")]), "directory is broken"),  # lists, which can be added
        (file_of([column(b"\x76\x01", b"\x26" + number(4))]), "directory is broken"),  # −1 bytes
        (file_of([honest(len(PAGE))] * 100_000, PAGE), "larger than itself"),  # minutes of reading one page
        (file_of([honest(10**6)]), "larger than itself"),
        (file_of([b"\x11\x00"] * (1 << 22)), "directory is broken"),  # gigabytes of small structs
    ],
    ids=["lists", "negative", "one page for all", "outside", "many structs"],
)
def test_a_hostile_directory_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(UserError, match=words):
        foreign.check_size(data, "it")


def small_file() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"text": pa.array(["x", "y"] * 20).dictionary_encode(), "lists": [[1, 2]] * 40})
    pq.write_table(table, sink, row_group_size=20)
    return sink.getvalue()


WHOLE = small_file()


@given(st.lists(st.tuples(st.integers(4, len(WHOLE) - 9), st.integers(0, 255)), max_size=4), st.integers(0, len(WHOLE)))
def test_changed_and_missing_bytes_are_a_size_or_a_sentence(changes: list[tuple[int, int]], missing: int) -> None:
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    for one in (bytes(data), bytes(data[: len(data) - missing])):
        try:
            assert foreign.check_size(one, "it") >= 0
        except UserError as error:
            assert str(error).startswith("it ")


def test_a_file_of_several_row_groups_can_be_grouped() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"word": ["a", "b", "c", "a"]}), sink, row_group_size=2)
    rows = foreign.read_coded(sink.getvalue(), pa.schema([("word", pa.string())]), "it", lambda *_: None)
    assert rows["word"].num_chunks == 2
    assert sorted(rows.group_by("word").aggregate([]).to_pydict()["word"]) == ["a", "b", "c"]
