"""Tests whether a mean paired difference lies above a null: exact for single answers, two-way for shared donors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from holdfast.core.lazy import scipy_optimize, scipy_special
from holdfast.stats.core.bootstrap import Codes, Floats, cluster_freedom, codes, lenders, sums, t_quantile
from holdfast.stats.core.bootstrap import two_way as two_way_sums

MOST_EXACT = 5_000  # Photos up to which p-values are computed over all outcomes

LEAST_DONORS = 5
"""Donors that a test needs. From 5 on it is measured to keep its level; fewer hardly ever decide anything."""

_DOUBT = 0.001  # of the nuisance parameter's interval (Berger and Boos 1994)
_POINTS = 15  # of the nuisance parameter


@dataclass(frozen=True)
class Differences:
    """Differences new − old of photos, and what each cell (photo × donor) adds to them."""

    photos: Floats  # (photos,) −1..1
    photo: Codes  # (cells,) codes
    donor: Codes  # (cells,) codes, −1 where there is none
    value: Floats  # (cells,) the cell's part of its photo's difference
    share: Floats  # (cells,) the cell's part of its photo's rows

    @classmethod
    def of(cls, photos: Floats, photo: Codes, donor: Codes, gain: Floats, rows: Floats) -> Differences:
        """Return differences of photos from what each row gains; rows of one photo and donor are one cell."""
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
        """Return the mean over photos."""
        return float(self.photos.mean())


def of_photos(photos: Floats) -> Differences:
    """Return differences of photos without donors."""
    count = len(photos)
    return Differences(photos, np.arange(count), np.full(count, -1), photos, np.ones(count))


def p_values(differences: Differences, null: float) -> tuple[float, float]:
    """Return one-sided p-values against "at most ``null``" and against "at least ``null``".

    Photos that are right or wrong once have the exact test of Tango's statistic, up to ``MOST_EXACT`` photos; others a
    t-test. With donors, the larger of that and of the two-way test: both have to reject.
    """
    above, below = _photo_p_values(differences.photos, null)
    if differences.donors:
        mean, error, freedom = two_way(differences)
        z = (mean - null) / error
        above, below = max(above, t_tail(z, freedom)), max(below, t_tail(-z, freedom))
    return above, below


def _photo_p_values(photos: Floats, null: float) -> tuple[float, float]:
    n = len(photos)
    if n <= MOST_EXACT and np.isin(photos, (-1.0, 0.0, 1.0)).all():
        return exact_p_values(int((photos > 0).sum()), int((photos < 0).sum()), n, null)
    z = statistic(photos, null)
    return t_tail(z, max(n - 1, 1)), t_tail(-z, max(n - 1, 1))


def bounds(differences: Differences, null: float, *, level: float = 0.95) -> tuple[float, float]:
    """Return one-sided lower and upper bounds of the mean difference, −1..1: the nulls that the test just rejects.

    The statistic is held against t with photos − 1 degrees of freedom, scaled so that at ``null`` the bounds say what
    the exact p-values say. With donors, the wider of these and of the two-way bounds.
    """
    photos = differences.photos
    freedom = float(max(len(photos) - 1, 1))
    limit, ends = t_quantile(freedom, level), (-1 + 1e-9, 1 - 1e-9)
    z, (above, below) = statistic(photos, null), _photo_p_values(photos, null)

    def solve(target: float) -> float:
        def gap(hypothesis: float) -> float:
            return float(np.clip(statistic(photos, hypothesis), -1e6, 1e6)) - target

        if gap(ends[0]) <= 0:
            return -1.0
        return 1.0 if gap(ends[1]) >= 0 else float(scipy_optimize.brentq(gap, *ends, xtol=1e-10))

    low, high = solve(limit * _calibration(z, above, freedom)), solve(-limit * _calibration(-z, below, freedom))
    if not photos.any():  # nothing changed: how many of all photos may change although none of these did, exactly
        unseen = 1 - (1 - level - _DOUBT) ** (1 / len(photos))
        low, high = min(low, -unseen), max(high, unseen)
    if differences.donors:
        mean, error, freedom = two_way(differences)
        reach = t_quantile(freedom, level) * error
        low, high = min(low, mean - reach), max(high, mean + reach)
    return max(low, -1.0), min(high, 1.0)


def _calibration(z: float, p: float, freedom: float) -> float:
    """Return the statistic over the one that would have the exact p-value; 1 where the test is far from rejecting."""
    exact = t_quantile(freedom, 1 - p)
    return z / exact if math.isfinite(z) and z > 0 and exact > 0.5 else 1.0


def t_tail(z: float, freedom: float) -> float:
    """Return the upper tail of Student's t."""
    return float(scipy_special.stdtr(freedom, -z))


def exact_p_values(better: int, worse: int, n: int, null: float) -> tuple[float, float]:
    """Return p-values of Tango's statistic over all outcomes of n photos, the worst over how many photos change.

    The share of changed photos is unknown: p is the largest over its 99.9 % interval, plus 0.001 (Berger and Boos).
    """
    observed = score(better, worse, n, null)
    changed = better + worse
    low = float(scipy_special.betaincinv(changed, n - changed + 1, _DOUBT / 2)) if changed else 0.0
    high = float(scipy_special.betaincinv(changed + 1, n - changed, 1 - _DOUBT / 2)) if changed < n else 1.0
    shares = (np.unique(np.clip(np.linspace(low, high, _POINTS), abs(null), 1.0)) + null) / 2  # of better photos
    gains, losses = _window(shares, n), _window(shares - null, n)
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
    return min(1.0, above + _DOUBT), min(1.0, below + _DOUBT)


def _window(shares: Floats, n: int) -> Floats:
    """Return the counts of n photos that are likely under any of the shares: within six standard deviations."""
    spread = 6 * np.sqrt(n * np.clip(shares * (1 - shares), 0, None)) + 4
    low, high = (n * shares - spread).min(), (n * shares + spread).max()
    return np.arange(max(0, math.floor(low)), min(n, math.ceil(high)) + 1, dtype=np.float64)


def statistic(photos: Floats, null: float) -> float:
    """Return how many standard errors the mean difference lies above ``null``.

    Differences of −1, 0 and 1 (photos that became worse, stayed, became better) give Tango's score statistic; others,
    from photos with several rows, a t-statistic with half a photo better and half a photo worse added, so that photos
    which all agree do not pass for certainty.
    """
    n = len(photos)
    if np.isin(photos, (-1.0, 0.0, 1.0)).all():
        return score(float((photos > 0).sum()), float((photos < 0).sum()), n, null)
    mean = float(photos.sum()) / (n + 1)
    variance = (float((photos**2).sum()) + 1) / (n + 1) - mean**2
    return (mean - null) / math.sqrt(variance / n)


def two_way(differences: Differences) -> tuple[float, float, float]:
    """Return the mean where photos share donors, its standard error, and degrees of freedom.

    The variance is the largest of photos', donors' (the jackknife's) and the two-way one, with half a photo better and
    half a photo worse added. Degrees of freedom are those of as many donors of even use, or of the photos if fewer.
    """
    n = len(differences.photos)
    mean = float(differences.photos.sum()) / (n + 1)
    residual = (differences.value - differences.share * differences.mean) / n
    lender = lenders(differences.donor, differences.photo)
    donor = differences.photo if lender is None else lender
    grouped, both = two_way_sums(residual, differences.photo, donor)
    variance = max(both, *(float(np.square(part).sum()) for part in grouped))
    return mean, math.sqrt(variance + 0.5 / n**2), max(min(n - 1, cluster_freedom(donor)), 1.0)


def score(better: float, worse: float, n: float, null: float) -> float:
    """Return Tango's score statistic of paired proportions for the hypothesis that the difference is δ = ``null``.

    z = (b − c − nδ) / √(n (2q + δ(1 − δ))) with b photos better, c worse, and q the share of worse photos most likely
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
