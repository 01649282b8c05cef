"""Which models are told apart, all claims holding together, and the ranks that follow; for two models or a thousand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.stats.core.bootstrap import RESAMPLES, Floats, Z, resampled_sums

_WORK = 6e7  # Differences of models looked at: a thousand models are compared in fewer resamples than ten

_LEAST = 250
_BLOCK = 1_000_000


def rank_ranges(
    value: Floats,
    low: Floats,
    high: Floats,
    influence: Floats,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first and the last rank each model may have, the largest value first.

    Two models are told apart where both say so: (1) ``clearly_better`` in resamples of photos that all models share,
    stretched where a model's own interval is wider than photos alone make it (because of shared donors, or few photos);
    (2) the interval of the difference that is joined from the two models' own intervals and the correlation of their
    errors (``beyond_reach``), which stays honest with few photos.

    ``value``: (models,) estimates. ``low``: (models,) of their 95 % intervals, NaN where there is none: such a model is
    told from no other. ``high``: (models,). ``influence``: (photos, models) what each photo adds to a value's deviation
    from the truth; 0 where a model did not answer.
    """
    moved = resampled_sums(influence, np.arange(len(influence)), resamples=resamples, seed=seed) - influence.sum(axis=0)
    own, by_photos = (high - low) / (2 * Z), np.sqrt(np.square(influence).sum(axis=0))
    moved *= np.fmax(1, np.divide(own, by_photos, out=np.ones(len(value)), where=(by_photos > 0) & np.isfinite(own)))
    better = clearly_better(value, moved, len(influence), level) & beyond_reach(value, low, high, influence)
    return ranks_of(better)


def ranks_of(better: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return first and last ranks from who is clearly better: 1 + those better, and the models − those worse."""
    return 1 + better.sum(axis=0), len(better) - better.sum(axis=1)


def clearly_better(value: Floats, moved: Floats, photos: int, level: float) -> NDArray[np.bool_]:
    """Return whether the row's model is better than the column's, (models, models), all claims holding together.

    A difference has to exceed ``simultaneous_widths``. Where no photo moves it, all photos agree: a sign test,
    Bonferroni over the pairs.

    ``value``: (models,) estimates. ``moved``: (resamples, models) their deviations in resamples of photos.
    """
    models = len(value)
    if models < 2:
        return np.zeros((models, models), bool)
    widths = simultaneous_widths(moved, level)
    certain = models * (models - 1) / 2 * 2.0 ** (1 - photos) < 1 - level
    gap = value[:, None] - value[None, :]
    return np.asarray((gap > 1e-12) & np.where(widths > 0, gap > widths, certain))


def simultaneous_widths(moved: Floats, level: float) -> Floats:
    """Return half widths of all differences of two columns, (columns, columns); 0 where a difference never moves.

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
