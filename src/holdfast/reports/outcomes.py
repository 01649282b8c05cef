"""The section of tasks that bring none of their own: verdicts, and what each condition costs in mean success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast import registry
from holdfast.core.tasks import Task
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import details, rows_of_tasks
from holdfast.reports.page.parts import Front, ModelVerdict, Section
from holdfast.reports.page.sections import ReportEvidence, ReportSection
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain
from holdfast.reports.page.words import condition_label, page_facts, short_names
from holdfast.stats.core.cells import summary
from holdfast.stats.core.outcomes import outcome_counts
from holdfast.stats.core.reduce import Counts
from holdfast.stats.effects.drops import drops
from holdfast.stats.effects.outcome_verdict import what_outcomes_rely_on
from holdfast.stats.effects.verdict_words import SIGNS

NAME = "outcomes"
"""What such a task has in its ``sections``."""


def tasks_of(report: ReportEvidence) -> list[Task]:
    """Return the tasks among the rows that this section is about."""
    names = [name for name in report.tasks if name in registry.tasks]
    return [task for task in map(registry.tasks.get, names) if NAME in task.sections]


def _counts(report: ReportEvidence) -> list[tuple[Task, Counts]]:
    counted = []
    for task in tasks_of(report):
        rows = report.rows.photos(report.rows.dataset.schema.names, rows_of_tasks([task.name]))
        tables = {name: details(report.runs, name, schema) for name, schema in task.tables.items()}
        counted.append((task, outcome_counts(task, rows, tables.__getitem__)))
    return counted


def _build(report: ReportEvidence) -> Sequence[Section]:
    return [_section(task, counts, report) for task, counts in report.once(_counts)]


def _verdicts(task: Task, counts: Counts, report: ReportEvidence) -> list[dict[Any, Any]]:
    frame = what_outcomes_rely_on(
        counts,
        average=task.average,
        unit=task.unit,
        success=task.success,
        resamples=report.resamples,
        seed=report.seed,
    )
    return list(frame.to_dict("records"))


def _section(task: Task, counts: Counts, report: ReportEvidence) -> Section:
    means = summary(counts, average=task.average)
    costs = drops(counts, average=task.average, resamples=report.resamples, seed=report.seed)
    model = model_column(short_names(counts.models))
    share = f"{task.unit.capitalize()}s {task.success}"
    accuracy = Column("accuracy", share, "percent", "low", "high")
    lost = Column("drop", "Drop", "points", "low", "high")
    section = Section(f"{NAME}-{task.name}", task.title[:1].upper() + task.title[1:])
    section.lead = [f"{row['model']}: {row['sentence']}" for row in _verdicts(task, counts, report)]
    section.parts = [
        Table(f"{task.name}_accuracy", f"{share} under each condition.", means, [CONDITION, model, accuracy,
              *plain("integer", n="Answers")]),
        Table(f"{task.name}_drops", "What each condition costs, on the same images.", costs, [CONDITION, model, lost,
              *plain("percent", original="Original", accuracy="Condition"), *plain("integer", n="Pairs")]),
    ]  # fmt: skip
    return section


def _front(report: ReportEvidence) -> Front:
    ((task, counts), *_) = report.once(_counts)
    photos = len(set((counts.clusters or {}).values())) or counts.cells["source_id"].nunique()
    facts = page_facts((len(counts.models), "model"), (photos, "image"), (len(counts.conditions), "condition"))
    limits = (
        f"A success is that the {task.unit} is {task.success}. Intervals are at the 95 % level and treat images as "
        "independent."
    )
    short = short_names(counts.models)
    rows = _verdicts(task, counts, report)
    verdicts = [
        ModelVerdict(short[row["model"]], row["headline"], SIGNS[row["verdict"]], row["rests_on"], row["small_print"])
        for row in rows
    ]
    means = summary(counts, average=task.average)
    share = f"{task.unit}s {task.success}"
    chart = charts.model_figure(
        "answer", f"{share.capitalize()} under each condition, with 95\N{NO-BREAK SPACE}% intervals",
        f"{share.capitalize()} by condition.", means, "accuracy", short=short,
        rows=[condition_label(name) for name in counts.conditions], axis=share, domain=(0, 1),
    )  # fmt: skip
    warnings = [f"{short[row['model']]}: {text}" for row in rows for text in row["warnings"]]
    who = "Does the model" if len(counts.models) == 1 else "Do the models"
    return Front(
        f"{who} rely on the background in {task.title}?", verdicts, facts, limits, chart=chart, warnings=warnings
    )


def _alone(report: ReportEvidence) -> bool:
    return bool(tasks_of(report))


OUTCOMES = ReportSection(_build, _alone, _front)
