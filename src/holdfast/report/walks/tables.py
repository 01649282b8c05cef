"""The FMR family as a wide table, and how its columns are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.report.page.tables import Column
from holdfast.report.walks.evidence import Walked

if TYPE_CHECKING:
    import pandas as pd


def wide(walks: Walked, family: pd.DataFrame) -> pd.DataFrame:
    """A row per model × walk × class: a column a measure, its interval (``_from``, ``_to``), and the counts."""
    import pandas as pd

    found = []
    for (model, walk, label), group in family.groupby(["model", "walk", "label"], observed=True, sort=False):
        by = {row["measure"]: row for row in group.to_dict("records")}
        record: dict[str, Any] = {
            "model": model,
            "walk": walk,
            "label": label,
            "n": by["standard_accuracy"]["n"],
            "right": by["standard_accuracy"]["numerator"],
            "validated": by["validation_rate"]["numerator"],
            "right_validated": by["perturbed_accuracy"]["numerator"],
            "reason": by["fmr"]["reason"],
        }
        for measure, row in by.items():
            record |= {measure: row["estimate"], f"{measure}_from": row["low"], f"{measure}_to": row["high"]}
        found.append(record)
    frame = pd.DataFrame(found)
    place = {pair: position for position, pair in enumerate(walks.order)}
    frame["place"] = [place[pair] for pair in zip(frame["model"], frame["walk"], strict=True)]
    frame = frame.sort_values(["place", "label"], kind="stable", ignore_index=True)
    return frame.drop(columns="place")


def first_columns(walks: Walked, *, label: bool = False) -> list[Column]:
    """Who a row is about."""
    columns = [Column("model", "Model", show=lambda name: walks.short.get(name, name))]
    if walks.several:
        columns.append(Column("walk", "Walk", "integer"))
    return [*columns, Column("label", "Class")] if label else columns


def share(key: str, title: str, hint: str = "") -> Column:
    """A measure of ``wide`` with its interval."""
    return Column(key, title, "percent", f"{key}_from", f"{key}_to", hint=hint)


COUNTS = [
    Column("n", "Images", "integer"),
    Column("right", "right on the original", "integer"),
    Column("validated", "validated", "integer", hint="images whose counterfactual the oracle accepted"),
    Column("right_validated", "of those right", "integer", hint="right on the counterfactual"),
]
FAMILY = [
    share("standard_accuracy", "SA", "accuracy on the originals"),
    share("validation_rate", "VR", "share of images that the oracle accepted"),
    share("perturbed_accuracy", "PA", "accuracy on the accepted counterfactuals"),
    share("fmr", "FMR", "PA / SA"),
]
VARIANTS = [
    share("fmr_low", "FMR_low", "all rejected images wrong"),
    share("fmr_high", "FMR_high", "all rejected images right"),
    share("fmr_algorithm1", "FMR_algorithm1", "rejected images count as their originals did"),
    share("fmr_matched", "FMR_matched", "PA over SA of the same accepted images"),
]
