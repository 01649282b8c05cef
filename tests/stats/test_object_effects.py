"""Recall, false alarms and the verdict on detectors, on tables with planted truths."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holdfast.stats.objects.answers import detector_answers
from holdfast.stats.objects.effects import objects_under_conditions, per_image, regions_found, score_reliability
from holdfast.stats.objects.verdict import what_detectors_hold
from made_detections import THRESHOLD, Planted, made_detections

ORIGINAL, SAME, RANDOM, ONLY = "original", "same_class_background", "random_background", "only_background"


def _rows(truths: dict[str, Planted], **options: object) -> pd.DataFrame:
    answers = detector_answers(*made_detections(truths, **options))  # type: ignore[arg-type]
    return objects_under_conditions(answers, resamples=400).set_index("condition")


def test_planted_recall_alarms_and_classes_come_out() -> None:
    rows = _rows({ORIGINAL: Planted(0.9, 0.5), RANDOM: Planted(0.6, 1.5, wrong=1.0, donors=40)}, photos=400, spread=0.5)
    after = rows.loc[RANDOM]
    assert after["recall_low"] < 0.6 < after["recall_high"]
    assert after["recall_drop_low"] < 0.3 < after["recall_drop_high"]
    assert after["wrong_class_change_low"] < 0.4 < after["wrong_class_change_high"]
    # every lost object adds one false alarm: another class in its place
    added = 1.0 + after["wrong_class_change"] * after["objects"] / after["pictures"]
    assert after["false_alarms_change_low"] < added < after["false_alarms_change_high"]
    assert after["gained"] == 0 and after["lost"] == round(after["recall_drop"] * after["compared"])
    assert np.isnan(rows.loc[ORIGINAL, "recall_drop"]) and after["recall_drop_p"] < 1e-6


def test_an_unchanged_detector_keeps_an_interval_around_zero() -> None:
    rows = _rows({ORIGINAL: Planted(0.8, 0.0), RANDOM: Planted(0.8, 0.0)})
    after = rows.loc[RANDOM]
    for name in ("recall_drop", "false_alarms_change", "wrong_class_change"):
        assert after[name] == 0 and after[f"{name}_low"] < 0 < after[f"{name}_high"]
    assert not after["ap_hides"]


def test_average_precision_hides_what_recall_shows() -> None:
    """Lost objects keep a score just below the threshold: the ranking is the same, and no one sees them."""
    truths = {ORIGINAL: Planted(0.95, 0.0, faint=True), RANDOM: Planted(0.6, 0.0, faint=True)}
    after = _rows(truths, photos=120).loc[RANDOM]
    assert after["ap_change_low"] <= 0 <= after["ap_change_high"] and after["recall_drop_low"] > 0.2
    assert after["ap_hides"]
    plain = _rows({ORIGINAL: Planted(0.95, 0.0), RANDOM: Planted(0.6, 0.0)}, photos=120).loc[RANDOM]
    assert plain["ap_change_high"] < 0 and not plain["ap_hides"]


def test_means_of_counts_have_the_interval_of_t() -> None:
    """Ten images with 6 false alarms, five with 5 and five with 7: 6 ± 2.09 · √(10 / 19 / 20)."""
    frame = pd.DataFrame({"source_id": np.arange(20).astype(str), "donor_id": None, "n": [6] * 10 + [5] * 5 + [7] * 5})
    found = per_image(frame, "n", "value")
    assert found["value"] == 6
    assert (found["value_low"], found["value_high"]) == pytest.approx((5.66, 6.34), abs=0.015)


def test_nothing_counted_is_no_certainty() -> None:
    frame = pd.DataFrame({"source_id": np.arange(20).astype(str), "donor_id": None, "n": 0, "one": 1})
    none, one = per_image(frame, "n", "value"), per_image(frame, "one", "value")
    assert none["value_low"] == 0 and 3 / 20 < none["value_high"] < 5 / 20
    assert 0.8 < one["value_low"] < 1 < one["value_high"] < 1.2


def test_shared_donors_widen_every_interval() -> None:
    """Three of six backgrounds hide every object: that says less about other backgrounds than 60 images seem to."""
    objects, images, detections = made_detections({ORIGINAL: Planted(1.0, 0.0), RANDOM: Planted(1.0, 0.0)}, photos=60)
    photo = images["source_id"].to_pandas().str[1:].astype(int)
    donor = {row: f"donor {place % 6}" for row, place in zip(images["row_id"].to_pylist(), photo, strict=True)}
    hidden = {"donor 0", "donor 2", "donor 4"}
    tables = {}
    for shared in (False, True):
        changed = []
        for table in (objects, images, detections):
            rows = table.to_pylist()
            for row in rows:
                lent = row["condition"] == RANDOM
                row["donor_id"] = donor[row["row_id"]] if lent and shared else None
                if lent and donor[row["row_id"]] in hidden:
                    row |= {"found": False, "predicted": "", "n_predictions": 0, "hidden": True}
            if "n_objects" not in table.column_names and "found" not in table.column_names:
                rows = [row for row in rows if "hidden" not in row]
            changed.append(pa.Table.from_pylist(rows, table.schema))
        answers = detector_answers(*changed)
        tables[shared] = objects_under_conditions(answers, resamples=400).set_index("condition").loc[RANDOM]
    for name in ("ap", "ap_change", "recall", "recall_drop", "predictions", "predictions_change", "ece"):
        widths = [tables[shared][f"{name}_high"] - tables[shared][f"{name}_low"] for shared in (False, True)]
        assert tables[False][name] == tables[True][name], name
        assert widths[1] > (1.0 if name == "ece" else 1.7) * widths[0], (name, widths)


@pytest.mark.parametrize(
    ("random", "verdict", "words"),
    [
        (Planted(0.85, donors=50), "foreground", "Sees the object, and does not rely on the background"),
        (Planted(0.5, donors=50), "both", "Relies on the background, and sees the object too"),
        (Planted(0.0, donors=50), "background", "Relies on the background, and does not see the object"),
    ],
)
def test_the_verdict_follows_recall(random: Planted, verdict: str, words: str) -> None:
    truths = {ORIGINAL: Planted(0.9), SAME: Planted(0.87, donors=50), RANDOM: random, ONLY: Planted(0.0, 2.0)}
    row = what_detectors_hold(detector_answers(*made_detections(truths, photos=300)), resamples=400).iloc[0]
    assert (row["verdict"], row["headline"]) == (verdict, words)
    assert "when only the background changes: " in row["sentence"]
    assert any("nothing on them" in text for text in row["warnings"])


def test_without_the_pasted_scenes_the_verdict_is_open() -> None:
    row = what_detectors_hold(detector_answers(*made_detections({ORIGINAL: Planted()})), resamples=50).iloc[0]
    assert row["verdict"] == "undecided"
    assert "no answers under same class background and random background" in row["small_print"]


def test_replaced_rows_failed_pictures_and_crowds_count_nowhere() -> None:
    objects, images, detections = made_detections({ORIGINAL: Planted(1.0), RANDOM: Planted(1.0)}, photos=20)
    frame = images.to_pandas()
    frame["status"] = frame["row_id"].str.endswith("/0").map({True: "error", False: "ok"})
    crowd = objects.to_pandas()
    crowd["crowd"] = crowd["sample_id"] == "p1"
    current = [name for name in frame["row_id"] if not name.endswith("/2")]
    answers = detector_answers(
        pa.Table.from_pandas(crowd, objects.schema, preserve_index=False),
        pa.Table.from_pandas(frame, images.schema, preserve_index=False), detections, row_ids=current,
    )  # fmt: skip
    assert len(answers.failed) == 2 and not answers.pictures["sample_id"].isin(["p0", "p2"]).any()
    assert not answers.counted["sample_id"].isin(["p0", "p1", "p2"]).any()
    assert objects_under_conditions(answers, resamples=50)["recall"].eq(1).all()


def test_objects_taken_out_are_not_missed_but_may_still_be_seen() -> None:
    objects, images, detections = made_detections({ORIGINAL: Planted(1.0), "without_object": Planted(0.3)}, photos=40)
    frame = objects.to_pandas()
    frame["status"] = (frame["condition"] == "without_object").map({True: "removed", False: "ok"})
    answers = detector_answers(pa.Table.from_pandas(frame, objects.schema, preserve_index=False), images, detections)
    row = objects_under_conditions(answers, resamples=50).set_index("condition").loc["without_object"]
    assert row["objects"] == 0 and np.isnan(row["recall"]) and np.isnan(row["recall_drop"])
    assert row["still_seen_low"] < 0.3 < row["still_seen_high"] and row["removed"] > 50


def test_a_condition_about_some_objects_counts_only_those() -> None:
    objects, images, detections = made_detections({ORIGINAL: Planted(1.0), "around": Planted(0.5)}, photos=60)
    frame = objects.to_pandas()
    frame["target"] = (frame["condition"] == "around") & (frame["object_id"] == "0")
    answers = detector_answers(pa.Table.from_pandas(frame, objects.schema, preserve_index=False), images, detections)
    rows = objects_under_conditions(answers, resamples=50, precision=False).set_index("condition")
    pictures_with = objects.to_pandas().query("condition == 'around' and object_id == '0'").shape[0]
    assert rows.loc["around", "objects"] == rows.loc["around", "compared"] == pictures_with


def test_scores_that_tell_the_truth_are_calibrated() -> None:
    objects, images, detections = made_detections({ORIGINAL: Planted(1.0, 0.0)}, photos=300)
    answers = detector_answers(objects, images, detections)
    row = objects_under_conditions(answers, resamples=200).iloc[0]
    # all are right, and scores are evenly between 0.5 and 1: off by a quarter
    assert row["ece_low"] < 0.245 < row["ece_high"] and row["ece_high"] - row["ece_low"] < 0.05
    bins = score_reliability(answers, "made:detector", ORIGINAL)
    assert bins["right"].eq(1).all() and bins["score"].min() > THRESHOLD and bins["n"].sum() == row["scored"]


def test_segmented_objects_are_found_from_half_an_overlap_on() -> None:
    rows = [
        {
            "model": "m", "trained_on": "", "condition": condition, "sample_id": f"p{photo}", "source_id": f"p{photo}",
            "donor_id": None, "label": "cat", "class": name, "truth": 100, "intersection": hit, "union": 100,
        }
        for condition, lost in ((ORIGINAL, 0), (RANDOM, 10))
        for photo in range(40)
        for name, hit in (("cat", 49 if photo < lost else 50), ("background", 0))
    ]  # fmt: skip
    table = regions_found(pd.DataFrame(rows), resamples=200).set_index("condition")
    assert table.loc[ORIGINAL, "recall"] == 1 and table.loc[RANDOM, "recall"] == 0.75
    assert (table.loc[RANDOM, "lost"], table.loc[RANDOM, "objects"]) == (10, 40)
    assert 0.05 < table.loc[RANDOM, "recall_drop_low"] < 0.25 < table.loc[RANDOM, "recall_drop_high"]
