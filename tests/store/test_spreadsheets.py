"""Tables for people: no text of a stranger is a formula in them; tables for programs keep every text."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pyarrow as pa

from holdfast.store.run import frame_csv, table_csv, write_csv, write_frame

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", " =1+1", "\t=1+1"]


def _cells(data: bytes) -> list[str]:
    return [row[0] for row in csv.reader(io.StringIO(data.decode()))]


def test_texts_are_no_formulas_and_numbers_stay_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"=label": [*FORMULAS, "cup"], "estimate": [-0.5] * 7})
    write_frame(tmp_path, "answers", frame)
    wanted = ["'=label", *(f"'{text}" for text in FORMULAS), "cup"]
    assert _cells((tmp_path / "answers.csv").read_bytes()) == wanted
    assert (tmp_path / "answers.csv").read_text().count(",-0.5\n") == 7
    assert pd.read_parquet(tmp_path / "answers.parquet").equals(frame)  # what programs read has every text as it was
    categories = frame.astype({"=label": "category"})
    assert _cells(frame_csv(categories)) == wanted
    table = pa.table({"label": pa.array(FORMULAS).dictionary_encode()})
    assert _cells(table_csv(table)) == ["label", *(f"'{text}" for text in FORMULAS)]


def test_manifests_keep_every_text(tmp_path: Path) -> None:
    write_csv(tmp_path / "manifest.csv", pa.table({"path": FORMULAS}))
    assert _cells((tmp_path / "manifest.csv").read_bytes()) == ["path", *FORMULAS]
