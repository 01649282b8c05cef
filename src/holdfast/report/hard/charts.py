"""Charts of a mined set: tidy frame and width in pixels → Vega-Lite specification."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.lazy import pd
from holdfast.report.page.charts import (
    FIT,
    HEAT,
    by_model,
    chart_of,
    dot_layer,
    layer,
    records,
    room,
    square_axes,
    tooltip,
)
from holdfast.report.page.figures import COLOURS, INK, SHAPES, WIDE, Chart


def curve(
    points: pd.DataFrame, subsets: pd.DataFrame, fitted: pd.DataFrame, width: int, *, models: Sequence[str]
) -> Chart:
    """Accuracy against the number of surrogates: a faint dot a subset, the mean with its interval, the fitted curve."""
    x = {"field": "k", "type": "quantitative", "scale": {"zero": False, "nice": False, "padding": 18}}
    x["axis"] = {"title": "surrogates that all fail", "tickMinStep": 1, "format": "d", "grid": False}
    y = {"type": "quantitative", "scale": {"domain": [0, 1]}, "axis": {"title": "accuracy", "format": "%"}}
    colour = by_model(models, "color", COLOURS)
    shaped = colour | by_model(models, "shape", SHAPES)
    fit = colour | {"x": x, "y": y | {"field": "fitted"}}
    ends = colour | {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
    layers = [
        _of("subsets", dot_layer(colour | {"x": x, "y": y | {"field": "accuracy"}}, 18, opacity=0.25)),
        _of("fitted", layer("line", fit, strokeWidth=1.5, strokeDash=[5, 3])),
        _of("points", layer("rule", ends, strokeWidth=1.7)),
        _of("points", dot_layer(shaped | {"x": x, "y": y | {"field": "estimate"}}, 70)),
    ]
    legend = {"columns": max(1, width // (room(models, width) + 60)), "columnPadding": 30, "symbolOpacity": 1}
    return {
        "datasets": {"points": records(points), "subsets": records(subsets), "fitted": records(fitted)},
        "width": width,
        "height": 300 if width >= WIDE else 240,
        "autosize": FIT,
        "layer": layers,
        "config": {"legend": legend},
    }


def _of(name: str, marks: Chart) -> Chart:
    return {"data": {"name": name}, **marks}


def overlap(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Every two models: Jaccard overlap of their failures, dark where it is large; numbers where they fit."""
    desk = width >= WIDE
    label = room(models, 190 if desk else 100, 12 if desk else 10)
    size = max(14, min(64, (width - label - 30) / max(len(models), 1)))
    x, y = square_axes(models, label, desk=desk)
    scale = {"domain": [0, 1], "range": list(reversed(HEAT))}
    shade = {"field": "estimate", "type": "quantitative", "scale": scale, "legend": None}
    tips = tooltip({"row": "model", "column": "with", "shown": "overlap, %"})
    layers = [layer("rect", {"x": x, "y": y, "color": shade, "tooltip": tips}, stroke="white")]
    if size >= 22:
        ink = {"condition": {"test": "datum.estimate > 0.5", "value": "white"}, "value": INK}
        text = {"field": "shown", "type": "nominal"}
        layers.append(layer("text", {"x": x, "y": y, "text": text, "color": ink}, fontSize=10.5))
    return chart_of(frame, width={"step": size}, height={"step": min(size, 30)}, layer=layers)
