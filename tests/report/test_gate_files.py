"""JUnit, Markdown, annotations and the pytest plugin of the release gate, read by what reads them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from made_runs import make_run
from promises.worlds import counts_of

from commands import run
from holdfast.exchange.gate_files import as_annotations, as_junit, as_markdown
from holdfast.stats.effects.sequential import sequential_gate
from holdfast.stats.models.gate import gate
from holdfast.stats.objects.answers import detector_answers
from holdfast.stats.objects.gate import object_gate
from made_detections import Planted, made_detections

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
    assert lines[0].startswith(("::error title=holdfast release gate::", "::warning title=holdfast release gate::"))
    assert all(re.fullmatch(r"::(error|warning|notice) title=holdfast [^:,]+::[^\r\n]+", line) for line in lines)


def test_a_file_that_cannot_be_written_is_a_sentence(runs: Path, tmp_path: Path) -> None:
    words = ["--old-model", "timm:first", "--new-model", "timm:second", "--junit", tmp_path / "file" / "gate.xml"]
    (tmp_path / "file").write_text("no folder")
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


def test_files_of_detectors_have_the_unit_of_each_quantity() -> None:
    """0.04 false alarms per image are no 4 %, and recall that is lost whole has no bound beyond −100 points."""
    truths = {"original": Planted(1.0, 0.04)}, {"original": Planted(0.0, 0.08)}
    old, new = (detector_answers(*made_detections(truth, photos=25)) for truth in truths)
    found = object_gate(old, new)
    rows = found.conditions.set_index("measure")
    text = as_markdown(found)
    recall, alarms = (line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "original" in line)
    before, after = (f"{rows.loc['false alarms', key]:.2f}" for key in ("old", "new"))
    assert recall[2:4] == ["100.0 %", "0.0 %"] and alarms[2:4] == [before, after] != ["0.00", "0.00"]
    assert recall[4] == "−100.0 points" and alarms[5].endswith(" per image") and "%" not in "".join(alarms)
    for shown in (text, as_junit(found).decode(), repr(found), "\n".join(as_annotations(found))):
        numbers = [float(word.replace("−", "-")) for word in re.findall(r"[+−]\d+\.\d+", shown)]
        assert numbers and min(numbers) >= -100, shown
        assert f"{100 * rows.loc['false alarms', 'new']:.1f} %" not in shown


def test_the_verdict_is_among_the_ten_annotations_that_github_keeps() -> None:
    right = np.ones((40, 1, 14))
    lines = list(as_annotations(gate(counts_of(right), counts_of(0 * right))))
    assert len(lines) == 15 and "release gate" in lines[0]


def test_only_conditions_that_were_compared_are_tested_at_once() -> None:
    old, new = np.ones((300, 1, 16)), np.ones((300, 1, 4))
    new[:11, 0, 0] = 0  # 3.7 points: by itself it would fail
    found = gate(counts_of(old), counts_of(new))
    assert "4 conditions are tested at once" in repr(found) and "16" not in found.footnotes()[0]
    kept = found.conditions[found.conditions["n"] > 0]
    alone = gate(counts_of(old[:, :, :1]), counts_of(new[:, :, :1])).conditions["p_fail"].iloc[0]
    assert kept["p_fail"].iloc[0] == pytest.approx(4 * alone)
    early = sequential_gate(counts_of(old), counts_of(new)).conditions
    assert early["p_fail"].notna().sum() == 4
    truths = {name: Planted(0.9, 0.2) for name in ("original", "grey", "red", "blue")}
    before = detector_answers(*made_detections(truths, photos=60))
    after = detector_answers(*made_detections({"original": Planted(0.7, 0.2)}, photos=60))
    both, one = object_gate(before, after), object_gate(before, after, conditions=["original"])
    assert both.conditions["p_fail"].dropna().to_list() == one.conditions["p_fail"].to_list()
