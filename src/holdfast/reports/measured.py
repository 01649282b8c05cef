"""Sections of measures that no section of their own shows: the question, the table, the meaning of its columns."""

from __future__ import annotations

from collections.abc import Collection

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.measures import Measure, MeasureColumn
from holdfast.reports.page.parts import Notice, Section
from holdfast.reports.page.sections import ReportEvidence
from holdfast.reports.page.tables import CLASS, CONDITION, Column, Table, model_column
from holdfast.reports.page.words import short_names

_KNOWN = {"condition": CONDITION, "label": CLASS}


def measure_sections(report: ReportEvidence, shown: Collection[str]) -> list[Section]:
    """Return a section for each registered measure of these rows, but those that are ``shown`` elsewhere."""
    return [
        _section(name, registry.measures.get(name), report)
        for name in registry.measures
        if name not in shown and not set(registry.measures.get(name).tasks).isdisjoint(report.tasks)
    ]


def _section(name: str, measure: Measure, report: ReportEvidence) -> Section:
    section = Section(f"measure-{name}", measure.question)
    try:
        frame = report.measure(name)
    except UserError as error:
        section.parts = [Notice(str(error))]
        return section
    ends = {end for column in measure.columns for end in (column.low, column.high)}
    models = list(dict.fromkeys(map(str, frame["model"]))) if "model" in frame else []
    columns = [_column(column, models) for column in measure.columns if column.name not in ends]
    if frame.empty:
        section.parts = [Notice("No row has what this measure needs.")]
    else:
        section.parts = [Table(name, measure.question, frame, columns, measure.note)]
    return section


def _column(column: MeasureColumn, models: list[str]) -> Column:
    if column.name == "model":
        return model_column(short_names(models))
    if column.name in _KNOWN:
        return _KNOWN[column.name]
    title = column.name.replace("_", " ")
    return Column(
        column.name, title[:1].upper() + title[1:], column.shown, column.low, column.high, hint=column.meaning
    )
