"""Trained within a scenario against trained on originals."""

from __future__ import annotations

import numpy as np
import pytest
from made_rows import table
from scipy.stats import t

from holdfast.stats.core.reduce import reduce
from holdfast.stats.trained import within


def row(trained_on: str, condition: str, photo: int, right: bool, fold: int) -> dict:
    key = {"model": "m", "trained_on": trained_on, "condition": condition, "fold": fold}
    return key | {"source_id": f"p{photo}", "label": "ab"[photo % 2], "correct": right, "correct_restricted": right}


def made(folds: int) -> tuple[list[dict], np.ndarray]:
    rng = np.random.default_rng(4)
    right = rng.random((2, 60)) < [[0.4], [0.8]]
    rows = []
    for photo in range(60):
        fold = photo // 2 % folds
        rows.append(row("original", "original", photo, True, fold))
        rows.append(row("original", "grey", photo, bool(right[0, photo]), fold))
        rows.append(row("grey", "grey", photo, bool(right[1, photo]), fold))
    return rows, right


@pytest.mark.parametrize("folds", [1, 3])
def test_gain_of_training_within(folds: int) -> None:
    rows, right = made(folds)
    frame = within(reduce(table(rows)), resamples=400).set_index("condition")
    labels, photos = np.arange(60) % 2, np.arange(60)
    gains = []
    for fold in range(folds):
        here = photos // 2 % folds == fold
        change = right[1].astype(float) - right[0]
        gains.append(np.mean([change[here & (labels == label)].mean() for label in (0, 1)]))
    grey = frame.loc["grey"]
    assert grey["originals"] == pytest.approx(right[0].mean()) and grey["within"] == pytest.approx(right[1].mean())
    assert grey["gain"] == pytest.approx(np.mean(gains))
    if folds > 1:
        half = t.ppf(0.975, 2) * np.sqrt((1 / 3 + 0.5) * np.var(gains, ddof=1))
        alone = within(reduce(table([{**one, "fold": 0} for one in rows])), resamples=400).set_index("condition")
        low = min(np.mean(gains) - half, alone.loc["grey", "low"])
        high = min(1.0, max(np.mean(gains) + half, alone.loc["grey", "high"]))
        # Images are resampled in another order there.
        assert (grey["low"], grey["high"]) == pytest.approx((low, high), abs=0.02)
        assert grey["low"] <= np.mean(gains) - half + 1e-9
    assert grey["low"] < grey["gain"] < grey["high"]
    original = frame.loc["original"]
    assert original["originals"] == original["within"] == 1 and np.isnan(original["gain"])


def test_what_was_not_trained_is_left_empty() -> None:
    rows, _ = made(1)
    crossed = within(reduce(table([one for one in rows if one["trained_on"] == "original"]))).set_index("condition")
    assert np.isnan(crossed.loc["grey", "within"]) and crossed.loc["grey", "originals"] > 0
    inside = within(reduce(table([one for one in rows if one["trained_on"] == "grey"]))).set_index("condition")
    assert np.isnan(inside.loc["grey", "originals"]) and list(inside.index) == ["grey"]
