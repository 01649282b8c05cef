"""How far a model's confidence can be trusted, from its histogram over 1000 equal steps.

Confidence belongs to the answer over all outputs, so right means right over all outputs here (outcome "full").
"""

from __future__ import annotations

import math

import numpy as np

from holdfast.core.lazy import pd, scipy_optimize, scipy_special
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import Floats, Z
from holdfast.stats.core.cells import KEYS, ordered, wilson
from holdfast.stats.core.reduce import BINS, Counts

ECE_BINS = 15


def calibration(counts: Counts) -> pd.DataFrame:
    """Return calibration and selective risk per model × trained_on × condition.

    Columns: ``n``; ``accuracy``; ``confidence``: the mean; ``ece`` over 15 equal-width bins; ``brier``; ``aurc``: area
    under risk–coverage; ``confidence_right`` and ``confidence_wrong``: mean confidence of right and of wrong answers.
    """
    rows = []
    for key, group in counts.confidence.groupby(KEYS, observed=True):
        group = group.sort_values("bin")
        n, right = group["n"].to_numpy(float), group["right"].to_numpy(float)
        confidence = group["confidence"].to_numpy(float)
        coarse = _coarse(group["bin"]).to_numpy()
        rows.append(
            dict(zip(KEYS, key, strict=True))
            | {
                "n": int(n.sum()),
                "accuracy": right.sum() / n.sum(),
                "confidence": confidence.sum() / n.sum(),
                "ece": float(np.abs(np.bincount(coarse, right - confidence, ECE_BINS)).sum() / n.sum()),
                "brier": float(group["brier"].sum() / n.sum()),
                "aurc": area_under_risk_coverage(n[::-1], (n - right)[::-1]),
                "confidence_right": _mean(confidence / n, right),
                "confidence_wrong": _mean(confidence / n, n - right),
            }
        )
    measures = ["n", "accuracy", "confidence", "ece", "brier", "aurc", "confidence_right", "confidence_wrong"]
    return ordered(counts, pd.DataFrame(rows, columns=[*KEYS, *measures]))


def _coarse(step: pd.Series) -> pd.Series:
    """Return which of the 15 bins of the calibration error each step belongs to: its middle's."""
    return ((step + 0.5) * ECE_BINS / BINS).astype(int)


def reliability(counts: Counts) -> pd.DataFrame:
    """Return accuracy by confidence in the 15 bins of the calibration error; empty bins are left out.

    A row per model × trained_on × condition × ``bin``. Columns: ``n`` answers; their mean ``confidence``; ``accuracy``
    with Wilson's 95 % interval ``low``, ``high``.
    """
    frame = counts.confidence.assign(bin=_coarse(counts.confidence["bin"]))
    sums = frame.groupby([*KEYS, "bin"], observed=True)[["n", "right", "confidence"]].sum().reset_index()
    low, high = wilson(sums["right"].to_numpy(), sums["n"].to_numpy())
    sums = sums.assign(
        confidence=sums["confidence"] / sums["n"], accuracy=sums["right"] / sums["n"], low=low, high=high
    )
    columns = [*KEYS, "bin", "n", "confidence", "accuracy", "low", "high"]
    return ordered(counts, pd.DataFrame(sums[columns]).sort_values("bin", kind="stable"))


def area_under_risk_coverage(n: Floats, wrong: Floats) -> float:
    """Return the mean risk over all coverages, from groups of equally confident answers, surest first.

    Within a group of m answers, w of them wrong, after N answers with E wrong, the expected risk at the j-th is
    (E + j w / m) / (N + j); its sum over j is w + (E − N w / m)(H(N + m) − H(N)) with harmonic numbers H.
    """
    before = np.cumsum(n) - n
    errors = np.cumsum(wrong) - wrong
    harmonic = scipy_special.digamma(before + n + 1) - scipy_special.digamma(before + 1)
    return float((wrong + (errors - before * wrong / n) * harmonic).sum() / n.sum())


def background_auroc(counts: Counts) -> pd.DataFrame:
    """Return whether confidence distinguishes an image from its empty background: AUROC against ``only_background``.

    0.5: the model is as sure of an image without the object; 1: it always notices. A row per model × trained_on.
    """
    columns = ["model", "trained_on", "n", "n_background", "auroc", "low", "high"]
    rows = []
    for key, group in counts.confidence.groupby(["model", "trained_on"], observed=True):
        histograms = []
        for condition in (ORIGINAL, "only_background"):
            part = group[group["condition"] == condition]
            histograms.append(np.bincount(part["bin"], part["n"], BINS))
        ours, theirs = histograms
        if ours.sum() and theirs.sum():
            below = np.cumsum(theirs) - theirs
            value = float((ours * (below + theirs / 2)).sum() / (ours.sum() * theirs.sum()))
            low, high = auroc_interval(value, int(ours.sum()), int(theirs.sum()))
            rows.append((*key, int(ours.sum()), int(theirs.sum()), value, low, high))
    return ordered(counts, pd.DataFrame(rows, columns=columns))


def auroc_interval(auroc: float, n: int, others: int) -> tuple[float, float]:
    """Return the score-like interval of an AUROC (Newcombe 2006, method 5).

    All θ with |auroc − θ| ≤ z √V(θ), V Hanley and McNeil's variance with N* = (n + others)/2 − 1 in both places:
    V(θ) = θ(1 − θ)(1 + N*(1 − θ)/(2 − θ) + N* θ/(1 + θ)) / (n · others). Unlike DeLong's it has a width at 0 and 1. It
    takes the two sets as independent, which for an image and its own background makes it a little wide.
    """
    middle = (n + others) / 2 - 1

    def lower(estimate: float) -> float:
        if estimate <= 0:
            return 0.0

        def excess(theta: float) -> float:
            spread = 1 + middle * (1 - theta) / (2 - theta) + middle * theta / (1 + theta)
            return estimate - theta - Z * math.sqrt(theta * (1 - theta) * spread / (n * others))

        return float(scipy_optimize.brentq(excess, 0.0, min(estimate, 1 - 1e-9)))  # at 1 itself the excess is 0 again

    return lower(auroc), 1 - lower(1 - auroc)  # V(θ) = V(1 − θ)


def _mean(values: Floats, weights: Floats) -> float:
    return float((values * weights).sum() / weights.sum()) if weights.sum() else float("nan")
