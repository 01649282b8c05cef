from __future__ import annotations

import os

# Before anything imports NumPy or torch, and for the commands that tests start: processes that share the cores wait for
# each other's threads, and sums of another number of threads have other last digits.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import functools
import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from postgres import postgres_server as postgres_server
from postgres import postgres_url as postgres_url
from shapes import make_photos

# Properties look for new counterexamples on a developer's machine; a change that lands is judged by the same examples
# every time. A busy machine is no reason to fail.
settings.register_profile("local", suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Collecting garbage between the imports of all tests takes a quarter of their time and finds next to none; what they
# leave behind would be looked through again and again while tests run.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.enable()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # else libraries report leaks at the end


# No test cuts the power: what a killed process has written is there without it, and waiting for the disk takes a worker
# four milliseconds a file.
os.fsync = lambda file: None

# Typer makes all commands again at every call, which takes a tenth of a second, and tests call hundreds.
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """``images/`` and ``masks/``: three classes, four images each."""
    return make_photos(tmp_path / "photos")


MODEL_SOURCE = '''
import os, time
import numpy as np

class Colour:
    """Answers with the class whose colour the picture has most of; `weights` tells copies apart."""

    labels = ("cross", "disc", "square")

    def __init__(self, name, weights, pause=0.0):
        self.name, self.fingerprint, self.pause = name, weights, pause

    def predict(self, images):
        time.sleep(self.pause * len(images))
        strong = [[((i[..., c] > 180) & (np.delete(i, c, 2).max(2) < 90)).mean() for c in (2, 0, 1)] for i in images]
        scores = np.asarray(strong, np.float32) + 0.05
        return scores / scores.sum(1, keepdims=True)

colour = Colour("colour", "1")
second = Colour("second", "2")
slow = Colour("colour", "1", pause=0.01)

def broken(images):
    if any(i.shape[0] == 48 and i[..., 0].mean() > 127 for i in images):
        raise ValueError("this picture is too red for me")
    return np.full((len(images), 3), 1 / 3, np.float32)
broken.labels = Colour.labels
'''


@pytest.fixture
def toy_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of hand-made classifiers, importable as toy_models, here and in child processes."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "toy_models.py").write_text(MODEL_SOURCE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "python:toy_models"


@pytest.fixture
def table_of() -> Callable[..., list[dict[str, object]]]:
    """The rows of a run sorted by id, without what may differ between two runs of the same thing."""

    def read(run: object, drop: tuple[str, ...] = ("run_id",)) -> list[dict[str, object]]:
        stored = getattr(run, "run", run)  # of results, the stored table
        rows = stored.rows().to_pylist()
        return [
            {key: round(v, 4) if isinstance(v, float) else v for key, v in row.items() if key not in drop}
            for row in sorted(rows, key=lambda row: row["row_id"])
        ]

    return read
