"""Section: how far confidence can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.lazy import pd
from holdfast.core.names import without_object
from holdfast.core.numbers import number, percent, points, span
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import charts
from holdfast.reports.page.charts import INTERVAL, SIDE_BY_SIDE, chart_of, dot_layer, facet_of, layer, tooltip
from holdfast.reports.page.evidence import Evidence, with_display_names
from holdfast.reports.page.figures import COLOURS, INK, WIDE, Chart, Figure
from holdfast.reports.page.parts import Heading, Notice, Part, Section, Text
from holdfast.reports.page.sections import ReportSection, usual
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain
from holdfast.reports.page.words import DAGGER, condition_label, plural
from holdfast.stats.core.cells import wilson
from holdfast.stats.effects.confidence import background_auroc, calibration


def confidence(evidence: Evidence) -> Section:
    """Return how far confidence can be trusted, and whether it notices that the object is gone."""
    section = Section("confidence", "Confidence")
    frame = with_display_names(calibration(evidence.counts))
    if frame.empty:
        section.lead = ["Whether a model knows when it is wrong."]
        section.parts = [Notice("No row has a confidence.")]
        return section
    section.lead = [_lead(evidence, frame)]
    section.parts = [_scatter(evidence, frame, section.lead[0]), _table(evidence, frame)]
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
    start = "The gap" if len(kept) == 1 else "The largest gap"
    return text + (
        f"{start} is that of {evidence.name(over['model'])} under {condition_label(over['condition'])}: mean "
        f"confidence {percent(over['confidence'])}, accuracy {percent(over['accuracy'])}, {points(over['gap'])} too "
        "sure."
    )


def _scatter(evidence: Evidence, frame: pd.DataFrame, lead: str) -> Figure:
    right = frame["accuracy"] * frame["n"]
    low, high = wilson(right.to_numpy(), frame["n"].to_numpy())
    tidy = frame.assign(row=frame["condition"].map(condition_label), estimate=frame["accuracy"], low=low, high=high)
    gap = (frame["confidence"] - frame["accuracy"]).abs()
    tidy["label"] = ""
    for _, group in tidy.assign(gap=gap).groupby("model"):
        tidy.loc[_labelled(group), "label"] = tidy["row"]
    wide = frame.assign(gap=gap).groupby("model")["gap"].max().sort_values(ascending=False)
    chosen = set(wide.index[:SIDE_BY_SIDE])
    models = [evidence.short[name] for name in evidence.models if name in chosen]
    tidy = tidy[tidy["model"].isin(chosen)].assign(model=lambda frame: frame["model"].map(evidence.short))
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
        lambda width: _chart(tidy, width, models=models),
        "On the dashed line a model is as often right as it is sure. The original and the largest gaps are named if "
        f"there is room.{few}{dagger}",
    )


def _labelled(group: pd.DataFrame, most: int = 5) -> list[int]:
    """Return the marks to name: the original, then those farthest from the diagonal, while names do not overlap."""
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
    ordered = evidence.in_order(frame, "condition")
    columns = [
        CONDITION,
        model_column(evidence.short),
        Column("n", "Answers", "integer"),
        *plain("percent", accuracy="Accuracy", confidence="Confidence"),
        Column("ece", "ECE", "number", digits=3, hint="expected calibration error, 15 bins"),
        Column("brier", "Brier", "number", digits=3, hint="mean squared error of the confidence"),
        Column("aurc", "AURC", "number", digits=3, hint="area under the risk–coverage curve; lower is better"),
        Column("confidence_wrong", "Confidence when wrong", "percent"),
    ]
    note = "Confidence belongs to the answer over all outputs, so right means that here; every image counts the same."
    return Table("confidence", "Calibration by condition and model", ordered, columns, note, folded=True)


def _without_object(evidence: Evidence) -> list[Part]:
    heading = Heading("Does confidence notice that the object is gone?")
    frame = with_display_names(background_auroc(evidence.counts))
    if frame.empty:
        return [heading, Notice("The conditions original and only_background were not both run.")]
    frame = frame.sort_values("auroc", ascending=False, kind="stable")
    first, last = frame.iloc[0], frame.iloc[-1]
    ends = [
        f"{evidence.name(row['model'])} {number(row['auroc'], 3)} ({span(row['low'], row['high'], 3, 1)})"
        for row in (first, last)
    ]
    differ = len(frame) > 1 and number(first["auroc"], 3) != number(last["auroc"], 3)
    lowest = f"; the lowest is {ends[1]}" if differ else "; the same for all models" if len(frame) > 1 else ""
    text = (
        "The chance that a model is surer of an image than of its empty background (area under the ROC curve; 0.5 "
        f"means that it does not notice): {ends[0]}{lowest}."
    )
    columns = [
        model_column(evidence.short),
        Column("auroc", "AUROC", "number", "low", "high", digits=3),
        *plain("integer", n="Originals", n_background="Backgrounds"),
    ]
    caption = "Original against background alone, by confidence"
    table = Table("background_auroc", caption, frame, columns, folded=len(frame) > 6)
    return [heading, Text([text]), table]


def _chart(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Return accuracy against mean confidence, with a dot per condition; ``label`` names some of them."""
    panels = len(models) > 1
    columns = min(len(models), 3 if width >= WIDE else 1)
    inner = min(400, (width - 60) // columns - 30) if panels else min(520, width - 60)
    axis_format = {"format": "%", "domain": False, "ticks": False, "tickCount": 5}
    axis = {"type": "quantitative", "scale": {"domain": [0, 1]}}
    x = axis | {"field": "confidence", "title": "mean confidence", "axis": axis_format}
    y = axis | {"title": "accuracy", "axis": axis_format}
    numbers = {"confidence": "mean confidence", **INTERVAL, "estimate": "accuracy"}
    tip = [{"field": "model"}, *tooltip({"row": "condition"}, numbers)]
    halo = {"stroke": "white", "strokeWidth": 4, "strokeJoin": "round"}
    named = {"x": x, "y": y | {"field": "estimate"}, "text": {"field": "label"}}
    ends = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
    layers = [
        charts.dashed_line([{"x": 0, "y": 0}, {"x": 1, "y": 1}]),
        layer("rule", ends, strokeWidth=1, color=COLOURS[0]),
        dot_layer({"x": x, "y": y | {"field": "estimate"}, "tooltip": tip}, 44, color=COLOURS[0]),
    ]
    for side, align, dx in (("<= 0.55", "left", 8), ("> 0.55", "right", -8)):
        where, place = f"datum.label !== '' && datum.confidence {side}", {"align": align, "dx": dx, "limit": inner // 2}
        layers += [layer("text", named, where, fontSize=11, **place, **look) for look in (halo, {"color": INK})]
    spec = {"width": inner, "height": int(0.8 * inner), "layer": layers}
    if not panels:
        return chart_of(charts.placed(frame, models), **spec)
    spread = {"facet": facet_of("model", inner), "columns": columns, "spacing": {"row": 18, "column": 24}}
    return chart_of(charts.placed(frame, models), **spread, spec=spec)


CONFIDENCE = ReportSection(lambda report: confidence(report.classified), usual)
