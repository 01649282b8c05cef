"""Sections on severities: the common corruptions, and how much models can take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.names import condition_words
from holdfast.core.numbers import estimate
from holdfast.core.types import CORRUPTIONS, SPARE_CORRUPTIONS
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import Evidence, ReportRows, answers, with_display_names
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import Gallery, Notice, Part, Photo, RunPictures, Section, pictures_of, tile
from holdfast.reports.page.sections import ReportSection, usual
from holdfast.reports.page.tables import Column, Table, model_column, plain, ranged, yes_no
from holdfast.reports.page.words import class_words, listing, plural
from holdfast.reports.static.gallery import model_answer
from holdfast.stats.core.reduce import Counts
from holdfast.stats.effects.corruption import ALEXNET, CorruptionError, corruption_of, mean_corruption_error
from holdfast.stats.effects.failure_point import FailurePoints, breaking_photos, failure_points

TITLE = "Common corruptions"
_WNID = re.compile(r"n\d{8}")
_IMAGENET_CLASSES = 1000
SPARE_MARK = "‡"


def corruptions(evidence: Evidence) -> list[Section]:
    """Return the section, or nothing if no corruption was measured."""
    if not any(map(corruption_of, evidence.counts.conditions)):
        return []
    section = Section("corruptions", TITLE)
    errors = mean_corruption_error(evidence.counts, **evidence.settings)
    if errors.reason:
        section.parts = [Notice(errors.reason)]
        return [section]
    reference = _reference(evidence.counts, errors.models)
    if reference is not None:
        errors = mean_corruption_error(evidence.counts, reference=reference, **evidence.settings)
    section.lead = _lead(evidence, errors, reference)
    section.parts = [
        _figure(evidence, errors, section.lead[0]),
        _models_table(evidence, errors, reference),
        _corruptions_table(evidence, errors, reference),
    ]
    return [section]


def _reference(counts: Counts, models: pd.DataFrame) -> str | Mapping[str, float] | None:
    """Return what ratios are relative to: the published AlexNet for all of ImageNet-C, else one of the models."""
    whole = {f"{name}@severity_{severity}" for name in CORRUPTIONS for severity in range(1, 6)}
    imagenet = len(counts.classes) == _IMAGENET_CLASSES and all(map(_WNID.fullmatch, counts.classes))
    if imagenet and whole <= set(counts.conditions):
        return ALEXNET
    if len(models) < 2:
        return None
    alexnets = [name for name in models["model"] if "alexnet" in name.lower()]
    return alexnets[0] if alexnets else str(models.sort_values("error", kind="stable")["model"].iloc[-1])


def _reference_name(evidence: Evidence, reference: str | Mapping[str, float]) -> str:
    if not isinstance(reference, str):
        return "the published AlexNet"
    name = evidence.name(reference)
    return name if "alexnet" in reference.lower() else f"{name}, the model that is wrong most often"


def _lead(evidence: Evidence, errors: CorruptionError, reference: str | Mapping[str, float] | None) -> list[str]:
    table = errors.models.sort_values("error", kind="stable")
    shares = [
        f"{evidence.name(row['model'])} {estimate(row['error'], row['low'], row['high'])}"
        for row in table.head(3).to_dict("records")
    ]
    more = f", and {plural(len(table) - 3, 'model')} more in the table" if len(table) > 3 else ""
    count, conditions = int(table["corruptions"].iloc[0]), int(table["conditions"].iloc[0])
    whole = count == len(CORRUPTIONS)
    what = "the fifteen corruptions of mCE" if whole else f"{plural(count, 'corruption')} of the fifteen of mCE"
    over = f"{what} ({plural(conditions, 'condition')} with their severities)"
    lead = [f"Share of wrong answers, averaged over {over}: {listing(shares)}{more}."]
    if reference is not None:
        lead.append(
            "mCE is that error under each corruption, summed over its severities, in proportion to the error of "
            f"{_reference_name(evidence, reference)}, averaged over corruptions: 100 % is as bad as that one."
        )
    if not whole or conditions < 5 * len(CORRUPTIONS):
        lead.append("Published values are over all fifteen at five severities, so these do not compare with them.")
    return lead


def _figure(evidence: Evidence, errors: CorruptionError, finding: str) -> Figure:
    frame = errors.by_corruption
    order = frame.groupby("corruption")["error"].mean().sort_values(ascending=False, kind="stable").index
    rows = [_corruption_label(name) for name in order]
    spare = f"{SPARE_MARK} Meant for validation, not in the mean." if set(order) & set(SPARE_CORRUPTIONS) else ""
    return charts.model_figure(
        "corruption_errors",
        "Wrong answers under each corruption, averaged over its severities, with 95 % intervals; the worst first",
        finding, frame, "error", short=evidence.short, by="corruption", words=_corruption_label, rows=rows,
        axis="wrong answers", domain=(0, 1), note=spare,
    )  # fmt: skip


def _corruption_label(corruption: str) -> str:
    return condition_words(corruption) + (f" {SPARE_MARK}" if corruption in SPARE_CORRUPTIONS else "")


def _models_table(evidence: Evidence, errors: CorruptionError, reference: str | Mapping[str, float] | None) -> Table:
    frame = errors.models.sort_values("error", kind="stable")
    columns = [
        model_column(evidence.short),
        Column("error", "Mean corruption error", "percent", "low", "high"),
        Column("clean_error", "Error on originals", "percent"),
        Column("n", "Images", "integer"),
    ]
    if reference is not None:
        columns[2:2] = [ranged("mce", "mCE")]
    return Table("corruption_error", "Mean corruption error", frame, columns)


def _corruptions_table(
    evidence: Evidence, errors: CorruptionError, reference: str | Mapping[str, float] | None
) -> Table:
    columns = [
        Column("corruption", "Corruption", show=_corruption_label),
        model_column(evidence.short),
        Column("severities", "Severities"),
        Column("error", "Error", "percent", "low", "high"),
        Column("n", "Images", "integer"),
    ]
    if reference is not None:
        columns[4:4] = [ranged("ratio", "of the reference's")]
    frame = errors.by_corruption.sort_values(["corruption", "error"], kind="stable")
    return Table("corruption_errors", "Error by corruption and model", frame, columns, folded=True)


SEVERITY_TITLE = "How much it can take"
STRIPS = 4  # Scenarios that have a filmstrip, the most harmful first


def failure_point_section(
    evidence: Evidence, rows: ReportRows | None = None, pictures: RunPictures | None = None
) -> list[Section]:
    """Return the section, or nothing if no scenario has three severities."""
    points = failure_points(evidence.counts, outcome=evidence.outcome, **evidence.resampling)
    if points.points.empty:
        return []
    order = points.points.groupby("scenario")["mean"].mean().sort_values(kind="stable").index
    title = "Severities survived on average, with 95 % intervals over images; the most harmful first"
    look: dict[str, Any] = {
        "by": "scenario",
        "words": condition_words,
        "rows": [condition_words(name) for name in order],
    }
    look |= {"short": evidence.short, "numbers": True, "axis": "severities survived"}
    section = Section("failure_points", SEVERITY_TITLE)
    section.lead = [
        points.sentence,
        "Counted on images that the model recognises as they are; an image survives a severity if its answer is right "
        "there and at all weaker ones.",
    ]
    section.parts = [
        charts.model_figure("severities_survived", title, points.sentence, points.points, "mean", **look),
        Table(
            "failure_points",
            "Severity of the first failure",
            points.points,
            [
                Column("scenario", "Scenario", show=condition_words),
                model_column(evidence.short),
                ranged("median", "Median", "integer"),
                *plain("integer", back="Right again later", whole="of those asked at all severities"),
                *plain("integer", never="Never fail", n="Images"),
            ],
            "One more than the strongest severity means that more than half of the images survive all of them.",
        ),
    ]
    if rows is not None and pictures is not None:
        section.parts += _filmstrips(evidence, points, list(order)[:STRIPS], rows, pictures)
    if len(points.orders):
        section.parts.append(
            Table(
                "failure_orders",
                "Two models on images that both recognise: difference of the severities survived",
                points.orders,
                [
                    Column("scenario", "Scenario", show=condition_words),
                    Column("first", "Model", show=evidence.name),
                    Column("second", "Against", show=evidence.name),
                    Column("difference", "Difference", "number", "low", "high"),
                    Column("turns", "Order turns", show=yes_no),
                    Column("n", "Images", "integer"),
                ],
                folded=True,
            )
        )
    return [section]


def _filmstrips(
    evidence: Evidence, points: FailurePoints, scenarios: list[str], rows: ReportRows, pictures: RunPictures
) -> list[Part]:
    """Return an image of each scenario as it is, just before it breaks and just after; nothing without images."""
    strips = breaking_photos(evidence.counts, points, scenarios, outcome=evidence.outcome)
    images = pictures_of(pictures, rows.runs, {strip.source for strip in strips})
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
            summary = f"{what} {plural(strip.alike, 'image')}, this one among them."
            photos.append(Photo("", class_words(str(own["label"].iloc[0])), summary, tiles))
    return [Gallery(photos)] if photos else []


CORRUPTION_ERRORS = ReportSection(lambda report: corruptions(report.classified), usual)
FAILURE_POINTS = ReportSection(
    lambda report: failure_point_section(report.classified, report.static_rows, report.pictures), usual
)
