"""Ten minutes of storm; and that a storm would notice what it looks for."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import storm_laws
from storm_contents import contents, difference
from storm_faults import FAULTS, SOURCE, make_world, plant, storm_with
from storm_process import Ended
from storm_troubles import OPENING, TROUBLES, misbehaviour
from storm_verbs import VERBS

STORM = Path(__file__).with_name("storm.py")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_minutes_of_storm(tmp_path: Path) -> None:
    result = tmp_path / "storm.json"
    command = [sys.executable, STORM, "--minutes", "10", "--seed", "1", "--json", result]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    counts = json.loads(result.read_text())["counts"]
    assert counts["episodes"] > 10 and counts["kills that hit"] > 0


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_ten_minutes_of_storm_catch_every_planted_fault(tmp_path: Path) -> None:
    make_world(tmp_path)
    assert storm_with("", tmp_path, minutes=10, seed=1) == ""
    for fault in FAULTS:
        assert storm_with(fault, tmp_path, minutes=10, seed=1), fault


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__")))


def test_every_planted_fault_is_one_change_of_the_source_that_there_is(source: Path) -> None:
    for name, changes in FAULTS.items():
        before = {file: (source / "holdfast" / file).read_text("utf8") for file, _, _ in changes}
        plant(name, source)
        for file, text in before.items():
            changed = (source / "holdfast" / file).read_text("utf8")
            assert changed != text and ast.parse(changed), name
            (source / "holdfast" / file).write_text(text, "utf8")


def test_a_planted_fault_breaks_a_law(source: Path, tmp_path: Path) -> None:
    plant("rows written twice", source)
    words = ["eval", "diorama:test?n=4", "--models", "embedded:resnet_rho0", "--scenarios", "original", "--out", "run"]
    made = subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", *words, "-q"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": source}
    )
    assert made.returncode == 0 and "4 rows are there twice" in storm_laws.of_tables(tmp_path)


def test_laws_of_rows() -> None:
    row = {"row_id": "1", "sample_id": "a", "condition": "grey", "model": "m", "error": None}
    assert storm_laws.of_rows([row, row | {"row_id": "2", "sample_id": "b"}]) == ""
    assert "twice" in storm_laws.of_rows([row, row])
    assert "ids are there twice" in storm_laws.of_rows([row, row | {"sample_id": "b"}])
    assert "superseded" in storm_laws.of_rows([row, row | {"row_id": "2"}])
    assert "trouble of the machine" in storm_laws.of_rows([row | {"error": "OSError: No space left on device"}])


def test_laws_of_files(tmp_path: Path) -> None:
    name = tmp_path / "run" / "spec.json"
    name.parent.mkdir()
    name.write_text("{}")
    assert "in place" in storm_laws.of_names(tmp_path, set(), {})
    assert storm_laws.of_names(tmp_path, {"run/spec.json"}, {}) == ""  # it was there before
    assert storm_laws.of_names(tmp_path, set(), {str(name.parent): False}) == ""  # its folder was renamed
    table = tmp_path / "run" / "part-1.parquet"
    table.write_bytes(b"")
    named = {str(name): True, str(table): False}
    assert "before it was synced" in storm_laws.of_names(tmp_path, set(), named)
    assert storm_laws.of_names(tmp_path, set(), named | {str(table): True}) == ""
    table.unlink()
    assert storm_laws.of_tables(tmp_path) == ""
    name.with_name(".unfinished-1").write_text(f"Bearer {storm_laws.SECRET}")
    assert "unfinished" in storm_laws.of_tables(tmp_path)
    assert storm_laws.holders_of_secret([tmp_path]) == ".unfinished-1"


def test_the_opening_has_every_trouble_that_ends_alike_every_time() -> None:
    chance = {"clock", "slow store", "hostile input", "damaged input"}
    assert {trouble for trouble, _ in OPENING} == set(TROUBLES) - chance
    assert all(TROUBLES[trouble][2](verb) for trouble, verb in OPENING if verb in VERBS)
    assert {verb for _, verb in OPENING} <= set(VERBS)


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Ended(0, "12 made", "", 1.0), ""),
        (Ended(2, "", "holdfast: the file is damaged", 1.0), ""),
        (Ended(1, "", "Traceback (most recent call last)\nValueError: x", 1.0), "Traceback"),
        (Ended(1, "", "holdfast: this should not have happened (ValueError)", 1.0), "should not have happened"),
        (Ended(2, "", "", 1.0), "without a sentence"),
        (Ended(-11, "", "", 1.0), "SIGSEGV"),
        (Ended(0, "12 made", "", 1.0, left=("python -c spawn_main",)), "left processes"),
        (Ended(124, "", "", 240.0), "did not end"),
    ],
)
def test_what_no_command_may_do_is_noticed(ended: Ended, words: str) -> None:
    found = misbehaviour(ended)
    assert (words in found) if words else not found


def test_another_table_or_picture_is_noticed(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "out"
    (folder / "rows").mkdir(parents=True)
    rows = [{"row_id": str(number), "correct": number % 2 == 0} for number in range(6)]
    for number, part in enumerate((rows[:2], rows[2:])):
        pq.write_table(pa.Table.from_pylist(part), folder / "rows" / f"part-{number}.parquet")
    (folder / "picture.png").write_bytes(b"a picture")
    wanted = contents(folder)
    pq.write_table(pa.Table.from_pylist(rows[::-1]), folder / "rows" / "part-0.parquet")  # cut in another way
    (folder / "rows" / "part-1.parquet").unlink()
    assert difference(contents(folder), wanted, set()) == ""
    pq.write_table(pa.Table.from_pylist(rows[1:]), folder / "rows" / "part-0.parquet")
    assert "rows/*:correct differs" in difference(contents(folder), wanted, set())
    shutil.rmtree(folder / "rows")
    assert "rows/*:correct is missing" in difference(contents(folder), wanted, set())
    (folder / "picture.png").write_bytes(b"")
    assert "picture.png differs" in difference(contents(folder), wanted, {"picture.png"})


def test_a_trained_network_may_take_another_time(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    facts = {"name": "resnet", "epochs": 3, "seconds": 1.5, "sha256": "ab"}
    file.write_text(json.dumps({"architecture": "resnet18", "holdfast": facts}))
    wanted = contents(tmp_path)
    file.write_text(json.dumps({"architecture": "resnet18", "holdfast": facts | {"seconds": 9.0, "sha256": "cd"}}))
    assert difference(contents(tmp_path), wanted, set()) == ""
    file.write_text(json.dumps({"architecture": "resnet18", "holdfast": facts | {"epochs": 2}}))
    assert "config.json differs" in difference(contents(tmp_path), wanted, set())


def test_csv_tables_are_compared_by_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("model,accuracy,seconds\na,0.51234567,1.5\nb,0.25,2\n")
    wanted = contents(tmp_path)
    file.write_text("model,accuracy,seconds\na,0.51234568,1.5\nb,0.25,2\n")  # as the sums of another run end
    assert difference(contents(tmp_path), wanted, set()) == ""
    file.write_text("model,accuracy,seconds\na,0.51234567,1.5\nb,0.35,2\n")
    assert "table.csv:accuracy differs" in difference(contents(tmp_path), wanted, set())
    file.write_text("model,accuracy,seconds\na,0.51234567,1.5\n")
    assert "differs" in difference(contents(tmp_path), wanted, set())
    file.write_text("")
    assert "is missing" in difference(contents(tmp_path), wanted, set())
