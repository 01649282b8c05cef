"""How much a model can take: the severity at which it first fails on each image, as survival curves.

An image that the model recognises as it is fails at the first severity with a wrong answer; one that it never misses
survives the strongest. Images are the unit. An image that was not asked at every severity (``eval --search``) counts
if its first failure is pinned between two neighbouring severities, its answers taken to be monotone; others are left
out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from holdfast.core.lazy import pd
from holdfast.core.numbers import percent
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import from_counts
from holdfast.stats.core.bootstrap import (
    CHANGE,
    NO_ESTIMATE,
    RESAMPLES,
    SHARE,
    Estimate,
    Floats,
    Range,
    estimated,
    resampled_sums,
    t_quantile,
)
from holdfast.stats.core.cells import wilson
from holdfast.stats.core.grid import judged
from holdfast.stats.core.reduce import Counts, Outcome

LEAST_SEVERITIES = 3
_SEVERITY = re.compile(r"(?P<scenario>.+)@severity_(?P<severity>\d+)")

CURVES = ["model", "scenario", "severity", "n", "survived", "low", "high"]
POINTS = [
    "model", "scenario", "n", "severities", "median", "median_low", "median_high", "mean", "mean_low", "mean_high",
    "back", "never", "whole",
]  # fmt: skip
ORDERS = ["scenario", "first", "second", "n", "difference", "low", "high", "turns"]


@dataclass(frozen=True)
class FailurePoints:
    """What came out.

    ``curves``: a row per model, scenario and severity: the share of images that ``survived`` it and all weaker ones.
    ``points``: a row per model and scenario: ``median`` severity of the first failure (one more than the strongest
    if more than half survive it), ``mean`` number of severities survived; images that come ``back`` (right again
    after a failure), that ``never`` fail, and that were asked at every severity (``whole``), of which alone it is known
    whether they come back. ``orders``: a row per pair of models and scenario: ``difference`` of the mean number of
    severities survived; ``turns`` if each is better at some severity.
    """

    curves: pd.DataFrame
    points: pd.DataFrame
    orders: pd.DataFrame
    sentence: str  # what came out, in words


def failure_points(
    counts: Counts, *, outcome: Outcome = "full", resamples: int = RESAMPLES, seed: int = 0
) -> FailurePoints:
    """Return where models first fail under scenarios with three severities or more."""
    scenarios = _severities(counts.conditions)
    survival = {
        (model, name): answers
        for model in counts.models
        for name, levels in scenarios.items()
        if (answers := _survived(counts, model, outcome, levels)) is not None
    }
    curves, points, orders = [], [], []
    pairs = sum(1 for key in survival for other in survival if key[1] == other[1] and key[0] < other[0])
    for (model, name), (photos, lasted, back, whole) in survival.items():
        levels = sorted(scenarios[name])
        drawn = resampled_sums(np.c_[lasted, np.ones(len(photos))], photos, resamples=resamples, seed=seed)
        shares = drawn[:, :-1] / drawn[:, -1:]
        curve = lasted.mean(axis=0)
        low, high = wilson(lasted.sum(axis=0), len(photos))
        curves += [
            (model, name, level, len(photos), *values)
            for level, *values in zip(levels, curve.tolist(), low.tolist(), high.tolist(), strict=True)
        ]
        median = estimated(_median(curve[None], levels)[0], _median(shares, levels))
        sizes = (int(back.sum()), int(lasted[:, -1].sum()), int(whole.sum()))
        mean = _sum_of(curve, shares, len(photos), SHARE)
        points.append((model, name, len(photos), len(levels), *median, *mean, *sizes))
        orders += [
            (name, model, other, *_compared(survival[model, name], survival[other, name], pairs, resamples, seed))
            for other in counts.models
            if other > model and (other, name) in survival
        ]
    frames = (
        pd.DataFrame(rows, columns=names) for rows, names in ((curves, CURVES), (points, POINTS), (orders, ORDERS))
    )
    by_curve, by_point, by_pair = frames
    return FailurePoints(by_curve, by_point, by_pair, _sentence(by_point, by_pair))


def failure_differences(
    old: Counts,
    new: Counts,
    *,
    old_model: str | None = None,
    new_model: str | None = None,
    outcome: Outcome = "full",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the rows of ``FailurePoints.orders`` for a new model (``first``) against an old one, of two runs."""
    known = [_severities(counts.conditions) for counts in (new, old)]
    shared = [name for name in known[0] if set(known[0][name]) == set(known[1].get(name, ()))]
    models = [name or counts.models[0] for name, counts in ((new_model, new), (old_model, old))]
    sources = [from_counts(counts, name).sources for counts, name in zip((new, old), models, strict=True)]
    number = {source: place for place, source in enumerate(sorted({*sources[0], *sources[1]}))}
    rows = []
    for name in shared:
        sides = []
        for counts, model, names, levels in zip((new, old), models, sources, known, strict=True):
            survival = _survived(counts, model, outcome, levels[name])
            if survival is not None:
                photos = np.array([number[names[int(place)]] for place in survival[0]], np.float64)
                sides.append((photos, *survival[1:]))
        if len(sides) == 2:
            rows.append((name, *models, *_compared(sides[0], sides[1], len(shared), resamples, seed)))
    return pd.DataFrame(rows, columns=ORDERS)


@dataclass(frozen=True)
class BreakingPhoto:
    """An image with its original, the last condition before a model breaks on it, and the first one after."""

    scenario: str
    model: str
    source: str
    conditions: tuple[str, str, str]
    alike: int  # images that break at the same severity


def breaking_photos(
    counts: Counts, points: FailurePoints, scenarios: list[str], *, outcome: Outcome = "full"
) -> list[BreakingPhoto]:
    """Return one image per scenario, of the model that breaks first, at the severity where most of its images break."""
    known, photos = _severities(counts.conditions), []
    for name in scenarios:
        rows = points.points[points.points["scenario"] == name]
        model = str(rows.sort_values("mean", kind="stable").iloc[0]["model"])
        survival = _survived(counts, model, outcome, known[name])
        assert survival is not None
        lasted = survival[1].sum(axis=1).astype(int)
        ends = np.bincount(lasted, minlength=len(known[name]) + 1)[:-1]
        if not ends.any():
            continue
        place = int(ends.argmax())
        sources = from_counts(counts, model, outcome=outcome).sources
        source = sources[int(survival[0][lasted == place][0])]
        steps = [ORIGINAL, *(known[name][level] for level in sorted(known[name]))]
        photos.append(BreakingPhoto(name, model, source, (ORIGINAL, steps[place], steps[place + 1]), int(ends[place])))
    return photos


_Survival = tuple[Floats, Floats, Floats, Floats]
"""Images that are right as they are; (images, severities) 1 if all answers so far are right; who comes back; who was
asked at every severity."""


def _severities(conditions: list[str]) -> dict[str, dict[int, str]]:
    """Return scenario → severity → condition, if there are enough severities for a curve."""
    grouped: dict[str, dict[int, str]] = {}
    for name in conditions:
        if match := _SEVERITY.fullmatch(name):
            grouped.setdefault(match["scenario"], {})[int(match["severity"])] = name
    return {name: levels for name, levels in grouped.items() if len(levels) >= LEAST_SEVERITIES}


def _survived(counts: Counts, model: str, outcome: Outcome, levels: dict[int, str]) -> _Survival | None:
    answers = from_counts(counts, model, outcome=outcome)
    answers = answers.part(answers.on(answers.base()))
    conditions = [ORIGINAL, *(levels[level] for level in sorted(levels))]
    right = np.stack([answers.shares(answers.under(condition)) for condition in conditions])
    whole = np.asarray(~np.isnan(right).any(axis=0))
    # The strongest severity with a right answer, and the weakest without one; the original is 0.
    step = np.arange(len(right))[:, None]
    last, first = np.where(right == 1, step, -1).max(axis=0), np.where(right < 1, step, len(right)).min(axis=0)
    known = (right[0] == 1) & (whole | (first - last == 1))
    if not known.any():
        return None
    fine, asked = (right[1:, known] == 1).T, whole[known]
    lasted = np.where(asked[:, None], np.logical_and.accumulate(fine, axis=1), first[known, None] > step[1:].T)
    back = (fine & ~lasted).any(axis=1)
    photos = np.flatnonzero(known)
    return photos.astype(np.float64), lasted.astype(np.float64), back.astype(np.float64), asked.astype(np.float64)


def _median(shares: Floats, levels: list[int]) -> Floats:
    """Return the first severity that half of the images or fewer survive, one more than the strongest if none."""
    fallen = shares <= 0.5
    place = np.where(fallen.any(axis=1), fallen.argmax(axis=1), len(levels))
    return np.array([*levels, levels[-1] + 1], np.float64)[place]


def _compared(
    first: _Survival, second: _Survival, pairs: int, resamples: int, seed: int
) -> tuple[int, float, float, float, bool]:
    """Return n, difference of means with its interval, and whether the order of two models turns with severity."""
    both, ours, theirs = np.intersect1d(first[0], second[0], return_indices=True)
    if not len(both):
        return 0, *NO_ESTIMATE, False
    gaps = first[1][ours] - second[1][theirs]
    drawn = resampled_sums(np.c_[gaps, np.ones(len(both))], both, resamples=resamples, seed=seed)
    shares = drawn[:, :-1] / drawn[:, -1:]
    # Bonferroni over severities and pairs; normal, since resamples have no such tails.
    reach = (
        t_quantile(len(both) - 1.0, 1 - 0.025 / (pairs * gaps.shape[1])) * shares.std(axis=0) if len(both) > 1 else 2
    )
    middle = gaps.mean(axis=0)
    turns = bool((middle - reach > 0).any() and (middle + reach < 0).any())
    return len(both), *_sum_of(middle, shares, len(both), CHANGE), turns


def _sum_of(curve: Floats, shares: Floats, photos: int, possible: Range) -> Estimate:
    """Return the number of severities survived, or a difference of it, from shares and their resamples."""
    mean, width = curve.mean(keepdims=True), curve.size
    low, high, _ = judged(mean, shares.mean(axis=1, keepdims=True) - mean, photos, possible=possible)
    return Estimate(*(float(width * end[0]) for end in (mean, low, high)))


def _sentence(points: pd.DataFrame, orders: pd.DataFrame) -> str:
    if points.empty:
        return "No scenario has three severities or more."
    worst = points.loc[[(points["mean"] / points["severities"]).idxmin()]].iloc[0]
    whole = int(points["whole"].sum())
    searched = whole < points["n"].sum()
    whom = f" of {whole:,} images asked at every severity" if searched else " of images"
    back = f"{percent(points['back'].sum() / whole, 0)}{whom} are right again after a failure." if whole else ""
    back += " The others were searched, their answers taken to be monotone." if searched else ""
    turned = int(orders["turns"].sum())
    order = f" The order of models turns with severity in {turned} of {len(orders)} comparisons." if len(orders) else ""
    shares = points["mean"] / points["severities"]
    if shares.min() >= 1:
        return f"No model breaks under any of these scenarios. {back}{order}".strip()
    soonest = "Soonest broken: " if shares.max() > shares.min() else ""
    return (
        f"{soonest}{worst['model']} under {worst['scenario']}, which survives {worst['mean']:.1f} of "
        f"{int(worst['severities'])} severities on average ({worst['mean_low']:.1f} to {worst['mean_high']:.1f}). "
        f"{back}{order}"
    )
