"""Section: how much models can take, where scenarios were run at three severities or more."""

from __future__ import annotations

from holdfast.core.conditions import condition_words
from holdfast.report.page import charts
from holdfast.report.page.evidence import Evidence, with_display_names
from holdfast.report.page.gallery import RunPictures, tile
from holdfast.report.page.parts import Gallery, Part, Photo, Section
from holdfast.report.page.rows import ReportRows, answers
from holdfast.report.page.tables import Column, Table, model_column, yes_no
from holdfast.report.page.words import class_words, plural
from holdfast.report.static.gallery import model_answer
from holdfast.stats.effects.failure_point import FailurePoints, breaking_photos, failure_points

TITLE = "How much it can take"
STRIPS = 4  # Scenarios that have a filmstrip, the most harmful first


def failure_point_section(
    evidence: Evidence, rows: ReportRows | None = None, pictures: RunPictures | None = None
) -> list[Section]:
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
                Column("whole", "of those asked at all severities", "integer"),
                Column("never", "Never fail", "integer"),
                Column("n", "Photos", "integer"),
            ],
            "One more than the strongest severity means that more than half of the photos survive all of them.",
        ),
    ]
    if rows is not None and pictures is not None:
        section.parts += _filmstrips(evidence, points, list(order)[:STRIPS], rows, pictures)
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


def _filmstrips(
    evidence: Evidence, points: FailurePoints, scenarios: list[str], rows: ReportRows, pictures: RunPictures
) -> list[Part]:
    """Return a photo of each scenario as it is, just before it breaks and just after; nothing without pictures."""
    strips = breaking_photos(evidence.counts, points, scenarios, outcome=evidence.outcome)
    images: dict[tuple[str, str], bytes] = {}
    for run in rows.runs:
        images = pictures(run, {strip.source for strip in strips}) | images
    said = with_display_names(answers(rows, [strip.source for strip in strips], evidence.counts.conditions))
    photos = []
    for strip in strips:
        tiles = []
        own = said[(said["source_id"] == strip.source) & (said["model"] == strip.model)]
        for caption, condition in zip(("as it is", "just before", "just after"), strip.conditions, strict=True):
            shown = own[own["name"] == condition].sort_values("sample_id").to_dict("records")
            if shown:
                caption = f"{caption} ({condition.partition('@severity_')[2]})" if "@" in condition else caption
                answer = model_answer(evidence, strip.model, shown[0], condition)
                tiles.append(tile(caption, images.get((str(shown[0]["sample_id"]), condition), b""), [answer]))
        if any(shown_tile.picture for shown_tile in tiles):
            what = f"{condition_words(strip.scenario)}: {evidence.name(strip.model)} breaks here on"
            summary = f"{what} {plural(strip.alike, 'photo')}, this one among them."
            photos.append(Photo("", class_words(str(own["label"].iloc[0])), summary, tiles))
    return [Gallery(photos)] if photos else []
