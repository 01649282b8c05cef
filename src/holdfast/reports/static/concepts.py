"""Section: on which kinds of background a model fails."""

from __future__ import annotations

from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import number, span
from holdfast.reports.page import charts
from holdfast.reports.page.parts import Notice, Section
from holdfast.reports.page.sections import ReportEvidence, ReportSection, answered
from holdfast.reports.page.tables import Column, Table, model_column, plain
from holdfast.reports.page.words import listing
from holdfast.stats.effects.concepts import COLUMNS, FEWEST, background_concepts

_SHOWN, _NAMED, _SMALL = 12, 3, 0.1


def sentence(own: pd.DataFrame) -> str:
    """Return on which backgrounds a model fails or does better, and on which the difference is small."""
    fails = own[own["stands_out"] & (own["difference"] < 0)]
    said = [f"{row['concept']} ({_points(row)})" for row in fails.head(_NAMED).to_dict("records")]
    held = own[~own["stands_out"] & (own["low"] > -_SMALL) & (own["high"] < _SMALL)]
    others = [f"{row['concept']} ({_points(row)})" for row in held.head(_NAMED).to_dict("records")]
    better = [
        f"{row['concept']} ({_points(row)})"
        for row in own[own["stands_out"] & (own["difference"] > 0)].to_dict("records")
    ]
    parts = [f"fails more often on {listing(said)}"] * bool(said)
    parts += [f"is right more often on {listing(better[::-1][:_NAMED])}"] * bool(better)
    first = " and ".join(parts) or "no kind of background stands out"
    return f"{first}; less than 10 points either way: {listing(others)}." if others else f"{first}."


def _points(row: Any) -> str:
    return f"{number(100 * row['difference'], 0, sign=True)} points, {span(row['low'], row['high'], 0, sign=True)}"


def _build(report: ReportEvidence) -> Section:
    concepts = report.analysis.concepts
    assert concepts is not None, "the section applies"
    rows = report.rows.photos(COLUMNS).to_pandas()
    table = background_concepts(rows, concepts, seed=report.seed)
    section = Section("concepts", "Which backgrounds cost accuracy?")
    if table.empty:
        section.parts = [Notice(f"No attribute is shared by {FEWEST} donors and absent in {FEWEST} others.")]
        return section
    short = report.classified.short
    section.lead = [
        f"{short.get(str(model), str(model))}: {sentence(own)}" for model, own in table.groupby("model", sort=False)
    ]
    section.lead.append(
        "Accuracy on random backgrounds with an attribute minus that on those without it, within classes; intervals "
        "and tests take donors and images as units, p is corrected over attributes (Holm). By chance: the "
        "difference that remains when an attribute is shuffled over the donors. Attributes go together: grass is green."
    )
    columns = [
        Column("concept", "Background"), model_column(short),
        Column("difference", "Difference", "points", "low", "high"),
        Column("chance", "By chance up to", "points"), *plain("p", p_holm="p (Holm)"),
        *plain("percent", accuracy="Accuracy with it", others="Without it"),
        *plain("integer", donors="Donors", images="Images"),
    ]  # fmt: skip
    strongest = table.assign(size=table["difference"].abs()).groupby("concept")["size"].max().nlargest(_SHOWN).index
    shown = table[table["concept"].isin(strongest)].assign(solid=lambda each: each["stands_out"])
    section.parts = [
        charts.model_figure(
            "concepts", "Change of accuracy with an attribute of the background, with 95\N{NO-BREAK SPACE}% intervals",
            section.lead[0], shown, "difference", short=short, by="concept", words=str, zero=True, axis="points",
            note="Filled marks stand out after the correction.",
        ),
        Table("concepts", "What attributes of backgrounds cost", table, columns),
    ]  # fmt: skip
    return section


CONCEPTS = ReportSection(_build, lambda report: report.analysis.concepts is not None and answered(report))
