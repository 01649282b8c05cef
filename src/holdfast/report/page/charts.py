"""Charts of accuracies, drops and ranks: tidy frame and width in pixels → Vega-Lite specification.

Frames hold short model names, conditions as words, and fractions (estimate, low, high); axes show per cent or points.
Every field has a fixed name and every name of the user's is data, never part of an expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.report.page.figures import COLOURS, INK, MUTED, SHAPES, WIDE, Chart

if TYPE_CHECKING:
    import pandas as pd

SIDE_BY_SIDE = 6
"""Models that share one panel; more get a panel each."""

_FIT = {"type": "fit-x", "contains": "padding"}


def records(frame: pd.DataFrame, digits: int = 4) -> list[dict[str, Any]]:
    """Rows as JSON: rounded, null where there is no value."""
    rounded = frame.round(digits).astype(object)
    return list(rounded.where(rounded.notna(), None).to_dict("records"))  # type: ignore[arg-type]


def in_order(names: Sequence[str]) -> Chart:
    """A scale that keeps an order. A ``sort`` would compile the names into an expression; here they stay data."""
    return {"domain": list(names)}


def placed(frame: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """With ``position``, the order of the panels."""
    return frame.assign(position=frame["model"].map({name: place for place, name in enumerate(models)}))


def panel_of(inner: int) -> Chart:
    """A panel per model, in the order of ``position``."""
    return {
        "field": "model",
        "type": "nominal",
        "sort": {"field": "position", "op": "min"},
        "title": None,
        "header": {"labelAnchor": "start", "labelPadding": 4, "labelLimit": inner},
    }


def room(names: Sequence[str], limit: int, size: float = 12) -> int:
    """Pixels to keep for labels. The reader's font may be wider than the one they are measured with here."""
    return min(limit, round(max((len(name) for name in names), default=1) * 0.62 * size) + 8)


def dots(
    frame: pd.DataFrame,
    width: int,
    *,
    models: Sequence[str],
    rows: Sequence[str],
    title: str,
    zero: bool = False,
    numbers: bool = False,
    domain: tuple[float, float] | None = None,
) -> Chart:
    """Estimates with intervals, a line per row, models side by side, or in panels where there are many.

    Args:
        frame: model, row, estimate, low, high; and ``solid``, false for hollow marks.
        width: of the figure.
        models: in order.
        rows: in order from the top.
        title: of the horizontal axis.
        zero: points about a zero line instead of per cent.
        numbers: as they are instead of per cent.
        domain: of the horizontal axis; marks beyond it are cut off.
    """
    panels = len(models) > SIDE_BY_SIDE
    columns = 3 if width >= WIDE else 1
    axis = {"title": title, "domain": False, "ticks": False, "tickCount": 4 if panels or width < WIDE else 8}
    axis |= _signed() if zero else {"format": ".1~f" if numbers else "%"}
    scale = {"domain": list(domain), "nice": False, "clamp": True} if domain else {"zero": False, "nice": True}
    x = {"type": "quantitative", "scale": scale, "axis": axis}
    y: dict[str, Any] = {"field": "row", "type": "nominal", "scale": in_order(rows), "title": None}
    label = room(rows, 190 if width >= WIDE else 138, 12 if width >= WIDE else 11)
    y["axis"] = {"ticks": False, "domain": False, "labelPadding": 6, "grid": panels, "minExtent": label}
    shared: dict[str, Any] = {"y": y, "color": {"value": COLOURS[0]}}
    shape: dict[str, Any] = {}
    if not panels and len(models) > 1:
        shared |= by_model(models, "color", COLOURS) | {"opacity": _faded()}
        shared["yOffset"] = {"field": "model", "type": "nominal", "scale": in_order(models)}
        shape = by_model(models, "shape", SHAPES)
    layers: list[Chart] = [
        {
            "mark": {"type": "rule", "strokeWidth": 1.7},
            "encoding": shared | {"x": x | {"field": "low"}, "x2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 40 if panels else 64, "opacity": 1},
            "encoding": shared | shape | {"x": x | {"field": "estimate"}, "tooltip": tips(zero, numbers=numbers)},
        },
    ]
    if "solid" in frame:
        where: Chart = {key: shared[key] for key in ("y", "yOffset") if key in shared}
        where["x"] = x | {"field": "estimate"}
        hole = {"type": "point", "filled": True, "size": 10 if panels else 17, "color": "white", "opacity": 1}
        layers.append({"transform": [{"filter": "datum.solid === false"}], "mark": hole, "encoding": where})
    if zero:
        layers.insert(0, rule_at(0))
    data: Chart = {"data": {"name": "rows"}, "datasets": {"rows": records(placed(frame, models) if panels else frame)}}
    if panels:
        return data | _panels(layers, width, columns, label, step=13 if len(rows) > 8 else 18)
    if len(models) > 1:
        layers[1 if zero else 0]["params"] = [_CHOSEN]
    height = len(rows) * (len(models) * 11 + 12) if len(models) > 1 else len(rows) * 24
    return data | {"width": width, "height": height, "autosize": _FIT, "layer": layers, **_legend(models, width)}


def _panels(layers: list[Chart], width: int, columns: int, label: int, step: int) -> Chart:
    inner = (width - label - 20) // columns - 20 if columns > 1 else width - label - 20
    return {
        "facet": panel_of(inner),
        "columns": columns,
        "spacing": {"row": 14, "column": 20},
        "spec": {"width": inner, "height": {"step": step}, "layer": layers},
    }


_CHOSEN = {"name": "chosen", "select": {"type": "point", "fields": ["model"]}, "bind": "legend"}


def _faded() -> Chart:
    return {"condition": {"param": "chosen", "value": 1}, "value": 0.12}


def by_model(models: Sequence[str], channel: str, values: Sequence[str]) -> Chart:
    """Colour or shape by model: either alone tells up to eight apart, both together more."""
    shift = len(COLOURS) if channel == "shape" else 0
    cycle = [values[(i + (i // shift if shift else 0)) % len(values)] for i in range(len(models))]
    scale = {"domain": list(models), "range": cycle}
    legend = {"orient": "top", "direction": "horizontal", "title": None, "offset": 4}
    return {channel: {"field": "model", "type": "nominal", "scale": scale, "legend": legend}}


def _legend(models: Sequence[str], width: int) -> Chart:
    fit = max(1, width // (room(models, width) + 60))
    return {"config": {"legend": {"columns": min(len(models), fit), "columnPadding": 30}}}


def tips(zero: bool, row: str = "condition", *, numbers: bool = False) -> list[Chart]:
    """What the interactive chart says about a mark."""
    made: list[Chart] = [{"field": "model", "title": "model"}, {"field": "row", "title": row}]
    how = ".2f" if numbers else "+.1%" if zero else ".1%"
    for field, title in (("estimate", "estimate"), ("low", "95 % from"), ("high", "to")):
        made.append({"field": field, "type": "quantitative", "title": title, "format": how})
    return made


def rule_at(value: float, channel: str = "x") -> Chart:
    """A dashed line."""
    return {
        "data": {"values": [{"at": value}]},
        "mark": {"type": "rule", "color": MUTED, "strokeDash": [3, 3]},
        "encoding": {channel: {"field": "at", "type": "quantitative"}},
    }


def _signed() -> Chart:
    """Axis labels in points with a sign."""
    return {"labelExpr": "datum.value == 0 ? '0' : format(100 * datum.value, '+.0f')"}


HEAT = ("#14213d", "#2b4a75", "#5d86ad", "#a9c3d6", "#e3ebee", "#fbf9f4")
"""Accuracy from 0 (dark) to 1 (pale): what fails stands out; monotone in lightness, so it prints in grey."""


def density(
    frame: pd.DataFrame, width: int, *, rows: Sequence[str], columns: Sequence[str], measure: str = "accuracy"
) -> Chart:
    """Accuracy by class (rows) and condition (columns): shades, and numbers where they fit.

    Args:
        frame: row, column, estimate, n.
        width: of the figure.
        rows: in order from the top.
        columns: in order from the left.
        measure: what the shades are of.
    """
    desk = width >= WIDE
    longest = room(rows, 190, 12) if desk else room(rows, 100, 11)
    inner = width - longest - (80 if desk else 8)
    length = 120 if desk else inner - 20
    layers = _shades(
        rows,
        columns,
        longest,
        angle=-60 if desk else -90,
        legend=_scale("right" if desk else "bottom", length, measure),
    )
    if inner / max(len(columns), 1) >= 22:
        ink = {"condition": {"test": "datum.estimate < 0.52", "value": "white"}, "value": INK}
        place = {key: layers[0]["encoding"][key] for key in ("x", "y")}
        text = {"field": "shown", "type": "nominal"}
        layers.append({"mark": {"type": "text", "fontSize": 10.5}, "encoding": place | {"text": text, "color": ink}})
    numbered = frame.assign(shown=[f"{100 * value:.0f}" for value in frame["estimate"]])
    data = {"data": {"name": "rows"}, "datasets": {"rows": records(numbered, 3)}}
    return data | {"width": inner, "height": {"step": 22}, "layer": layers}


def density_panels(
    frame: pd.DataFrame,
    width: int,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    models: Sequence[str],
    measure: str = "accuracy",
) -> Chart:
    """``density`` for many models: small maps without numbers, ``model`` naming the panel."""
    desk = width >= WIDE
    across = 3 if desk else 1
    longest = room(rows, 130 if desk else 100, 11)
    inner = (width - longest - 30) // across - 16 if desk else width - longest - 16
    layers = _shades(rows, columns, longest, angle=-90, legend=_scale("top", 160, measure))
    return {
        "data": {"name": "rows"},
        "datasets": {"rows": records(placed(frame, models), 3)},
        "facet": panel_of(inner),
        "columns": across,
        "spacing": {"row": 16, "column": 12},
        "resolve": {"axis": {"x": "independent"}},
        "spec": {"width": inner, "height": {"step": 13}, "layer": layers},
    }


def _shades(rows: Sequence[str], columns: Sequence[str], longest: int, *, angle: int, legend: Chart) -> list[Chart]:
    axis: Chart = {"ticks": False, "domain": False, "labelPadding": 4}
    x = {"field": "column", "type": "nominal", "scale": in_order(columns), "title": None}
    above = round(room(columns, 150) * (0.87 if angle > -90 else 0.95))  # labels lean by that much
    x["axis"] = axis | {"orient": "top", "labelAngle": angle, "labelLimit": 150, "minExtent": above}
    y = {"field": "row", "type": "nominal", "scale": in_order(rows), "title": None}
    y["axis"] = axis | {"labelLimit": longest, "minExtent": longest}
    shade = {
        "field": "estimate",
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": list(HEAT)},
        "legend": legend,
    }
    tip: list[Chart] = [{"field": "row", "title": "class"}, {"field": "column", "title": "condition"}]
    tip.append({"field": "estimate", "type": "quantitative", "title": legend["title"], "format": ".1%"})
    tip.append({"field": "n", "title": "photos"})
    mark = {"type": "rect", "stroke": "white", "strokeWidth": 1}
    return [{"mark": mark, "encoding": {"x": x, "y": y, "color": shade, "tooltip": tip}}]


def _scale(place: str, length: int, measure: str) -> Chart:
    return {
        "format": "%",
        "title": measure,
        "gradientThickness": 10,
        "gradientLength": length,
        "orient": place,
        "tickCount": 3,
    }


def matrix(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Every two models: how much more accurate the one of the row is than the one of the column, in points.

    Args:
        frame: row, column, estimate, low, high, ``shown`` and ``brief`` (texts of the cell), and ``told``: whether the
            difference stands after Holm.
        width: of the figure.
        models: in order.
    """
    desk = width >= WIDE
    label = room(models, 170 if desk else 90, 12 if desk else 10)
    size = max(11, min(46, (width - label - (140 if desk else 60)) / len(models)))
    axis: Chart = {"ticks": False, "domain": False, "title": None, "labelLimit": label, "minExtent": label}
    axis |= {} if desk else {"labelFontSize": 10}
    x = {"field": "column", "type": "nominal", "scale": in_order(models)}
    x["axis"] = axis | {"orient": "top", "labelAngle": -60 if desk else -90, "minExtent": round(0.9 * label)}
    y = {"field": "row", "type": "nominal", "scale": in_order(models), "axis": axis}
    most = max(0.02, float(frame["estimate"].abs().max()))
    scale = {"domain": [-most, 0, most], "range": ["#b35806", "#f7f7f7", "#2166ac"]}
    legend = {
        "title": "points",
        "labelExpr": "format(100 * datum.value, '+.0f')",
        "gradientThickness": 10,
        "tickCount": 3,
    }
    shade = {"field": "estimate", "type": "quantitative", "scale": scale, "legend": legend if desk else None}
    layers: list[Chart] = [
        {
            "mark": {"type": "rect", "stroke": "white"},
            "encoding": {
                "x": x,
                "y": y,
                "color": shade,
                "tooltip": [{"field": "row"}, {"field": "column"}, *tips(True)[2:]],
            },
        }
    ]
    if size >= 26:
        ink = {"condition": {"test": f"abs(datum.estimate) > {0.6 * most}", "value": "white"}, "value": INK}
        text: Chart = {"type": "text", "fontSize": 10.5}
        layers.append(
            {
                "mark": text,
                "encoding": {"x": x, "y": y, "text": {"field": "shown" if size >= 42 else "brief"}, "color": ink},
            }
        )
    else:
        dot: Chart = {"type": "point", "filled": True, "size": 9, "color": INK, "opacity": 1}
        layers.append({"transform": [{"filter": "datum.told"}], "mark": dot, "encoding": {"x": x, "y": y}})
    data = {"data": {"name": "rows"}, "datasets": {"rows": records(frame)}}
    return data | {"width": {"step": size}, "height": {"step": min(size, 30)}, "layer": layers}
