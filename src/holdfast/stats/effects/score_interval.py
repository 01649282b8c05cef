"""An interval for a sum of squared deviations, where the usual bootstrap interval fails."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

import numpy as np

from holdfast.stats.core.bootstrap import Floats

Spread = Callable[[Floats], Floats]
"""Scaled deviations (…, m) → their spread (…): a sum of squares, one- or two-sided, or a sum of norms."""

Count = Callable[[float], int]


def spread_interval(
    deviations: Floats,
    epsilon: Floats,
    covariance: Floats,
    value: Spread,
    *,
    level: float = 0.95,
    quadratic: bool = False,
) -> tuple[float, float]:
    """An interval for ``value(true deviations)`` by inverting a bootstrap test.

    The percentile interval of a sum of squares is useless (squaring noise moves every resample up; it covers 0 % when
    nothing is lost). So: which true spreads s² make the observed one unsurprising? Under a hypothetical spread the
    deviations are s·u plus noise ε, u the observed direction, and the statistic is |s·u + ε|² = s² + 2s·u'ε + |ε|².
    u itself is noisy when little is lost; the variance κ = u'Σu along it is therefore debiased and, the weaker the
    signal, drawn towards its largest possible value. Coverage is 94–98 %, high where almost nothing is lost.

    Args:
        deviations: (m,) observed.
        epsilon: (resamples, m) resampled noise around them.
        covariance: (m, m) of the noise.
        value: of deviations (…, m); what the interval is for.
        level: of confidence.
        quadratic: ``value`` is the plain sum of squares, so that the spreads at which a resample meets the observed
            one are the roots of a parabola, and a hypothetical spread costs a look into sorted roots.
    """
    observed = float(value(deviations))
    if float(np.trace(covariance)) <= 1e-15:
        return observed, observed
    # Only what can count makes a direction: for one-sided spreads the losses.
    counted = deviations**2 > 0 if quadratic else np.array([float(value(row)) > 0 for row in np.diag(deviations)])
    if not counted.any():
        counted[:] = True
        deviations = -np.sqrt(np.maximum(np.diag(covariance), 0))
    direction = np.where(counted, deviations, 0.0)
    direction = direction / np.linalg.norm(direction)
    unit = float(value(direction))
    squares = quadratic or not np.isclose(float(value(2 * direction)), 2 * unit)
    projected = epsilon @ direction
    along = np.zeros(len(epsilon))
    if squares:  # a norm has no product of signal and noise that would need another variance
        wanted = _variance_along(deviations[counted], covariance[np.ix_(counted, counted)])
        had = float(direction @ covariance @ direction)
        along = 2 * (np.sqrt(wanted / had) - 1) * projected if had > 0 else along
    top = float(np.linalg.norm(deviations)) + float(np.sqrt(np.trace(covariance)))
    if quadratic:
        noise = np.square(epsilon) @ np.ones(epsilon.shape[1])  # five times as quick as a sum over short rows
        at_least, at_most = _meetings(2 * projected + along, noise - observed)
    else:

        def simulated(size: float) -> Floats:
            return np.asarray(value(size * direction + epsilon) + size * along)

        at_least, at_most = (
            lambda size: int(np.count_nonzero(simulated(size) >= observed)),
            lambda size: int(np.count_nonzero(simulated(size) <= observed)),
        )
    low, high = _unsurprising(at_least, at_most, (1 - level) / 2 * len(epsilon), top)
    power = 2 if squares else 1
    return unit * low**power, unit * high**power


def _unsurprising(at_least: Count, at_most: Count, few: float, top: float) -> tuple[float, float]:
    """The least and the largest size under which the observed spread is neither too large nor too small.

    Args:
        at_least: size → how many resamples under it are at least as large as what was observed.
        at_most: size → how many are at most as large.
        few: as many, or fewer, are a surprise.
        top: a size to begin with.
    """

    def surprisingly_large(size: float) -> bool:
        return at_least(size) <= few

    def large_enough(size: float) -> bool:
        return at_most(size) > few

    while large_enough(top):
        top *= 2
    low = _edge(surprisingly_large, 0.0, top) if surprisingly_large(0.0) else 0.0
    # Not monotone near zero, so the last size that is still plausible is looked for from above; top itself is not.
    grid = [float(size) for size in np.linspace(0, top, 21)]
    last = next((number for number in range(len(grid) - 2, -1, -1) if large_enough(grid[number])), None)
    return low, 0.0 if last is None else _edge(large_enough, grid[last], grid[last + 1])


def _meetings(crossed: Floats, rest: Floats) -> tuple[Count, Count]:
    """How many of the parabolas size² + size · crossed + rest are not below 0 at a size ≥ 0, how many not above it."""
    inside = crossed**2 - 4 * rest
    meets = inside >= 0
    half = np.sqrt(inside[meets])
    roots = [(sign * half - crossed[meets]) / 2 for sign in (-1, 1)]
    # only those that a size can pass are sorted: of the first roots hardly any
    falls, rises = (np.sort(one[one >= 0]).tolist() for one in roots)
    under = len(rises) - len(falls)  # not above 0 where sizes begin, but for those that pass it there

    def at_least(size: float) -> int:
        return len(crossed) - under - bisect_left(falls, size) + bisect_right(rises, size)

    def at_most(size: float) -> int:
        return under + bisect_right(falls, size) - bisect_left(rises, size)

    return at_least, at_most


def _variance_along(deviations: Floats, covariance: Floats) -> float:
    """κ = d'Σd / d'd without noise; where noise drowns d, its largest value, so that the interval errs wide."""
    largest = float(np.linalg.eigvalsh(covariance)[-1])
    squared = float((covariance**2).sum())
    if largest <= 0:
        return 0.0
    signal = max(float(deviations @ deviations) - float(np.trace(covariance)), 0.0)
    along = max(float(deviations @ covariance @ deviations) - squared, 0.0)
    return min((along + squared) / (signal + squared / largest), largest)


def _edge(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Between where ``holds`` is true and where it is not."""
    for _ in range(30):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
