"""Section: error rates of groups by attributes that the user's samples have."""

from __future__ import annotations

from holdfast.report.page import charts
from holdfast.report.page.evidence import Evidence
from holdfast.report.page.parts import Section
from holdfast.report.page.tables import Column, Table, model_column
from holdfast.report.page.words import percent, points, span
from holdfast.stats.effects.attributes import attribute_errors


def groups(evidence: Evidence) -> list[Section]:
    """Return a section per attribute that was asked for."""
    return [_section(evidence, name) for name in evidence.analysis.attributes]


def _section(evidence: Evidence, name: str) -> Section:
    frame = attribute_errors(
        evidence.counts, evidence.analysis.attributes[name], outcome=evidence.outcome, average=evidence.average
    )
    key = "".join(letter if letter.isalnum() else "_" for letter in name)
    section = Section(f"groups_{key}", f"Errors by {name}")
    known = frame[frame["n"] >= 5].dropna(subset=["gap"])
    if len(known):
        worst = known.sort_values("gap").iloc[-1]
        section.lead.append(
            f"The widest gap: {evidence.name(worst['model'])} errs on {percent(worst['error'])} of the photos with "
            f"{name} {worst['value']}, {points(worst['gap'])} more than on the others of the same classes "
            f"({span(worst['low'], worst['high'])})."
        )
    section.lead.append(
        "Groups are what the samples' attribute says. A gap may come from the group, from what else its photos share, "
        "or from chance: many groups make a wide gap somewhere likely, so hold it against its interval and look again "
        "with other photos."
    )
    values = list(dict.fromkeys(frame.sort_values("error", ascending=False)["value"]))
    section.parts = [
        charts.model_figure(
            f"groups_{key}",
            f"Share of wrong answers by {name}, with 95 % intervals",
            section.lead[0],
            frame.assign(solid=(frame["low"] > 0) | (frame["high"] < 0)),
            "error",
            short=evidence.short,
            by="value",
            words=str,
            rows=values,
            axis="wrong answers",
            domain=(0, 1),
            note="Filled marks differ from the other photos of the same classes; hollow ones may be chance.",
        ),
        Table(
            f"groups_{key}",
            f"Wrong answers by {name}",
            frame,
            [
                Column("value", name),
                model_column(evidence.short),
                Column("error", "Wrong", "percent", "error_low", "error_high"),
                Column("rest", "Others", "percent", hint="photos of the same classes without this value"),
                Column("gap", "Gap", "points", "low", "high"),
                Column("n", "Photos", "integer"),
                Column("classes", "Classes", "integer"),
            ],
        ),
    ]
    return section
