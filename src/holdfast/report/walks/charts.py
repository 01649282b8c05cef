"""Charts of latent walks: a tidy frame and a width in pixels become a Vega-Lite specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.report.page.charts import in_order, records, room, rule_at
from holdfast.report.page.figures import COLOURS, WIDE, Chart

if TYPE_CHECKING:
    import pandas as pd

STOPS = {
    "budget": ("all steps taken", "#0072b2"),
    "rejected": ("rejected on the way", "#e69f00"),
    "first_rejected": ("rejected at the first image", "#d55e00"),
    "fooled": ("model fooled", "#009e73"),
    "not_finite": ("not a number", "#1f2430"),
}  # Why a walk stops: the words and the colour of each reason

BOUNDS = "#c3d3e0"
BINS = 25


def _rows(rows: Sequence[str], width: int) -> tuple[Chart, int]:
    """Return the vertical axis of named rows, and the pixels it takes."""
    label = room(rows, 190, 12) if width >= WIDE else room(rows, 138, 11)
    axis = {"ticks": False, "domain": False, "labelPadding": 6, "minExtent": label, "labelLimit": label}
    return {"field": "row", "type": "nominal", "scale": in_order(rows), "title": None, "axis": axis}, label


def fmr(frame: pd.DataFrame, width: int, *, rows: Sequence[str]) -> Chart:
    """Return FMR with its interval, on the band in which rejected images could move it.

    ``frame``: row, estimate, low, high, bound_low, bound_high.
    """
    y, _ = _rows(rows, width)
    axis = {"title": "FMR = PA / SA", "format": "%", "domain": False, "ticks": False, "tickCount": 5}
    x = {"type": "quantitative", "scale": {"domainMin": 0, "nice": True}, "axis": axis}
    tip: list[Chart] = [{"field": "row", "title": "model"}]
    names = (
        ("estimate", "FMR"),
        ("low", "95 % from"),
        ("high", "to"),
        ("bound_low", "bounds from"),
        ("bound_high", "to "),
    )
    tip += [{"field": key, "type": "quantitative", "title": title, "format": ".1%"} for key, title in names]
    layers: list[Chart] = [
        rule_at(1),
        {
            "mark": {"type": "bar", "height": 13, "color": BOUNDS},
            "encoding": {"y": y, "x": x | {"field": "bound_low"}, "x2": {"field": "bound_high"}, "tooltip": tip},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 1.7, "color": COLOURS[0]},
            "encoding": {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 64, "opacity": 1, "color": COLOURS[0]},
            "encoding": {"y": y, "x": x | {"field": "estimate"}, "tooltip": tip},
        },
    ]  # fmt: skip
    data: Chart = {"data": {"name": "rows"}, "datasets": {"rows": records(frame)}}
    fit = {"type": "fit-x", "contains": "padding"}
    return data | {"width": width, "height": 26 * len(rows), "autosize": fit, "layer": layers}


def stops(frame: pd.DataFrame, width: int, *, rows: Sequence[str]) -> Chart:
    """Return the shares of the reasons why walks stopped, stacked.

    ``frame``: row, reason (in words), place (order of the reasons), share, n.
    """
    y, label = _rows(rows, width)
    ticks = 5 if width >= WIDE else 2
    axis = {"title": "share of the walks", "format": "%", "domain": False, "ticks": False, "tickCount": ticks}
    encoding: dict[str, Any] = {
        "y": y,
        "x": {"field": "share", "type": "quantitative", "stack": "zero", "scale": {"domain": [0, 1]}, "axis": axis},
        "color": _by_reason(frame, width),
        "order": {"field": "place", "type": "quantitative"},
        "tooltip": [
            {"field": "row", "title": "model"},
            {"field": "reason", "title": "stopped"},
            {"field": "n", "title": "walks"},
        ],
    }
    mark = {"type": "bar", "height": 15, "stroke": "white", "strokeWidth": 1}
    data: Chart = {"data": {"name": "rows"}, "datasets": {"rows": records(frame)}}
    data["config"] = {"legend": {"columnPadding": 30}}
    return data | {"width": width - label - 24, "height": {"step": 26}, "mark": mark, "encoding": encoding}


def _by_reason(frame: pd.DataFrame, width: int) -> Chart:
    present = [look for look in STOPS.values() if look[0] in set(frame["reason"])]
    scale = {"domain": [words for words, _ in present], "range": [colour for _, colour in present]}
    legend = {"orient": "top", "title": None, "columns": len(present) if width >= WIDE else 1, "symbolType": "square"}
    return {"field": "reason", "type": "nominal", "scale": scale, "legend": legend}


def steps(frame: pd.DataFrame, width: int, *, rows: Sequence[str]) -> Chart:
    """Return how many steps lie behind the kept images, a panel per row, coloured by why the walk stopped.

    ``frame``: row, position, reason, place, first, last (steps of the bin), start, end (where it is drawn), n.
    """
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
        "tooltip": [{"field": name, "title": title} for name, title in (
            ("row", "model"), ("first", "steps from"), ("last", "to"), ("reason", "stopped"), ("n", "walks"))],
    }  # fmt: skip
    header = {"labelAnchor": "start", "labelPadding": 4, "labelLimit": inner}
    facet = {
        "field": "row",
        "type": "nominal",
        "sort": {"field": "position", "op": "min"},
        "title": None,
        "header": header,
    }
    mark = {"type": "bar", "stroke": "white", "strokeWidth": 0.5}
    data: Chart = {"data": {"name": "rows"}, "datasets": {"rows": records(frame)}}
    spec = {"width": inner, "height": 110, "mark": mark, "encoding": encoding}
    data["config"] = {"legend": {"columnPadding": 30}}
    return data | {"facet": facet, "columns": columns, "spacing": {"row": 14, "column": 24}, "spec": spec}


def distances(frame: pd.DataFrame, width: int, *, rows: Sequence[str], measures: Sequence[tuple[str, str]]) -> Chart:
    """Return median, middle half and middle 80 % of each distance.

    ``frame``: row, measure, p10, p25, p50, p75, p90. ``measures``: (measure, title of its axis) in order.
    """
    columns = len(measures) if width >= WIDE else 1
    _, label = _rows(rows, width)
    inner = (width - label - 30) // columns - 22
    parts = []
    for place, (measure, title) in enumerate(measures):
        y, _ = _rows(rows, width)
        if place and columns > 1:
            y["axis"] = None
        axis = {"title": title, "domain": False, "ticks": False, "tickCount": 3}
        x = {"type": "quantitative", "scale": {"domainMin": 0, "nice": True}, "axis": axis}
        tip: list[Chart] = [{"field": "row", "title": "model"}]
        tip += [
            {"field": key, "type": "quantitative", "title": name, "format": ".4f"}
            for key, name in (("p50", "median"), ("p10", "10 % below"), ("p90", "10 % above"))
        ]
        blue = {"color": COLOURS[0]}
        layers: list[Chart] = [
            {
                "mark": {"type": "rule", "strokeWidth": 1.5, **blue},
                "encoding": {"y": y, "x": x | {"field": "p10"}, "x2": {"field": "p90"}},
            },
            {
                "mark": {"type": "bar", "height": 9, **blue},
                "encoding": {"y": y, "x": x | {"field": "p25"}, "x2": {"field": "p75"}, "tooltip": tip},
            },
            {
                "mark": {"type": "tick", "color": "white", "thickness": 2.5, "size": 9},
                "encoding": {"y": y, "x": x | {"field": "p50"}},
            },
        ]
        chosen = [{"filter": {"field": "measure", "equal": measure}}]
        parts.append({"transform": chosen, "width": inner, "height": {"step": 24}, "layer": layers})
    data: Chart = {"data": {"name": "rows"}, "datasets": {"rows": records(frame)}}
    return data | {"concat": parts, "columns": columns, "spacing": 16}
