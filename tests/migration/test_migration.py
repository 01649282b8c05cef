"""Runs and bundles that earlier versions wrote, opened and resumed by this one.

Each folder ``version_*`` has one run of each kind, as the version wrote them (all on the embedded world), and a
bundle of ``eval``. A version that changes a table, a row id or ``spec.json`` adds a folder of the version before it.
Databases of people have the same test in ``packages/people/tests/people/test_upgrade.py``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import holdfast
from commands import run

VERSIONS = sorted(Path(__file__).parent.glob("version_*"))
RUNS = [folder for version in VERSIONS for folder in sorted(version.iterdir()) if folder.is_dir()]
ROWS = {"ask": 3, "detect": 12, "eval": 24, "perturb": 12, "segment": 2}


def named(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


@pytest.fixture(params=RUNS, ids=named)
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of an old run, in the folder from which it was made."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(request.param, tmp_path / request.param.name))


def test_there_is_a_run_of_every_kind() -> None:
    assert VERSIONS and {folder.name for folder in RUNS} == set(ROWS)


def test_old_rows_are_read_as_they_were_written(old: Path) -> None:
    written = ds.dataset(sorted((old / "predictions").glob("*.parquet"))).to_table()
    rows = holdfast.open_run(old).run.rows()
    assert rows.num_rows == written.num_rows == ROWS[old.name]
    assert set(rows["row_id"].to_pylist()) == set(written["row_id"].to_pylist())
    assert pc.sum(rows["correct"]).as_py() == pc.sum(written["correct"]).as_py()


def test_the_same_command_adds_no_row_to_an_old_run(old: Path) -> None:
    command = json.loads((old / "environment.json").read_text())["command"]
    before = sorted(path.name for path in (old / "predictions").iterdir())
    words = [word.strip("'") for word in command.split()[1:]]
    again = run(*words)
    assert sorted(path.name for path in (old / "predictions").iterdir()) == before, again.stdout


def test_an_old_run_has_a_page(old: Path) -> None:
    run("report", old, "--out", "page")
    assert "<h1" in next(Path("page").rglob("*.html")).read_text()


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_an_old_bundle_opens_with_its_rows(version: Path, tmp_path: Path) -> None:
    run("share", "open", version / "eval.zip", "--out", tmp_path / "opened")
    opened = holdfast.open_run(tmp_path / "opened").run.rows()
    packed = pq.read_table(sorted((version / "eval" / "predictions").glob("*.parquet"))[0], columns=["row_id"])
    assert set(opened["row_id"].to_pylist()) == set(packed["row_id"].to_pylist())
