"""Shape against texture: which of two classes a model names when the object's texture is another class's."""

from __future__ import annotations

from holdfast.core.lazy import pd
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.cells import design_effect, wilson
from holdfast.stats.core.reduce import Counts

CONFLICTS = ("stylised", "stylised_object")
"""Scenarios that put another class's texture on the object."""

COLUMNS = ["model", "trained_on", "condition", "n", "shape", "texture", "neither", "share", "low", "high"]


def shape_share(counts: Counts) -> pd.DataFrame:
    """Return each model's share of answers by shape among those by shape or by texture (Geirhos et al. 2019).

    A row per model × condition whose textures come from pictures of another known class: ``n`` pictures, how many were
    named after their ``shape`` (the photo's class), their ``texture`` (the style's) or ``neither``, among the dataset's
    classes; ``share`` = shape / (shape + texture) with Wilson's interval on n / (design effect), two-way over photos
    and styles. As published, only photos whose original the model names rightly count (all where there are none).
    Pictures answered with neither are no part of the share: read it beside their number.
    """
    cells = counts.cells.assign(
        **{name: counts.cells[name].astype(str) for name in ("model", "trained_on", "label", "donor_label")}
    )
    scenario = cells["condition"].astype(str).str.split(r"[@ ]", regex=True).str[0]
    chosen = cells[scenario.isin(CONFLICTS) & cells["donor_label"].isin(counts.classes)]
    chosen = chosen[chosen["donor_label"] != chosen["label"]]
    keys = ["model", "trained_on", "source_id"]
    originals = cells[cells["condition"] == ORIGINAL]
    if len(originals):
        right = originals[originals["right_restricted"] == originals["n"]][keys].drop_duplicates()
        chosen = chosen.merge(right, on=keys)
    rows = []
    for (model, trained_on, condition), group in chosen.groupby(
        ["model", "trained_on", "condition"], sort=False, observed=True
    ):
        n, shape, texture = (int(group[name].sum()) for name in ("n", "right_restricted", "captured"))
        decided = group.assign(n=group["right_restricted"] + group["captured"])
        decided = decided[decided["n"] > 0]
        row = [model, trained_on, str(condition), n, shape, texture, n - shape - texture]
        if decided.empty:
            rows.append([*row, *[float("nan")] * 3])
            continue
        effect = design_effect(decided, "right_restricted", by_class=False)
        low, high = wilson(shape / effect, (shape + texture) / effect)
        rows.append([*row, shape / (shape + texture), float(low), float(high)])
    order = {name: place for place, name in enumerate(counts.conditions)}
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.sort_values(
        ["condition", "model"], key=lambda column: column.map(order) if column.name == "condition" else column,
        kind="stable", ignore_index=True,
    )  # fmt: skip
