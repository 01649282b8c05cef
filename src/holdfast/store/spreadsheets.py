"""CSV files: for people, whose spreadsheets must not run a stranger's text as a formula, and for programs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from holdfast.core.files import write_atomic
from holdfast.store.parts import write_table

if TYPE_CHECKING:
    import pandas as pd


def guarded(text: str) -> str:
    """Return text that no spreadsheet runs as a formula: a quote stands before it where needed."""
    return f"'{text}" if text.lstrip(" ")[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") and text.strip() else text


def frame_csv(frame: pd.DataFrame) -> bytes:
    """Return a frame as CSV, its texts and names of columns guarded."""
    frame = frame.rename(columns=lambda name: guarded(str(name)))
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if column.dtype.kind not in "biuf":
            values = [guarded(value) if isinstance(value, str) else value for value in column.astype(object)]
            frame.isetitem(place, values)
    return str(frame.to_csv(index=False, lineterminator="\n")).encode()


def write_frame(folder: Path, name: str, frame: pd.DataFrame) -> None:
    """Write ``NAME.parquet`` for programs and ``NAME.csv`` for people."""
    write_table(folder / f"{name}.parquet", pa.Table.from_pandas(frame, preserve_index=False))
    write_atomic(folder / f"{name}.csv", frame_csv(frame))


def table_csv(table: pa.Table) -> bytes:
    """Return an Arrow table as CSV, its texts guarded."""
    for place, column in enumerate(table.schema):
        if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
            texts = pc.replace_substring_regex(table[column.name].cast(pa.string()), r"^( *[=+\-@\t\r\n])", r"'\1")
            table = table.set_column(place, column.name, texts)
    return _csv(table)


def write_csv(path: Path, table: pa.Table) -> None:
    """Write a table that commands read again, every text as it is; the file appears when it is whole."""
    write_atomic(path, _csv(table))


def _csv(table: pa.Table) -> bytes:
    text = pa.BufferOutputStream()
    pacsv.write_csv(table, text)
    return cast(bytes, text.getvalue().to_pybytes())
