"""Costs fitted to measured trials: a fixed part, and a price per piece of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_DOUBT = 0.1
"""Least relative width of a range: machines are no steadier."""


@dataclass(frozen=True)
class CostForecast:
    """A forecast with its range.

    Attributes:
        value: the forecast of the fit to all trials.
        low: the least forecast of a fit without one of the trials, or a tenth less than ``value``.
        high: the largest of these forecasts, or a tenth more.
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
) -> CostForecast:
    """CostForecast the cost of ``wanted`` work: fixed + Σ price × amount, no part below zero, small relative errors.

    Args:
        measured: cost per trial.
        work: name → amount per trial.
        wanted: name → amount of the run.
        doubt: least relative distance of the range's ends from the value.
        fixed: whether there is a fixed part.
    """
    names = list(wanted)
    costs = np.array(measured, float)
    amounts = np.array([[float(fixed), *(amount[name] for name in names)] for amount in work])
    target = np.array([float(fixed), *(wanted[name] for name in names)])
    prices = _prices(amounts, costs)
    value = float(prices @ target)
    others = [
        float(_prices(np.delete(amounts, left, 0), np.delete(costs, left)) @ target)
        for left in range(len(costs))
        if len(costs) - 1 > len(names)
    ]
    return CostForecast(
        value=value,
        low=min([value * (1 - doubt), *others]),
        high=max([value * (1 + doubt), *others]),
        fixed=float(prices[0]),
    )


def _prices(amounts: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the fixed part and the price of each amount, none negative."""
    from scipy.optimize import nnls

    if not costs.any():
        return np.zeros(amounts.shape[1])
    # With relative errors small trials decide the fixed part, and large ones the price of an image.
    weights = 1 / np.maximum(costs, costs.max() * 1e-6)
    scale = np.maximum(np.abs(amounts).max(0), 1e-12)
    prices, _ = nnls(amounts / scale * weights[:, None], costs * weights)
    return np.asarray(prices / scale)
