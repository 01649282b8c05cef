"""Charts of a mined set: tidy frame and width in pixels → Vega-Lite specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.report.page.charts import HEAT, by_model, in_order, records, room
from holdfast.report.page.figures import COLOURS, INK, SHAPES, WIDE, Chart

if TYPE_CHECKING:
    import pandas as pd


def curve(
    points: pd.DataFrame, subsets: pd.DataFrame, fitted: pd.DataFrame, width: int, *, models: Sequence[str]
) -> Chart:
    """Accuracy against the number of surrogates: a faint dot a subset, the mean with its interval, the fitted curve.

    ``fitted``: model, k, fitted, for many k.
    """
    x = {"field": "k", "type": "quantitative", "scale": {"zero": False, "nice": False, "padding": 18}}
    x["axis"] = {"title": "surrogates that all fail", "tickMinStep": 1, "format": "d", "grid": False}
    y = {"type": "quantitative", "scale": {"domain": [0, 1]}, "axis": {"title": "accuracy", "format": "%"}}
    colour = by_model(models, "color", COLOURS)
    layers: list[Chart] = [
        {
            "data": {"name": "subsets"},
            "mark": {"type": "point", "filled": True, "size": 18, "opacity": 0.25},
            "encoding": colour | {"x": x, "y": y | {"field": "accuracy"}},
        },
        {
            "data": {"name": "fitted"},
            "mark": {"type": "line", "strokeWidth": 1.5, "strokeDash": [5, 3]},
            "encoding": colour | {"x": x, "y": y | {"field": "fitted"}},
        },
        {
            "data": {"name": "points"},
            "mark": {"type": "rule", "strokeWidth": 1.7},
            "encoding": colour | {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": {"name": "points"},
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
            "encoding": colour | by_model(models, "shape", SHAPES) | {"x": x, "y": y | {"field": "estimate"}},
        },
    ]
    legend = {"columns": max(1, width // (room(models, width) + 60)), "columnPadding": 30, "symbolOpacity": 1}
    return {
        "datasets": {"points": records(points), "subsets": records(subsets), "fitted": records(fitted)},
        "width": width,
        "height": 300 if width >= WIDE else 240,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": layers,
        "config": {"legend": legend},
    }


def overlap(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Every two models: Jaccard overlap of their failures, dark where it is large; numbers where they fit.

    ``frame``: row, column, estimate (0..1, missing on the diagonal), shown.
    """
    desk = width >= WIDE
    label = room(models, 190 if desk else 100, 12 if desk else 10)
    size = max(14, min(64, (width - label - 30) / max(len(models), 1)))
    axis: Chart = {"ticks": False, "domain": False, "title": None, "labelLimit": label, "minExtent": label}
    axis |= {} if desk else {"labelFontSize": 10}
    x = {"field": "column", "type": "nominal", "scale": in_order(models)}
    x["axis"] = axis | {"orient": "top", "labelAngle": -60 if desk else -90, "minExtent": round(0.9 * label)}
    y = {"field": "row", "type": "nominal", "scale": in_order(models), "axis": axis}
    scale = {"domain": [0, 1], "range": list(reversed(HEAT))}
    shade = {"field": "estimate", "type": "quantitative", "scale": scale, "legend": None}
    tips = [{"field": "row", "title": "model"}, {"field": "column", "title": "with"}]
    tips.append({"field": "shown", "title": "overlap, %"})
    layers: list[Chart] = [
        {"mark": {"type": "rect", "stroke": "white"}, "encoding": {"x": x, "y": y, "color": shade, "tooltip": tips}}
    ]
    if size >= 22:
        ink = {"condition": {"test": "datum.estimate > 0.5", "value": "white"}, "value": INK}
        text = {"field": "shown", "type": "nominal"}
        layers.append(
            {"mark": {"type": "text", "fontSize": 10.5}, "encoding": {"x": x, "y": y, "text": text, "color": ink}}
        )
    data = {"data": {"name": "rows"}, "datasets": {"rows": records(frame)}}
    return data | {"width": {"step": size}, "height": {"step": min(size, 30)}, "layer": layers}
