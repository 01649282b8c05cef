"""Walks by attributes of the images: whether the oracle accepts one group less often, and whether FMR differs."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.lazy import pd
from holdfast.core.numbers import percent
from holdfast.reports.page.parts import Heading, Part, Text
from holdfast.reports.page.tables import Column, Table
from holdfast.reports.walks.evidence import COUNTS, FAMILY, ReportWalks, families, first_columns, wide

UNKNOWN = "not known"
NOTE = (
    "The oracle's own mistakes are part of these numbers: if it accepts one group less often, VR is lower there, and "
    "FMR is measured on the images that are left. Each interval is for its group alone."
)


def by_attributes(walks: ReportWalks, attributes: Mapping[str, Mapping[str, str]]) -> list[Part]:
    """Return SA, VR, PA and FMR for each group of images, by every attribute that was asked for."""
    parts: list[Part] = []
    for name, values in attributes.items():
        group = walks.images["source_id"].astype(str).map(dict(values)).fillna(UNKNOWN)
        family = families(walks.images.assign(label=group))
        frame = wide(walks, family[family["label"] != ""]).rename(columns={"label": "group"})
        frame = frame.sort_values("validation_rate", kind="stable", ignore_index=True)
        key = "".join(letter if letter.isalnum() else "_" for letter in name)
        columns = [Column("group", name), *first_columns(walks), *COUNTS, *FAMILY]
        title = f"Walks by {name}, the lowest share of accepted images first"
        table = Table(f"walks_by_{key}", title, frame, columns, NOTE)
        parts += [Heading(f"By {name}"), Text([_sentence(walks, name, frame)]), table]
    return parts


def _sentence(walks: ReportWalks, name: str, frame: pd.DataFrame) -> str:
    known = frame[frame["group"] != UNKNOWN]
    if known["group"].nunique() < 2:
        return f"All images with a known {name} are of one group."
    said = []
    for model, walk in walks.order:
        own = known[(known["model"] == model) & (known["walk"] == walk)]
        if own.empty:
            continue
        low, high = own.iloc[0], own.iloc[-1]
        if low["validation_rate"] == high["validation_rate"]:
            rest = "in every group"
        else:
            rest = f"with {name} {low['group']} and {percent(high['validation_rate'])} with {high['group']}"
        said.append(f"{walks.row(model, walk)}: the oracle accepts {percent(low['validation_rate'])} {rest}")
    return "; ".join(said) + "."
