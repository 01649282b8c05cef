"""Residuals of the regression: what the four plots need, and four tests of normality."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from holdfast.stats.core.bootstrap import Floats

if TYPE_CHECKING:
    import pandas as pd

RESIDUALS = ["model", "condition", "label", "fitted", "residual", "absolute", "quantile", "order"]
NORMALITY = ["test", "statistic", "p", "passed", "reason"]
_SHAPIRO_LIMIT = 5000  # above it, SciPy's p-value is not accurate
_NORMALITY_LEAST = 8  # fewest residuals that the test of skewness takes


def residual_table(place: pd.DataFrame, fitted: Floats, residual: Floats, deviation: float) -> pd.DataFrame:
    """Return what the four plots need: residuals, their size, normal quantiles, and the order of rows.

    ``quantile`` is that of a normal with this standard ``deviation`` at (rank − 0.5)/N.
    """
    from scipy import stats

    position = (stats.rankdata(residual, method="ordinal") - 0.5) / len(residual)
    columns = {
        "fitted": fitted,
        "residual": residual,
        "absolute": np.abs(residual),
        "quantile": deviation * stats.norm.ppf(position),
        "order": np.arange(1, len(residual) + 1),
    }
    return place.assign(**columns)[RESIDUALS]


def normality(residuals: Floats) -> pd.DataFrame:
    """Return four tests of normality: ``test``, ``statistic``, ``p``, ``passed`` (p ≥ .05), ``reason``."""
    import pandas as pd
    from scipy import stats
    from statsmodels.stats.diagnostic import lilliefors, normal_ad

    tests = {
        "D'Agostino–Pearson": stats.normaltest,
        "Anderson–Darling": normal_ad,
        "Shapiro–Wilk": stats.shapiro,
        "Kolmogorov–Smirnov (Lilliefors)": lilliefors,
    }
    rows = []
    for name, test in tests.items():
        reason = ""
        if len(residuals) < _NORMALITY_LEAST:
            reason = f"needs at least {_NORMALITY_LEAST} cells"
        elif np.ptp(residuals) <= 1e-12:
            reason = "the residuals are all the same"
        elif name == "Shapiro–Wilk" and len(residuals) > _SHAPIRO_LIMIT:
            reason = f"not accurate above {_SHAPIRO_LIMIT} cells"
        statistic, p = (np.nan, np.nan) if reason else test(residuals)
        rows.append((name, float(statistic), float(p), bool(p >= 0.05), reason))
    return pd.DataFrame(rows, columns=NORMALITY)
