"""Which models can be distinguished, all claims holding together, and their ranks, for any number of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.fingerprint import seed_from
from holdfast.core.lazy import scipy_stats
from holdfast.stats.core.bootstrap import (
    NO_ESTIMATE,
    RESAMPLES,
    Estimate,
    Floats,
    Z,
    estimated,
    interval,
    ratio,
    resampled_sums,
)
from holdfast.stats.core.grid import holm

_WORK = 6e7  # Differences of models looked at: a thousand models are compared in fewer resamples than ten

_LEAST = 250
_BLOCK = 1_000_000


def rank_ranges(
    value: Floats,
    low: Floats,
    high: Floats,
    influence: Floats,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first and the last rank each model may have, the largest value first.

    Two models are distinguished if both say so: (1) ``clearly_better`` in resamples of images that all models share,
    stretched if a model's own interval is wider than images alone make it; (2) the interval of the difference that
    is joined from the two models' own intervals and the correlation of their errors (``beyond_reach``), which stays
    honest with few images. ``influence``: (images, models) what each image adds to a value's deviation from the truth.
    """
    moved = resampled_sums(influence, np.arange(len(influence)), resamples=resamples, seed=seed) - influence.sum(axis=0)
    own, by_photos = (high - low) / (2 * Z), np.sqrt(np.square(influence).sum(axis=0))
    moved *= np.fmax(1, np.divide(own, by_photos, out=np.ones(len(value)), where=(by_photos > 0) & np.isfinite(own)))
    return ranks_of(clearly_better(value, moved, len(influence)) & beyond_reach(value, low, high, influence))


def ranks_of(better: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return first and last ranks from who is clearly better: 1 + those better, and the models − those worse."""
    return 1 + better.sum(axis=0), len(better) - better.sum(axis=1)


def clearly_better(value: Floats, moved: Floats, photos: int, level: float = 0.95) -> NDArray[np.bool_]:
    """Return whether the row's model is better than the column's, (models, models), all claims holding together.

    A difference has to exceed ``simultaneous_widths``. If no image moves it: a sign test, Bonferroni over the pairs.
    """
    models = len(value)
    if models < 2:
        return np.zeros((models, models), bool)
    widths = simultaneous_widths(moved, level)
    certain = models * (models - 1) / 2 * 2.0 ** (1 - photos) < 1 - level
    gap = value[:, None] - value[None, :]
    return np.asarray((gap > 1e-12) & np.where(widths > 0, gap > widths, certain))


def simultaneous_widths(moved: Floats, level: float = 0.95) -> Floats:
    """Return half widths of all differences of two columns, (columns, columns); 0 if a difference never moves.

    The ``level`` quantile of the largest deviation over all pairs, in units of each pair's own spread (max-t).
    """
    columns = moved.shape[1]
    covariance = np.atleast_2d(np.cov(moved, rowvar=False))
    own = np.diag(covariance)[:, None] + np.diag(covariance)[None, :]
    variance = own - 2 * covariance
    spread = np.sqrt(np.where(variance > 1e-12 * own, variance, 0.0))
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0).astype(np.float32)
    wanted = int(np.clip(_WORK / columns**2, _LEAST, len(moved)))
    step = max(1, _BLOCK // columns**2)
    largest = [
        ((rows[:, :, None] - rows[:, None, :]) * inverse).max(axis=(1, 2))
        for rows in np.array_split(moved[:wanted].astype(np.float32), -(-wanted // step))
    ]
    return np.asarray(np.quantile(np.concatenate(largest).astype(np.float64), level) * spread)


def beyond_reach(value: Floats, low: Floats, high: Floats, influence: Floats) -> NDArray[np.bool_]:
    """Return whether the 95 % interval of row − column, joined from the two own intervals, is above 0."""
    scale = np.sqrt((influence**2).sum(axis=0))
    product = np.outer(scale, scale)
    correlation = np.divide(influence.T @ influence, product, out=np.zeros_like(product), where=product > 0)
    below, above = (value - low)[:, None], (high - value)[None, :]
    with np.errstate(invalid="ignore"):  # an upper limit may be infinite: then nothing is apart
        reach = np.sqrt(np.maximum(below**2 + above**2 - 2 * np.clip(correlation, -1, 1) * below * above, 0))
    return np.asarray(value[:, None] - value[None, :] > np.where(np.isnan(reach), np.inf, reach))


LEAST_MODELS = 4  # Fewer models give no interval: Bonett and Wright's divides by the number of models less three
CORRELATIONS = (
    "spearman", "low", "high", "images_low", "images_high", "least", "most", "tau", "tau_low", "tau_high",
)  # fmt: skip
"""The numbers that ``correlate`` returns, apart from p and n."""


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

        A metric with little of it cannot correlate with anything. NaN if all models are equal.
        """
        known = np.isfinite(self.measured)
        total = float(self.measured[known].var(ddof=1)) if known.sum() > 1 else 0.0
        if total == 0:
            return float("nan")
        return max(0.0, 1 - float(np.nanvar(self.resampled[:, known], axis=0).mean()) / total)


def mean_of(values: Sequence[MetricValues]) -> MetricValues:
    """Return the mean of several metrics of one kind, measured on independent images."""
    return MetricValues(
        np.mean([metric.measured for metric in values], axis=0),
        np.mean([metric.resampled for metric in values], axis=0),
    )


def spearman(first: Floats, second: Floats) -> Floats:
    """Return Spearman's ρ of each row, (rows, models) → (rows,), as Pearson's correlation of the ranks.

    Ties share their rank; NaN if all values are tied or one is NaN.
    """
    ranks = [scipy_stats.rankdata(values, axis=1) for values in (first, second)]
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

    ``spearman`` with ``low`` and ``high``, for other images and other models: percentiles over resamples of both, at
    least as wide as Bonett and Wright's interval; ``images_low``, ``images_high``: over images alone; ``least``,
    ``most``: the extremes when one model is left out; ``tau``: Kendall's with its exact ``p``; ``reason`` if there
    is none.
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
    _, images_low, images_high = estimated(rho, spearman(one_samples, other_samples))
    models = _draw_models(n, len(one_samples), seed)
    drawn = [np.take_along_axis(samples, models, axis=1) for samples in (one_samples, other_samples)]
    _, low, high = estimated(rho, spearman(*drawn))
    least_low, least_high = bonett_wright(rho, n)
    without = np.array([spearman(np.delete(values, i)[None], np.delete(other, i)[None])[0] for i in range(n)])
    extremes = without[np.isfinite(without)] if np.isfinite(without).any() else without
    ranked = kendall_of((values, drawn[0]), (other, drawn[1]))
    return empty | {
        "spearman": rho, "low": np.fmin(low, least_low), "high": np.fmax(high, least_high),
        "images_low": images_low, "images_high": images_high,
        "least": float(extremes.min()), "most": float(extremes.max()),
        "tau": ranked["tau"], "tau_low": ranked["low"], "tau_high": ranked["high"], "p": ranked["p"],
    }  # fmt: skip


def _with_models_drawn(values: Sequence[MetricValues], seed: int) -> list[tuple[Floats, Floats]] | None:
    """Return each metric as (1, models) and with models resampled, on the models that have all of them.

    None if fewer than ``LEAST_MODELS`` have.
    """
    turned = [metric.turned() for metric in values]
    known = np.flatnonzero(np.all([np.isfinite(measured) for measured, _ in turned], axis=0))
    if len(known) < LEAST_MODELS:
        return None
    models = _draw_models(len(known), len(turned[0][1]), seed)
    return [(measured[None, known], np.take_along_axis(drawn[:, known], models, axis=1)) for measured, drawn in turned]


def mean_correlation(values: Mapping[str, MetricValues], *, seed: int = 0) -> Estimate:
    """Return the mean of Spearman's ρ over all pairs of metrics, with its interval over images and models.

    The interval is at least as wide as Bonett and Wright's, since resamples of few models may all have one order.
    """
    rows = _with_models_drawn(list(values.values()), seed)
    if rows is None or len(rows) < 2:
        return NO_ESTIMATE
    pairs = [(i, j) for j in range(len(rows)) for i in range(j)]
    measured = np.array([spearman(rows[i][0], rows[j][0])[0] for i, j in pairs])
    drawn = np.stack([spearman(rows[i][1], rows[j][1]) for i, j in pairs])
    known = np.isfinite(drawn)  # a resample may have one model only, or several that are equal
    means = ratio(np.where(known, drawn, 0.0).sum(axis=0), known.sum(axis=0).astype(np.float64))
    finite = measured[np.isfinite(measured)]
    if not len(finite):
        return NO_ESTIMATE
    mean, low, high = estimated(finite.mean(), means)
    least_low, least_high = bonett_wright(mean, rows[0][0].shape[1])
    return Estimate(mean, np.fmin(low, least_low), np.fmax(high, least_high))


def correlates_more(predictor: MetricValues, base: MetricValues, target: MetricValues, *, seed: int = 0) -> Estimate:
    """Return by how much a metric correlates with a target more than another does, over images and models."""
    rows = _with_models_drawn([predictor, base, target], seed)
    if rows is None:
        return NO_ESTIMATE
    (first, first_drawn), (second, second_drawn), (aim, aim_drawn) = rows
    more = spearman(first, aim)[0] - spearman(second, aim)[0]
    excess = estimated(more, spearman(first_drawn, aim_drawn) - spearman(second_drawn, aim_drawn))
    if excess.low < excess.high:
        return excess
    return Estimate(excess.value, np.nan, np.nan)  # no resample has another order


def with_holm(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with ``p_holm``: Kendall's p, corrected for the number of rows."""
    adjusted = holm(np.array([row["p"] for row in rows], np.float64))
    return [row | {"p_holm": float(p)} for row, p in zip(rows, adjusted, strict=True)]


def kendall(
    first: Mapping[str, float],
    second: Mapping[str, float],
    *,
    first_samples: Floats | None = None,
    second_samples: Floats | None = None,
) -> dict[str, float | int | str]:
    """Return Kendall's τ-b between two rankings of the same models, by score: 1 the same order, −1 the reverse.

    Only models in both count. ``first_samples``, ``second_samples``: (resamples, models) scores in the same resamples.
    Returned: ``tau``, ``low``, ``high`` (NaN without resamples), ``p`` (NaN of two models, of which it is always 1),
    ``n``, and the ``reason`` if there is no τ. A resample in which all models of a ranking are equal may have had
    any order: it counts as −1 for ``low`` and as 1 for ``high``. The interval is that of percentiles with its mirror
    image around τ, without which it covers too rarely.
    """
    names = [name for name in first if name in second]
    nan = float("nan")
    result: dict[str, float | int | str] = {"tau": nan, "low": nan, "high": nan, "p": nan, "n": len(names)}
    result["reason"] = ""
    if len(names) < 2:
        return result | {"reason": "An order needs at least two models in both rankings."}
    ours, theirs = (np.array([scores[name] for name in names]) for scores in (first, second))
    if np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return result | {"reason": "All models have the same score in one of the rankings: there is no order."}
    tau, p = scipy_stats.kendalltau(ours, theirs)
    result |= {"tau": float(tau), "p": float(p) if len(names) > 2 else nan}
    if first_samples is not None and second_samples is not None:
        at, to = ([list(scores).index(name) for name in names] for scores in (first, second))
        drawn = _taus(first_samples[:, at], second_samples[:, to])
        low, high = (interval(np.where(np.isnan(drawn), unknown, drawn))[end] for end, unknown in enumerate((-1, 1)))
        # Noise moves models of similar scores past each other, so resamples agree less than the models do: the interval
        # is the percentile one with its mirror image around τ.
        low, high = min(low, 2 * tau - high), max(high, 2 * tau - low)
        result |= {"low": max(float(low), -1.0), "high": min(float(high), 1.0)}
    return result


def kendall_of(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> dict[str, float | int | str]:
    """Return ``kendall`` of two measures, each (models,) and (resamples, models), over the models that have both."""
    known = np.flatnonzero(np.isfinite(first[0]) & np.isfinite(second[0]))
    scores = [{str(place): float(values[place]) for place in known} for values, _ in (first, second)]
    return kendall(*scores, first_samples=first[1][:, known], second_samples=second[1][:, known])


def _taus(ours: Floats, theirs: Floats) -> Floats:
    """Return τ-b of each row."""
    together, ordered_ours, ordered_theirs = (np.zeros(len(ours)) for _ in range(3))
    for a, b in combinations(range(ours.shape[1]), 2):
        x, y = np.sign(ours[:, a] - ours[:, b]), np.sign(theirs[:, a] - theirs[:, b])
        together += x * y
        ordered_ours += x != 0
        ordered_theirs += y != 0
    out = np.full(len(ours), np.nan)
    return np.asarray(
        np.divide(
            together, np.sqrt(ordered_ours * ordered_theirs), out=out, where=(ordered_ours > 0) & (ordered_theirs > 0)
        ),
        np.float64,
    )
