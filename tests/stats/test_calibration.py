"""Calibration and selective risk, against computing them from the rows."""

from __future__ import annotations

import numpy as np
import pytest
from made_rows import table
from scipy.stats import mannwhitneyu

from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.confidence import area_under_risk_coverage, auroc_interval, background_auroc, calibration

STEP = 1e-3


def rows(confidence: np.ndarray, right: np.ndarray, condition: str = "original") -> list[dict[str, object]]:
    return [
        {"model": "m", "condition": condition, "source_id": str(i), "label": "a", "correct": bool(r), "confidence": c}
        for i, (c, r) in enumerate(zip(confidence.tolist(), right.tolist(), strict=True))
    ]


def test_measures_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(41)
    confidence = np.float32(rng.beta(3, 1.5, 600)).astype(float)
    right = rng.random(600) < confidence**1.5
    row = calibration(reduce(table(rows(confidence, right)))).iloc[0]
    edges = np.minimum((confidence * 15).astype(int), 14)
    ece = sum(abs(right[edges == b].sum() - confidence[edges == b].sum()) for b in range(15)) / 600
    order = np.argsort(-confidence)
    aurc = np.mean(np.cumsum(~right[order]) / np.arange(1, 601))
    assert row["accuracy"] == pytest.approx(right.mean())
    assert row["confidence"] == pytest.approx(confidence.mean())
    assert row["brier"] == pytest.approx(np.mean((confidence - right) ** 2))
    # bins are made of whole steps: only answers within a step of an edge can be in the other bin
    moved = (np.abs(confidence * 15 - np.round(confidence * 15)) < 15 * STEP).mean()
    assert row["ece"] == pytest.approx(ece, abs=2 * moved)
    assert row["aurc"] == pytest.approx(aurc, abs=STEP)
    assert row["confidence_right"] == pytest.approx(confidence[right].mean(), abs=STEP)
    assert row["confidence_wrong"] == pytest.approx(confidence[~right].mean(), abs=STEP)


def test_a_hand_made_case() -> None:
    row = calibration(reduce(table(rows(np.array([0.95, 0.95, 0.55, 0.55]), np.array([1, 1, 1, 0]))))).iloc[0]
    assert row["ece"] == pytest.approx((2 * 0.05 + 2 * 0.05) / 4)
    assert row["brier"] == pytest.approx((2 * 0.05**2 + 0.45**2 + 0.55**2) / 4)
    # the wrong one is third or fourth: risks 0, 0, (1/3 or 0), 1/4
    assert row["aurc"] == pytest.approx((1 / 6 + 1 / 4) / 4)
    assert row["confidence_wrong"] == pytest.approx(0.55)


def test_no_wrong_answers_have_no_confidence() -> None:
    row = calibration(reduce(table(rows(np.array([0.5, 1.0]), np.array([1, 1]))))).iloc[0]
    assert np.isnan(row["confidence_wrong"])
    assert row["aurc"] == 0


def test_area_with_ties_is_the_mean_over_orders() -> None:
    rng = np.random.default_rng(42)
    group = np.sort(rng.integers(0, 6, 40))
    wrong = rng.random(40) < 0.3
    areas = []
    for _ in range(3000):
        order = np.lexsort((rng.random(40), group))
        areas.append(np.mean(np.cumsum(wrong[order]) / np.arange(1, 41)))
    ours = area_under_risk_coverage(np.bincount(group).astype(float), np.bincount(group, wrong))
    assert ours == pytest.approx(np.mean(areas), abs=4 * np.std(areas) / np.sqrt(3000))


def test_auroc_is_the_rank_statistic() -> None:
    rng = np.random.default_rng(43)
    ours, theirs = rng.beta(4, 1, 300), rng.beta(2, 2, 200)
    made = rows(ours, ours > 0.5) + rows(theirs, theirs > 2, "only_background")
    row = background_auroc(reduce(table(made))).iloc[0]
    expected = mannwhitneyu(np.floor(ours * 1000), np.floor(theirs * 1000)).statistic / (300 * 200)
    assert row["auroc"] == pytest.approx(expected, abs=1e-9)
    assert row["auroc"] == pytest.approx(mannwhitneyu(ours, theirs).statistic / (300 * 200), abs=STEP)
    assert (row["n"], row["n_background"]) == (300, 200)
    assert row["low"] < row["auroc"] < row["high"]
    assert background_auroc(reduce(table(rows(ours, ours > 0.5)))).empty


def test_auroc_interval_keeps_a_width_at_the_ends() -> None:
    low, high = auroc_interval(1.0, 100, 100)
    assert 0.9 < low < 0.99
    assert high == 1
    assert auroc_interval(0.0, 100, 100) == pytest.approx((0, 1 - low))
