"""Tests and bounds of a mean paired difference: exact for single answers, two-way for shared donors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from holdfast.core.lazy import scipy_optimize, scipy_special
from holdfast.stats.core.bootstrap import Codes, Floats, cluster_freedom, codes, lenders, sums, t_quantile
from holdfast.stats.core.bootstrap import two_way as two_way_sums

MOST_EXACT = 5_000  # Images up to which p-values are computed over all outcomes
MOST_CHANGED = 100  # Changed images up to which they are, however many images there are

LEAST_DONORS = 5
"""Donors that a test needs. From 5 on it is measured to keep its level; fewer hardly ever decide anything."""

TAIL = 0.05  # of each one-sided bound and test
_DOUBT = 0.02  # of the tail is spent on the nuisance parameter's interval (Berger and Boos 1994)
_POINTS = 15  # of the nuisance parameter
_NEAR = 1e-5  # to which bounds are computed: a hundredth of what is printed


@dataclass(frozen=True)
class Differences:
    """Differences new − old of images, and what each cell (image × donor) adds to them."""

    photos: Floats  # (images,) −1..1 if all images weigh the same
    photo: Codes  # (cells,) codes
    donor: Codes  # (cells,) codes, −1 if there is none
    value: Floats  # (cells,) the cell's part of its image's difference
    share: Floats  # (cells,) the cell's part of its image's rows, times the image's weight (1 on average)
    counted: bool = False  # differences of counts, which have no ends, instead of shares

    @classmethod
    def of(cls, photos: Floats, photo: Codes, donor: Codes, gain: Floats, rows: Floats) -> Differences:
        """Return differences of images from what each row gains; rows of one image and donor are one cell."""
        cell, cells = codes(photo * np.intp(donor.max() + 2) + donor + 1)
        owner, lender = np.zeros((2, cells), np.intp)
        owner[cell], lender[cell] = photo, donor
        return cls(photos, owner, lender, sums(cell, gain, cells), sums(cell, rows, cells))

    @property
    def donors(self) -> int:
        """Return the number of donors."""
        return len(np.unique(self.donor[self.donor >= 0]))

    @property
    def mean(self) -> float:
        """Return the mean over images."""
        return float(self.photos.mean())

    @property
    def weight(self) -> Floats:
        """Return the images' weights, (images,)."""
        return sums(self.photo, self.share, len(self.photos))

    @property
    def once(self) -> bool:
        """Return whether every image was answered once: it became better or worse, or stayed."""
        one_of_three = bool(np.isin(self.photos, (-1.0, 0.0, 1.0)).all())
        return one_of_three and not self.counted and bool(np.ptp(self.weight) < 1e-9)

    @property
    def better(self) -> int:
        """Return the number of images that became better."""
        return int((self.photos > 0).sum())

    @property
    def worse(self) -> int:
        """Return the number of images that became worse."""
        return int((self.photos < 0).sum())

    def turned(self) -> Differences:
        """Return the differences old − new."""
        return replace(self, photos=-self.photos, value=-self.value)


def of_photos(photos: Floats) -> Differences:
    """Return differences of images without donors."""
    count = len(photos)
    return Differences(photos, np.arange(count), np.full(count, -1), photos, np.ones(count))


def p_values(differences: Differences, null: float, *, tail: float = TAIL) -> tuple[float, float]:
    """Return one-sided p-values against "at most ``null``" and against "at least ``null``".

    Images that are right or wrong once have the exact test of Tango's statistic; others a t-test, which also allows
    for changes in a direction that no image took. With donors, the larger of that and of the two-way test: both have
    to reject. ``tail``: the level that the p-values are held against.
    """
    if differences.once:
        above, below = _once_p_values(differences, null, tail)
    else:
        above, below = _t_p_value(differences, null), _t_p_value(differences.turned(), -null)
    if differences.donors:
        mean, error, freedom = two_way(differences)
        z = (mean - null) / error
        above, below = max(above, t_tail(z, freedom)), max(below, t_tail(-z, freedom))
    return above, below


def bounds(differences: Differences, *, tail: float = TAIL) -> tuple[float, float]:
    """Return one-sided lower and upper bounds of the mean difference: the nulls that ``p_values`` just rejects.

    They depend on the images and on ``tail`` only. Fewer than ``LEAST_DONORS`` donors bound nothing.
    """
    ends = (-math.inf, math.inf) if differences.counted else (-1.0, 1.0)
    if 0 < differences.donors < LEAST_DONORS:
        return ends
    if differences.once:
        better, worse, n = differences.better, differences.worse, len(differences.photos)
        low, high = -_once_bound(worse, better, n, tail), _once_bound(better, worse, n, tail)
    else:
        low, high = -_t_bound(differences.turned(), tail), _t_bound(differences, tail)
    if differences.donors:
        mean, error, freedom = two_way(differences)
        reach = t_quantile(freedom, 1 - tail) * error
        low, high = min(low, mean - reach), max(high, mean + reach)
    return max(low, ends[0]), min(high, ends[1])


def _once_p_values(differences: Differences, null: float, tail: float) -> tuple[float, float]:
    n, better, worse = len(differences.photos), differences.better, differences.worse
    if _exact(better, worse, n):
        return exact_p_values(better, worse, n, null, tail=tail)
    z = score(better, worse, n, null)
    return t_tail(z, max(n - 1, 1)), t_tail(-z, max(n - 1, 1))


def _exact(better: int, worse: int, n: int) -> bool:
    return n <= MOST_EXACT or better + worse <= MOST_CHANGED


@lru_cache(maxsize=1 << 16)
def _once_bound(better: int, worse: int, n: int, tail: float) -> float:
    """Return the upper bound of the difference of images that were answered once."""
    if better == n:
        return 1.0
    limit = -t_quantile(float(max(n - 1, 1)), 1 - tail)
    ends = max((better - worse) / n, -1 + 1e-9), 1 - 1e-9
    near = _crossing(lambda null: max(score(better, worse, n, null), -1e6) - limit, ends)
    if not _exact(better, worse, n):
        return near

    def gap(null: float) -> float:
        p = exact_p_values(better, worse, n, null, tail=tail)[1]
        return float(scipy_special.ndtri(min(max(p, 1e-300), 1 - 1e-12)) - scipy_special.ndtri(tail))

    around = max(ends[0], near - 1 / n), min(ends[1], near + 1 / n)
    bracket = around if gap(around[0]) > 0 > gap(around[1]) else ends
    return min(_crossing(gap, bracket) + _NEAR, 1.0)


def _crossing(gap: Callable[[float], float], ends: tuple[float, float]) -> float:
    """Return where a falling function crosses 0, the upper end if it does not."""
    if gap(ends[1]) >= 0:
        return ends[1]
    return ends[0] if gap(ends[0]) <= 0 else float(scipy_optimize.brentq(gap, *ends, xtol=_NEAR))


def _t_p_value(differences: Differences, null: float) -> float:
    """Return the p-value against "at most ``null``" of images with several rows.

    If no image became worse, t sees nothing of those that could: below 0 the chance to draw none of them counts.
    """
    freedom = float(max(len(differences.photos) - 1, 1))
    p = t_tail(statistic(differences, null), freedom)
    if null >= 0 or differences.worse or differences.counted:
        return p
    unseen = float(max(1 + null, 0.0) ** _worth(differences))
    return max(p, min(unseen, t_tail(statistic(differences, 0.0), freedom)))


def _t_bound(differences: Differences, tail: float) -> float:
    """Return the upper bound that belongs to ``_t_p_value``."""
    mean, error = _shrunk(differences)
    high = mean + t_quantile(float(max(len(differences.photos) - 1, 1)), 1 - tail) * error
    if high < 0 or differences.better or differences.counted:
        return high
    return max(high, 1 - float(tail ** (1 / _worth(differences))))


def _worth(differences: Differences) -> float:
    """Return the number of images of even weight that these are worth."""
    weight = differences.weight
    return float(weight.sum() ** 2 / np.square(weight).sum())


def t_tail(z: float, freedom: float) -> float:
    """Return the upper tail of Student's t."""
    return float(scipy_special.stdtr(freedom, -z))


def exact_p_values(better: int, worse: int, n: int, null: float, *, tail: float = TAIL) -> tuple[float, float]:
    """Return p-values of Tango's statistic over all outcomes of n images, the worst over how many images change.

    The share of changed images is unknown: p is the largest over its interval, plus the chance that this misses: 0.001
    if p is held against a ``tail`` of 0.05 (Berger and Boos).
    """
    doubt, deviations = _DOUBT * tail, max(6.0, -float(scipy_special.ndtri(tail / 1e4)))
    observed = score(better, worse, n, null)
    changed = better + worse
    low = float(scipy_special.betaincinv(changed, n - changed + 1, doubt / 2)) if changed else 0.0
    high = float(scipy_special.betaincinv(changed + 1, n - changed, 1 - doubt / 2)) if changed < n else 1.0
    shares = (np.unique(np.clip(np.linspace(low, high, _POINTS), abs(null), 1.0)) + null) / 2  # of better images
    gains, losses = _window(shares, n, deviations), _window(shares - null, n, deviations)
    b, c = (table.reshape(-1) for table in np.meshgrid(gains, losses, indexing="ij"))
    b, c = b[b + c <= n], c[b + c <= n]
    z = scores(b, c, n, null)
    step = 1e-9 * max(1.0, abs(observed)) if math.isfinite(observed) else 0.0
    over, under = z >= observed - step, z <= observed + step
    ways = (
        scipy_special.gammaln(n + 1)
        - scipy_special.gammaln(b + 1)
        - scipy_special.gammaln(c + 1)
        - scipy_special.gammaln(n - b - c + 1)
    )
    above = below = 0.0
    for share in shares:
        cells = zip((b, c, n - b - c), (share, share - null, 1 - 2 * share + null), strict=True)
        terms = [np.where(count > 0, count * math.log(max(part, 1e-300)), 0.0) for count, part in cells]
        chance = np.exp(ways + sum(terms))
        above, below = max(above, float(chance[over].sum())), max(below, float(chance[under].sum()))
    return min(1.0, above + doubt), min(1.0, below + doubt)


def _window(shares: Floats, n: int, deviations: float) -> Floats:
    """Return the counts of n images that are likely under any of the shares: within so many standard deviations."""
    spread = deviations * np.sqrt(n * np.clip(shares * (1 - shares), 0, None)) + 4
    low, high = (n * shares - spread).min(), (n * shares + spread).max()
    return np.arange(max(0, math.floor(low)), min(n, math.ceil(high)) + 1, dtype=np.float64)


def statistic(differences: Differences, null: float) -> float:
    """Return how many standard errors the mean difference lies above ``null``.

    Differences of −1, 0 and 1 (images that became worse, stayed, became better) give Tango's score statistic; others,
    from images with several rows, a t-statistic with half an image better and half an image worse added, so that images
    which all agree do not pass for certainty.
    """
    if differences.once:
        return score(differences.better, differences.worse, len(differences.photos), null)
    mean, error = _shrunk(differences)
    return (mean - null) / error


def _shrunk(differences: Differences) -> tuple[float, float]:
    """Return mean and standard error with half an image better and half an image worse added.

    Counts have no ends that images could have reached: those half images are one off the mean, which stays.
    """
    n, mean = len(differences.photos), differences.mean
    spread = sums(differences.photo, differences.value - differences.share * mean, n)
    variance = (float(np.square(spread).sum()) + 1) / (n + 1)
    if not differences.counted:
        variance += n * mean**2 / (n + 1) ** 2
        mean *= n / (n + 1)
    return mean, math.sqrt(variance / n)


def two_way(differences: Differences) -> tuple[float, float, float]:
    """Return the mean if images share donors, its standard error, and degrees of freedom.

    The variance is the largest of images', donors' (the jackknife's) and the two-way one, with half an image better and
    half an image worse added. Degrees of freedom are those of as many donors of even use, or of the images if fewer.
    """
    n, (mean, _) = len(differences.photos), _shrunk(differences)
    residual = (differences.value - differences.share * differences.mean) / n
    lender = lenders(differences.donor, differences.photo)
    donor = differences.photo if lender is None else lender
    grouped, both = two_way_sums(residual, differences.photo, donor)
    variance = max(both, *(float(np.square(part).sum()) for part in grouped))
    return mean, math.sqrt(variance + 0.5 / n**2), max(min(n - 1, cluster_freedom(donor)), 1.0)


def score(better: float, worse: float, n: float, null: float) -> float:
    """Return Tango's score statistic of paired proportions for the hypothesis that the difference is δ = ``null``.

    z = (b − c − nδ) / √(n (2q + δ(1 − δ))) with b images better, c worse, and q the share of worse images most likely
    under the hypothesis: q = (√(B² − 8nC) − B)/(4n), B = −b − c + (2n − b + c)δ, C = −cδ(1 − δ).
    """
    return float(scores(np.array([better], np.float64), np.array([worse], np.float64), n, null)[0])


def scores(better: Floats, worse: Floats, n: float, null: float) -> Floats:
    """Return ``score`` of many outcomes."""
    linear = -better - worse + (2 * n - better + worse) * null
    constant = -worse * null * (1 - null)
    q = (np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0.0)) - linear) / (4 * n)
    variance = n * (2 * q + null * (1 - null))
    distance = better - worse - n * null
    flat = variance <= 1e-12 * n
    z = distance / np.sqrt(np.where(flat, 1.0, variance))
    certain = np.where(np.abs(distance) < 1e-9 * n, 0.0, np.copysign(np.inf, distance))
    return np.asarray(np.where(flat, certain, z))
