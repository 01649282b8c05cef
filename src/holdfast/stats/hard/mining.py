"""How hard a mined set is, and where its images come from: shares with intervals that treat prompts as independent.

Everything here reads two frames with the same index, a row an image: ``images`` (prompt_id, category, kind, nuisance,
valid) and ``failed`` (a column a model, true where it is wrong).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import cluster_variance, codes
from holdfast.stats.core.cells import wilson

if TYPE_CHECKING:
    import pandas as pd

Interval = tuple[float, float, float]
"""Estimate, low, high."""


def shared(failed: pd.DataFrame, surrogates: Sequence[str], at_least: int) -> pd.Series:
    """Return which images at least so many of the surrogates get wrong."""
    if not 1 <= at_least <= len(surrogates):
        raise UserError(f"at least {at_least} of {len(surrogates)} surrogates cannot be")
    return failed[list(surrogates)].sum(axis=1) >= at_least


def share(hits: ArrayLike, clusters: ArrayLike, *, level: float = 0.95) -> dict[str, Any]:
    """Return a share of images with its interval: ``n``, ``prompts``, ``estimate``, ``low``, ``high``.

    Wilson's interval on the effective number n / D. D = (cluster variance) / (binomial variance), at least 1, is how
    much less images of one prompt tell than images of as many prompts; where all are hits or none, the images a
    prompt: the most it could be. So a share of 0 or 1 keeps a width, where a bootstrap would have none.
    """
    hit = np.asarray(hits, np.float64)
    if not len(hit):
        return {"n": 0, "prompts": 0, "estimate": np.nan, "low": np.nan, "high": np.nan}
    number, count = codes(clusters)
    mean = float(hit.mean())
    expected = len(hit) * mean * (1 - mean)
    effect = len(hit) / count
    if expected > 0:
        effect = cluster_variance(hit - mean, number) * count / max(count - 1, 1) / expected
    size = len(hit) / max(effect, 1.0)
    low, high = wilson(mean * size, size, level)
    return {"n": len(hit), "prompts": count, "estimate": mean, "low": float(low), "high": float(high)}


def difference(first: Interval, second: Interval) -> Interval:
    """Return first − second from the intervals of both (Newcombe's hybrid, "MOVER", as for independent shares).

    low = d − √((p₁ − l₁)² + (u₂ − p₂)²), high = d + √((u₁ − p₁)² + (p₂ − l₂)²). A hard set and its pool share images,
    and a hard set and its control share prompts; both make the true interval narrower, so this one errs wide.
    """
    (value, low, high), (other_value, other_low, other_high) = first, second
    apart = value - other_value
    return (
        apart,
        apart - float(np.hypot(value - low, other_high - other_value)),
        apart + float(np.hypot(high - value, other_value - other_low)),
    )


def accuracies(
    images: pd.DataFrame, failed: pd.DataFrame, sets: Mapping[str, pd.Series], models: Sequence[str]
) -> pd.DataFrame:
    """Return the accuracy of each model on each set of images.

    Columns: ``model``, ``set``, ``n``, ``prompts``, ``estimate``, ``low``, ``high``.
    """
    import pandas as pd

    rows = [
        {"model": model, "set": name} | share(~failed.loc[inside, model], images.loc[inside, "prompt_id"])
        for model in models
        for name, inside in sets.items()
    ]
    return pd.DataFrame(rows)


def drops(accuracy: pd.DataFrame, *, of: str = "hard", against: Sequence[str] = ("pool", "control")) -> pd.DataFrame:
    """Return what each model loses on one set against others: model, against, estimate, low, high.

    Positive where the model is less accurate on ``of``. Takes the table of ``accuracies``.
    """
    import pandas as pd

    cells = {
        (row["model"], row["set"]): (row["estimate"], row["low"], row["high"]) for row in accuracy.to_dict("records")
    }
    rows = []
    for model in dict.fromkeys(accuracy["model"]):
        for other in against:
            if (model, other) in cells:
                value, low, high = difference(cells[model, other], cells[model, of])
                rows.append({"model": model, "against": other, "estimate": value, "low": low, "high": high})
    return pd.DataFrame(rows, columns=["model", "against", "estimate", "low", "high"])


def rates(images: pd.DataFrame, hard: pd.Series, by: str) -> pd.DataFrame:
    """Return the hard rate of every value of a column (kind, nuisance, category), the highest first.

    Columns: ``value``; ``n`` images of the pool, ``prompts``, ``hard`` of them; ``estimate`` = hard / n with its
    interval; ``excess``: that less the rate of all other images, with an interval at level 1 − 0.05/V, because V
    values are looked at; ``stands_out``: over, under, or '' where that interval holds 0.
    """
    import pandas as pd

    values = sorted(set(images[by]))
    strict = 1 - 0.05 / max(len(values), 1)
    rows = []
    for value in values:
        inside = images[by] == value
        own = share(hard[inside], images.loc[inside, "prompt_id"])
        row: dict[str, Any] = {"value": value, "hard": int(hard[inside].sum())} | own
        excess = (np.nan, np.nan, np.nan)
        if not inside.all():
            both = [share(hard[part], images.loc[part, "prompt_id"], level=strict) for part in (inside, ~inside)]
            first, second = ((rate["estimate"], rate["low"], rate["high"]) for rate in both)
            excess = difference(first, second)
        row |= dict(zip(("excess", "excess_low", "excess_high"), excess, strict=True))
        row["stands_out"] = "over" if excess[1] > 0 else "under" if excess[2] < 0 else ""
        rows.append(row)
    columns = ["value", "n", "prompts", "hard", "estimate", "low", "high", "excess", "excess_low", "excess_high"]
    frame = pd.DataFrame(rows, columns=[*columns, "stands_out"])
    return frame.sort_values(["estimate", "value"], ascending=[False, True]).reset_index(drop=True)


def validity(images: pd.DataFrame, groups: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Return the share of images that the oracle accepts in each group: ``set``, and the columns of ``share``."""
    import pandas as pd

    return pd.DataFrame(
        [
            {"set": name} | share(images.loc[inside, "valid"], images.loc[inside, "prompt_id"])
            for name, inside in groups.items()
        ]
    )
