"""Resampling of whole clusters (images, donors, prompts), and what it costs: the one bootstrap of the package.

The rule: how often each of G clusters is drawn depends on the seed, on G and on the number of resamples, on nothing
else. So the same answers have the same interval in a report, on a board and in a notebook, and statistics of the same
images are resampled together. Clusters are numbered in sorted order. Every function takes ``resamples`` and ``seed``;
the defaults are ``RESAMPLES`` and 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.lazy import pd, scipy_sparse, scipy_special
from holdfast.core.types import RESAMPLES as RESAMPLES

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

Range = tuple[float, float]
SHARE: Range = (0.0, 1.0)
CHANGE: Range = (-1.0, 1.0)  # of a share
OF_CHANGES: Range = (-2.0, 2.0)  # differences of changes of a share
COUNT: Range = (0.0, float("inf"))
"""Where a quantity can be: no bound of an interval lies outside."""

Z = 1.959963984540054  # The 97.5 % quantile of the normal distribution

_BAGS = 5_000
_ELEMENTS = 2_000_000  # of a block of weights: 16 MB


class Estimate(NamedTuple):
    """A number with its interval, 95 % if nothing else is said."""

    value: float
    low: float
    high: float

    def row(self, name: str, prefix: str | None = None) -> dict[str, float]:
        """Return the columns ``name``, ``name_low`` and ``name_high`` of a table; ``prefix`` in place of ``name_``."""
        prefix = f"{name}_" if prefix is None else prefix
        return {name: self.value, f"{prefix}low": self.low, f"{prefix}high": self.high}

    def within(self, possible: Range) -> Estimate:
        """Return the estimate with an interval that stays in the range of the quantity; NaN stays NaN."""
        low, high = (float(end) for end in np.clip((self.low, self.high), *possible))
        return Estimate(self.value, low, high)


NO_ESTIMATE = Estimate(float("nan"), float("nan"), float("nan"))


def ratio(part: Floats, whole: Floats) -> Floats:
    """Return part / whole; NaN if ``whole`` is zero."""
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=np.asarray(whole) > 0))


def codes(labels: ArrayLike) -> tuple[Codes, int]:
    """Return labels as 0 … count − 1 in sorted order, and the count."""
    values = np.asarray(labels).reshape(-1)
    if values.dtype.kind not in "iu":
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
    """Return each image's weight in a mean of class means, (images,), and Satterthwaite's degrees of freedom."""
    every = np.bincount(stratum)
    sizes = every[every > 0]  # a stranger's table may have a label that no image keeps
    return np.asarray(1 / (every[stratum] * len(sizes))), float(strata_freedom(every[:, None])[0])


def strata_freedom(sizes: ArrayLike) -> Floats:
    """Return Satterthwaite's degrees of freedom of means of class means, (columns,); ``sizes``: (classes, columns)."""
    n = np.asarray(sizes, np.float64)
    variance = np.divide(1.0, n, out=np.zeros_like(n), where=n > 0)
    spent = (variance**2 / np.maximum(n - 1, 0.5)).sum(axis=0)
    return np.asarray(np.divide(variance.sum(axis=0) ** 2, spent, out=np.ones(n.shape[1]), where=spent > 0))


def t_quantile(freedom: float, share: float = 0.975) -> float:
    """Return a quantile of Student's t; infinite degrees of freedom are the normal distribution."""
    return float(scipy_special.ndtri(share)) if np.isinf(freedom) else float(scipy_special.stdtrit(freedom, share))


def unseen(photos: ArrayLike, level: float = 0.95) -> Floats:
    """Return the share of images that may differ although none of these does: 1 − α^(1/photos), α at one end."""
    return np.asarray(1 - ((1 - level) / 2) ** (1 / np.maximum(photos, 1)))


def resampled_sums(values: ArrayLike, clusters: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Return the sum of each column in resamples of whole clusters, (rows, columns) → (resamples, columns).

    Means, ratios and differences of means are computed from these sums. Rows of one cluster stay together.
    """
    table = np.asarray(values, np.float64)
    number, count = codes(clusters)
    return _one_way(_grouped(table.reshape(len(table), -1), number, count), resamples, seed)


def two_way(values: ArrayLike, clusters: ArrayLike, second: ArrayLike) -> tuple[list[Floats], float]:
    """Return sums over both kinds of clusters of residuals (mean 0) that depend within them, and their sum's variance.

    Cameron, Gelbach and Miller (2011): the variance over the first kind + over the second − over their cells, and never
    below the smaller of the first two. Sums over the second kind are the jackknife's, see ``others_share``.
    """
    column, (own, count), (other, other_count) = np.asarray(values, np.float64), codes(clusters), codes(second)
    rest = others_share(np.bincount(other, minlength=other_count) / max(len(other), 1))
    cells, cell_count = codes(own * np.intp(other_count) + other)
    grouped = [sums(own, column, count), sums(other, column, other_count) / rest]
    ours, theirs, both = (float(np.square(part).sum()) for part in (*grouped, sums(cells, column, cell_count)))
    return grouped, max(ours + theirs - both, min(ours, theirs))


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

    Two-way: the kind of cluster with the larger variance is resampled, and the result scaled to the two-way variance.
    Few clusters: stretched by √(G / (G − 1)) (two-way by the jackknife) and by the quantile of t with G − 1 degrees of
    freedom over the normal one, because a percentile interval from few clusters is too short. ``extra``: residuals of
    imagined clusters, each on its own, that do not count as observed ones. ``freedom``: at most so many degrees of
    freedom.
    """
    imagined = np.asarray(extra, np.float64)
    column, (number, count) = np.asarray(values, np.float64), codes(clusters)
    few = max(count - 1, 1)
    if second is None:
        parts = [np.append(sums(number, column, count), imagined)]
        total = float(np.square(parts[0]).sum()) * (few + 1) / few
    else:
        grouped, observed = two_way(column, clusters, second)
        parts = [np.append(part, imagined) for part in grouped]
        total, freedom = observed + float(np.square(imagined).sum()), min(freedom, cluster_freedom(second))
    variances = [float(np.square(part).sum()) for part in parts]
    widest = int(np.argmax(variances))
    if variances[widest] <= 0:
        return np.zeros(resamples)
    drawn = _one_way(parts[widest][:, None], resamples, seed)[:, 0] - parts[widest].sum()
    return np.asarray(drawn * np.sqrt(total / variances[widest]) * t_quantile(min(few, freedom)) / Z)


def donor_noise(values: Floats, photo: Codes, donor: Codes, column: Codes, columns: int) -> Floats:
    """Return what donors add to the noise of sums beyond what images do: rows whose products are its covariance.

    The two-way covariance (Cameron, Gelbach and Miller 2011) is that of images + that of donors − that of image ×
    donor. The rows, (at most columns, columns), hold the last two without negative eigenvalues, jackknifed and
    stretched for few donors as ``deviations`` is. ``values``: (cells,) what each cell adds to a sum's deviation from
    the truth.
    """
    lender, count = codes(donor)
    cell, cells = codes(photo * np.intp(count) + lender)
    by_cell = scipy_sparse.csr_array((values, (cell, column)), shape=(cells, columns))
    rows = sums(lender * np.intp(columns) + column, np.ones(len(values)), count * columns).reshape(count, columns)
    share = rows / np.maximum(rows.sum(axis=0), 1)
    by_donor = scipy_sparse.csr_array(
        (values / others_share(share)[lender, column], (lender, column)), shape=(count, columns)
    )
    variances, axes = np.linalg.eigh((by_donor.T @ by_donor).toarray() - (by_cell.T @ by_cell).toarray())
    stretch = np.array([t_quantile(_freedom(own)) / Z for own in share.T])
    kept = variances > 0
    return np.asarray((axes[:, kept] * np.sqrt(variances[kept])).T * stretch)


def lenders(donor: Codes, photo: Codes) -> Codes | None:
    """Return who lent each row its background: a donor, or the image itself if it has none (−1).

    None if there are no donors at all.
    """
    lent = donor >= 0
    return np.where(lent, donor, donor.max() + 1 + photo) if lent.any() else None


def join_lent(
    residual: Floats, part: Floats, photo: Codes, lent: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], Floats]:
    """Add cells without a donor (originals) to those of the same image that have one.

    So the sum over a donor holds whole differences, not only what the pasted scenes did. ``part``: the cell's share of
    its image. Returns which cells are left, and the residuals.
    """
    count = int(photo.max(initial=-1)) + 1
    parts = np.bincount(photo[lent], part[lent], count)
    alone = np.bincount(photo[~lent], residual[~lent], count)
    shared = np.divide(part, parts[photo], out=np.zeros_like(part), where=parts[photo] > 0)
    return lent | (parts[photo] == 0), residual + np.where(lent, alone[photo] * shared, 0.0)


def left_out(statistic: Callable[[Floats], Floats], cells: Floats, share: float = 1e-5) -> Floats:
    """Return by how much each cell moves a statistic of the cells' sum, (cells,): its slope as the cell weighs less.

    ``statistic``: (rows, columns) of sums → (rows,); ``cells``: (cells, columns); ``share``: how much less, 1: the
    statistic less that without the cell, 0 if nothing else is left.
    """
    whole = cells.sum(axis=0)
    return np.nan_to_num((statistic(whole[None]) - statistic(whole - share * cells)) / share)


class SharedClusters(NamedTuple):
    """What shared donors do to an interval that comes from resampled images.

    Attributes:
        stretch: the two-way standard error over that of images alone.
        freedom: the degrees of freedom that donors leave.
    """

    stretch: float = 1.0
    freedom: float = np.inf

    @property
    def factor(self) -> float:
        """Return the factor that widens a deviation from few images."""
        return self.stretch * t_quantile(self.freedom) / Z


NO_DONORS = SharedClusters()


def shared_donors(residuals: ArrayLike, photo: Codes, donor: Codes) -> SharedClusters:
    """Return what donors do to the interval of a statistic, from what each cell (image) adds to its deviation.

    For statistics that are not means, such as average precision or mIoU: their resamples of images are stretched to the
    two-way variance of their linear part. Cells of a difference that have no donor count with those of their image.
    """
    values, lent = np.asarray(residuals, np.float64), donor >= 0
    if not lent.any():
        return NO_DONORS
    number = codes(photo)[0]
    kept, values = join_lent(values, np.ones(len(values)), number, lent)
    lender = lenders(donor[kept], number[kept])
    assert lender is not None
    grouped, both = two_way(values[kept], number[kept], lender)
    alone = float(np.square(grouped[0]).sum())
    return SharedClusters(float(np.sqrt(both / alone)) if alone > 0 else 1.0, cluster_freedom(lender))


def others_share(share: Floats) -> Floats:
    """Return the share of all other clusters, by which a cluster's sum of residuals is too small (jackknife).

    Residuals are taken from a mean that the cluster itself has moved.
    """
    return np.asarray(np.maximum(1 - share, 0.05))


def cluster_freedom(clusters: ArrayLike) -> float:
    """Return degrees of freedom: one less than the number of even clusters that would vary as these do.

    That number is 1 / Σ (a cluster's share of the rows)² (Carter, Schnepel and Steigerwald 2017). At least 1.
    """
    rows = np.bincount(codes(clusters)[0])
    return _freedom(rows / rows.sum())


def _freedom(share: Floats) -> float:
    return max(1 / float(np.square(share).sum()) - 1, 1.0) if share.any() else float("inf")


def two_way_sums(parts: Floats, donors: Floats | None, *, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Return sums over resampled images, (resamples, columns), plus normal noise for donors."""
    moved = resampled_sums(parts, np.arange(len(parts)), resamples=resamples, seed=seed)
    if donors is None:
        return moved
    return moved + np.random.default_rng([seed, 1]).standard_normal((resamples, len(donors))) @ donors


def drawn_weights(count: int, resamples: int, seed: int = 0) -> NDArray[np.float32]:
    """Return how often each of ``count`` clusters is drawn in each resample, (count, resamples)."""
    number, drawn = _bags(np.arange(count), count, seed)
    return np.ascontiguousarray(_weights(drawn, resamples, seed).T.astype(np.float32)[number])


def interval(samples: ArrayLike, *, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return the percentile interval of resampled statistics, (resamples, …).

    NaN resamples (an empty class, say) are left out; if all are NaN, so are both ends.
    """
    values = np.asarray(samples, np.float64)
    shares = [(1 - level) / 2, 1 - (1 - level) / 2]
    if not np.isnan(values).any():
        low, high = np.quantile(values, shares, axis=0)
        return low, high
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        low, high = np.nanquantile(values, shares, axis=0)
    return low, high


def estimated(value: ArrayLike, samples: ArrayLike, *, level: float = 0.95) -> Estimate:
    """Return a number with the percentile interval of its resamples."""
    low, high = interval(samples, level=level)
    return Estimate(float(value), float(low), float(high))  # type: ignore[arg-type]


def adjusted_mean(
    value: float,
    size: float,
    residuals: ArrayLike,
    clusters: ArrayLike,
    second: ArrayLike | None = None,
    *,
    freedom: float = np.inf,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return a mean of differences of fractions (−1..1) with its interval, also if few or no images changed.

    The bootstrap of ``deviations``, with one imagined image that gains 1 and one that loses 1 (Bonett and Price's
    adjustment). ``size``: the effective number of images. ``residuals``: what each row adds to the mean's deviation.
    """
    shrunk = value * size / (size + 2)
    strayed = deviations(
        residuals, clusters, second, extra=[(1 - shrunk) / size, (-1 - shrunk) / size], freedom=freedom,
        resamples=resamples, seed=seed,
    )  # fmt: skip
    low, high = interval(shrunk + strayed * size / (size + 2), level=level)
    # the shrunk centre must not push the mean itself out of its interval
    return Estimate(value, min(float(low), value), max(float(high), value))


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
    normal either way; the work no longer grows with the number of images.
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


def paired_change(
    before: ArrayLike, after: ArrayLike, clusters: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Any]:
    """Return the mean of after − before, both fractions, with its interval; the two means; how many rose and fell.

    The interval is that of ``adjusted_mean`` over clusters.
    """
    first, second = (np.asarray(values, np.float64).reshape(-1) for values in (before, after))
    change, count = second - first, codes(clusters)[1]
    means, mean = (float("nan"), float("nan")), NO_ESTIMATE
    if len(change):
        means, value = (float(first.mean()), float(second.mean())), float(change.mean())
        residuals = (change - value) / len(change)
        mean = adjusted_mean(value, count, residuals, clusters, resamples=resamples, seed=seed).within(CHANGE)
    row = {"n": len(change), "prompts": count, "before": means[0], "after": means[1], **mean.row("estimate", "")}
    return row | {"gained": int((change > 0).sum()), "lost": int((change < 0).sum())}


def mcnemar(fell: ArrayLike, rose: ArrayLike) -> NDArray[np.float64]:
    """Return p of the exact McNemar test: was an image that changed as likely to fall as to rise?"""
    down, up = np.asarray(fell), np.asarray(rose)
    tail = scipy_special.bdtr(np.minimum(down, up).astype(np.float64), down + up, 0.5)
    return np.asarray(np.where(down + up > 0, np.minimum(1.0, 2 * tail), 1.0))
