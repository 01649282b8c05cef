"""Costs from measured trials: a fixed part and a part for every piece of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_DOUBT = 0.1
"""No forecast is surer than this share of itself: machines are not."""


@dataclass(frozen=True)
class Estimate:
    """What is to be expected, and between what.

    Attributes:
        value: by the fit to all trials.
        low: the least that a fit without one of them says, or a tenth less than ``value``.
        high: the most, or a tenth more.
        fixed: the part of ``value`` that does not grow with the work.
    """

    value: float
    low: float
    high: float
    fixed: float


def estimate(
    measured: Sequence[float],
    work: Sequence[Mapping[str, float]],
    wanted: Mapping[str, float],
    *,
    doubt: float = LEAST_DOUBT,
    fixed: bool = True,
) -> Estimate:
    """What ``wanted`` work costs, given what other amounts of it cost.

    Cost = fixed + Σ price × amount, no part below zero, fitted so that relative errors are small.

    Args:
        measured: a cost a trial.
        work: the amounts of each trial, by name.
        wanted: the amounts of the run, with the same names.
        doubt: share of the value that the range is at least away from it.
        fixed: whether there is such a part.
    """
    names = list(wanted)
    costs = np.array(measured, float)
    amounts = np.array([[float(fixed), *(one[name] for name in names)] for one in work])
    target = np.array([float(fixed), *(wanted[name] for name in names)])
    prices = _prices(amounts, costs)
    value = float(prices @ target)
    others = [
        float(_prices(np.delete(amounts, left, 0), np.delete(costs, left)) @ target)
        for left in range(len(costs))
        if len(costs) - 1 > len(names)
    ]
    return Estimate(
        value=value,
        low=min([value * (1 - doubt), *others]),
        high=max([value * (1 + doubt), *others]),
        fixed=float(prices[0]),
    )


def _prices(amounts: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fixed part and price of each amount, none negative."""
    from scipy.optimize import nnls

    if not costs.any():
        return np.zeros(amounts.shape[1])
    # Relative errors count, so that the small trials say what is fixed and the large ones what an image costs.
    weights = 1 / np.maximum(costs, costs.max() * 1e-6)
    scale = np.maximum(np.abs(amounts).max(0), 1e-12)
    found, _ = nnls(amounts / scale * weights[:, None], costs * weights)
    return np.asarray(found / scale)
