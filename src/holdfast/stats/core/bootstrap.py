"""Cluster bootstrap on sums, one-way and two-way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

RESAMPLES = 10_000
_BLOCK = 250  # resamples at a time, so that weights stay at 20 MB
_BAGS = 5_000
_DISTINCT = 500


def codes(labels: ArrayLike) -> tuple[Codes, int]:
    """Labels as 0 … count − 1 in sorted order, and the count."""
    import pandas as pd

    numbers, unique = pd.factorize(np.asarray(labels).reshape(-1), sort=True, use_na_sentinel=False)
    return numbers, len(unique)


def resampled_sums(
    values: ArrayLike,
    clusters: ArrayLike,
    *,
    second: ArrayLike | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Floats:
    """Sums of each column in resamples of whole clusters, (resamples, columns).

    A statistic that is a function of sums (a mean, a ratio, a difference of means) is computed from the columns of
    each row of the result. Rows of one cluster stay together, so repeated measures of one photo do not count as new
    photos.

    Args:
        values: (rows, columns).
        clusters: (rows,) the cluster of each row: the source photo.
        second: (rows,) a second cluster (the donor of a pasted scene). Where every cluster of one kind lies within a
            single one of the other (each photo pasted once), the wider kind is resampled, which is exact. Where they
            really cross, both are resampled and the weights multiply (Owen's pigeonhole bootstrap): never too
            narrow, and up to √3 times too wide where the rows' own noise dominates; ``deviations`` has no such
            excess for a statistic that is one sum.
        resamples: how many.
        seed: of the resampling.
    """
    from scipy.sparse import csr_array

    table = np.asarray(values, np.float64)
    table = table.reshape(len(table), -1)
    first, count = codes(clusters)
    rng = np.random.default_rng(seed)
    if second is None:
        return _one_way(_grouped(table, first, count), resamples, rng)
    other, other_count = codes(second)
    cells = codes(first * np.intp(other_count) + other)[1]
    if cells == count:
        return _one_way(_grouped(table, other, other_count), resamples, rng)
    if cells == other_count:
        return _one_way(_grouped(table, first, count), resamples, rng)
    first, count = _bags(first, count, rng)
    other, other_count = _bags(other, other_count, rng)
    matrices = [csr_array((column, (first, other)), shape=(count, other_count)).T.tocsr() for column in table.T]
    blocks = []
    pairs = zip(_weights(count, resamples, rng), _weights(other_count, resamples, rng), strict=True)
    for ours, theirs in pairs:
        products = [np.asarray(matrix @ ours.T) * theirs.T for matrix in matrices]
        blocks.append(np.stack([np.asarray(product.sum(axis=0)) for product in products], axis=1))
    return np.concatenate(blocks)


def cluster_variance(values: ArrayLike, clusters: ArrayLike, second: ArrayLike | None = None) -> float:
    """The variance of a sum of residuals (mean 0) that are dependent within clusters.

    One-way: Σ over clusters of (sum of its values)². Two-way (Cameron, Gelbach and Miller 2011): variance over the
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
    """How far a sum of residuals (mean 0) strays in resamples of whole clusters, (resamples,).

    Two-way: the kind of cluster with the larger variance is resampled, and the result scaled to the two-way
    variance. Few clusters: stretched by √(G / (G − 1)) and by the quantile of t with G − 1 degrees of freedom over the
    normal one (G the smaller number of clusters), as a percentile interval from few clusters is too short otherwise.

    Args:
        values: (rows,) residuals.
        clusters: (rows,) the cluster of each row.
        second: (rows,) a second cluster.
        extra: residuals of imagined clusters, each on its own, that do not count as observed ones.
        freedom: at most so many degrees of freedom (classes of few photos have fewer than there are photos).
        resamples: how many.
        seed: of the resampling.
    """
    from scipy.stats import norm, t

    imagined = np.asarray(extra, np.float64)
    column = np.append(np.asarray(values, np.float64), imagined)
    observed = [codes(clusters)] if second is None else [codes(clusters), codes(second)]
    kinds = [(np.append(n, count + np.arange(len(imagined))), count + len(imagined)) for n, count in observed]
    variances = [_variance(column, [kind]) for kind in kinds]
    widest = int(np.argmax(variances))
    if variances[widest] <= 0:
        return np.zeros(resamples)
    sums = _one_way(_grouped(column[:, None], *kinds[widest]), resamples, np.random.default_rng(seed))
    few = max(min(count for _, count in observed), 2)
    stretch = np.sqrt(_variance(column, kinds) / variances[widest] * few / (few - 1))
    return np.asarray(
        (sums[:, 0] - column.sum()) * stretch * float(t.ppf(0.975, min(few - 1, freedom)) / norm.ppf(0.975))
    )


def _variance(column: Floats, kinds: list[tuple[Codes, int]]) -> float:
    one_way = [float(np.square(np.bincount(number, column, count)).sum()) for number, count in kinds]
    if len(kinds) == 1:
        return one_way[0]
    (first, _), (other, other_count) = kinds
    cells, cell_count = codes(first * np.intp(other_count) + other)
    over_cells = float(np.square(np.bincount(cells, column, cell_count)).sum())
    return max(sum(one_way) - over_cells, min(one_way))


def _grouped(table: Floats, number: Codes, count: int) -> Floats:
    """Sums by cluster, (count, columns)."""
    return np.stack([np.bincount(number, column, count) for column in table.T], axis=1)


def _one_way(grouped: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Sums over resampled clusters.

    Clusters with equal sums need not be told apart: how often each distinct sum is drawn is multinomial, which for
    right and wrong answers leaves a handful of numbers to draw instead of one for each photo.
    """
    count = len(grouped)
    if len(np.unique(grouped[: 4 * _DISTINCT], axis=0)) <= _DISTINCT:  # sorting all would be in vain otherwise
        distinct, occurrences = np.unique(grouped, axis=0, return_counts=True)
        if len(distinct) <= min(_DISTINCT, count // 8):
            drawn = rng.multinomial(count, occurrences / count, size=resamples)
            return np.asarray(drawn @ distinct)
    number, bags = _bags(np.arange(count), count, rng)
    table = _grouped(grouped, number, bags)
    return np.concatenate([weights @ table for weights in _weights(bags, resamples, rng)])


def _bags(number: Codes, count: int, rng: np.random.Generator) -> tuple[Codes, int]:
    """Very many clusters, thrown together at random into 5,000 bags that are resampled in their place.

    Sums of independent clusters vary as much in bags as one by one (the variance is met to ±2 %), and so many are
    normal either way; the work no longer grows with the number of photos.
    """
    if count <= 2 * _BAGS:
        return number, count
    return (rng.permutation(count) % _BAGS)[number], _BAGS


def _weights(count: int, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """How often each cluster is drawn, (block, count), block by block; every row sums to ``count``."""
    for start in range(0, resamples, _BLOCK):
        block = min(_BLOCK, resamples - start)
        drawn = rng.integers(0, count, (block, count)) + np.arange(block)[:, None] * count
        yield np.bincount(drawn.reshape(-1), minlength=block * count).reshape(block, count).astype(np.float64)


def interval(samples: ArrayLike, *, level: float = 0.95, axis: int = 0) -> tuple[Floats, Floats]:
    """The percentile interval of resampled statistics; NaN resamples (an empty class, say) are left out."""
    tail = (1 - level) / 2
    low, high = np.nanquantile(np.asarray(samples, np.float64), [tail, 1 - tail], axis=axis)
    return low, high
