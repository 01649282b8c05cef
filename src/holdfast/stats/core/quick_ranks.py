"""Ranks of up to a thousand models on the same photos; those that are not told apart share them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.quick import resampled

_WORK = 6e7
"""Differences of models looked at: a thousand models are held against fewer resamples than ten."""

_LEAST = 250


def rank_ranges(
    value: Floats, low: Floats, high: Floats, influence: Floats, *, level: float = 0.95
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """From which to which rank each model may be, the largest value first; equal where it is told from all others.

    Two models are told apart where both say so: (1) their difference exceeds the ``level`` quantile of the largest
    deviation over all pairs, in units of each pair's own spread, in resamples of photos that all models share (max-t,
    as ``between.ranking``), so that all claims hold together; (2) the interval of the difference that is joined from
    the two models' own intervals and the correlation of their errors (as ``fmr_ranking``), which stays honest with few
    photos. A rank runs from 1 + the models clearly better to the models − those clearly worse.

    Args:
        value: (models,) estimates.
        low: (models,) of their 95 % intervals, NaN where there is none: such a model is told from no other.
        high: (models,).
        influence: (photos, models) what each photo adds to a value's deviation from the truth; 0 where a model did
            not answer.
        level: of the claims, all together.
    """
    models = len(value)
    better = np.zeros((models, models), bool)
    if models > 1:
        gap = value[:, None] - value[None, :]
        better = (gap > _largest(influence, level)) & (gap > _reach(value, low, high, influence)) & (gap > 1e-12)
    return 1 + better.sum(axis=0), models - better.sum(axis=1)


def _largest(influence: Floats, level: float) -> Floats:
    """(models, models) the difference that chance reaches anywhere with 1 − level."""
    photos, models = influence.shape
    moved = resampled(np.asarray(influence, np.float64)) - influence.sum(axis=0)
    covariance = np.cov(moved, rowvar=False)
    own = np.diag(covariance)[:, None] + np.diag(covariance)[None, :]
    variance = own - 2 * covariance
    spread = np.sqrt(np.where(variance > 1e-12 * own, variance, 0.0))
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0).astype(np.float32)
    wanted = int(np.clip(_WORK / models**2, _LEAST, len(moved)))
    found = np.empty(wanted)
    difference = np.empty((models, models), np.float32)
    for number, one in enumerate(moved[:wanted].astype(np.float32)):
        np.subtract(one[:, None], one[None, :], out=difference)
        np.multiply(difference, inverse, out=difference)
        found[number] = difference.max()
    # Where no photo moves a difference, all photos agree: a sign test, Bonferroni over the pairs.
    certain = models * (models - 1) / 2 * 2.0 ** (1 - photos) < 1 - level
    return np.asarray(np.where(spread > 0, np.quantile(found, level) * spread, 0.0 if certain else np.inf))


def _reach(value: Floats, low: Floats, high: Floats, influence: Floats) -> Floats:
    """(models, models) how far the row's value may lie above the column's by chance alone."""
    scale = np.sqrt((influence**2).sum(axis=0))
    product = np.outer(scale, scale)
    correlation = np.divide(influence.T @ influence, product, out=np.zeros_like(product), where=product > 0)
    below, above = (value - low)[:, None], (high - value)[None, :]
    reach = np.sqrt(np.maximum(below**2 + above**2 - 2 * np.clip(correlation, -1, 1) * below * above, 0))
    return np.asarray(np.where(np.isnan(reach), np.inf, reach))
