"""The wheel itself, installed in a new environment outside the checkout, answers as the checkout does."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from shapes import make_photos

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


PACKAGES = [ROOT, *sorted(ROOT.glob("packages/*"))]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the core and of every companion, by name."""
    out = tmp_path_factory.mktemp("wheels")
    for package in PACKAGES:
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(package)]
        subprocess.run(build, check=True, capture_output=True)
    return {path.name.partition("-")[0]: path for path in out.glob("*.whl")}


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``holdfast`` program of a new environment that holds the wheels and borrows the dependencies from this one.

    A path file adds this environment's packages; its own path files, and with them the checkout, are not followed.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *map(str, wheels.values())], check=True
    )
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "holdfast"


def run(program: Path, folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(program), *map(str, words)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


CONTENTS = {
    "holdfast_vision": ("reports/page/templates/", "assets/"),
    "holdfast_people": ("web/templates/", "web/static/", "migrations/versions/"),
    "holdfast_studies": (),
    "holdfast_evidence": (
        "board/site/templates/",
        "export/templates/",
        "dossier/templates/",
        "dossier/maps/",
        "board/printed/",
    ),
    "holdfast_exchange": (),
}
"""Wheel → folders of files that are not Python, or not imported."""


def test_the_wheels_hold_what_they_need(wheels: dict[str, Path]) -> None:
    assert wheels.keys() == CONTENTS.keys()
    for wheel, parts in CONTENTS.items():
        names = zipfile.ZipFile(wheels[wheel]).namelist()
        for part in parts:
            assert any(f"/{part}" in name for name in names), (wheel, part)
        assert any(name.endswith("/licenses/LICENSE") for name in names), wheel
        assert not any("/tests/" in name or name.endswith(".pyc") for name in names)


def test_the_wheel_is_what_runs(installed: Path, tmp_path: Path) -> None:
    python = installed.with_name("python")
    shown = run(python, tmp_path, "-c", "import holdfast; print(holdfast.__file__)")
    assert shown.stdout.startswith(str(installed.parents[1])), shown.stdout + shown.stderr


def test_the_companions_are_found(installed: Path, tmp_path: Path) -> None:
    shown = run(installed, tmp_path, "--help")
    assert (
        all(name in shown.stdout for name in ("people", "study", "audit", "share", "board"))
        and "cannot be loaded" not in shown.stdout
    )
    listed = run(installed, tmp_path, "ls", "studies")
    assert "background-truth" in listed.stdout, listed.stderr
    assert run(installed, tmp_path, "people", "review").stderr.startswith("holdfast: name the images to judge")


def test_demo(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "demo", "--quick", "--quiet", "--out", "demo")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "index.html").is_file()


def test_check(installed: Path, tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos")
    (tmp_path / "toy.py").write_text(
        "import numpy as np\n"
        "def model(images):\n    return np.full((len(images), 3), 1 / 3, np.float32)\n"
        "model.labels = ('cross', 'disc', 'square')\n"
    )
    run_of = ["python:toy:model", photos / "images", "--masks", photos / "masks", "--out", tmp_path / "out"]
    done = run(installed, tmp_path, "check", *run_of)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "out").rglob("index.html"))
