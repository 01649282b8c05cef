"""Means of counts per image, such as false alarms, and of their changes: intervals of any size of count.

The intervals of shares in ``bootstrap`` imagine an image that gains 1 and one that loses 1, which is right if an image
changes by 1 at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from holdfast.stats.core.bootstrap import (
    COUNT,
    Codes,
    Estimate,
    cluster_freedom,
    codes,
    lenders,
    sums,
    t_quantile,
    two_way,
)

_CHANGED = 2.0  # the least sum of squares: of one image that has one more, and one that has one less


def mean_count(values: ArrayLike, photo: ArrayLike, donor: Codes | None = None) -> Estimate:
    """Return a mean of counts with its 95 % interval.

    The score interval of a Poisson rate with the dispersion that is seen: all μ with |mean − μ| ≤ t √(φ μ / n), φ =
    n V / mean. It is never below zero, and longer upwards, because the distribution is skewed. Nothing counted: φ is 1.
    ``photo``, ``donor``: which images depend on each other; −1: no donor.
    """
    column = np.asarray(values, np.float64)
    value = float(column.mean())
    variance, t = _variance(column, photo, donor, least=min(_CHANGED, float(column.sum())))
    rate = variance / value if value else 1 / codes(photo)[1]  # of the variance to the mean: φ / n
    middle, half = value + t**2 * rate / 2, t * np.sqrt(rate * (value + t**2 * rate / 4))
    return Estimate(value, float(middle - half), float(middle + half)).within(COUNT)


def mean_change(values: ArrayLike, photo: ArrayLike, donor: Codes | None = None) -> Estimate:
    """Return a mean of differences of counts with its 95 % interval, mean ± t · standard error."""
    column = np.asarray(values, np.float64)
    value = float(column.mean())
    variance, t = _variance(column, photo, donor, least=_CHANGED)
    half = t * float(np.sqrt(variance))
    return Estimate(value, value - half, value + half)


def _variance(column: np.ndarray, photo: ArrayLike, donor: Codes | None, *, least: float) -> tuple[float, float]:
    """Return the variance of the mean, of images or two-way with donors, and the quantile of t for it.

    ``least``: the sum of squares that images have at least, so that images that all agree do not pass for certainty.
    """
    number, count = codes(photo)
    residual = (column - column.mean()) / len(column)
    few = max(count - 1, 1)
    lender = None if donor is None else lenders(donor, number)
    floor = least / max(count, 2) / max(count - 1, 1)
    if lender is None:
        return max(float(np.square(sums(number, residual, count)).sum()) * count / few, floor), t_quantile(few)
    _, variance = two_way(residual, number, lender)
    return max(variance, floor), t_quantile(min(few, cluster_freedom(lender)))
