"""Trackers, each by its real library without a server, and one that cannot be reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from commands import HOLDFAST, run
from holdfast.core.errors import UserError
from shapes import make_photos

MODEL = "python:track_model:model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three images a class, made by ``eval --track tensorboard``."""
    folder = tmp_path_factory.mktemp("tracked")
    make_photos(folder / "photos", 3)
    (folder / "track_model.py").write_text(
        "import numpy as np\n"
        "def model(images): return np.stack([image.mean((0, 1)) for image in images]) / 100\n"
        "model.labels = ('cross', 'disc', 'square')\n"
    )
    words = ["eval", "photos/images", "--masks", "photos/masks", "--models", MODEL, "--scenarios", "original,grey"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        done = run(*words, "--out", "run", "--track", "tensorboard")
    assert f"tensorboard: {Path('run') / 'tensorboard'}" in done.stdout
    return folder


def _holdfast(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HOLDFAST, *words], cwd=folder, env=os.environ | environment, capture_output=True, text=True)


def test_tensorboard_has_numbers_with_intervals_charts_and_the_fingerprint(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "run" / "tensorboard"))
    events.Reload()
    accuracy = holdfast.open_run(folder / "run").accuracy()
    row = accuracy[accuracy["condition"] == "grey"].iloc[0]
    for name, key in (("accuracy", "accuracy"), ("accuracy_low", "low"), ("accuracy_high", "high")):
        (value,) = events.Scalars(f"{MODEL}/grey/{name}")
        assert value.value == pytest.approx(row[key])
    assert f"{MODEL}/grey/drop_low" in events.Tags()["scalars"]
    assert any(name.startswith("charts/") for name in events.Tags()["images"])
    assert "fingerprint/text_summary" in events.Tags()["tensors"]


def test_mlflow_has_the_run_with_its_report(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("TRACKING_URI", tmp_path.as_uri()),
        ("ALLOW_FILE_STORE", "true"),
        ("DISABLE_TELEMETRY", "true"),
    ):
        monkeypatch.setenv(f"MLFLOW_{name}", value)
    code = (
        "import holdfast, mlflow\n"
        f"print(holdfast.track({str(folder / 'run')!r}, 'mlflow'))\n"
        "(run,) = mlflow.search_runs(search_all_experiments=True, output_format='list')\n"
        "files = mlflow.artifacts.list_artifacts(run_id=run.info.run_id, artifact_path='report')\n"
        "print(sorted(run.data.metrics), run.data.tags['holdfast.fingerprint'], [f.path for f in files])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"{MODEL}/original/accuracy_high" in done.stdout and "report/index.html" in done.stdout


def test_wandb_offline_keeps_the_run_with_its_report(folder: Path) -> None:
    code = f"import holdfast\nprint(holdfast.track({str(folder / 'run')!r}, 'wandb'))\n"
    environment = os.environ | {"WANDB_MODE": "offline"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    (kept,) = (folder / "run" / "wandb").glob("offline-run-*/*.wandb")
    written = kept.read_bytes()
    for text in (f"{MODEL}/grey/accuracy_low", "fingerprint", "report-run", "charts/"):
        assert text.encode() in written, text


def test_a_tracker_that_cannot_be_reached_is_said_once_and_the_run_goes_on(folder: Path) -> None:
    done = _holdfast(
        folder, "compare", "run", "run", "--track", "mlflow", MLFLOW_TRACKING_URI="http://127.0.0.1:9",
        MLFLOW_HTTP_REQUEST_MAX_RETRIES="0",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr  # the gate's own answer
    assert done.stderr.count("mlflow did not get the results") == 1 and "Undecided" in done.stdout


def test_unknown_trackers_are_refused_before_anything_runs(folder: Path) -> None:
    done = _holdfast(folder, "eval", "photos/images", "--models", MODEL, "--out", "never", "--track", "mlflows")
    assert done.returncode == 2 and "did you mean mlflow" in done.stderr
    assert not (folder / "never").exists()
    with pytest.raises(UserError, match="did you mean wandb"):
        holdfast.track(folder / "run", "wandbs")
