"""Tables that Parquet can read and a board cannot."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_board import make_run, rehash, retable, static_rows

from holdfast.core.errors import UserError
from holdfast_evidence.board.add import add
from holdfast_evidence.board.entry import read_entry
from holdfast_evidence.board.table import read_table


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return add(make_run(tmp_path / "run", static_rows("python:a", photos=12)), tmp_path / "board")[0]


def _read(path: Path) -> pa.Table:
    return read_table(path.with_suffix(".parquet"), read_entry(path))


def test_lists_that_call_their_elements_otherwise(entry: Path) -> None:
    """What is asked for by name is not there then."""

    def renamed(table: pa.Table) -> pa.Table:
        place = table.column_names.index("topk")
        words = pa.list_(pa.field("word", pa.string()))
        return table.set_column(place, pa.field("topk", words), table["topk"].cast(words))

    other = retable(entry, renamed, use_compliant_nested_type=False)
    assert pq.ParquetFile(other.with_suffix(".parquet")).schema.column(22).path.startswith("topk.list.")
    with pytest.raises(UserError, match="not a Parquet file"):
        _read(other)


def test_texts_that_are_none(entry: Path) -> None:
    """Not UTF-8 in the middle of a page: Parquet takes it as it comes."""
    marked = retable(entry, lambda table: table, compression="none", use_dictionary=False)
    file = marked.with_suffix(".parquet")
    data = file.read_bytes()
    assert b"python:a" in data
    file.write_bytes(data.replace(b"python:a", b"python:\xff"))
    with pytest.raises(UserError, match="not a Parquet file"):
        _read(rehash(marked))
