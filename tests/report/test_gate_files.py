"""JUnit, Markdown, annotations and the pytest plugin of the release gate, read by what reads them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_runs import make_run

from commands import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    make_run(folder / "run", photos=40, conditions=("original", "grey", "blur_object"), seed=3)
    return folder


def _compare(runs: Path, *words: str, code: int) -> str:
    old, new = "timm:first", "timm:second"
    names = ["--old-model", old, "--new-model", new]
    return run("compare", runs / "run", runs / "run", *names, *words, code=code).stdout


def test_files_say_what_the_gate_says(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    files = ["--junit", tmp_path / "gate.xml", "--markdown", tmp_path / "gate.md", "--github"]
    out = _compare(runs, *map(str, files), "--fail-under", "accuracy=0.999", code=1)
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot().find("testsuite")
    assert suite is not None
    verdicts = {case.get("name"): (case.find("failure") is None) for case in suite.iter("testcase")}
    assert set(verdicts) == {"original", "grey", "blur_object", "floor of accuracy"}
    assert int(suite.get("tests", "")) == 4 and int(suite.get("failures", "")) == sum(
        not ok for ok in verdicts.values()
    )
    assert not any(verdicts.values())
    printed = dict(re.findall(r"^(original|grey|blur_object)\s.*(passed|failed|undecided)", out, re.M))
    for case in suite.iter("testcase"):
        failure = case.find("failure")
        if case.get("name") in printed:
            assert ("passed" if failure is None else failure.get("type")) == printed[case.get("name")]
    text = (tmp_path / "gate.md").read_text()
    assert text.count("\n| ") == 4 and r"blur\_object" in text and (tmp_path / "summary.md").read_text() == text
    lines = [line for line in out.splitlines() if line.startswith("::")]
    assert len(lines) == sum(not ok for ok in verdicts.values()) + 1
    assert all(re.fullmatch(r"::(error|warning|notice) title=holdfast [^:,]+::[^\r\n]+", line) for line in lines)


def test_a_file_that_cannot_be_written_is_a_sentence(runs: Path, tmp_path: Path) -> None:
    words = ["--old-model", "timm:first", "--new-model", "timm:second", "--junit", tmp_path / "none" / "gate.xml"]
    done = run("compare", runs / "run", runs / "run", *words, code=2)
    assert "gate.xml" in done.stderr and done.stderr.count("\n") == 1


TESTS = """
def test_equal(holdfast_gate):
    gate = holdfast_gate({run!r}, {run!r}, old_model="timm:first", new_model="timm:first", margin=0.1)
    assert gate.verdict == "passed"

def test_worse(holdfast_gate):
    holdfast_gate({run!r}, {run!r}, old_model="timm:first", new_model="timm:second")

def test_open(holdfast_gate):
    options = dict(old_model="timm:first", new_model="timm:first", margin=0.0001)
    assert holdfast_gate({run!r}, {run!r}, allow_undecided=True, **options).verdict == "undecided"
    holdfast_gate({run!r}, {run!r}, **options)
"""


def test_the_pytest_plugin_fails_a_test_by_the_gate(runs: Path, tmp_path: Path) -> None:
    """In a pytest of its own, which finds the plugin by the entry point that this project declares."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    package = tmp_path / "site" / "holdfast_plugin-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast-plugin\nVersion: 1\n")
    entries = "\n".join(f"{name} = {target}" for name, target in declared.items())
    (package / "entry_points.txt").write_text(f"[pytest11]\n{entries}\n")
    (tmp_path / "test_release.py").write_text(TESTS.replace("{run!r}", repr(str(runs / "run"))))
    paths = [str(tmp_path / "site"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_release.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "Failed: more than 2 points lost under original" in done.stdout and "Undecided" in done.stdout
