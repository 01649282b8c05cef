"""What each scenario adds to the two parts of the robustness score, as the paper's second table has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import RESAMPLES, Floats, resampled_sums
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.score_design import Average, design_of, score_cells
from holdfast.stats.effects.score_interval import spread_interval

if TYPE_CHECKING:
    import pandas as pd

WHOLE = ""
"""The condition of a whole part's row."""

COLUMNS = ["model", "part", "condition", "accuracy", "deviation", "squared", "low", "high"]


def score_parts(
    counts: Counts,
    *,
    conditions: Sequence[str] | None = None,
    outcome: Outcome = "full",
    average: Average = "macro",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """A row per model × part × condition, and one with the condition WHOLE for the part itself.

    ``part``: ``cross`` (trained on originals) or ``inner`` (trained within); ``accuracy`` C(i) or C′(i), ``deviation``
    from μ, ``squared``: (C(i) − μ)², and for a whole part the variance, their mean. ``low`` and ``high``: the 95 %
    interval of ``squared``: of a whole part made like the score's, of one condition the square of its deviation's
    interval over resampled photos. Models without a score are left out. Options as of
    ``stats.effects.score.scores``.
    """
    import pandas as pd

    cells = score_cells(counts, conditions, outcome)
    rows: list[dict[str, Any]] = []
    for model in counts.models:
        try:
            design = design_of(cells[cells["model"] == model], model, average)
        except UserError:
            continue
        noise = design.influence - design.influence[:, :1]
        epsilon = resampled_sums(noise, design.sources, resamples=resamples, seed=seed)
        for part, places in (("cross", design.cross), ("inner", design.inner)):
            if not places:
                continue
            deviations = design.accuracy[places] - design.mu
            for place, deviation in zip(places, deviations, strict=True):
                told = {"accuracy": float(design.accuracy[place]), "deviation": float(deviation)}
                told |= _one(float(deviation), epsilon[:, place])
                rows.append({"model": model, "part": part, "condition": design.columns[place][1], **told})
            whole = _variance(deviations, noise[:, places], epsilon[:, places])
            rows.append({"model": model, "part": part, "condition": WHOLE, **whole})
    return pd.DataFrame(rows, columns=COLUMNS)


def _one(deviation: float, epsilon: Floats) -> dict[str, float]:
    """A squared deviation; where its interval holds 0, that is the least it may be."""
    ends = deviation + np.quantile(epsilon, [0.025, 0.975])
    low = 0.0 if ends[0] <= 0 <= ends[1] else float((ends**2).min())
    return {"squared": deviation**2, "low": min(low, deviation**2), "high": max(float((ends**2).max()), deviation**2)}


def _variance(deviations: Floats, noise: Floats, epsilon: Floats) -> dict[str, float]:
    """The mean square of a part's deviations, (conditions,)."""
    scale = len(deviations) ** -0.5
    covariance = scale**2 * noise.T @ noise
    low, high = spread_interval(scale * deviations, scale * epsilon, covariance, _squares)
    return {"squared": float(np.mean(deviations**2)), "low": low, "high": high}


def _squares(deviations: Floats) -> Floats:
    return np.asarray((deviations**2).sum(axis=-1))
