"""Section on photos with several labels: what every condition costs each label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow.dataset as ds

from holdfast.core.lazy import pd
from holdfast.core.numbers import points, span
from holdfast.core.schema import MULTILABEL
from holdfast.report.page.evidence import ReportRows
from holdfast.report.page.parts import Section
from holdfast.report.page.tables import CONDITION, Column, Table, model_column, plain
from holdfast.report.page.words import condition_label, page_facts, short_names
from holdfast.stats.effects.labels import COLUMNS, label_drops

LABELLED = ds.field("task") == MULTILABEL.name


@dataclass(frozen=True)
class Labelled:
    """The answers on labels of a report."""

    rows: Any  # the one table's
    resampling: dict[str, int]
    title: str = "What conditions cost each label"

    @cached_property
    def table(self) -> pd.DataFrame:
        """What conditions cost labels, the largest loss first."""
        return label_drops(self.rows, **self.resampling).sort_values("drop", ascending=False, kind="stable")

    def facts(self) -> list[tuple[str, str]]:
        """Return the numbers at the top of the page."""
        return page_facts((self.table["model"].nunique(), "model"), (len(self.rows["source_id"].unique()), "photo"),
                          (self.table["label"].nunique(), "label"), (len(self.rows), "answer"))  # fmt: skip

    def limits(self) -> str:
        """Return what right means on the page."""
        return (
            "A label is a yes-or-no question: yes where its score reaches the threshold. Right is the mean of two "
            "shares, yes where the photo has the label and no where it has not, so a guess is right in 50 %. Intervals "
            "hold for all labels together at the 95 % level and treat photos as independent."
        )


def read_labels(rows: ReportRows, **resampling: int) -> Labelled | None:
    """Return the answers on labels among the rows, None where there are none."""
    table = rows.dataset.to_table(columns=COLUMNS, filter=LABELLED)
    return Labelled(table, resampling) if len(table) else None


def label_section(labelled: Labelled) -> Section:
    """Return what every condition costs each label, with intervals."""
    table, section = labelled.table, Section("labels", "Labels under each condition")
    sure = table[table["low"] > 0].drop_duplicates(["label", "model"])
    section.lead = [
        f"{row['label']} loses {points(row['drop'])} ({span(row['low'], row['high'])}) under "
        f"{condition_label(row['condition'])} with {row['model']}." for row in sure.head(3).to_dict("records")
    ] or ["No label surely loses under any condition."]  # fmt: skip
    shares = plain("percent", original="Right before", accuracy="Right after", recall="Yes where there",
                   alarms="Yes where not there")  # fmt: skip
    columns = [Column("label", "Label"), model_column(short_names(list(dict.fromkeys(table["model"])))), CONDITION,
               Column("drop", "Lost", "points", "low", "high"), *shares, *plain("integer", n="Photos")]  # fmt: skip
    section.parts = [Table("labels", "What every condition costs each label, the largest loss first.", table, columns,
                           labelled.limits())]  # fmt: skip
    return section
