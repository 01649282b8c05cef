"""Runs of detectors: opened in Python, compared, bundled and opened again, told to the hub."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.store import Run
from holdfast_evidence.opening import open_bundle
from made_detections import Planted, detector_run, made_detections

TRUTHS = {
    "original": Planted(0.95, 0.1),
    "same_class_background": Planted(0.93, 0.1, donors=30),
    "random_background": Planted(0.6, 0.1, donors=30),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return detector_run(tmp_path_factory.mktemp("runs") / "hall", made_detections(TRUTHS, photos=150))


def test_results_of_detectors(run: Run) -> None:
    opened = holdfast.open_run(run.path)
    assert opened.is_detection
    rows = opened.objects(resamples=100).set_index("condition")
    assert rows.loc["random_background", "recall_drop_low"] > 0.2
    assert opened.verdicts(resamples=100).iloc[0]["leans"] == "yes"
    assert "Leans on the background" in opened._repr_html_()


def test_compare_is_a_gate_with_exit_codes(run: Run, tmp_path: Path) -> None:
    worse = TRUTHS | {"original": Planted(0.7, 0.1)}
    new = detector_run(tmp_path / "new", made_detections(worse, photos=150))
    same = CliRunner().invoke(
        app, ["compare", str(run.path), str(run.path), "--alarms-margin", "0.2", "--margin", "0.05"]
    )
    assert same.exit_code == 0 and "Passed" in same.output
    failed = CliRunner().invoke(app, ["compare", str(run.path), str(new.path)])
    assert failed.exit_code == 1 and "points of recall lost under original" in failed.output.replace("\n", " ")
    refused = CliRunner().invoke(app, ["compare", str(run.path), str(run.path), "--fail-under", "score=0.5"])
    assert isinstance(refused.exception, UserError)


def test_a_bundle_holds_boxes_and_comes_back_the_same(run: Run, tmp_path: Path) -> None:
    bundled = holdfast.bundle(run.path, tmp_path / "hall.zip", report=False)
    assert bundled.path.is_file()
    opened = open_bundle(bundled.path, tmp_path / "opened")
    first, second = (holdfast.open_run(path).objects(resamples=50) for path in (run.path, opened.path))
    pd.testing.assert_frame_equal(first, second)


def test_a_model_card_has_recall_and_average_precision(run: Run, tmp_path: Path) -> None:
    holdfast.export(run.path, "model-index", tmp_path / "cards")
    (card,) = (tmp_path / "cards").rglob("README.md")
    text = card.read_text(encoding="utf8")
    assert "object-detection" in text and "recall under random_background" in text and "AP50 under original" in text


def test_a_run_of_classifiers_has_no_boxes(tmp_path: Path) -> None:
    other = Run(tmp_path / "other")
    other.begin({"verb": "evaluate", "dataset": "made"})
    with pytest.raises(UserError, match="no run of detectors"):
        holdfast.open_run(other.path).objects()
