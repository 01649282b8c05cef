"""The page of ``holdfast report --choose``: weighted accuracy, size and speed of models side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import cannot_write
from holdfast.core.files import clear_leftovers, write_atomic
from holdfast.core.lazy import pd
from holdfast.core.numbers import number, percent
from holdfast.reports.page import charts
from holdfast.reports.page.figures import COLOURS, INK, MUTED, WIDE, Chart, Figure
from holdfast.reports.page.parts import Front, Notice, Part, Section, answer, first_figure
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, ranged, yes_no
from holdfast.reports.page.words import condition_label, listing, page_facts, plural, short_names
from holdfast.reports.page.writer import about_runs, write_page
from holdfast.stats.models.choice import ModelChoice
from holdfast.stats.models.recommendation import MEGA, Recommendation
from holdfast.store import Run

TITLE = "Which model should be used under these conditions?"
MEANING = (
    "Weighted accuracy is the mean of the accuracies under the weighted conditions, each with its weight, on the "
    "images that all models answered. Images are resampled together for all models, so that differences are paired."
)
_COSTS = {
    "time": ("milliseconds", "milliseconds per image", "fast", "slow"),
    "size": ("megabytes", "megabytes of weights", "", ""),
}


def build(
    choice: ModelChoice, recommendation: Recommendation, runs: Sequence[Run], out: Path, *, settings: Mapping[str, Any]
) -> Path:
    """Write ``index.html``, ``figures/``, ``tables/`` and ``choice.json``; return the page's path."""
    facts = [
        *page_facts((len(choice.models), "model")),
        (f"{choice.photos:,}", "images that all answered"),
        (f"{len(choice.weights):,}", "weighted conditions"),
    ]
    limits = (
        "Which conditions matter, and how much, is yours to say: the choice is as good as the weights. Intervals are "
        "at the 95 % level and treat images as independent; differences and groups hold for all pairs of models "
        f"together. {settings['timing']}"
    )
    try:
        clear_leftovers(out / "choice.json")
        write_atomic(out / "choice.json", as_json(choice, recommendation, settings).encode())
    except OSError as error:
        raise cannot_write(f"the page to {out}", error) from error
    shown = sections(choice, recommendation)
    said = recommendation.sentences
    front = Front(TITLE, answer(said[0], " ".join(said[1:3])), facts, limits, chart=first_figure(shown[0].parts))
    return write_page(front, shown, out, **about_runs(runs))


def as_json(choice: ModelChoice, recommendation: Recommendation, settings: Mapping[str, Any]) -> str:
    """Return everything the page shows as JSON."""
    value = {
        "recommended": recommendation.model,
        "sentences": list(recommendation.sentences),
        "decided": choice.decided,
        "best": choice.best,
        "not_told_apart": list(choice.together),
        "photos": choice.photos,
        "more_photos": choice.more_photos,
        "settings": dict(settings),
        "models": choice.models.to_dict("records"),
        "weights": choice.weights.to_dict("records"),
        "sensitivity": choice.sensitivity.to_dict("records"),
    }
    return json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return the value with plain numbers, null if one is missing."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sections(choice: ModelChoice, recommendation: Recommendation) -> list[Section]:
    """Return what to take, what it costs, and what the weights do."""
    short = short_names([str(name) for name in choice.models["model"]])
    first = Section("choice", "What to take", lead=list(recommendation.sentences))
    first.parts = [_ranked(choice, short, recommendation), _models(choice, short)]
    costs = Section("costs", "Accuracy against cost", parts=_fronts(choice, short))
    costs.lead = [
        "A model is on the front if no other is at least as accurate for at most its cost. The share of resamples "
        "in which it is says how sure that is; costs are taken as measured."
    ]
    return [first, costs, _weights(choice, short)]


def _ranked(choice: ModelChoice, short: dict[str, str], recommendation: Recommendation) -> Figure:
    table = choice.models
    rows = [short[str(name)] for name in table["model"]]
    tidy = table.assign(model="", row=rows, estimate=table["accuracy"], solid=~table["told_apart"].astype(bool))
    title, sentence = "Weighted accuracy with 95 % intervals", recommendation.sentences[0]
    note = (
        "Filled: the best within the limits, and models that do not differ clearly from it. Hollow: those that do. "
        "Intervals of two models may overlap and the models still be distinguished, because images are paired."
    )
    return charts.dot_figure("weighted_accuracy", title, sentence, tidy, axis="weighted accuracy", note=note)


def _models(choice: ModelChoice, short: dict[str, str]) -> Table:
    table = choice.models.assign(megabytes=choice.models["bytes"] / MEGA, millions=choice.models["parameters"] / MEGA)
    table["told"] = [yes_no(row["told_apart"]) if row["eligible"] else "" for row in table.to_dict("records")]
    columns = [
        model_column(short),
        Column("accuracy", "Weighted accuracy", "percent", "low", "high"),
        Column("best", "Best", "percent", hint="share of resamples in which it is the best within the limits"),
        ranged("difference", "To the best", "points", hint="simultaneous bounds"),
        Column("told", "Distinguished"),
        Column("milliseconds", "ms per image", "number", "fast", "slow", digits=2, hint="median of repeats, quartiles"),
        Column("millions", "Parameters, millions", "number", digits=2),
        Column("megabytes", "MB", "number", digits=1, hint="of the weights"),
        Column("front_time_share", "On the front (time)", "percent", hint="share of resamples"),
        Column("front_size_share", "On the front (size)", "percent", hint="share of resamples"),
        Column("why_not", "Limits", show=lambda text: text or "held"),
    ]
    missing = [f"{short[row['model']]}: {row['reason']}" for row in table.to_dict("records") if row["reason"]]
    note = MEANING + (f" Not known: {'; '.join(missing[:8])}." if missing else "")
    return Table("models", "Models side by side", table, columns, note)


def _fronts(choice: ModelChoice, short: dict[str, str]) -> list[Part]:
    parts: list[Part] = []
    table = choice.models.assign(megabytes=choice.models["bytes"] / MEGA)
    for what, (column, title, low, high) in _COSTS.items():
        known = table[table[column].notna() & (table[column] > 0)]
        if len(known) < 2:
            parts.append(Notice(f"{title.capitalize()}: known of {plural(len(known), 'model')}, so there is no chart."))
            continue
        tidy = known.assign(
            row=known["model"].map(short),
            cost=known[column],
            estimate=known["accuracy"],
            front=known[f"front_{what}"],
            share=known[f"front_{what}_share"],
            cost_low=known[low or column].fillna(known[column]),
            cost_high=known[high or column].fillna(known[column]),
        )[["row", "cost", "cost_low", "cost_high", "estimate", "low", "high", "front", "share"]]
        tidy = tidy.sort_values("cost", kind="stable", ignore_index=True)
        on = [f"{row['row']} ({percent(row['share'], 0)})" for row in tidy[tidy["front"]].to_dict("records")]
        parts.append(
            Figure(
                f"pareto_{what}",
                f"Weighted accuracy against {title}, with 95 % intervals",
                f"On the front, with the share of resamples: {listing(on, 8)}.",
                lambda width, tidy=tidy, title=title: pareto(tidy, width, title=title),  # type: ignore[misc]
                "The dashed line is the front; hollow marks are not on it. The scale of the cost is logarithmic.",
            )
        )
    return parts


def pareto(frame: pd.DataFrame, width: int, *, title: str) -> Chart:
    """Return accuracy (up) against cost (across), with intervals, names and the front of each."""
    axis = {"domain": False, "ticks": False}
    x = {"type": "quantitative", "scale": {"type": "log", "nice": False, "padding": _PADDING}, "title": title}
    x["axis"] = axis | {"tickCount": 6 if width >= WIDE else 3, "format": "~g"}
    y = {"type": "quantitative", "scale": {"zero": False}, "title": "weighted accuracy", "axis": axis | {"format": "%"}}
    tips: list[Chart] = [{"field": "row", "title": "model"}]
    tips += [{"field": name, "type": "quantitative", "format": ".1%"} for name in ("estimate", "low", "high", "share")]
    tips.append({"field": "cost", "type": "quantitative", "title": title, "format": ".3~g"})
    place = {"x": x | {"field": "cost"}, "y": y | {"field": "estimate"}}
    inner, height = min(width - 80, 680), 340 if width >= WIDE else 260
    frame = _labelled(frame, inner, height)
    text: Chart = {"fontSize": 11, "limit": inner // 2}
    text |= {name: {"expr": f"datum.{name}"} for name in ("align", "dx", "dy")}
    word = place | {"text": {"field": "row"}}
    upright = {"x": place["x"], "y": y | {"field": "low"}, "y2": {"field": "high"}}
    flat = {"x": x | {"field": "cost_low"}, "x2": {"field": "cost_high"}, "y": place["y"]}
    dashes = {"interpolate": "step-after", "color": MUTED, "strokeDash": [3, 3]}
    halo = {"stroke": "white", "strokeWidth": 4, "strokeJoin": "round"}
    layers = [
        charts.layer("line", place, "datum.front", **dashes),
        charts.layer("rule", upright, strokeWidth=1.4, color=COLOURS[0]),
        charts.layer("rule", flat, strokeWidth=1.4, color=COLOURS[0]),
        charts.dot_layer(place | {"tooltip": tips}, 70, color=COLOURS[0]),
        charts.dot_layer(place, 20, "!datum.front", color="white"),
        charts.layer("text", word, **text, **halo),
        charts.layer("text", word, **text, color=INK),
    ]
    return charts.chart_of(frame, 6, width=inner, height=height, layer=layers)


def _labelled(frame: pd.DataFrame, width: int, height: int) -> pd.DataFrame:
    """Return the frame with ``align``, ``dx`` and ``dy``: each name is where it covers the other marks least."""
    cost, level = np.log(frame["cost"].to_numpy(float)), frame["estimate"].to_numpy(float)
    left, low, high = cost.min(), float(frame["low"].min()), float(frame["high"].max())
    across = _PADDING + (cost - left) / max(float(np.ptp(cost)), 1e-9) * (width - 2 * _PADDING)
    down = (high - level) / max(high - low, 1e-9) * height
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in zip(across, down, strict=True)]
    chosen = []
    for name, x, y in zip(frame["row"], across, down, strict=True):
        long = min(6.3 * len(str(name)), width / 2)
        boxes = []
        for align, dx, dy in _BESIDE:
            start = x + dx if align == "left" else x + dx - long
            box = (start, y + dy - 7, start + long, y + dy + 7)
            outside = max(0.0, -box[0]) + max(0.0, box[2] - width)
            boxes.append((20 * outside + sum(_overlap(box, other) for other in taken), box, align, dx, dy))
        _, box, align, dx, dy = min(boxes, key=lambda choice: choice[0])
        taken.append(box)
        chosen.append((align, dx, dy))
    aligns, across_by, down_by = zip(*chosen, strict=True)
    return frame.assign(align=list(aligns), dx=list(across_by), dy=list(down_by))


_PADDING = 30
_BESIDE = [(align, dx, dy) for dy in (-9, 11, -22, 24) for align, dx in (("left", 8), ("right", -8))]
"""Places of a name next to its mark, the best first."""

Box = tuple[float, float, float, float]


def _overlap(first: Box, second: Box) -> float:
    wide = min(first[2], second[2]) - max(first[0], second[0])
    tall = min(first[3], second[3]) - max(first[1], second[1])
    return wide * tall if wide > 0 and tall > 0 else 0.0


def _weights(choice: ModelChoice, short: dict[str, str]) -> Section:
    section = Section("weights", "What the weights do")
    columns = [
        CONDITION,
        Column("asked", "Asked for as"),
        Column("weight", "Weight", "percent", hint="share of the whole"),
        Column("n", "Images", "integer", hint="that all models answered"),
    ]
    section.parts.append(Table("weights", "Weights of the conditions", choice.weights, columns))
    detail = choice.conditions.pivot(index="model", columns="condition", values="accuracy").reset_index()
    by = [model_column(short)]
    by += [Column(name, condition_label(name).capitalize(), "percent") for name in choice.weights["condition"]]
    caption = "Accuracy under each weighted condition"
    section.parts.append(Table("by_condition", caption, detail, by, folded=len(by) > 8))
    frame = choice.sensitivity
    if frame.empty:
        section.lead = ["There is one weight only, so no other weighing to compare with."]
        return section
    changed = int(frame["changed"].sum())
    section.lead = [
        f"With one weight doubled or halved, the best model changes in {changed} of {len(frame)} cases"
        + ("." if changed else ": the choice does not hang on a single weight.")
    ]

    def shortened(names: str) -> str:
        return ", ".join(short.get(name, name) for name in names.split(", "))

    columns = [
        Column("name", "Weight of"),
        Column("factor", "Times", "number", show=lambda value: number(value, 1 if value < 1 else 0)),
        Column("best", "Best", show=lambda name: short.get(name, name)),
        Column("accuracy", "Its weighted accuracy", "percent"),
        Column("share", "Best in", "percent", hint="share of resamples"),
        Column("together", "No clear difference", show=shortened),
        Column("changed", "Changes", show=yes_no),
    ]
    caption = "The choice when one weight is doubled or halved"
    section.parts.append(Table("sensitivity", caption, frame, columns))
    return section
