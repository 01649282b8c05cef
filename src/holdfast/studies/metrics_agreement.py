"""How far metrics agree about models: values in resamples of images, and rank correlations with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.seeds import seed_from
from holdfast.report.page.tables import Kind
from holdfast.stats.core.bootstrap import Floats, interval
from holdfast.stats.core.grid import holm
from holdfast.stats.models.between import kendall

RESAMPLES = 2000
LEAST_MODELS = 4
"""Fewer have no interval: Bonett and Wright's divides by the number of models less three."""


@dataclass(frozen=True)
class Metric:
    """Something that puts a number on every model.

    Attributes:
        key: in tables.
        title: on the page.
        what: it is, in a few words.
        data: which images; metrics of the same data are resampled together.
        clusters: (images,) what is resampled as a whole: the scene, the photo or the prompt.
        parts: (images, models, parts); ``value`` takes their sums over images.
        value: (…, models, parts) → (…, models), NaN where there is none.
        more_is_better: whether a robust model has more of it.
        kind: how it is shown, ``percent``, ``points`` or ``number``.
    """

    key: str
    title: str
    what: str
    data: str
    clusters: Sequence[str]
    parts: Floats
    value: Callable[[Floats], Floats]
    more_is_better: bool = True
    kind: Kind = "percent"


@dataclass(frozen=True)
class Values:
    """A metric's values: as they were found, (models,), and in resamples of images, (resamples, models).

    ``better`` has them turned so that more is better.
    """

    found: Floats
    resampled: Floats
    more_is_better: bool = True

    def better(self) -> tuple[Floats, Floats]:
        """Found and resampled, less being worse."""
        sign = 1.0 if self.more_is_better else -1.0
        return sign * self.found, sign * self.resampled

    def reliability(self) -> float:
        """The share of the variance between models that is not the sampling of images, 0..1; NaN where all are equal.

        What is measured with little of it cannot correlate with anything.
        """
        known = np.isfinite(self.found)
        total = float(self.found[known].var(ddof=1)) if known.sum() > 1 else 0.0
        if total == 0:
            return float("nan")
        return max(0.0, 1 - float(np.nanvar(self.resampled[:, known], axis=0).mean()) / total)


def over(part: Floats, whole: Floats) -> Floats:
    """A ratio; NaN where it would divide by zero."""
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=np.asarray(whole) > 0))


def share(sums: Floats) -> Floats:
    """The value of a metric whose parts are (1, how much of it), or a count and those of it that hit."""
    return over(sums[..., 1], sums[..., 0])


def corrected_score(sums: Floats) -> Floats:
    """1 − the cross part of the robustness score, without the sampling noise that squaring adds.

    The parts are 1, the differences from the original of each condition, and their squares: the mean square distance
    d̄² is lessened by its own variance, s²/n. It equals the mean of ``seeds.pseudo_values``.
    """
    n = sums[..., :1]
    mean, square = np.split(over(sums[..., 1:], np.broadcast_to(n, sums[..., 1:].shape)), 2, axis=-1)
    noise = over(square - mean**2, np.broadcast_to(n - 1, mean.shape))
    return np.asarray(1 - (mean**2 - noise).mean(-1))


def resample(metrics: Sequence[Metric], *, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Values]:
    """Every metric as found and in resamples of images; metrics of the same data see the same resamples."""
    found: dict[str, Values] = {}
    for data in dict.fromkeys(metric.data for metric in metrics):
        own = [metric for metric in metrics if metric.data == data]
        places = {name: place for place, name in enumerate(sorted({one for m in own for one in m.clusters}))}
        rng = np.random.default_rng(seed_from("metrics", seed, data))
        drawn = rng.multinomial(len(places), np.full(len(places), 1 / len(places)), size=resamples)
        for metric in own:
            at = [places[name] for name in metric.clusters]
            images, models, parts = metric.parts.shape
            sums = drawn[:, at].astype(np.float64) @ metric.parts.reshape(images, -1)
            values = metric.value(sums.reshape(resamples, models, parts))
            found[metric.key] = Values(metric.value(metric.parts.sum(axis=0)), values, metric.more_is_better)
    return found


def mean_of(values: Sequence[Values]) -> Values:
    """The mean of several metrics of one kind, on images that have nothing to do with each other."""
    return Values(
        np.mean([one.found for one in values], axis=0), np.mean([one.resampled for one in values], axis=0)
    )  # fmt: skip


def spearman(first: Floats, second: Floats) -> Floats:
    """Spearman's ρ of each row, (rows, models) → (rows,); ties share their rank, NaN where all are tied or one is NaN.

    Pearson's correlation of the ranks.
    """
    from scipy.stats import rankdata

    ranks = [rankdata(values, axis=1) for values in (first, second)]
    one, other = (values - values.mean(axis=1, keepdims=True) for values in ranks)
    together = (one * other).sum(axis=1)
    return over(together, np.sqrt((one**2).sum(axis=1) * (other**2).sum(axis=1)))


def draw_models(models: int, *, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray[Any, Any]:
    """(resamples, models) which models each resample has, with replacement."""
    return np.random.default_rng(seed_from("models", seed)).integers(0, models, (resamples, models))


def bonett_wright(found: float, models: int) -> tuple[float, float]:
    """The 95 % interval of Spearman's ρ over models: Fisher's z with Bonett and Wright's variance (2000).

    A perfect order would have no width; it gets that of an order with one pair of neighbours exchanged.
    """
    nearly = 1 - 12 / (models * (models**2 - 1))
    clipped = min(max(found, -nearly), nearly)
    half = 1.959964 * np.sqrt((1 + clipped**2 / 2) / (models - 3))
    z = np.arctanh(clipped)
    return float(np.tanh(z - half)), float(np.tanh(z + half))


def correlate(first: Values, second: Values, *, seed: int = 0) -> dict[str, Any]:
    """The rank correlations of two metrics over models, both turned so that more is better.

    Returns:
        ``spearman`` with ``low`` and ``high``, for other images and other models: percentiles over resamples of both,
        and nowhere inside Bonett and Wright's interval; ``images_low`` and ``images_high``: over images alone, these
        models fixed; ``least`` and ``most``: the extremes when one model is left out; ``tau`` with ``tau_low`` and
        ``tau_high``: Kendall's, over images and models; its exact ``p``; ``n`` models; ``reason`` where there is none.
    """
    (one, one_samples), (other, other_samples) = first.better(), second.better()
    known = np.flatnonzero(np.isfinite(one) & np.isfinite(other))
    one, other, n = one[known], other[known], len(known)
    empty: dict[str, Any] = dict.fromkeys((*MEASURED, "p"), np.nan) | {"n": n, "reason": ""}
    if n < LEAST_MODELS:
        return empty | {"reason": f"{n} models have both; {LEAST_MODELS} or more are needed"}
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return empty | {"reason": "all models are equal in one of them"}
    one_samples, other_samples = one_samples[:, known], other_samples[:, known]
    found = float(spearman(one[None], other[None])[0])
    images_low, images_high = _span(spearman(one_samples, other_samples))
    models = draw_models(n, resamples=len(one_samples), seed=seed)
    drawn = [np.take_along_axis(samples, models, axis=1) for samples in (one_samples, other_samples)]
    low, high = _span(spearman(*drawn))
    least_low, least_high = bonett_wright(found, n)
    without = [spearman(np.delete(one, i)[None], np.delete(other, i)[None])[0] for i in range(n)]
    names = [str(i) for i in range(n)]
    ranked = kendall(
        dict(zip(names, one.tolist(), strict=True)), dict(zip(names, other.tolist(), strict=True)),
        first_samples=drawn[0], second_samples=drawn[1],
    )  # fmt: skip
    return empty | {
        "spearman": found, "low": np.fmin(low, least_low), "high": np.fmax(high, least_high),
        "images_low": images_low, "images_high": images_high,
        "least": _extreme(without, min), "most": _extreme(without, max),
        "tau": ranked["tau"], "tau_low": ranked["low"], "tau_high": ranked["high"], "p": ranked["p"],
    }  # fmt: skip


MEASURED = (
    "spearman", "low", "high", "images_low", "images_high", "least", "most", "tau", "tau_low", "tau_high",
)  # fmt: skip
"""The numbers of ``correlate``, but for p and n."""


def _span(samples: Floats) -> tuple[float, float]:
    known = samples[np.isfinite(samples)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = interval(known)
    return float(low), float(high)


def _extreme(values: Sequence[float], end: Callable[[list[float]], float]) -> float:
    known = [float(value) for value in values if np.isfinite(value)]
    return end(known) if known else float("nan")


def mean_correlation(values: Mapping[str, Values], *, seed: int = 0) -> tuple[float, float, float]:
    """The mean of Spearman's ρ over all pairs of metrics, with its interval over images and models.

    Models that lack one of the metrics are left out.
    """
    better = [one.better() for one in values.values()]
    known = np.flatnonzero(np.all([np.isfinite(found) for found, _ in better], axis=0))
    if len(known) < LEAST_MODELS or len(better) < 2:
        return (float("nan"),) * 3
    resamples = len(better[0][1])
    models = draw_models(len(known), resamples=resamples, seed=seed)
    rows = [(found[None, known], np.take_along_axis(drawn[:, known], models, axis=1)) for found, drawn in better]
    pairs = [(i, j) for j in range(len(rows)) for i in range(j)]
    found = np.array([spearman(rows[i][0], rows[j][0])[0] for i, j in pairs])
    drawn = np.stack([spearman(rows[i][1], rows[j][1]) for i, j in pairs])
    known_pairs = np.isfinite(drawn)  # a resample may have one model only, or several that are equal
    means = over(np.where(known_pairs, drawn, 0.0).sum(axis=0), known_pairs.sum(axis=0).astype(np.float64))
    return (float(np.mean(found[np.isfinite(found)])) if np.isfinite(found).any() else float("nan")), *_span(means)


def more_than(predictor: Values, base: Values, target: Values, *, seed: int = 0) -> tuple[float, float, float]:
    """By how much a metric correlates with a target more than another does, over images and models."""
    values = [one.better() for one in (predictor, base, target)]
    known = np.flatnonzero(np.all([np.isfinite(found) for found, _ in values], axis=0))
    if len(known) < LEAST_MODELS:
        return (float("nan"),) * 3
    models = draw_models(len(known), resamples=len(values[0][1]), seed=seed)
    found = [one[None, known] for one, _ in values]
    drawn = [np.take_along_axis(samples[:, known], models, axis=1) for _, samples in values]
    more = spearman(found[0], found[2])[0] - spearman(found[1], found[2])[0]
    return float(more), *_span(spearman(drawn[0], drawn[2]) - spearman(drawn[1], drawn[2]))


def with_holm(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with ``p_holm``: Kendall's p, corrected for as many rows as there are."""
    adjusted = holm(np.array([row["p"] for row in rows], np.float64))
    return [row | {"p_holm": float(p)} for row, p in zip(rows, adjusted, strict=True)]
