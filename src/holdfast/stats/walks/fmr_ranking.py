"""Models ranked by FMR; those that cannot be told apart share their ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from holdfast.stats.core.bootstrap import RESAMPLES, Floats, codes
from holdfast.stats.models.between import Between
from holdfast.stats.models.ranks import rank_ranges
from holdfast.stats.walks.fmr import fmr

if TYPE_CHECKING:
    import pandas as pd

RANKS = ["model", "fmr", "low", "high", "rank", "rank_low", "rank_high", "n"]


def fmr_ranking(images: pd.DataFrame, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Between:
    """Return the models by FMR, highest first; those that cannot be told apart share their ranks.

    Over the images that every model answered, paired on the source photo: two models are told apart where their
    difference exceeds the ``level`` quantile of the largest deviation over all pairs in resamples of photos (max-t, on
    the linearised ratio), and where the closed-form interval of the difference agrees, which stays honest when few
    counterfactuals survive. Ranks as in ``between.ranking``. Models without an FMR are left out.

    Args:
        images: of one walk setting; the columns of ``stats.walks.fmr.fmr``, and sample_id.
        level: of the claims, all together.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    import pandas as pd

    models = sorted(images["model"].unique())
    together = images.groupby("sample_id")["model"].nunique()
    shared = images[images["sample_id"].isin(together.index[together == len(models)])]
    if shared.empty or len(models) < 2:
        reason = "There is one model only." if len(models) == 1 else "No image was walked for every model."
        return Between(pd.DataFrame(columns=RANKS), reason, reason)
    family = fmr(shared)
    table = family[(family["label"] == "") & (family["measure"] == "fmr") & (family["reason"] == "")]
    if len(table) < 2:
        reason = "Fewer than two models have an FMR."
        return Between(pd.DataFrame(columns=RANKS), reason, reason)
    parts = np.stack([fmr_influence(shared[shared["model"] == name]) for name in table["model"]], axis=1)
    estimate, low, high = (table[name].to_numpy(np.float64) for name in ("estimate", "low", "high"))
    lows, highs = rank_ranges(estimate, low, high, parts, level=level, resamples=resamples, seed=seed)
    ranked = pd.DataFrame(
        {
            "model": table["model"].to_numpy(),
            "fmr": estimate,
            "low": low,
            "high": high,
            "rank": [f"{a}" if a == b else f"{a}–{b}" for a, b in zip(lows, highs, strict=True)],
            "rank_low": lows,
            "rank_high": highs,
            "n": table["n"].to_numpy(),
        }
    ).sort_values("fmr", ascending=False, kind="stable", ignore_index=True)
    first = ranked.loc[ranked["rank_low"] == 1, "model"]
    sentence = f"{first.iloc[0]} is first." if len(first) == 1 else f"{len(first)} models share the first rank."
    return Between(ranked[RANKS], sentence, "")


def fmr_influence(images: pd.DataFrame) -> Floats:
    """Return what each photo adds to the deviation of the FMR from the truth, (sources,)."""
    code, count = codes(images["source_id"].astype(str))
    right = images["right_original"].to_numpy(np.float64)
    validated = images["validated"].to_numpy(np.float64)
    survived = validated * images["right_perturbed"].astype("float64").fillna(0).to_numpy()
    standard, perturbed = right.mean(), survived.sum() / validated.sum()
    upper = (survived - perturbed * validated) / validated.sum()
    lower = (right - standard) / len(right)
    return np.bincount(code, (upper - perturbed / standard * lower) / standard, count).astype(np.float64)
