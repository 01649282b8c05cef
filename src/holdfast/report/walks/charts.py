"""Charts of latent walks: a tidy frame and a width in pixels become a Vega-Lite specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.lazy import pd
from holdfast.report.page.charts import FIT, INTERVAL, chart_of, dot_layer, facet_of, layer, row_axis, rule_at, tooltip
from holdfast.report.page.figures import COLOURS, WIDE, Chart

STOPS = {
    "budget": ("all steps taken", "#0072b2"),
    "rejected": ("rejected on the way", "#e69f00"),
    "first_rejected": ("rejected at the first image", "#d55e00"),
    "fooled": ("model fooled", "#009e73"),
    "not_finite": ("not a number", "#1f2430"),
}  # Why a walk stops: the words and the colour of each reason

BOUNDS = "#c3d3e0"
BINS = 25


def fmr(frame: pd.DataFrame, width: int, *, rows: Sequence[str]) -> Chart:
    """Return FMR with its interval, on the band in which rejected images could move it."""
    y, _ = row_axis(rows, width)
    axis = {"title": "FMR = PA / SA", "format": "%", "domain": False, "ticks": False, "tickCount": 5}
    x = {"type": "quantitative", "scale": {"domainMin": 0, "nice": True}, "axis": axis}
    bounds = {"bound_low": "bounds from", "bound_high": "to "}
    tip = tooltip({"row": "model"}, INTERVAL | {"estimate": "FMR"} | bounds)
    band = {"y": y, "x": x | {"field": "bound_low"}, "x2": {"field": "bound_high"}, "tooltip": tip}
    ends = {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}}
    layers = [
        rule_at(1),
        layer("bar", band, height=13, color=BOUNDS),
        layer("rule", ends, strokeWidth=1.7, color=COLOURS[0]),
        dot_layer({"y": y, "x": x | {"field": "estimate"}, "tooltip": tip}, 64, color=COLOURS[0]),
    ]
    return chart_of(frame, width=width, height=26 * len(rows), autosize=FIT, layer=layers)


def stops(frame: pd.DataFrame, width: int, *, rows: Sequence[str]) -> Chart:
    """Return the shares of the reasons why walks stopped, stacked."""
    y, label = row_axis(rows, width)
    ticks = 5 if width >= WIDE else 2
    axis = {"title": "share of the walks", "format": "%", "domain": False, "ticks": False, "tickCount": ticks}
    encoding: dict[str, Any] = {
        "y": y,
        "x": {"field": "share", "type": "quantitative", "stack": "zero", "scale": {"domain": [0, 1]}, "axis": axis},
        "color": _by_reason(frame, width),
        "order": {"field": "place", "type": "quantitative"},
        "tooltip": tooltip({"row": "model", "reason": "stopped", "n": "walks"}),
    }
    mark = {"type": "bar", "height": 15, "stroke": "white", "strokeWidth": 1}
    size = {"width": width - label - 24, "height": {"step": 26}}
    return chart_of(frame, mark=mark, encoding=encoding, config={"legend": {"columnPadding": 30}}, **size)


def _by_reason(frame: pd.DataFrame, width: int) -> Chart:
    present = [look for look in STOPS.values() if look[0] in set(frame["reason"])]
    scale = {"domain": [words for words, _ in present], "range": [colour for _, colour in present]}
    legend = {"orient": "top", "title": None, "columns": len(present) if width >= WIDE else 1, "symbolType": "square"}
    return {"field": "reason", "type": "nominal", "scale": scale, "legend": legend}


def steps(frame: pd.DataFrame, width: int, *, rows: Sequence[str]) -> Chart:
    """Return how many steps lie behind the kept images, a panel per row, coloured by why the walk stopped."""
    columns = min(len(rows), 3 if width >= WIDE else 1)
    inner = min(440, (width - 40) // columns - 28)
    across = {"type": "quantitative", "title": "steps behind the kept image"}
    axis: Chart = {"domain": False, "ticks": False, "tickCount": 5, "tickMinStep": 1, "format": "d"}
    scale = {"domain": [-0.5, float(frame["end"].max())], "nice": False}
    encoding: dict[str, Any] = {
        "x": across | {"scale": scale, "field": "start", "axis": axis | {"grid": False}, "bin": "binned"},
        "x2": {"field": "end"},
        "y": {"field": "n", "type": "quantitative", "stack": "zero", "title": "walks", "axis": axis | {"tickCount": 3}},
        "color": _by_reason(frame, width),
        "order": {"field": "place", "type": "quantitative"},
        "tooltip": tooltip({"row": "model", "first": "steps from", "last": "to", "reason": "stopped", "n": "walks"}),
    }
    spec = {"width": inner, "height": 110, **layer("bar", encoding, stroke="white", strokeWidth=0.5)}
    panels = {"facet": facet_of("row", inner), "columns": columns, "spacing": {"row": 14, "column": 24}, "spec": spec}
    return chart_of(frame, config={"legend": {"columnPadding": 30}}, **panels)


def distances(frame: pd.DataFrame, width: int, *, rows: Sequence[str], measures: Sequence[tuple[str, str]]) -> Chart:
    """Return median, middle half and middle 80 % of each distance."""
    columns = len(measures) if width >= WIDE else 1
    label = row_axis(rows, width)[1]
    inner = (width - label - 30) // columns - 22
    parts = []
    for place, (measure, title) in enumerate(measures):
        y, _ = row_axis(rows, width)
        if place and columns > 1:
            y["axis"] = None
        axis = {"title": title, "domain": False, "ticks": False, "tickCount": 3}
        x = {"type": "quantitative", "scale": {"domainMin": 0, "nice": True}, "axis": axis}
        tip = tooltip({"row": "model"}, {"p50": "median", "p10": "10 % below", "p90": "10 % above"}, ".4f")
        ends = {"y": y, "x": x | {"field": "p10"}, "x2": {"field": "p90"}}
        middle = {"y": y, "x": x | {"field": "p25"}, "x2": {"field": "p75"}, "tooltip": tip}
        layers = [
            layer("rule", ends, strokeWidth=1.5, color=COLOURS[0]),
            layer("bar", middle, height=9, color=COLOURS[0]),
            layer("tick", {"y": y, "x": x | {"field": "p50"}}, color="white", thickness=2.5, size=9),
        ]
        chosen = [{"filter": {"field": "measure", "equal": measure}}]
        parts.append({"transform": chosen, "width": inner, "height": {"step": 24}, "layer": layers})
    return chart_of(frame, concat=parts, columns=columns, spacing=16)
