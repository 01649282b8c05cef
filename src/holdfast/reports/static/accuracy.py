"""Sections: accuracy by scenario, maps of class × scenario, and what conditions cost each label of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow.dataset as ds

from holdfast.core.lazy import pd
from holdfast.core.names import without_object
from holdfast.core.numbers import alike, estimate, percent, points, span
from holdfast.core.schema import MULTILABEL
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import Evidence, ReportRows
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import Front, Section, answer
from holdfast.reports.page.sections import ReportEvidence, ReportSection, of_task, usual
from holdfast.reports.page.tables import CLASS, CONDITION, Column, Table, model_column, plain
from holdfast.reports.page.words import (
    DAGGER,
    class_names,
    class_words,
    condition_label,
    listing,
    page_facts,
    plural,
    short_names,
)
from holdfast.stats.effects.drops import LABEL_COLUMNS, label_drops

LABELLED = ds.field("task") == MULTILABEL
ALL_CLASSES = 40  # If there are more classes, a map shows the worst and the most affected ones
LABELS_SHOWN = 8  # Rows of the first chart of a page about labels
PICKED = 15  # How many of each of those two kinds it shows


def scenarios(evidence: Evidence) -> Section:
    """Return the accuracy under each condition with intervals, models side by side."""
    section = Section("scenarios", "Accuracy by scenario")
    frame = evidence.summary
    kind = "class-macro accuracy" if evidence.average == "macro" else "accuracy"
    section.lead = [_scenario_lead(evidence, kind)]
    rows = [condition_label(name) for name in evidence.conditions]
    figure = charts.model_figure(
        "accuracy_by_scenario",
        "Accuracy under each condition, with 95 % intervals; below the original, the most harmful first",
        " ".join(section.lead), frame, "accuracy", short=evidence.short, rows=rows, axis=kind, domain=(0, 1),
        note=_notes(evidence),
    )  # fmt: skip
    section.parts = [figure, _scenario_table(evidence)]
    return section


def _notes(evidence: Evidence) -> str:
    notes = [DAGGER] if any(without_object(name) for name in evidence.conditions) else []
    for repeat, first in evidence.counts.same_images.items():
        notes.append(
            f"{condition_label(repeat)} shows the models the very same pixels as {condition_label(first)}; scores "
            "count it once."
        )
    if evidence.counts.attacks:
        attacks = listing([condition_label(name) for name in evidence.counts.attacks])
        notes.append(
            f"Attacks ({attacks}) change each image against each model at its own input, so that no two models saw "
            "the same; no score, ranking or regression counts them."
        )
    return " ".join(notes)


def _scenario_lead(evidence: Evidence, kind: str) -> str:
    frame = evidence.summary
    text = f"Each mark is the {kind} of a model under one condition."
    left_out = {ORIGINAL, *evidence.counts.attacks}
    harmful = [name for name in evidence.conditions if name not in left_out and not without_object(name)]
    if not harmful:
        return f"{text} There is no condition other than the original, so nothing to compare it with."
    means = frame.groupby("condition", observed=True)["accuracy"].mean()
    whole = means.get(ORIGINAL, 1.0)
    if means[harmful[0]] > whole or alike(means[harmful[0]], whole):
        return f"{text} No condition lowers the {kind}, averaged over models."
    tied = [name for name in harmful if alike(means[name], means[harmful[0]])]
    if len(tied) == len(harmful) > 1:
        return f"{text} All {len(harmful)} conditions that keep the object have the same mean {kind}."
    worst = {row["model"]: row for row in frame[frame["condition"] == harmful[0]].to_dict("records")}
    before = frame[frame["condition"] == ORIGINAL].set_index("model")["accuracy"]
    said = []
    for model in [name for name in evidence.models if name in worst][:3]:
        row = worst[model]
        known = model in before.index and not alike(before[model], row["accuracy"])
        start = f" from {percent(before[model])} to" if known else " is at"
        said.append(f"{evidence.short[model]}{start} {estimate(row['accuracy'], row['low'], row['high'])}")
    more = f", and {plural(len(worst) - 3, 'model')} more in the table" if len(worst) > 3 else ""
    which = "The most harmful condition is" if len(harmful) > 1 else "The one condition that keeps the object is"
    if len(tied) > 1:
        which = f"{len(tied)} conditions are equally harmful, among them"
    return f"{text} {which} {condition_label(harmful[0])}: {listing(said)}{more}."


def scenario_columns(short: Mapping[str, str]) -> list[Column]:
    """Return the columns of accuracies as shown."""
    return [
        CONDITION,
        model_column(short),
        Column("n", "Images", "integer"),
        Column("accuracy", "Accuracy", "percent", "low", "high"),
        Column("worst_class", "Worst class", show=class_words),
        Column("worst_class_accuracy", "its accuracy", "percent", "worst_class_low", "worst_class_high"),
    ]


def _scenario_table(evidence: Evidence) -> Table:
    frame = evidence.in_order(evidence.summary, "condition", "model")
    columns = scenario_columns(evidence.short)
    note = "The interval of the worst class allows for having picked it by looking."
    caption = "Accuracy by condition and model"
    return Table("accuracy_by_scenario", caption, frame, columns, note, folded=True, crossed=("model", "condition"))


def maps(evidence: Evidence) -> Section:
    """Return a map of class × scenario: with numbers for one model, a small one each for several."""
    section = Section("classes", "Accuracy density maps: classes under each scenario")
    frame = evidence.classes
    picked, note = _picked(evidence, frame)
    section.lead = [_map_lead(evidence, frame), *([note] if note else [])]
    words = class_names(frame["label"].unique())
    picked = [words[name] for name in picked]
    wide = frame.assign(
        row=frame["label"].map(words), column=frame["condition"].map(condition_label), estimate=frame["accuracy"],
        kept=~frame["condition"].map(without_object),
    )  # fmt: skip
    wide = wide[wide["row"].isin(picked)][["model", "row", "column", "estimate", "n", "kept"]]
    columns = [condition_label(name) for name in evidence.conditions]
    if len(evidence.models) > 1:
        few = picked[: 2 * PICKED]
        small = wide.drop(columns="kept")[wide["row"].isin(few)].assign(model=wide["model"].map(evidence.short))
        models = [evidence.short[name] for name in evidence.models]
        figure = Figure(
            "class_maps",
            "Accuracy density maps: class by condition, a map per model",
            section.lead[0],
            lambda width: charts.density_panels(small, width, rows=few, columns=columns, models=models),
            "Cells that stand out from the page are where a model fails. " + _notes(evidence),
        )
        section.parts.append(figure)
    else:
        section.parts.append(_map(evidence, wide, picked, columns))
    section.parts.append(_class_table(evidence, frame))
    return section


def _map(evidence: Evidence, frame: pd.DataFrame, rows: list[str], columns: list[str]) -> Figure:
    model, cells = evidence.models[0], frame.drop(columns="model")
    lowest = cells[cells["kept"]].sort_values("estimate").head(3)
    named = [
        f"{cell['row']} under {cell['column']} ({percent(cell['estimate'], 0)})" for cell in lowest.to_dict("records")
    ]
    finding = f"Accuracy of {evidence.short[model]} by class and condition"
    if len(named) and not alike(lowest["estimate"].min(), cells["estimate"].max()):
        finding += f"; the lowest cells are {listing(named)}"
    return Figure(
        "class_map",
        f"Accuracy density map of {evidence.short[model]}, in per cent, class by condition",
        f"{finding}.",
        lambda width: charts.density(cells.drop(columns="kept"), width, rows=rows, columns=columns),
        "Cells that stand out from the page are where the model fails. " + _notes(evidence),
    )


def _picked(evidence: Evidence, frame: pd.DataFrame) -> tuple[list[str], str]:
    """Return the classes to show, the worst first, and a sentence if some are left out."""
    kept = evidence.with_object(frame)
    means = kept.groupby("label")["accuracy"].mean().sort_values(kind="stable")
    if len(means) <= ALL_CLASSES:
        return list(means.index), ""
    original = frame[frame["condition"] == ORIGINAL].groupby("label")["accuracy"].mean()
    affected = (original - means).dropna().sort_values(ascending=False, kind="stable")
    chosen = set(means.index[:PICKED])
    chosen |= set([name for name in affected.index if name not in chosen][:PICKED])
    note = (
        f"Of {len(means):,} classes the maps show the {PICKED} with the lowest accuracy and the {len(chosen) - PICKED} "
        "that lose most against the original; all of them are in the CSV file under the maps."
    )
    return [name for name in means.index if name in chosen], note


def _map_lead(evidence: Evidence, frame: pd.DataFrame) -> str:
    kept = evidence.with_object(frame)
    means = kept.groupby("label")["accuracy"].mean().sort_values(kind="stable")
    text = "Which classes fail where: a cell is the accuracy of one class under one condition."
    if len(means) < 2:
        return text
    if alike(means.iloc[0], means.iloc[-1]):
        same = f"every class has an accuracy of {percent(means.iloc[0])}."
        return f"{text} Over models and conditions that keep the object, {same}"
    worst, best = class_words(str(means.index[0])), class_words(str(means.index[-1]))
    photos = evidence.counts.cells.groupby("label", observed=True)["source_id"].nunique()
    size = f"{photos.min():,}" if photos.min() == photos.max() else f"{photos.min():,} to {photos.max():,}"
    return (
        f"{text} Over models and conditions that keep the object, {worst} has the lowest accuracy "
        f"({percent(means.iloc[0])}) and {best} the highest ({percent(means.iloc[-1])}); the class that loses most to "
        f"the background may be another. A class has {size} {'image' if size == '1' else 'images'}, so "
        "single cells are rough."
    )


def _class_table(evidence: Evidence, frame: pd.DataFrame) -> Table:
    columns = [
        CLASS,
        CONDITION,
        model_column(evidence.short),
        Column("accuracy", "Accuracy", "percent", "low", "high"),
        Column("n", "Images", "integer"),
    ]
    ordered = frame.assign(_control=frame["condition"].map(without_object)).sort_values(
        ["_control", "accuracy"], kind="stable"
    )
    ordered = ordered.drop(columns="_control")
    caption = "The lowest cells: accuracy by class and condition"
    return Table("accuracy_by_class", caption, ordered, columns, shown=20, folded=True)


@dataclass(frozen=True)
class Labelled:
    """The answers on labels of a report."""

    rows: Any  # the one table's
    resampling: dict[str, int]

    @cached_property
    def table(self) -> pd.DataFrame:
        """What conditions cost labels, the largest loss first."""
        return label_drops(self.rows, **self.resampling).sort_values("drop", ascending=False, kind="stable")

    def front(self) -> Front:
        """Return the top of a page that is about labels only."""
        facts = page_facts((self.table["model"].nunique(), "model"), (len(self.rows["source_id"].unique()), "image"),
                          (self.table["label"].nunique(), "label"), (len(self.rows), "answer"))  # fmt: skip
        first = label_section(self).lead[0]
        worst = self.table.head(LABELS_SHOWN)
        rows = [f"{row['label']}, {condition_label(row['condition'])}" for row in worst.to_dict("records")]
        tidy = worst.assign(row=rows, estimate=worst["drop"], model="")
        chart = charts.dot_figure(
            "label_drops", "The largest drops of a label under a condition, with 95 % intervals", first,
            tidy[["model", "row", "estimate", "low", "high"]].drop_duplicates("row"), axis="points lost", zero=True,
        )  # fmt: skip
        return Front("Which labels does the model lose under which condition?", answer(first), facts, self.limits(),
                     chart=chart if len(tidy) else None)  # fmt: skip

    def limits(self) -> str:
        """Return what right means on the page."""
        return (
            "A label is a yes-or-no question: yes if its score reaches the threshold. Right is the mean of two "
            "shares, yes if the image has the label and no if it has not, so a guess is right in 50 %. Intervals "
            "hold for all labels together at the 95 % level and treat images as independent."
        )


def read_labels(rows: ReportRows, **resampling: int) -> Labelled:
    """Return the answers on labels among the rows."""
    return Labelled(rows.photos(LABEL_COLUMNS, LABELLED), resampling)


def label_section(labelled: Labelled) -> Section:
    """Return what every condition costs each label, with intervals."""
    table, section = labelled.table, Section("labels", "Labels under each condition")
    sure = table[table["low"] > 0].drop_duplicates(["label", "model"])
    section.lead = [
        f"{row['label']} loses {points(row['drop'])} ({span(row['low'], row['high'])}) under "
        f"{condition_label(row['condition'])} with {row['model']}." for row in sure.head(3).to_dict("records")
    ] or ["No condition clearly lowers the accuracy of any label."]  # fmt: skip
    shares = plain("percent", original="Right before", accuracy="Right after", recall="Yes if there",
                   alarms="Yes if not there")  # fmt: skip
    columns = [Column("label", "Label"), model_column(short_names(list(dict.fromkeys(table["model"])))), CONDITION,
               Column("drop", "Lost", "points", "low", "high"), *shares, *plain("integer", n="Images")]  # fmt: skip
    section.parts = [Table("labels", "What every condition costs each label, the largest loss first.", table, columns,
                           labelled.limits())]  # fmt: skip
    return section


def _labelled(report: ReportEvidence) -> Labelled:
    return read_labels(report.rows, **report.resampling)


SCENARIOS = ReportSection(lambda report: scenarios(report.classified), usual, measures=("accuracy",))
CLASSES = ReportSection(lambda report: maps(report.classified), usual)
LABELS = ReportSection(
    lambda report: label_section(report.once(_labelled)), of_task(MULTILABEL),
    lambda report: report.once(_labelled).front(), measures=("labels",),
)  # fmt: skip
