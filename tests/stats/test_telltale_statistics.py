"""Kinds of backgrounds: confusion, controls and the reliability curve from made-up answers with known truth."""

from __future__ import annotations

import numpy as np
import pytest
from made_rows import table
from scipy.stats import binomtest

from holdfast.stats import trained as detection
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.confidence import calibration, reliability
from holdfast.stats.trained import CONTROL, GENERATED, JPEG, KINDS, PASTED


def made(same_called: int, jpeg_right: int, photos: int = 40) -> Counts:
    """Originals all right; generated ones taken for originals every fourth time; pasted ones right.

    Of the backgrounds of the same class so many are called random; of JPEG images so many of each kind are right.
    """
    rows = []
    for place in range(photos):
        for kind in KINDS:
            said = "original" if kind == GENERATED and place % 4 == 0 else kind
            one = {"source_id": f"p{place}", "sample_id": f"p{place}#{kind}", "model": "net", "trained_on": "original"}
            one |= {"label": kind, "confidence": 0.9, "fold": place % 2}
            rows.append(one | {"condition": "original", "prediction": said, "correct": said == kind})
            after = said if place < jpeg_right else KINDS[(KINDS.index(kind) + 1) % 3]
            rows.append(one | {"condition": JPEG, "prediction": after, "correct": after == kind})
        said = PASTED if place < same_called else "original"
        rows.append({
            "source_id": f"p{place}", "sample_id": f"p{place}#same", "model": "net", "trained_on": "original",
            "condition": CONTROL, "label": PASTED, "prediction": said, "correct": said == PASTED, "confidence": 0.6,
            "fold": place % 2,
        })  # fmt: skip
    return reduce(table(rows))


def test_confusion_with_intervals() -> None:
    frame = detection.confusion(made(0, 40)).set_index(["label", "prediction"])
    assert len(frame) == 9 and (frame["total"] == 40).all()
    row = frame.loc[(GENERATED, "original")]
    assert row["n"] == 10 and row["share"] == 0.25
    wilson = binomtest(10, 40).proportion_ci(method="wilson")
    assert (row["low"], row["high"]) == pytest.approx((wilson.low, wilson.high))
    assert frame.loc[("original", PASTED), "share"] == 0 and frame.loc[(PASTED, PASTED), "share"] == 1


def test_accuracy_against_chance() -> None:
    row = detection.accuracies(made(0, 40)).iloc[0]
    assert row["accuracy"] == pytest.approx(110 / 120) and row["n"] == 120 and row["above_chance"]
    assert row["low"] < 110 / 120 < row["high"]


def test_jpeg_control_finds_what_compression_wipes() -> None:
    kept, lost = (detection.compressed(made(0, right)).iloc[0] for right in (40, 10))
    assert kept["drop"] == 0 and kept["low"] <= 0
    before = 110 / 120
    assert lost["drop"] == pytest.approx(before - _after(10)) and lost["low"] > 0


def _after(right: int) -> float:
    """Of the first images those that were right, and of the others none."""
    return (3 * right - len([place for place in range(right) if place % 4 == 0])) / 120


def test_same_class_control_tells_pasting_from_misfit() -> None:
    sees, fits = (detection.pasting(made(called, 40)).iloc[0].to_dict() for called in (38, 1))
    assert (sees["other"], sees["none"], sees["same"]) == (1, 0, 0.95)
    assert detection.sees_pasting(sees) and not detection.sees_pasting(fits)
    assert not detection.sees_pasting({**sees, "same": np.nan, "same_low": np.nan})


def test_the_reliability_curve_adds_up_to_the_calibration_error() -> None:
    counts = made(20, 30)
    curve = reliability(counts)
    curve = curve[curve["condition"] == "original"]
    assert curve["n"].sum() == 120 and len(curve) == 1
    assert curve["confidence"].iloc[0] == pytest.approx(0.9) and curve["accuracy"].iloc[0] == pytest.approx(110 / 120)
    ece = calibration(counts).query("condition == 'original'")["ece"].iloc[0]
    assert ((curve["accuracy"] - curve["confidence"]).abs() * curve["n"]).sum() / 120 == pytest.approx(ece)


def answered(sure: np.ndarray, right: np.ndarray, model: str) -> list[dict[str, object]]:
    return [
        {"source_id": f"p{at // 3}", "sample_id": f"{at}", "model": model, "trained_on": "original",
         "condition": "original", "label": KINDS[at % 3], "prediction": KINDS[at % 3] if good else "other",
         "correct": bool(good), "confidence": float(one)}
        for at, (one, good) in enumerate(zip(sure, right, strict=True))
    ]  # fmt: skip


def test_the_calibration_error_has_an_interval_and_a_floor() -> None:
    rng = np.random.default_rng(1)
    sure = rng.uniform(0.34, 1, 900)
    honest, boasting = rng.random(900) < sure, rng.random(900) < 0.6 * sure
    rows = table(answered(sure, honest, "honest") + answered(sure, boasting, "boasting"))
    found = detection.calibration_errors(rows, resamples=300).set_index("model")
    expected = calibration(reduce(rows)).set_index("model")["ece"]
    assert found["ece"].to_dict() == pytest.approx(expected.to_dict(), abs=1e-3)
    assert (found["ece_low"] < found["ece"]).all() and (found["ece"] < found["ece_high"]).all()
    # Confidences that are right still show an error, and no other one than chance.
    assert found.loc["honest", "ece_low"] < found.loc["honest", "ece_calibrated"] < found.loc["honest", "ece_high"]
    assert found.loc["boasting", "ece_low"] > 2 * found.loc["boasting", "ece_calibrated"]
    assert found.loc["boasting", "ece_low"] < 0.4 * sure.mean() < found.loc["boasting", "ece_high"]
    # Parts of a run that was killed and continued are read in another order.
    mixed = rows.take(rng.permutation(rows.num_rows))
    again = detection.calibration_errors(mixed, resamples=300).set_index("model")
    assert again.loc["honest"].drop("trained_on").to_dict() == pytest.approx(
        found.loc["honest"].drop("trained_on").to_dict(), abs=1e-12
    )
