"""The segmented rows of a report, and the statistics of them, each computed when it is first used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from holdfast.core.schema import SEGMENTS
from holdfast.core.types import ORIGINAL
from holdfast.report.page.evidence import AS_PUBLISHED, Analysis
from holdfast.report.page.rows import ReportRows
from holdfast.report.page.words import page_facts, plural, short_names
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.effects.segments import (
    COLUMNS,
    KEYS,
    SEGMENT,
    WITHIN,
    by_class,
    cells_from_segments,
    experiments,
    measured,
    segmented,
    segments,
)
from holdfast.stats.objects.effects import regions_found
from holdfast.stats.regression.fit import Regression, fit
from holdfast.store import Parts, Run

if TYPE_CHECKING:
    import pandas as pd

SEGMENTED = ds.field("task") == SEGMENT

_SIZES = re.compile(r"(_patch\d+)?(_window\d+)?(_\d{3})?(\?.*)?$")
"""What timm and the options add to the name of an encoder."""


@dataclass(frozen=True)
class Segmented:
    """The segmented rows of a report."""

    runs: Sequence[Run]  # the runs that have segmented rows
    frame: pd.DataFrame  # the columns of ``stats.effects.segments.measured``, under the names of ``experiments``
    rows: pd.DataFrame  # all rows, also those without an answer
    resamples: int = RESAMPLES
    seed: int = 0
    analysis: Analysis = AS_PUBLISHED  # reference levels and kind of the regression
    title: str = "What the segmenters hold on to"  # title of a page that is about segmentation only

    @cached_property
    def table(self) -> pd.DataFrame:
        """Measures per model and condition, and how many objects are found."""
        whole = segments(self.frame, resamples=self.resamples, seed=self.seed)
        objects = regions_found(self.frame, resamples=self.resamples, seed=self.seed)
        return whole.merge(objects, on=KEYS, how="left") if len(objects) else whole

    @cached_property
    def classes(self) -> pd.DataFrame:
        """Measures per model, condition and class."""
        return by_class(self.frame, resamples=self.resamples, seed=self.seed)

    @cached_property
    def models(self) -> list[str]:
        """Models, the best on average first."""
        means = self.table.groupby("model")["miou"].mean().sort_values(ascending=False, kind="stable")
        return [str(name) for name in means.index]

    @cached_property
    def conditions(self) -> list[str]:
        """Conditions: the original first, then the most harmful."""
        means = self.table.groupby("condition")["miou"].mean()
        return sorted(means.index, key=lambda name: (name != ORIGINAL, means[name], name))

    @cached_property
    def short(self) -> dict[str, str]:
        """Names that fit beside a chart: without options and sizes where names stay distinct."""
        networks = {name: name.removesuffix(WITHIN) for name in self.models}
        cut = {name: _SIZES.sub("", network).replace("@tu-", "@") for name, network in networks.items()}
        if len(set(cut.values())) < len(set(networks.values())):
            cut = networks
        short = short_names(list(dict.fromkeys(cut.values())))
        return {name: short[cut[name]] + (", within" if name != networks[name] else "") for name in self.models}

    @cached_property
    def regression(self) -> Regression:
        """IoU ~ model + scenario + class."""
        chosen = self.analysis
        return fit(cells_from_segments(self.frame), references=chosen.references, family=chosen.regression)

    def facts(self) -> list[tuple[str, str]]:
        """Return the numbers at the top of a page that is about segmentation only."""
        good = self.rows[self.rows["status"] == "ok"]
        return page_facts(
            (self.rows["model"].nunique(), "model"),
            (good["source_id"].nunique(), "photo"),
            (self.rows["label"].nunique(), "class", "classes"),
            (self.rows["condition"].nunique(), "condition"),
            (len(good), "segmented picture"),
        )

    def limits(self) -> str:
        """Return what the numbers mean."""
        text = (
            "Pixels are summed over photos before they are divided; every class, and the background, counts the same. "
            "Intervals are at the 95 % level and treat photos, not pixels, as independent. What "
            f"{plural(self.rows['source_id'].nunique(), 'photo')} cannot show, this report does not claim."
        )
        missing = int((self.rows["status"] != "ok").sum())
        return text + (
            f" {missing:,} of {len(self.rows):,} pictures have no answer and count nowhere." if missing else ""
        )


def read_segments(
    rows: ReportRows, *, resamples: int = RESAMPLES, seed: int = 0, analysis: Analysis | None = None
) -> Segmented | None:
    """Return the segmented rows of a report, None where there are none."""
    if not rows.dataset.count_rows(filter=SEGMENTED):
        return None
    runs = [run for run in rows.runs if run.predictions.dataset().count_rows(filter=SEGMENTED)]
    details = pa.concat_tables([Parts(run.path / "details" / "segments", SEGMENTS).rows() for run in runs])
    table = rows.dataset.to_table(columns=COLUMNS, filter=SEGMENTED)
    return Segmented(
        runs, experiments(measured(table, details)), segmented(table), resamples, seed, analysis or AS_PUBLISHED
    )
