"""Section: how much models can take, where scenarios were run at three severities or more."""

from __future__ import annotations

from holdfast.core.conditions import condition_words
from holdfast.report.page import charts
from holdfast.report.page.evidence import Evidence
from holdfast.report.page.parts import Section
from holdfast.report.page.tables import Column, Table, model_column, yes_no
from holdfast.stats.effects.failure_point import failure_points

TITLE = "How much it can take"


def failure_point_section(evidence: Evidence) -> list[Section]:
    """Return the section, or nothing where no scenario has three severities."""
    points = failure_points(evidence.counts, outcome=evidence.outcome, **evidence.resampling)
    if points.points.empty:
        return []
    order = points.points.groupby("scenario")["mean"].mean().sort_values(kind="stable").index
    tidy = points.points.assign(
        model=points.points["model"].map(evidence.name), row=points.points["scenario"].map(condition_words),
        estimate=points.points["mean"], low=points.points["mean_low"], high=points.points["mean_high"],
    )  # fmt: skip
    section = Section("failure_points", TITLE)
    section.lead = [
        points.sentence,
        "Counted on photos that the model recognises as they are; a photo survives a severity if its answer is right "
        "there and at all weaker ones.",
    ]
    section.parts = [
        charts.dot_figure(
            "severities_survived",
            "Severities survived on average, with 95 % intervals over photos; the most harmful first",
            points.sentence,
            tidy,
            models=[evidence.name(name) for name in evidence.models if name in set(points.points["model"])],
            rows=[condition_words(name) for name in order],
            axis="severities survived",
            numbers=True,
        ),
        Table(
            "failure_points",
            "Severity of the first failure",
            points.points,
            [
                Column("scenario", "Scenario", show=condition_words),
                model_column(evidence.short),
                Column("median", "Median", "integer", "median_low", "median_high"),
                Column("back", "Right again later", "integer"),
                Column("never", "Never fail", "integer"),
                Column("n", "Photos", "integer"),
            ],
            "One more than the strongest severity means that more than half of the photos survive all of them.",
        ),
    ]
    if len(points.orders):
        section.parts.append(
            Table(
                "failure_orders",
                "Two models on photos that both recognise: difference of the severities survived",
                points.orders,
                [
                    Column("scenario", "Scenario", show=condition_words),
                    Column("first", "Model", show=evidence.name),
                    Column("second", "Against", show=evidence.name),
                    Column("difference", "Difference", "number", "low", "high"),
                    Column("turns", "Order turns", show=yes_no),
                    Column("n", "Photos", "integer"),
                ],
                folded=True,
            )
        )
    return [section]
