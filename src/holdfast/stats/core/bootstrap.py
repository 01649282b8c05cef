"""Resampling of whole clusters (photos, donors, prompts), and what it costs: the one bootstrap of the package.

The rule: how often each of G clusters is drawn depends on the seed, on G and on the number of resamples, on nothing
else. So the same answers have the same interval in a report, on a board and in a notebook, and statistics of the same
photos are resampled together. Clusters are numbered in sorted order. Every function takes ``resamples`` and ``seed``;
the defaults are ``RESAMPLES`` and 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.types import RESAMPLES as RESAMPLES

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

_BAGS = 5_000
_ELEMENTS = 2_000_000  # of a block of weights: 16 MB


def codes(labels: ArrayLike) -> tuple[Codes, int]:
    """Return labels as 0 … count − 1 in sorted order, and the count."""
    values = np.asarray(labels).reshape(-1)
    if values.dtype.kind not in "iu":
        import pandas as pd

        numbers, unique = pd.factorize(values, sort=True, use_na_sentinel=False)
        return numbers, len(unique)
    if not len(values):
        return values.astype(np.intp), 0
    least, most = int(values.min()), int(values.max())
    if most - least > 8 * len(values) + 1000:
        unique, numbers = np.unique(values, return_inverse=True)
        return numbers, len(unique)
    shifted = values - least if least else values
    place = np.cumsum(np.bincount(shifted) > 0)
    return (place - 1)[shifted], int(place[-1])


def sums(number: Codes, values: Floats, count: int) -> Floats:
    """Return the sum of the values of each code, (count,)."""
    return np.asarray(np.bincount(number, values, count), np.float64)


def stratum_weights(stratum: Codes) -> tuple[Floats, float]:
    """Return each photo's weight in a mean of class means, (photos,), and Satterthwaite's degrees of freedom.

    Args:
        stratum: (photos,) codes of classes, all 0 where every photo weighs the same.
    """
    every = np.bincount(stratum)
    sizes = every[every > 0]  # a stranger's table may have a label that no photo keeps
    freedom = float((1 / sizes).sum() ** 2 / (1 / (sizes**2 * np.maximum(sizes - 1, 0.5))).sum())
    return np.asarray(1 / (every[stratum] * len(sizes))), freedom


def t_quantile(freedom: float, share: float = 0.975) -> float:
    """Return a quantile of Student's t; infinite degrees of freedom are the normal distribution."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(share)) if np.isinf(freedom) else float(stdtrit(freedom, share))


def resampled_sums(
    values: ArrayLike,
    clusters: ArrayLike,
    *,
    second: ArrayLike | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Floats:
    """Return the sum of each column in resamples of whole clusters, (resamples, columns).

    A statistic that is a function of sums (a mean, a ratio, a difference of means) is computed from the columns of
    each row of the result. Rows of one cluster stay together: repeated measures of one photo are not new photos.

    Args:
        values: (rows, columns).
        clusters: (rows,) the cluster of each row, for example the source photo.
        second: (rows,) a second cluster, for example the donor of a pasted scene. Where every cluster of one kind
            lies within a single one of the other (each photo pasted once), the wider kind is resampled, which is
            exact. Where they cross, both are resampled and the weights multiply (Owen's pigeonhole bootstrap): never
            too narrow, and up to √3 times too wide where the rows' own noise dominates; ``deviations`` has no such
            excess for a statistic that is one sum.
        resamples: number of resamples.
        seed: seed of the resampling.
    """
    from scipy.sparse import csr_array

    table = np.asarray(values, np.float64)
    table = table.reshape(len(table), -1)
    first, count = codes(clusters)
    if second is None:
        return _one_way(_grouped(table, first, count), resamples, seed)
    other, other_count = codes(second)
    cells = codes(first * np.intp(other_count) + other)[1]
    if cells == count:
        return _one_way(_grouped(table, other, other_count), resamples, seed)
    if cells == other_count:
        return _one_way(_grouped(table, first, count), resamples, seed)
    first, count = _bags(first, count, seed)
    other, other_count = _bags(other, other_count, seed)
    matrices = [csr_array((column, (first, other)), shape=(count, other_count)).T.tocsr() for column in table.T]
    ours, theirs = _weights(count, resamples, seed), _weights(other_count, resamples, seed + 1)
    blocks = []
    for rows in _blocks(resamples, count + other_count):
        products = [np.asarray(matrix @ ours[rows].T.astype(float)) * theirs[rows].T for matrix in matrices]
        blocks.append(np.stack([np.asarray(product.sum(axis=0)) for product in products], axis=1))
    return np.concatenate(blocks)


def cluster_variance(values: ArrayLike, clusters: ArrayLike, second: ArrayLike | None = None) -> float:
    """Return the variance of a sum of residuals (mean 0) that are dependent within clusters.

    One-way: Σ over clusters of (sum of its values)². Two-way (Cameron, Gelbach and Miller 2011): the variance over the
    first kind + over the second − over their cells, and never below the smaller of the first two.
    """
    column = np.asarray(values, np.float64)
    kinds = [codes(clusters)] if second is None else [codes(clusters), codes(second)]
    return _variance(column, kinds)


def deviations(
    values: ArrayLike,
    clusters: ArrayLike,
    second: ArrayLike | None = None,
    *,
    extra: ArrayLike = (),
    freedom: float = np.inf,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Floats:
    """Return how far a sum of residuals (mean 0) strays in resamples of whole clusters, (resamples,).

    Two-way: the kind of cluster with the larger variance is resampled, and the result scaled to the two-way
    variance. Few clusters: stretched by √(G / (G − 1)) and by the quantile of t with G − 1 degrees of freedom over the
    normal one (G the smaller number of clusters), because a percentile interval from few clusters is too short.

    Args:
        values: (rows,) residuals.
        clusters: (rows,) the cluster of each row.
        second: (rows,) a second cluster.
        extra: residuals of imagined clusters, each on its own, that do not count as observed ones.
        freedom: at most so many degrees of freedom (classes of few photos have fewer than there are photos).
        resamples: number of resamples.
        seed: seed of the resampling.
    """
    imagined = np.asarray(extra, np.float64)
    column = np.append(np.asarray(values, np.float64), imagined)
    observed = [codes(clusters)] if second is None else [codes(clusters), codes(second)]
    kinds = [(np.append(n, count + np.arange(len(imagined))), count + len(imagined)) for n, count in observed]
    variances = [_variance(column, [kind]) for kind in kinds]
    widest = int(np.argmax(variances))
    if variances[widest] <= 0:
        return np.zeros(resamples)
    drawn = _one_way(_grouped(column[:, None], *kinds[widest]), resamples, seed)
    few = max(min(count for _, count in observed), 2)
    stretch = np.sqrt(_variance(column, kinds) / variances[widest] * few / (few - 1))
    return np.asarray((drawn[:, 0] - column.sum()) * stretch * t_quantile(min(few - 1, freedom)) / Z)


def drawn_weights(count: int, resamples: int, seed: int = 0) -> NDArray[np.float32]:
    """Return how often each of ``count`` clusters is drawn in each resample, (count, resamples).

    For statistics that are no function of sums; those of very many clusters are drawn in bags, as everywhere.
    """
    number, drawn = _bags(np.arange(count), count, seed)
    return np.ascontiguousarray(_weights(drawn, resamples, seed).T.astype(np.float32)[number])


def interval(samples: ArrayLike, *, level: float = 0.95, axis: int = 0) -> tuple[Floats, Floats]:
    """Return the percentile interval of resampled statistics.

    NaN resamples (an empty class, say) are left out; where all are NaN, so are both ends.
    """
    values = np.asarray(samples, np.float64)
    shares = [(1 - level) / 2, 1 - (1 - level) / 2]
    if not np.isnan(values).any():
        low, high = np.quantile(values, shares, axis=axis)
        return low, high
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        low, high = np.nanquantile(values, shares, axis=axis)
    return low, high


def _variance(column: Floats, kinds: list[tuple[Codes, int]]) -> float:
    one_way = [float(np.square(np.bincount(number, column, count)).sum()) for number, count in kinds]
    if len(kinds) == 1:
        return one_way[0]
    (first, _), (other, other_count) = kinds
    cells, cell_count = codes(first * np.intp(other_count) + other)
    over_cells = float(np.square(np.bincount(cells, column, cell_count)).sum())
    return max(sum(one_way) - over_cells, min(one_way))


def _grouped(table: Floats, number: Codes, count: int) -> Floats:
    """Return the sums per cluster, (count, columns)."""
    return np.stack([np.bincount(number, column, count) for column in table.T], axis=1)


def _one_way(grouped: Floats, resamples: int, seed: int) -> Floats:
    """Return sums over resampled clusters of what each cluster adds, (clusters, columns)."""
    if not len(grouped):
        return np.zeros((resamples, grouped.shape[1]))
    number, count = _bags(np.arange(len(grouped)), len(grouped), seed)
    table = grouped if count == len(grouped) else _grouped(grouped, number, count)
    weights = _weights(count, resamples, seed)
    return np.concatenate([weights[rows].astype(np.float64) @ table for rows in _blocks(resamples, count)])


def _bags(number: Codes, count: int, seed: int) -> tuple[Codes, int]:
    """Throw very many clusters together at random into 5,000 bags that are resampled in their place.

    Sums of independent clusters vary as much in bags as one by one (the variance is met to ±2 %), and so many are
    normal either way; the work no longer grows with the number of photos.
    """
    if count <= 2 * _BAGS:
        return number, count
    return (np.random.default_rng(seed).permutation(count) % _BAGS)[number], _BAGS


@lru_cache(maxsize=4)
def _weights(count: int, resamples: int, seed: int) -> NDArray[np.uint8]:
    """Return how often each cluster is drawn, (resamples, count); every row sums to ``count``. Kept: 20 MB at most."""
    rng = np.random.default_rng(seed)
    weights = np.empty((resamples, count), np.uint8)  # a cluster is drawn once on average, hardly ever ten times
    for rows in _blocks(resamples, count):
        size = rows.stop - rows.start
        drawn = rng.integers(0, count, (size, count)) + np.arange(size)[:, None] * count
        weights[rows] = np.bincount(drawn.reshape(-1), minlength=size * count).reshape(size, count)
    weights.flags.writeable = False
    return weights


def _blocks(resamples: int, count: int) -> Iterator[slice]:
    """Yield slices of resamples whose weights take 16 MB each."""
    step = max(1, _ELEMENTS // max(count, 1))
    for start in range(0, resamples, step):
        yield slice(start, min(start + step, resamples))
