"""An installation that was stopped, or lost files, is told what it lacks by every command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def package(site: Path, name: str, version: str, *files: str, needs: tuple[str, ...] = ()) -> None:
    """Write what an installer records of a package; the files themselves are not there."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {one}" for one in needs),
    ]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    (folder / "RECORD").write_text("".join(f"{file},,\n" for file in files))


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A new environment without packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True)
    return tmp_path / "environment"


def holdfast(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [environment / "bin" / "python", "-m", "holdfast", *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_what_is_missing_old_damaged_or_unfinished_is_said(environment: Path) -> None:
    (site,) = (environment / "lib").glob("python*/site-packages")
    needs = ("numpy>=2.2", "torch>=2.11", "typer>=0.26", 'foolbox>=3.3.4; extra == "attack"')
    package(site, "holdfast-vision", "0.1.0", needs=needs)
    package(site, "numpy", "2.1.9+local")
    package(site, "torch", "2.11+cpu", "torch/__init__.py")
    package(site, "holdfast-people", "0.1.0", "holdfast_people/__init__.py")  # of a checkout: never from the index
    (site / "holdfast_people-0.1.0.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    (environment / ".unfinished-setup").write_text("step 3 of 4, the longest")
    ended = holdfast(environment, "doctor")
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert ended.stderr.splitlines() == [
        "Holdfast cannot start: No module named 'typer'",
        "make setup did not finish (step 3 of 4, the longest): run it again, it continues where it stopped",
        "numpy 2.1.9+local is too old: pip install 'numpy>=2.2'",
        "typer is missing: pip install 'typer>=0.26'",
        "torch==2.11 is damaged, files are missing: pip install --force-reinstall --no-deps torch==2.11",
    ]


def test_an_error_that_has_another_cause_keeps_its_traceback(environment: Path) -> None:
    (site,) = (environment / "lib").glob("python*/site-packages")
    package(site, "holdfast-vision", "0.1.0")
    assert "ModuleNotFoundError" in holdfast(environment, "check").stderr


def test_this_installation_lacks_nothing() -> None:
    ended = subprocess.run([sys.executable, "-m", "holdfast", "doctor"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr
