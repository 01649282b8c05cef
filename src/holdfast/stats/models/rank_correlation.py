"""Rank correlations of metrics over models, with intervals for other images and other models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.fingerprint import seed_from
from holdfast.stats.core.bootstrap import Floats, interval
from holdfast.stats.core.grid import holm
from holdfast.stats.models.between import kendall
from holdfast.stats.models.trainings import NO_ESTIMATE, Estimate

LEAST_MODELS = 4  # Fewer models give no interval: Bonett and Wright's divides by the number of models less three
CORRELATIONS = (
    "spearman", "low", "high", "images_low", "images_high", "least", "most", "tau", "tau_low", "tau_high",
)  # fmt: skip
"""The numbers that ``correlate`` returns, besides p and n."""


@dataclass(frozen=True)
class MetricValues:
    """The values of a metric: measured, (models,), and in resamples of images, (resamples, models)."""

    measured: Floats
    resampled: Floats
    more_is_better: bool = True

    def turned(self) -> tuple[Floats, Floats]:
        """Return measured and resampled values, turned so that more is better."""
        sign = 1.0 if self.more_is_better else -1.0
        return sign * self.measured, sign * self.resampled

    def reliability(self) -> float:
        """Return the share of the variance between models that is not the sampling of images, 0..1.

        A metric with little of it cannot correlate with anything. NaN where all models are equal.
        """
        known = np.isfinite(self.measured)
        total = float(self.measured[known].var(ddof=1)) if known.sum() > 1 else 0.0
        if total == 0:
            return float("nan")
        return max(0.0, 1 - float(np.nanvar(self.resampled[:, known], axis=0).mean()) / total)


def ratio(part: Floats, whole: Floats) -> Floats:
    """Divide; NaN where ``whole`` is zero."""
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=np.asarray(whole) > 0))


def mean_of(values: Sequence[MetricValues]) -> MetricValues:
    """Return the mean of several metrics of one kind, measured on independent images."""
    return MetricValues(
        np.mean([metric.measured for metric in values], axis=0),
        np.mean([metric.resampled for metric in values], axis=0),
    )


def spearman(first: Floats, second: Floats) -> Floats:
    """Return Spearman's ρ of each row, (rows, models) → (rows,), as Pearson's correlation of the ranks.

    Ties share their rank; NaN where all values are tied or one is NaN.
    """
    from scipy.stats import rankdata

    ranks = [rankdata(values, axis=1) for values in (first, second)]
    first_ranks, second_ranks = (values - values.mean(axis=1, keepdims=True) for values in ranks)
    together = (first_ranks * second_ranks).sum(axis=1)
    return ratio(together, np.sqrt((first_ranks**2).sum(axis=1) * (second_ranks**2).sum(axis=1)))


def _draw_models(models: int, resamples: int, seed: int) -> np.ndarray[Any, Any]:
    """Return which models each resample has, with replacement, (resamples, models)."""
    return np.random.default_rng(seed_from("models", seed)).integers(0, models, (resamples, models))


def bonett_wright(rho: float, models: int) -> tuple[float, float]:
    """Return the 95 % interval of Spearman's ρ over models: Fisher's z with Bonett and Wright's variance (2000).

    A perfect order would have no width; it gets that of an order with one pair of neighbours exchanged.
    """
    nearly = 1 - 12 / (models * (models**2 - 1))
    clipped = min(max(rho, -nearly), nearly)
    half = 1.959964 * np.sqrt((1 + clipped**2 / 2) / (models - 3))
    z = np.arctanh(clipped)
    return float(np.tanh(z - half)), float(np.tanh(z + half))


def correlate(first: MetricValues, second: MetricValues, *, seed: int = 0) -> dict[str, Any]:
    """Return the rank correlations of two metrics over models, both turned so that more is better.

    Returned: ``spearman`` with ``low`` and ``high``, for other images and other models: percentiles over resamples of
    both, at least as wide as Bonett and Wright's interval; ``images_low`` and ``images_high``: over images alone, these
    models fixed; ``least`` and ``most``: the extremes when one model is left out; ``tau`` with ``tau_low`` and
    ``tau_high``: Kendall's, over images and models; its exact ``p``; ``n`` models; ``reason`` where there is none.
    """
    (values, one_samples), (other, other_samples) = first.turned(), second.turned()
    known = np.flatnonzero(np.isfinite(values) & np.isfinite(other))
    values, other, n = values[known], other[known], len(known)
    empty: dict[str, Any] = dict.fromkeys((*CORRELATIONS, "p"), np.nan) | {"n": n, "reason": ""}
    if n < LEAST_MODELS:
        return empty | {"reason": f"{n} models have both; {LEAST_MODELS} or more are needed"}
    if np.ptp(values) == 0 or np.ptp(other) == 0:
        return empty | {"reason": "all models are equal in one of them"}
    one_samples, other_samples = one_samples[:, known], other_samples[:, known]
    rho = float(spearman(values[None], other[None])[0])
    images_low, images_high = _span(spearman(one_samples, other_samples))
    models = _draw_models(n, len(one_samples), seed)
    drawn = [np.take_along_axis(samples, models, axis=1) for samples in (one_samples, other_samples)]
    low, high = _span(spearman(*drawn))
    least_low, least_high = bonett_wright(rho, n)
    without = [spearman(np.delete(values, i)[None], np.delete(other, i)[None])[0] for i in range(n)]
    names = [str(i) for i in range(n)]
    ranked = kendall(
        dict(zip(names, values.tolist(), strict=True)), dict(zip(names, other.tolist(), strict=True)),
        first_samples=drawn[0], second_samples=drawn[1],
    )  # fmt: skip
    return empty | {
        "spearman": rho, "low": np.fmin(low, least_low), "high": np.fmax(high, least_high),
        "images_low": images_low, "images_high": images_high,
        "least": _extreme(without, min), "most": _extreme(without, max),
        "tau": ranked["tau"], "tau_low": ranked["low"], "tau_high": ranked["high"], "p": ranked["p"],
    }  # fmt: skip


def _span(samples: Floats) -> tuple[float, float]:
    known = samples[np.isfinite(samples)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = interval(known)
    return float(low), float(high)


def _extreme(values: Sequence[float], end: Callable[[list[float]], float]) -> float:
    known = [float(value) for value in values if np.isfinite(value)]
    return end(known) if known else float("nan")


def _with_models_drawn(values: Sequence[MetricValues], seed: int) -> list[tuple[Floats, Floats]] | None:
    """Return each metric as (1, models) and with models resampled, on the models that have all of them.

    None where fewer than ``LEAST_MODELS`` have.
    """
    turned = [metric.turned() for metric in values]
    known = np.flatnonzero(np.all([np.isfinite(measured) for measured, _ in turned], axis=0))
    if len(known) < LEAST_MODELS:
        return None
    models = _draw_models(len(known), len(turned[0][1]), seed)
    return [(measured[None, known], np.take_along_axis(drawn[:, known], models, axis=1)) for measured, drawn in turned]


def mean_correlation(values: Mapping[str, MetricValues], *, seed: int = 0) -> Estimate:
    """Return the mean of Spearman's ρ over all pairs of metrics, with its interval over images and models."""
    rows = _with_models_drawn(list(values.values()), seed)
    if rows is None or len(rows) < 2:
        return NO_ESTIMATE
    pairs = [(i, j) for j in range(len(rows)) for i in range(j)]
    measured = np.array([spearman(rows[i][0], rows[j][0])[0] for i, j in pairs])
    drawn = np.stack([spearman(rows[i][1], rows[j][1]) for i, j in pairs])
    known = np.isfinite(drawn)  # a resample may have one model only, or several that are equal
    means = ratio(np.where(known, drawn, 0.0).sum(axis=0), known.sum(axis=0).astype(np.float64))
    finite = measured[np.isfinite(measured)]
    return Estimate(float(finite.mean()) if len(finite) else float("nan"), *_span(means))


def correlates_more(predictor: MetricValues, base: MetricValues, target: MetricValues, *, seed: int = 0) -> Estimate:
    """Return by how much a metric correlates with a target more than another does, over images and models."""
    rows = _with_models_drawn([predictor, base, target], seed)
    if rows is None:
        return NO_ESTIMATE
    (first, first_drawn), (second, second_drawn), (aim, aim_drawn) = rows
    more = spearman(first, aim)[0] - spearman(second, aim)[0]
    return Estimate(float(more), *_span(spearman(first_drawn, aim_drawn) - spearman(second_drawn, aim_drawn)))


def with_holm(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with ``p_holm``: Kendall's p, corrected for the number of rows."""
    adjusted = holm(np.array([row["p"] for row in rows], np.float64))
    return [row | {"p_holm": float(p)} for row, p in zip(rows, adjusted, strict=True)]
