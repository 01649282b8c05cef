"""Damaged, foreign and old Parquet files in a run directory."""

from __future__ import annotations

import os
import random
import re
import shutil
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from commands import run
from holdfast.core.errors import DamageWarning, UserError
from holdfast.core.schema import ANSWERS, PREDICTIONS, SAMPLES
from holdfast.data import load_collection
from holdfast.store import Parts, Run, read_table, write_table, writing
from holdfast.store.foreign import read_foreign

ROOT = Path(__file__).parents[2]


def predictions(*ids: str, task: str = "classify") -> pa.Table:
    return pa.Table.from_pylist(
        [{"row_id": name, "task": task, "status": "ok", "model": "toy", "condition": "original"} for name in ids],
        schema=PREDICTIONS,
    )


def answers(*ids: str) -> pa.Table:
    return pa.Table.from_pylist([{"row_id": name, "strict": True} for name in ids], schema=ANSWERS)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_in_a_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 16
    path.write_bytes(data)


def test_no_flipped_bit_changes_a_table_silently(tmp_path: Path) -> None:
    parts = Parts(tmp_path, PREDICTIONS)
    path = parts.write(predictions(*(f"{number:032x}" for number in range(50))))
    whole, table = path.read_bytes(), parts.rows()
    bits = random.Random(20).sample(range(8 * len(whole)), 400)
    noticed = 0
    for bit in bits:
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            assert parts.rows().equals(table), f"bit {bit} changed the table"
        except UserError as error:
            assert str(path) in str(error)
            noticed += 1
    assert noticed > 390  # all but those in the word that announces the checksum


@pytest.mark.parametrize("damage", [truncate, zero, empty, flip_in_a_page])
def test_readers_name_a_damaged_file_and_writers_set_it_aside(damage: object, tmp_path: Path) -> None:
    opened = Run(tmp_path)
    path = opened.predictions.write(predictions("a", "b"))
    opened.predictions.write(predictions("c"))
    opened.write_samples(SAMPLES.empty_table())
    damage(path)  # type: ignore[operator]
    damage(tmp_path / "samples.parquet")  # type: ignore[operator]
    for read in (opened.rows, opened.predictions.count, opened.predictions.stored_ids, opened.predictions.dataset):
        with pytest.raises(UserError, match=rf"{path.name} is damaged: .*again"):
            read()
    with pytest.raises(UserError, match=r"samples\.parquet is damaged: .*again"):
        opened.samples()
    with pytest.warns(DamageWarning) as warned, writing(tmp_path):
        assert opened.predictions.stored_ids() == {"c"}
        assert opened.samples().num_rows == 0
    assert len(warned) == 2
    assert (tmp_path / "damaged" / "predictions" / f"{path.name}.damaged").exists()
    for columns in (pd.read_parquet(path.parent), ds.dataset(path.parent).to_table()):  # as any program would
        assert [str(name) for name in columns["row_id"]] == ["c"]
    with writing(tmp_path):  # what was set aside stays there
        assert (tmp_path / "damaged" / "samples.parquet.damaged").exists()


def test_a_file_without_a_checksum_is_read_and_named_if_it_cannot_be(tmp_path: Path) -> None:
    parts = Parts(tmp_path, PREDICTIONS)
    path = tmp_path / "part-old.parquet"
    pq.write_table(predictions("a", "b"), path, compression="zstd")
    assert parts.stored_ids() == {"a", "b"}
    fields = [field for field in PREDICTIONS if field.name not in ("donor_unmasked", "topk")]
    pq.write_table(predictions("c").select([field.name for field in fields]), tmp_path / "part-older.parquet")
    assert parts.rows()["topk"].to_pylist() == [None] * 3
    data = path.read_bytes()
    path.write_bytes(data[:20] + bytes(400) + data[420:])
    with pytest.raises(UserError, match=r"part-old\.parquet is damaged: it cannot be read"):
        parts.rows()


def test_a_file_that_another_program_rewrites_is_not_called_damaged(tmp_path: Path) -> None:
    parts = Parts(tmp_path, PREDICTIONS)
    path = parts.write(predictions("a", "b", "c"))
    assert len(pd.read_parquet(path)) == duckdb.read_parquet(str(path)).count("*").fetchall()[0][0] == 3
    pq.write_table(pq.read_table(path).slice(1), path)
    assert parts.stored_ids() == {"b", "c"}
    pd.read_parquet(path).head(1).to_parquet(path)
    assert parts.stored_ids() == {"b"}


def test_a_foreign_table_is_named(tmp_path: Path) -> None:
    opened = Run(tmp_path)
    opened.predictions.write(predictions("a"))
    foreign = opened.predictions.folder / "part-foreign.parquet"
    for table, reason in (
        (pa.table({"x": [1]}), "no column row_id"),
        (pa.table({"row_id": ["b"], "correct": ["yes"]}), "correct holds string, not bool"),
    ):
        pq.write_table(table, foreign)
        with pytest.raises(UserError, match=rf"part-foreign\.parquet .*{reason}"):
            opened.rows()
    with writing(tmp_path):
        assert foreign.exists()  # whole: it is its owner's to move
    write_table(tmp_path / "samples.parquet", pa.table({"x": [1]}))
    with pytest.raises(UserError, match=r"samples\.parquet .*no column sample_id"):
        opened.samples()


def test_rows_and_details_stay_paired(tmp_path: Path) -> None:
    opened = Run(tmp_path)
    details = Parts(tmp_path / "details" / "answers", ANSWERS)
    lost = opened.predictions.write(predictions("a", "b", task="question"))
    details.write(answers("a", "b"))
    opened.predictions.write(predictions("c", "d", task="question"))
    lost_details = details.write(answers("c", "d"))
    opened.predictions.write(predictions("e"))  # which needs no answer
    empty(lost)
    with pytest.warns(DamageWarning), writing(tmp_path):
        pass
    assert opened.predictions.stored_ids() == {"c", "d", "e"}
    assert details.stored_ids() == {"c", "d"}
    empty(lost_details)
    with pytest.warns(DamageWarning), writing(tmp_path):
        pass
    assert opened.predictions.stored_ids() == {"e"}


def test_a_table_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen, sync = tmp_path / "table.parquet", [], os.fsync

    def record(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").readlink().name.partition("-")[0], path.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    write_table(path, predictions("a"))
    assert seen == [(".unfinished", False), (tmp_path.name.partition("-")[0], True)]
    assert read_table(path).num_rows == 1


def test_eval_makes_damaged_rows_again(photos: Path, toy_models: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["eval", photos, "--models", f"{toy_models}:colour", "--scenarios", "original,grey", "--out", out]
    run(*words)
    before = Run.open(out).rows().sort_by("row_id")
    for damage in (truncate, zero, empty, flip_in_a_page):
        copy = tmp_path / damage.__name__
        shutil.copytree(out, copy)
        for path in (Run(copy).predictions.paths()[0], copy / "samples.parquet"):
            damage(path)
        for command in (
            ["report", copy, "--out", tmp_path / "page"],
            ["share", "bundle", copy, "--out", tmp_path / "bundle.tar"],
            ["board", "add", copy, "--out", tmp_path / "board"],
        ):
            said = run(*command, code=2).stderr
            assert "is damaged" in said and ".parquet" in said and said.count("\n") == 1
        again = run(*words[:-1], copy)
        assert again.stderr.count("is damaged") == 2 and "its rows are made again" in again.stderr
        assert Run.open(copy).rows().sort_by("row_id").drop(["run_id"]).equals(before.drop(["run_id"]))
        assert "0 made" in run(*words[:-1], copy).stdout


def newer(table: pa.Table, path: Path) -> Path:
    """Write a table as the next version of Holdfast would."""
    metadata = {**table.schema.metadata, b"holdfast_schema_version": b"2"}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path


@pytest.mark.parametrize("streamed", [False, True])
def test_every_table_says_which_version_it_is(tmp_path: Path, streamed: bool) -> None:
    table = pa.table({"x": [1]}).replace_schema_metadata({"kept": "yes"})
    write_table(tmp_path / "table.parquet", table.to_reader() if streamed else table)
    assert pq.read_schema(tmp_path / "table.parquet").metadata == {b"kept": b"yes", b"holdfast_schema_version": b"1"}


def test_a_table_of_a_newer_version_is_refused_and_kept(tmp_path: Path) -> None:
    opened = Run(tmp_path)
    opened.write_samples(SAMPLES.empty_table())
    newer(pq.read_table(tmp_path / "samples.parquet"), tmp_path / "samples.parquet")
    part = opened.predictions.write(predictions("a"))
    newer(pq.read_table(part), part)
    refused = r"was written by a newer Holdfast \(table version '2'; this one reads up to 1\): update Holdfast"
    for read in (opened.rows, opened.predictions.count, opened.samples, lambda: read_table(part)):
        with pytest.raises(UserError, match=refused):
            read()
    with pytest.raises(UserError, match=refused):
        read_foreign(part.read_bytes(), PREDICTIONS, part.name)
    with pytest.raises(UserError, match=refused):
        load_collection(f"manifest:{tmp_path / 'samples.parquet'}")
    with writing(tmp_path):
        assert part.exists()


def test_tables_are_written_in_one_place() -> None:
    """All others are not read as tables of Holdfast: other programs' formats, files of a process, a board's entries."""
    others = ["live.py", "writers.py", "table.py", "measure.py", "huggingface.py", "question_tasks.py"]
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "packages").glob("*/src/**/*.py")]
    writers = [path for path in sources if re.search(r"pq\.write_table|ParquetWriter\(|to_parquet\(", path.read_text())]
    assert {path.name for path in writers} - set(others) == {"parts.py", "files.py"}
    versioned = [path for path in writers if path.name not in others]
    assert all("versioned(" in path.read_text() for path in versioned)
