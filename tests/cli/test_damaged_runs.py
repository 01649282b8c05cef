"""Runs whose files are well-formed and say nonsense end a command with one sentence, whichever reads them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from damaging import spoil_spec, spoil_table
from killing import Commands

from holdfast.core.errors import UserError
from holdfast.store import Run, write_table

MODEL = "embedded:resnet_rho0"
READERS = {
    "report": "report {run} --resamples 100 --out {out}/page",
    "watch": "audit watch {out}/series {run} -q",
    "board add": "board add {run} --out {out}/board",
    "export": "share export {run} --to model-index --out {out}/cards -q",
    "compare": "compare {run} {run}",
    "choose": "report {run} --choose --speed none --resamples 100 --out {out}/choice -q",
    "explain": "explain {run} --limit 1 -q",
    "bundle": "share bundle {run} --no-report --out {out}/run.zip -q",
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> object:
    started = Commands(tmp_path_factory.mktemp("commands") / "said")
    yield started
    started.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> Path:
    folder = tmp_path_factory.mktemp("world") / "run"
    words = f"eval diorama:test?n=12 --models {MODEL} --scenarios original,grey --out {folder} -q"
    ended = commands(*words.split(), out=folder)
    assert ended.code == 0, ended.err
    return folder


def read_by_all(commands: Commands, run: Path, out: Path, readers: list[str], what: str) -> None:
    for reader in readers:
        ended = commands(*READERS[reader].format(run=run, out=out).split(), out=out)
        said = f"{reader}, {what}: {ended.code} {ended.err[-500:]}"
        assert 0 <= ended.code <= 3, said
        assert "should not have happened" not in ended.err and "Traceback" not in ended.err, said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_no_reader_of_a_run_breaks(commands: Commands, run: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    shutil.copytree(run, tmp_path / "run")
    what = draw.choice((spoil_spec, spoil_table))(tmp_path / "run", draw)
    read_by_all(commands, tmp_path / "run", tmp_path, sorted(READERS), what)


@pytest.mark.parametrize(
    ("entry", "value", "kind"),
    [
        ("models", 7, "a list of texts"), ("model_names", [None], "a list of texts"), ("data", None, "text"),
        ("dataset", {}, "text"), ("seed", 10**30, "a whole number"), ("model_parameters", {"a": "x"}, "an object of"),
        ("masks", [], "text or null"), ("fast", "yes", "true or false"), ("rounds", 3, "a list or an object"),
    ],
)  # fmt: skip
def test_an_entry_of_another_kind_is_named(run: Path, tmp_path: Path, entry: str, value: object, kind: str) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(Run(run).spec() | {entry: value}))
    with pytest.raises(UserError, match=rf"spec\.json is damaged: '{entry}' is .*, expected {kind}"):
        Run(tmp_path).spec()


def test_readers_name_a_damaged_specification(commands: Commands, run: Path, tmp_path: Path) -> None:
    """The file is named by all of them, whatever they need of it."""
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "spec.json").write_text(json.dumps(Run(run).spec() | {"models": 7}))
    for reader in ("watch", "board add", "export"):
        ended = commands(*READERS[reader].format(run=tmp_path / "run", out=tmp_path).split(), out=tmp_path)
        assert ended.code == 2 and "spec.json is damaged: 'models' is 7, expected a list of texts" in ended.err, ended


def test_a_name_that_no_chart_can_hold_is_drawn(commands: Commands, run: Path, tmp_path: Path) -> None:
    """The chart library aborts its process at a character that SVG does not have."""
    shutil.copytree(run, tmp_path / "run")
    for file in (tmp_path / "run").rglob("predictions/*.parquet"):
        table = pq.read_table(file, partitioning=None)
        for name, text in (("model", "a\0b"), ("label", "\x01\x1f")):
            place, field = table.schema.get_field_index(name), table.schema.field(name)
            column = table[name].cast("string").to_pylist()
            table = table.set_column(place, field, pa_column([text for _ in column], field))
        write_table(file, table)
    read_by_all(commands, tmp_path / "run", tmp_path, ["watch"], "names with control characters")


def pa_column(values: list[str], field: object) -> object:
    import pyarrow as pa

    return pa.array(values).cast(field.type)


DRAW = """
import pandas as pd
from holdfast.reports.page import charts, figures
for text, value in (("a\\0b", 0.5), ("\\x1b", float("nan")), ("\\uffff", float("inf"))):
    rows = pd.DataFrame([{"model": text, "row": text, "estimate": value, "low": value, "high": value, "solid": True}])
    chart = figures.specification(charts.dot_figure("x", "t", "s", rows, axis="a", zero=True), 940)
    assert figures.png(figures.svg(chart)).startswith(b"\\x89PNG")
"""


def test_the_renderer_lives(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DRAW], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
