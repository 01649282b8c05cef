"""Runs of detectors: opened in Python, compared, bundled and opened again, told to the hub."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.api.detectors import _judged_at
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.store import Run
from holdfast_evidence.opening import open_bundle
from made_detections import THRESHOLD, Planted, detector_run, made_detections

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
    assert "Relies on the background" in opened._repr_html_()


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
    bundled = holdfast.share_bundle(run.path, tmp_path / "hall.zip", report=False)
    assert bundled.path.is_file()
    opened = open_bundle(bundled.path, tmp_path / "opened")
    first, second = (holdfast.open_run(path).objects(resamples=50) for path in (run.path, opened.path))
    pd.testing.assert_frame_equal(first, second)


def test_a_model_card_has_recall_and_average_precision(run: Run, tmp_path: Path) -> None:
    holdfast.share_export(run.path, "model-index", tmp_path / "cards")
    (card,) = (tmp_path / "cards").rglob("README.md")
    text = card.read_text(encoding="utf8")
    assert "object-detection" in text and "recall under random_background" in text and "AP50 under original" in text


def test_a_run_of_classifiers_has_no_boxes(tmp_path: Path) -> None:
    other = Run(tmp_path / "other")
    other.begin({"verb": "evaluate", "dataset": "made"})
    with pytest.raises(UserError, match="not a run of detectors"):
        holdfast.open_run(other.path).objects()


def test_two_versions_are_compared_at_one_threshold(tmp_path: Path) -> None:
    """The new version is the old one with other scores: at the old threshold it finds less, at its own as much."""
    tables = made_detections({"original": Planted(0.8, 0.5)}, photos=150)
    old = detector_run(tmp_path / "old", tables)
    objects, images, detections = (
        table.to_pandas() for table in made_detections({"original": Planted(0.8, 0.5)}, photos=150)
    )
    half = [frame.assign(model="made:half") for frame in (objects, images, detections)]
    half[2]["score"] = half[2]["score"] / 2
    half[1]["threshold"] = THRESHOLD / 2
    schemas = [table.schema for table in tables]
    changed = [
        pa.Table.from_pandas(frame, schema, preserve_index=False) for frame, schema in zip(half, schemas, strict=True)
    ]
    new = detector_run(tmp_path / "new", changed)
    shared, own, given = (
        holdfast.compare(old.path, new.path, margin=0.05, **options)
        for options in ({}, {"threshold": "own"}, {"threshold": 0.02})
    )
    recall = [found.conditions.set_index("measure").loc["recall"] for found in (shared, own, given)]
    assert recall[0]["new"] < recall[0]["old"] - 0.3 and shared.verdict == "failed"
    assert recall[1]["new"] == recall[1]["old"] == recall[0]["old"] and "own threshold" in own.notes[0]
    assert recall[2]["new"] == recall[2]["old"] >= recall[1]["old"]
    assert f"from a score of {THRESHOLD:g} on, the old model's threshold" in shared.notes[0]
    # scores in the same order have the same average precision
    (line,) = (note for note in shared.notes if note.startswith("AP"))
    assert "+0.0 points (−" in line and line in repr(shared)
    before = holdfast.open_run(old.path).objects(resamples=50)["ap"].iloc[0]
    assert f"{100 * before:.1f} % before" in line
    with pytest.raises(UserError, match="expected a score from 0"):
        holdfast.compare(old.path, new.path, threshold=0.001)


def test_answers_judged_again_at_their_own_threshold_are_the_same(run: Run) -> None:
    opened = holdfast.open_run(run.path)
    again = _judged_at(opened, opened.boxes.models[0], THRESHOLD)
    order = ["row_id", "object_id"]
    first, second = (boxes.objects.sort_values(order)[[*order, "found"]] for boxes in (opened.boxes, again))
    assert first.to_numpy().tolist() == second.to_numpy().tolist()
    counts = [boxes.pictures.sort_values("row_id")["false_alarms"].to_list() for boxes in (opened.boxes, again)]
    assert counts[0] == counts[1]
