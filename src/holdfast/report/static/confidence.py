"""Section: confidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.conditions import without_object
from holdfast.core.types import ORIGINAL
from holdfast.report.page import plots
from holdfast.report.page.charts import SIDE_BY_SIDE
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Heading, Notice, Part, Section, ShownFigure, ShownTable, Text
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import number, percent, plural, points, span
from holdfast.report.static.evidence import DAGGER, Evidence, shown

if TYPE_CHECKING:
    import pandas as pd


def confidence(evidence: Evidence) -> Section:
    """How far confidence can be trusted, and whether it notices that the object is gone."""
    section = Section("confidence", "Confidence")
    frame = evidence.calibration
    if frame.empty:
        section.lead = ["Whether a model knows when it is wrong."]
        section.parts = [Notice("No row has a confidence.")]
        return section
    section.lead = [_lead(evidence, frame)]
    section.parts = [ShownFigure(_scatter(evidence, frame, section.lead[0])), ShownTable(_table(evidence, frame))]
    section.parts += _without_object(evidence)
    return section


def _lead(evidence: Evidence, frame: pd.DataFrame) -> str:
    gap = (frame["confidence"] - frame["accuracy"]).rename("gap")
    kept = frame.assign(gap=gap)[~frame["condition"].map(without_object)]
    text = "Whether a model knows when it is wrong: below the diagonal it is surer than it is right. "
    if kept.empty:
        return text
    over = kept.sort_values("gap").iloc[-1]
    if over["gap"] <= 0:
        return text + "No model is surer than right, on average, under any condition that keeps the object."
    return text + (
        f"The largest gap is that of {evidence.name(over['model'])} under {shown(over['condition'])}: mean confidence "
        f"{percent(over['confidence'])}, accuracy {percent(over['accuracy'])}, {points(over['gap'])} too sure."
    )


def _scatter(evidence: Evidence, frame: pd.DataFrame, lead: str) -> Figure:
    from holdfast.stats.core.cells import wilson

    right = frame["accuracy"] * frame["n"]
    low, high = wilson(right.to_numpy(), frame["n"].to_numpy())
    tidy = frame.assign(row=frame["condition"].map(shown), estimate=frame["accuracy"], low=low, high=high)
    gap = (frame["confidence"] - frame["accuracy"]).abs()
    tidy["label"] = ""
    for _, group in tidy.assign(gap=gap).groupby("model"):
        tidy.loc[_labelled(group), "label"] = tidy["row"]
    wide = frame.assign(gap=gap).groupby("model")["gap"].max().sort_values(ascending=False)
    chosen = set(wide.index[:SIDE_BY_SIDE])
    models = [evidence.short[name] for name in evidence.models if name in chosen]
    tidy = tidy[tidy["model"].isin(chosen)].assign(model=lambda one: one["model"].map(evidence.short))
    tidy = tidy[["model", "row", "confidence", "estimate", "low", "high", "label"]]
    few = (
        f" Of {plural(len(wide), 'model')} those {len(chosen)} with the widest gaps are drawn."
        if len(wide) > len(chosen)
        else ""
    )
    dagger = f" {DAGGER}" if frame["condition"].map(without_object).any() else ""
    return Figure(
        "confidence",
        "Accuracy against mean confidence, a mark per condition, with 95 % intervals of the accuracy",
        lead,
        lambda width: plots.confidence(tidy, width, models=models),
        "On the dashed line a model is as often right as it is sure. The original and the largest gaps are named where "
        f"there is room.{few}{dagger}",
    )


def _labelled(group: pd.DataFrame, most: int = 5) -> list[int]:
    """Marks with a name beside them: the original, then those farthest from the diagonal, while names keep clear."""
    changed = group["condition"] != ORIGINAL
    ordered = group.assign(changed=changed).sort_values(["changed", "gap"], ascending=[True, False])
    taken: list[tuple[float, float]] = []
    kept: list[int] = []
    for index, x, y in zip(ordered.index, ordered["confidence"], ordered["estimate"], strict=True):
        if len(kept) < most and all(abs(x - a) > 0.5 or abs(y - b) > 0.07 for a, b in taken):
            taken.append((x, y))
            kept.append(index)
    return kept


def _table(evidence: Evidence, frame: pd.DataFrame) -> Table:
    position = {name: place for place, name in enumerate(evidence.conditions)}
    ordered = frame.sort_values("condition", key=lambda one: one.map(position), kind="stable")
    columns = [
        Column("condition", "Condition", show=shown),
        Column("model", "Model", show=evidence.name),
        Column("n", "Answers", "integer"),
        Column("accuracy", "Accuracy", "percent"),
        Column("confidence", "Confidence", "percent"),
        Column("ece", "ECE", "number", digits=3, hint="expected calibration error, 15 bins"),
        Column("brier", "Brier", "number", digits=3, hint="mean squared error of the confidence"),
        Column("aurc", "AURC", "number", digits=3, hint="area under the risk–coverage curve; lower is better"),
        Column("confidence_wrong", "Confidence when wrong", "percent"),
    ]
    note = "Confidence belongs to the answer over all outputs, so right means that here; every photo counts the same."
    return Table("confidence", "Calibration by condition and model", ordered, columns, note, folded=True)


def _without_object(evidence: Evidence) -> list[Part]:
    heading = Heading("Does confidence notice that the object is gone?")
    frame = evidence.background_auroc
    if frame.empty:
        return [heading, Notice("The conditions original and only_background were not both run.")]
    frame = frame.sort_values("auroc", ascending=False, kind="stable")
    first, last = frame.iloc[0], frame.iloc[-1]
    said = [
        f"{evidence.name(row['model'])} {number(row['auroc'], 3)} ({span(row['low'], row['high'], 3, 1)})"
        for row in (first, last)
    ]
    text = (
        "The chance that a model is surer of a photo than of its empty background (area under the ROC curve; 0.5 means "
        f"that it does not notice): {said[0]}{'; the lowest is ' + said[1] if len(frame) > 1 else ''}."
    )
    columns = [
        Column("model", "Model", show=evidence.name),
        Column("auroc", "AUROC", "number", "low", "high", digits=3),
        Column("n", "Originals", "integer"),
        Column("n_background", "Backgrounds", "integer"),
    ]
    caption = "Original against background alone, by confidence"
    table = Table("background_auroc", caption, frame, columns, folded=len(frame) > 6)
    return [heading, Text([text]), ShownTable(table)]
