"""Error rates of groups that the user's own attributes make: light, place, who is in the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.types import ORIGINAL
from holdfast.stats.core.cells import Average, newcombe, summary
from holdfast.stats.core.reduce import Counts, Outcome

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = [
    "model", "value", "n", "error", "error_low", "error_high", "rest", "gap", "low", "high", "classes",
]  # fmt: skip
UNKNOWN = "(not given)"


def attribute_errors(
    counts: Counts, values: Mapping[str, str], *, outcome: Outcome = "full", average: Average = "macro"
) -> pd.DataFrame:
    """Return the error rate of each model on the photos with each value of an attribute, beside the other photos.

    Originals count, or all conditions where there are none. A row per model × value: ``n`` photos, ``error`` = 1 −
    accuracy with ``error_low`` and ``error_high``; ``rest``: the error on all other photos of the same classes; ``gap``
    = error − rest with Newcombe's interval ``low``, ``high`` (other photos on both sides); ``classes`` that the group
    has.

    ``values``: source_id → value; photos without one are a group of their own.
    """
    import pandas as pd

    cells = counts.cells
    if ORIGINAL in counts.conditions:
        cells = cells[cells["condition"] == ORIGINAL]
    value = cells["source_id"].astype(str).map(values).fillna(UNKNOWN)
    cells = cells.assign(condition=ORIGINAL, label=cells["label"].astype(str), value=value)
    rows = []
    for name in sorted(cells["value"].unique()):
        own = cells[cells["value"] == name]
        others = cells[(cells["value"] != name) & cells["label"].isin(own["label"].unique())]
        sides = [_accuracies(counts, side, outcome, average) for side in (own, others)]
        for model, (accuracy, low, high, n) in sides[0].items():
            rest = sides[1].get(model, (float("nan"),) * 4)
            gap, gap_low, gap_high = newcombe(rest[:3], (accuracy, low, high))
            ends = (1 - accuracy, 1 - high, 1 - low, 1 - rest[0], float(gap), float(gap_low), float(gap_high))
            rows.append((model, name, int(n), *ends, own["label"].nunique()))
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.sort_values(["model", "error"], ascending=[True, False], kind="stable", ignore_index=True)


def _accuracies(
    counts: Counts, cells: pd.DataFrame, outcome: Outcome, average: Average
) -> dict[str, tuple[float, float, float, float]]:
    """Return model → accuracy, both ends of its interval, and photos."""
    if cells.empty:
        return {}
    labels = sorted(cells["label"].unique())
    part = replace(counts, cells=cells, conditions=[ORIGINAL], classes=labels, same_images={}, attacks=())
    table = summary(part, outcome=outcome, average=average)
    return {
        row["model"]: (row["accuracy"], row["low"], row["high"], row["n"])
        for row in table.to_dict("records")
        if row["trained_on"] in ("", ORIGINAL)
    }
