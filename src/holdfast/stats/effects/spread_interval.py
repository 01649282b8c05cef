"""The interval of a sum of squared deviations, by inverting a bootstrap test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from holdfast.stats.core.bootstrap import Floats

Measure = Callable[[Floats], Floats]
"""Scaled deviations (…, m) → their spread (…): a sum of squares, one- or two-sided, or a sum of norms."""


def spread_interval(
    deviations: Floats,
    epsilon: Floats,
    covariance: Floats,
    value: Measure,
    *,
    reached: float | None = None,
    quadratic: bool = False,
) -> tuple[float, float]:
    """Return an interval for ``value(true deviations)`` by inverting a bootstrap test.

    The percentile interval of a sum of squares is useless: squaring noise moves every resample up. So: which true
    spreads s² make the observed one unsurprising? Under a hypothetical spread the deviations are s·u plus noise ε, u
    the observed direction, and the statistic is |s·u + ε|². u itself is noisy when little is lost; the variance κ =
    u'Σu along it is therefore debiased and, the weaker the signal, drawn towards its largest possible value.
    ``reached``: the observed value, moved up by half an image (answers come in steps). ``quadratic``: ``value`` is the
    plain sum of squares, which then need not be computed for every hypothesis.
    """
    observed = float(value(deviations))
    reached = observed if reached is None else reached
    if float(np.trace(covariance)) <= 1e-15:
        return observed, observed
    noise = _noise(deviations, epsilon, covariance, value, quadratic)
    few = 0.025 * len(epsilon)

    def surprisingly_large(size: float) -> bool:
        return int(np.count_nonzero(noise.simulated(size) >= observed)) <= few

    def large_enough(size: float) -> bool:
        return int(np.count_nonzero(noise.simulated(size) <= reached)) > few

    top = noise.top
    while large_enough(top):
        top *= 2
    low = _edge(surprisingly_large, 0.0, top) if surprisingly_large(0.0) else 0.0
    # Not monotone near zero, so the last size that is still plausible is looked for from above; top itself is not.
    grid = [float(size) for size in np.linspace(0, top, 21)]
    last = next((number for number in range(len(grid) - 2, -1, -1) if large_enough(grid[number])), None)
    high = 0.0 if last is None else _edge(large_enough, grid[last], grid[last + 1])
    return noise.unit * low**noise.power, noise.unit * high**noise.power


@dataclass(frozen=True)
class _Noise:
    """Spreads that a hypothetical size in the observed direction would show.

    ``simulated``: size → (resamples,); ``unit``: the spread of size 1; ``power``: 2 if the spread is a square of the
    size, 1 if it is a norm; ``top``: a size from which the upper end is looked for.
    """

    simulated: Callable[[float], Floats]
    unit: float
    power: int
    top: float


def _noise(deviations: Floats, epsilon: Floats, covariance: Floats, value: Measure, quadratic: bool) -> _Noise:
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
        crossed = 2 * projected + along
        squared = np.square(epsilon) @ np.ones(epsilon.shape[1])  # five times as fast as a sum over short rows
        return _Noise(lambda size: np.asarray(size**2 + size * crossed + squared), unit, 2, top)
    return _Noise(
        lambda size: np.asarray(value(size * direction + epsilon) + size * along), unit, 2 if squares else 1, top
    )


def _variance_along(deviations: Floats, covariance: Floats) -> float:
    """Return κ = d'Σd / d'd without noise; if noise drowns d, its largest value, so that the interval errs wide."""
    largest = float(np.linalg.eigvalsh(covariance)[-1])
    squared = float((covariance**2).sum())
    if largest <= 0:
        return 0.0
    signal = max(float(deviations @ deviations) - float(np.trace(covariance)), 0.0)
    along = max(float(deviations @ covariance @ deviations) - squared, 0.0)
    return min((along + squared) / (signal + squared / largest), largest)


def _edge(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return, by 30 bisections, the size between the two at which ``holds`` turns false."""
    for _ in range(30):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
