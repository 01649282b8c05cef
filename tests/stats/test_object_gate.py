"""The release gate of detectors, on tables with planted truths."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from holdfast.core.errors import UserError
from holdfast.stats.objects.answers import DetectorAnswers, detector_answers
from holdfast.stats.objects.gate import object_gate
from made_detections import Planted, made_detections


def _answers(recall: float, alarms: float, photos: int = 400, **options: object) -> DetectorAnswers:
    truths = {"original": Planted(0.9, 0.2), "random_background": Planted(recall, alarms, donors=40)}
    return detector_answers(*made_detections(truths, photos=photos, **options))  # type: ignore[arg-type]


def test_an_equal_detector_passes_and_a_worse_one_fails() -> None:
    old = _answers(0.8, 0.3)
    assert object_gate(old, old).verdict == "passed"
    lost = object_gate(_answers(0.8, 0.3, seed=5), _answers(0.6, 0.3, seed=5))
    assert lost.verdict == "failed"
    assert "points of recall lost under random_background" in lost.sentence
    assert "false alarms per image added" not in lost.sentence
    table = lost.conditions.set_index(["measure", "condition"])
    row = table.loc["recall", "random_background"]
    assert row["low"] < -0.2 < row["high"] and row["worse"] > 0 and row["better"] == 0
    assert table.loc["recall", "original"]["verdict"] == "passed"


def test_more_false_alarms_fail_though_recall_is_the_same() -> None:
    gate = object_gate(_answers(0.8, 0.3), _answers(0.8, 1.5))
    assert gate.verdict == "failed" and "added under random_background" in gate.sentence
    assert "recall lost" not in gate.sentence


def test_few_photos_leave_it_open_and_say_so() -> None:
    gate = object_gate(_answers(0.8, 0.3, photos=12), _answers(0.75, 0.4, photos=12))
    assert gate.verdict == "undecided" and "recall under" in gate.sentence


def test_crashing_is_no_way_through() -> None:
    old = _answers(0.8, 0.3)
    objects, images, detections = made_detections(
        {"original": Planted(0.9, 0.2), "random_background": Planted(0.8, 0.3, donors=40)}, photos=400
    )
    frame = images.to_pandas()
    failed = (frame["condition"] == "random_background") & frame["sample_id"].str.endswith(("0", "1", "2"))
    frame["status"] = failed.map({True: "error", False: "ok"})
    new = detector_answers(objects, pa.Table.from_pandas(frame, images.schema, preserve_index=False), detections)
    gate = object_gate(old, new)
    row = gate.conditions.set_index(["measure", "condition"]).loc["recall", "random_background"]
    assert gate.verdict == "failed" and row["unanswered"] >= 110
    assert "count as lost" in row["sentence"]


def test_bad_input_is_one_sentence() -> None:
    old = _answers(0.8, 0.3, photos=12)
    with pytest.raises(UserError, match="share of recall"):
        object_gate(old, old, margin=2)
    with pytest.raises(UserError, match="per image"):
        object_gate(old, old, alarms_margin=-1)
    with pytest.raises(UserError, match="No condition 'fog'"):
        object_gate(old, old, conditions=["fog"])
    with pytest.raises(UserError, match="has no model 'other'"):
        object_gate(old, old, new_model="other")


def test_bounds_of_recall_stay_in_its_range_and_those_of_counts_hold_the_mean() -> None:
    """All is lost on 31 images; and every image has exactly six false alarms more."""
    truths = [{"original": Planted(recall, 0.0)} for recall in (1.0, 0.0)]
    old, new = (detector_answers(*made_detections(truth, photos=31)) for truth in truths)
    row = object_gate(old, new).conditions.iloc[0]
    assert row["difference"] == -1 and row["low"] == -1 and -0.92 < row["high"] < -0.8
    noisy = old.pictures.assign(false_alarms=old.pictures["false_alarms"] + 6)
    margins = [0.1, 6.0, 9.0]
    rows = [object_gate(old, replace(old, pictures=noisy), alarms_margin=one).conditions.iloc[1] for one in margins]
    assert all(row["low"] < 6 < row["high"] and row["high"] - row["low"] < 0.5 for row in rows)
    assert len({(row["low"], row["high"]) for row in rows}) == 1
    assert [row["verdict"] for row in rows] == ["failed", "undecided", "passed"]
