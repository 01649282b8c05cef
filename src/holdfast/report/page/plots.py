"""Charts of the regression and of confidence: tidy frame and width in pixels → Vega-Lite specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.report.page.charts import in_order, panel_of, placed, records, room, rule_at
from holdfast.report.page.figures import COLOURS, INK, MUTED, WIDE, Chart

if TYPE_CHECKING:
    import pandas as pd

RESIDUALS_SHOWN = 1500
"""Dots of a residual plot; of more, every n-th is drawn, so that the page stays small."""


def coefficients(frame: pd.DataFrame, width: int, *, groups: Sequence[str]) -> Chart:
    """Coefficients with intervals in points, one panel a group (model, scenario, class) under another.

    Args:
        frame: group, row, estimate, low, high, stars; in the order to be shown.
        width: of the figure.
        groups: in order.
    """
    low, high = float(frame["low"].min()), float(frame["high"].max())
    scale = {"domain": [min(low, 0.0), max(high, 0.0)], "nice": True}
    axis = {
        "labelExpr": "datum.value == 0 ? '0' : format(100 * datum.value, '+.0f')",
        "domain": False,
        "ticks": False,
        "tickCount": 8 if width >= WIDE else 4,
    }
    label = room(list(frame["row"]), 190, 12) if width >= WIDE else room(list(frame["row"]), 138, 11)
    inner = width - label - 24
    parts = []
    for group in groups:
        part = frame[frame["group"] == group]
        last = group == groups[-1]
        x = {
            "type": "quantitative",
            "scale": scale,
            "axis": axis | {"title": "points against the reference" if last else None},
        }
        y = {"field": "row", "type": "nominal", "scale": in_order(list(part["row"])), "title": None}
        y["axis"] = {"ticks": False, "domain": False, "labelPadding": 6, "labelLimit": label, "minExtent": label}
        tip: list[Chart] = [{"field": "row", "title": group}, {"field": "stars", "title": "stars"}]
        for field, title in (("estimate", "estimate"), ("low", "95 % from"), ("high", "to")):
            tip.append({"field": field, "type": "quantitative", "title": title, "format": "+.1%"})
        dot = {"type": "point", "filled": True, "size": 50, "opacity": 1, "color": COLOURS[0]}
        layers: list[Chart] = [
            rule_at(0),
            {
                "mark": {"type": "rule", "strokeWidth": 1.7, "color": COLOURS[0]},
                "encoding": {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y},
            },
            {"mark": dot, "encoding": {"x": x | {"field": "estimate"}, "y": y, "tooltip": tip}},
            {
                "transform": [{"filter": "datum.stars === 'ns'"}],
                "mark": {"type": "point", "filled": True, "size": 14, "color": "white", "opacity": 1},
                "encoding": {"x": x | {"field": "estimate"}, "y": y},
            },
        ]
        parts.append(
            {
                "title": {"text": group, "anchor": "start", "frame": "group", "offset": 4},
                "transform": [{"filter": {"field": "group", "equal": group}}],
                "width": inner,
                "height": {"step": 16},
                "layer": layers,
            }
        )
    data = {"data": {"name": "rows"}, "datasets": {"rows": records(frame)}}
    return data | {"vconcat": parts, "spacing": 14, "resolve": {"scale": {"y": "independent"}}}


def residuals(frame: pd.DataFrame, width: int) -> Chart:
    """The four plots: residuals, their absolute values, the Q–Q plot, residuals in order.

    Args:
        frame: model, condition, label, fitted, residual, absolute, quantile, order.
        width: of the figure.
    """
    step = -(-len(frame) // RESIDUALS_SHOWN)
    shown = frame.iloc[::step]
    columns = 4 if width >= WIDE else 2
    inner = (width - columns * 58) // columns
    plots = (
        ("Residuals", "fitted", "residual", "fitted accuracy", 0.0),
        ("|Residuals|", "fitted", "absolute", "fitted accuracy", None),
        ("Normal Q–Q", "quantile", "residual", "expected if normal", None),
        ("In order", "order", "residual", "cell", 0.0),
    )
    tip = [{"field": name} for name in ("model", "condition", "label")]
    parts = []
    for title, across, up, axis, zero in plots:
        mark = {"type": "point", "filled": True, "size": 9, "opacity": 0.45, "color": COLOURS[0]}
        small = {"tickCount": 3, "labelFontSize": 10, "titleFontSize": 10, "domain": False, "ticks": False}
        encoding = {
            "x": {"field": across, "type": "quantitative", "title": axis, "scale": {"zero": False}, "axis": small},
            "y": {"field": up, "type": "quantitative", "title": None, "axis": small},
            "tooltip": tip,
        }
        layers: list[Chart] = [{"mark": mark, "encoding": encoding}]
        if zero is not None:
            layers.insert(0, rule_at(zero, "y"))
        if title.startswith("Normal"):
            ends = [float(shown["quantile"].min()), float(shown["quantile"].max())]
            layers.insert(0, _line([{"x": end, "y": end} for end in ends]))
        parts.append({"title": {"text": title, "fontSize": 12}, "width": inner, "height": 150, "layer": layers})
    data = {"data": {"name": "rows"}, "datasets": {"rows": records(shown)}}
    return data | {"concat": parts, "columns": columns, "spacing": 14, "resolve": {"scale": {"x": "independent"}}}


def _line(values: list[dict[str, float]]) -> Chart:
    return {
        "data": {"values": values},
        "mark": {"type": "line", "color": MUTED, "strokeDash": [3, 3], "strokeWidth": 1},
        "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}},
    }


def confidence(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Accuracy against mean confidence, a dot per condition; honest confidence lies on the diagonal.

    Args:
        frame: model, row (condition), confidence, estimate (accuracy), low, high, label (empty where none is written).
        width: of the figure.
        models: in order.
    """
    panels = len(models) > 1
    columns = min(len(models), 3 if width >= WIDE else 1)
    inner = min(400, (width - 60) // columns - 30) if panels else min(520, width - 60)
    percent = {"format": "%", "domain": False, "ticks": False, "tickCount": 5}
    axis = {"type": "quantitative", "scale": {"domain": [0, 1]}}
    x = axis | {"field": "confidence", "title": "mean confidence", "axis": percent}
    y = axis | {"title": "accuracy", "axis": percent}
    tip: list[Chart] = [{"field": "model"}, {"field": "row", "title": "condition"}]
    for field, title in (
        ("confidence", "mean confidence"),
        ("estimate", "accuracy"),
        ("low", "95 % from"),
        ("high", "to"),
    ):
        tip.append({"field": field, "type": "quantitative", "title": title, "format": ".1%"})
    blue = {"color": COLOURS[0]}
    halo: Chart = {"type": "text", "stroke": "white", "strokeWidth": 4, "strokeJoin": "round"}
    ink: Chart = {"type": "text", "color": INK}
    layers: list[Chart] = [
        _line([{"x": 0, "y": 0}, {"x": 1, "y": 1}]),
        {
            "mark": {"type": "rule", "strokeWidth": 1, **blue},
            "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 44, "opacity": 1, **blue},
            "encoding": {"x": x, "y": y | {"field": "estimate"}, "tooltip": tip},
        },
        *(
            {
                "transform": [{"filter": f"datum.label !== '' && datum.confidence {side}"}],
                "mark": look | {"align": align, "dx": dx, "fontSize": 11, "limit": inner // 2},
                "encoding": {"x": x, "y": y | {"field": "estimate"}, "text": {"field": "label"}},
            }
            for side, align, dx in (("<= 0.55", "left", 8), ("> 0.55", "right", -8))
            for look in (halo, ink)
        ),
    ]  # fmt: skip
    data: Chart = {"data": {"name": "rows"}, "datasets": {"rows": records(placed(frame, models))}}
    if not panels:
        return data | {"width": inner, "height": int(0.8 * inner), "layer": layers}
    spec = {"width": inner, "height": int(0.8 * inner), "layer": layers}
    return data | {"facet": panel_of(inner), "columns": columns, "spacing": {"row": 18, "column": 24}, "spec": spec}
