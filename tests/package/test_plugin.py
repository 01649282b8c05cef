"""The example of a third-party package: built, installed into a folder, and run as its README says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "plugin"
LISTS = """
from commands import run
for words in (["--help"], *(["ls", kind] for kind in ("scenarios", "tasks", "measures", "sections"))):
    print(run(*words).stdout)
"""


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".py", ".toml", ".md")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy outside the checkout, so that its tests have neither this configuration nor this conftest."""
    copy = tmp_path_factory.mktemp("third-party") / "plugin"
    return Path(shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    """Variables with which pip installs into a folder, and Python imports from there."""
    target = str(folder.parent / "site")
    pip = {"PIP_TARGET": target, "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = os.pathsep.join([target, str(TESTS)])
    return os.environ | pip | {"PYTHONPATH": found, "PATH": path, "COLUMNS": "200"}


@pytest.mark.timeout(900)  # on a busy machine
def test_a_package_adds_a_verb_a_scenario_a_task_a_measure_and_a_section(
    folder: Path, environment: dict[str, str]
) -> None:
    def done(*command: str) -> str:
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    commands = (folder / "README.md").read_text(encoding="utf8").split("```bash\n")[1].split("```")[0]
    printed = done("bash", "-ec", commands)
    assert "specks@3" in printed and "the number of coins" in printed  # of eval
    page = (folder / "runs" / "coins" / "report" / "index.html").read_text(encoding="utf8")
    assert 'id="count-errors"' in page and "any is off by +" in page

    listed = done(sys.executable, "-c", LISTS)
    assert "Draw images of coins" in listed and "Cannot be loaded" not in listed
    for name in ("specks", "count", "count-error", "count-errors"):
        assert any(line.split()[:1] == [name] for line in listed.splitlines()), listed

    assert "1 passed" in done(sys.executable, "-m", "pytest", "-p", "no:cacheprovider")


def test_the_example_is_small() -> None:
    assert sum(len(path.read_text(encoding="utf8").splitlines()) for path in files(EXAMPLE)) <= 250
