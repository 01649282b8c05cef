"""Accuracy fold by fold of models that were not trained on these folds: the mean over folds and its spread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import t_quantile
from holdfast.stats.core.cells import Average, summary
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.families import UNKNOWN, by_group

EACH = "accuracy_in_{}"
"""The column with the accuracy in a fold."""


def fold_accuracy(
    counts: Counts, folds: Mapping[str, str], *, outcome: Outcome = "full", average: Average = "macro"
) -> pd.DataFrame:
    """Return a row per model × condition: the accuracy in each fold, and the mean over folds with its spread.

    ``folds``: source_id → fold; images without one are left out. Columns: ``mean`` with the t interval ``low``,
    ``high`` over folds, ``sd`` (with n − 1), ``least``, ``most``, ``folds`` (their number), and ``EACH`` per fold.
    """
    kept = by_group(counts, folds, summary, outcome=outcome, average=average)
    kept = kept[kept["value"] != UNKNOWN]
    keys = ["model", "trained_on", "condition"]
    kept = kept.assign(**{key: kept[key].astype(str) for key in keys})
    names = sorted(kept["value"].unique(), key=lambda name: (len(name), name))
    wide = kept.pivot_table(index=keys, columns="value", values="accuracy", sort=False)[names]
    count = wide.notna().sum(axis=1)
    spread = wide.std(axis=1, ddof=1)
    half = np.array([t_quantile(n - 1) if n > 1 else np.nan for n in count]) * spread / np.sqrt(count)
    mean = wide.mean(axis=1)
    frame = pd.DataFrame({
        "mean": mean, "low": mean - half, "high": mean + half, "sd": spread, "least": wide.min(axis=1),
        "most": wide.max(axis=1), "folds": count, **{EACH.format(name): wide[name] for name in names},
    })  # fmt: skip
    return frame.reset_index()
