"""Charts of accuracies, drops and ranks: a tidy frame and a width in pixels become a Vega-Lite specification.

Frames hold short model names, conditions as words, and fractions (estimate, low, high); axes show per cent or points.
Fields have fixed names; names that users give are always data, never part of an expression.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import number
from holdfast.reports.page.figures import COLOURS, INK, MUTED, SHAPES, WIDE, Chart, Figure
from holdfast.reports.page.words import condition_label

SIDE_BY_SIDE = 6  # Models that share one panel; if there are more, each model gets a panel

FIT = {"type": "fit-x", "contains": "padding"}


def records(frame: pd.DataFrame, digits: int = 4) -> list[dict[str, Any]]:
    """Return rows for JSON: rounded, null if there is no value."""
    rounded = frame.round(digits).astype(object)
    return list(rounded.where(rounded.notna(), None).to_dict("records"))  # type: ignore[arg-type]


def chart_of(frame: pd.DataFrame, digits: int = 4, /, **chart: Any) -> Chart:
    """Return a specification with the rows of a frame as its data."""
    return {"data": {"name": "rows"}, "datasets": {"rows": records(frame, digits)}, **chart}


def layer(mark: str, encoding: Chart, where: str = "", /, **look: Any) -> Chart:
    """Return a layer of marks; ``where`` is a condition on the rows."""
    chosen = {"transform": [{"filter": where}]} if where else {}
    return chosen | {"mark": {"type": mark, **look}, "encoding": encoding}


def dot_layer(encoding: Chart, size: int, where: str = "", /, *, opacity: float = 1, **look: Any) -> Chart:
    """Return a layer of filled points."""
    return layer("point", encoding, where, filled=True, size=size, opacity=opacity, **look)


def nominal(field: str, names: Sequence[str], **options: Any) -> Chart:
    """Return the encoding of names in a fixed order."""
    return {"field": field, "type": "nominal", "scale": in_order(names), **options}


def tooltip(texts: Mapping[str, str], numbers: Mapping[str, str] | None = None, how: str = ".1%") -> list[Chart]:
    """Return a tooltip of field → title: texts, then numbers in a format."""
    shown: list[Chart] = [{"field": field, "title": title} for field, title in texts.items()]
    for field, title in (numbers or {}).items():
        shown.append({"field": field, "type": "quantitative", "title": title, "format": how})
    return shown


INTERVAL = {"estimate": "estimate", "low": "95 % from", "high": "to"}


def row_axis(rows: Sequence[str], width: int, desk: int = 190) -> tuple[Chart, int]:
    """Return the vertical axis of named rows, and the pixels it takes."""
    label = room(rows, desk, 12) if width >= WIDE else room(rows, 138, 11)
    axis = {"ticks": False, "domain": False, "labelPadding": 6, "labelLimit": label, "minExtent": label}
    return nominal("row", rows, title=None, axis=axis), label


def facet_of(field: str, inner: int, padding: int = 4) -> Chart:
    """Return the facet of a panel per value of a field, in the order of ``position``."""
    header = {"labelAnchor": "start", "labelPadding": padding, "labelLimit": inner}
    order: dict[str, Any] = {"field": "position", "op": "min"}
    return {"field": field, "type": "nominal", "sort": order, "title": None, "header": header}


def in_order(names: Sequence[str]) -> Chart:
    """Return a scale in this order. A ``sort`` would compile the names into an expression."""
    return {"domain": list(names)}


def placed(frame: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Return the frame with ``position``, the order of the panels."""
    return frame.assign(position=frame["model"].map({name: place for place, name in enumerate(models)}))


def room(names: Sequence[str], limit: int, size: float = 12) -> int:
    """Return the pixels to keep for labels, with room for readers whose font is wider than ours."""
    return min(limit, round(max((len(name) for name in names), default=1) * 0.62 * size) + 8)


_DOT_COLUMNS = ("model", "row", "estimate", "low", "high", "solid")


def dot_figure(
    name: str, title: str, finding: str, frame: pd.DataFrame, *, axis: str, note: str = "", **options: Any
) -> Figure:
    """Return a figure of ``dots``; ``axis`` is the title of its horizontal axis, ``options`` are those of ``dots``.

    Models and rows are in the order of the frame unless options give another; without models there is one, ''.
    """
    frame = frame if "model" in frame else frame.assign(model="")
    order: dict[str, Any] = {
        "models": list(dict.fromkeys(frame["model"])),
        "rows": list(dict.fromkeys(frame["row"])),
    } | options
    return Figure(name, title, finding, lambda width: dots(frame, width, title=axis, **order), note)


def model_figure(
    name: str,
    title: str,
    finding: str,
    frame: pd.DataFrame,
    value: str,
    *,
    short: Mapping[str, str],
    by: str = "condition",
    words: Callable[[str], str] = condition_label,
    **options: Any,
) -> Figure:
    """Return a ``dot_figure`` of a statistic of models, straight from its frame.

    ``finding``: the text that replaces the image. ``frame``: ``model``, the column ``by``, ``value``, and its
    interval as ``value_low`` and ``value_high``, or as ``low`` and ``high``. ``short``: model → its name next to a
    chart, in order. ``words``: returns the name of a row. ``options``: of ``dot_figure``.
    """
    ends = {end: f"{value}_{end}" if f"{value}_{end}" in frame else end for end in ("low", "high")}
    tidy = frame.assign(
        model=[short.get(model, model) for model in frame["model"]], row=frame[by].map(words), estimate=frame[value],
        **{end: frame[column] for end, column in ends.items()},
    )  # fmt: skip
    models = [label for label in short.values() if label in set(tidy["model"])]
    return dot_figure(name, title, finding, tidy, models=models, **options)


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
    """Return estimates with intervals, a line per row; models are side by side, or in panels if there are many.

    ``frame``: model, row, estimate, low, high; and ``solid``, false for hollow marks. Other columns are left out.
    ``zero``: show points about a zero line instead of per cent. ``numbers``: show numbers instead of per cent.
    ``domain``: ends of the horizontal axis; marks beyond it are cut off.
    """
    frame = frame[[column for column in _DOT_COLUMNS if column in frame]]
    panels = len(models) > SIDE_BY_SIDE
    columns = 3 if width >= WIDE else 1
    if width < WIDE:  # a long title continues in further lines
        title = textwrap.wrap(title, max(20, (width - room(rows, 138, 11)) // 7))  # type: ignore[assignment]
    axis = {"title": title, "domain": False, "ticks": False, "tickCount": 4 if panels or width < WIDE else 8}
    axis |= SIGNED if zero else {"format": ".1~f" if numbers else "%"}
    axis |= {"values": [0, 0.25, 0.5, 0.75, 1]} if domain == (0, 1) else {}
    scale = {"domain": list(domain), "nice": False, "clamp": True} if domain else {"zero": False, "nice": True}
    x = {"type": "quantitative", "scale": scale, "axis": axis}
    y, label = row_axis(rows, width)
    y["axis"]["grid"] = panels
    shared: dict[str, Any] = {"y": y, "color": {"value": COLOURS[0]}}
    shape: dict[str, Any] = {}
    if not panels and len(models) > 1:
        shared |= by_model(models, "color", COLOURS)
        shared["opacity"] = {"condition": {"param": "chosen", "value": 1}, "value": 0.12}
        shared["yOffset"] = {"field": "model", "type": "nominal", "scale": in_order(models)}
        shape = by_model(models, "shape", SHAPES)
    point = shared | shape | {"x": x | {"field": "estimate"}, "tooltip": tips(zero, numbers=numbers)}
    layers = [
        layer("rule", shared | {"x": x | {"field": "low"}, "x2": {"field": "high"}}, strokeWidth=1.7),
        dot_layer(point, 40 if panels else 64),
    ]
    if "solid" in frame:
        place: Chart = {key: shared[key] for key in ("y", "yOffset") if key in shared}
        place["x"] = x | {"field": "estimate"}
        layers.append(dot_layer(place, 10 if panels else 17, "datum.solid === false", color="white"))
    if zero:
        layers.insert(0, rule_at(0))
    if panels:
        inner = (width - label - 20) // columns - 20 if columns > 1 else width - label - 20
        spec = {"width": inner, "height": {"step": 13 if len(rows) > 8 else 18}, "layer": layers}
        spacing = {"row": 14, "column": 20}
        facet = facet_of("model", inner)
        return chart_of(placed(frame, models), facet=facet, columns=columns, spacing=spacing, spec=spec)
    if len(models) > 1:
        layers[1 if zero else 0]["params"] = [_CHOSEN]
    height = len(rows) * (len(models) * 11 + 12) if len(models) > 1 else len(rows) * 24
    fit = max(1, width // (room(models, width) + 60))
    config = {"legend": {"columns": min(len(models), fit), "columnPadding": 30}}
    return chart_of(frame, width=width, height=height, autosize=FIT, layer=layers, config=config)


_CHOSEN = {"name": "chosen", "select": {"type": "point", "fields": ["model"]}, "bind": "legend"}


def by_model(models: Sequence[str], channel: str, values: Sequence[str]) -> Chart:
    """Return the encoding of models by colour or shape; each has eight values, so more models need both."""
    shift = len(COLOURS) if channel == "shape" else 0
    cycle = [values[(i + (i // shift if shift else 0)) % len(values)] for i in range(len(models))]
    scale = {"domain": list(models), "range": cycle}
    legend = {"orient": "top", "direction": "horizontal", "title": None, "offset": 4}
    return {channel: {"field": "model", "type": "nominal", "scale": scale, "legend": legend}}


def tips(zero: bool, *, numbers: bool = False) -> list[Chart]:
    """Return the tooltip of a mark."""
    how = ".2f" if numbers else "+.1%" if zero else ".1%"
    return tooltip({"model": "model", "row": "condition"}, INTERVAL, how)


def rule_at(value: float, channel: str = "x") -> Chart:
    """Return a dashed line across the chart."""
    place = {channel: {"field": "at", "type": "quantitative"}}
    return {"data": {"values": [{"at": value}]}} | layer("rule", place, color=MUTED, strokeDash=[3, 3])


def dashed_line(values: list[dict[str, float]]) -> Chart:
    """Return a dashed line through points ``x``, ``y``."""
    place = {axis: {"field": axis, "type": "quantitative"} for axis in ("x", "y")}
    return {"data": {"values": values}} | layer("line", place, color=MUTED, strokeDash=[3, 3], strokeWidth=1)


SIGNED = {"labelExpr": "datum.value == 0 ? '0' : format(100 * datum.value, '+.0f')"}
"""Axis labels in points, with a sign."""


HEAT = ("#14213d", "#2b4a75", "#5d86ad", "#a9c3d6", "#e3ebee", "#fbf9f4")
"""Colours of accuracy from 0 (dark) to 1 (pale); they grow lighter throughout, so they also print in grey."""


def density(
    frame: pd.DataFrame, width: int, *, rows: Sequence[str], columns: Sequence[str], measure: str = "accuracy"
) -> Chart:
    """Return a map of accuracy by class (rows) and condition (columns), with numbers if they fit."""
    desk = width >= WIDE
    longest = room(rows, 190, 12) if desk else room(rows, 100, 11)
    inner = width - longest - (80 if desk else 8)
    legend = _scale("right" if desk else "bottom", 120 if desk else inner - 20, measure)
    layers = _shades(rows, columns, longest, angle=-60 if desk else -90, legend=legend)
    if inner / max(len(columns), 1) >= 22:
        ink = {"condition": {"test": "datum.estimate < 0.52", "value": "white"}, "value": INK}
        place = {key: layers[0]["encoding"][key] for key in ("x", "y")}
        text = {"field": "shown", "type": "nominal"}
        layers.append(layer("text", place | {"text": text, "color": ink}, fontSize=10.5))
    numbered = frame.assign(shown=[number(100 * value, 0) for value in frame["estimate"]])
    return chart_of(numbered, 3, width=inner, height={"step": 22}, layer=layers)


def density_panels(
    frame: pd.DataFrame,
    width: int,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    models: Sequence[str],
    measure: str = "accuracy",
) -> Chart:
    """Return small maps without numbers, one panel per ``model``; see ``density``."""
    desk = width >= WIDE
    across = 3 if desk else 1
    longest = room(rows, 130 if desk else 100, 11)
    inner = (width - longest - 30) // across - 16 if desk else width - longest - 16
    layers = _shades(rows, columns, longest, angle=-90, legend=_scale("top", 160, measure))
    spec = {"width": inner, "height": {"step": 13}, "layer": layers}
    panels = {"facet": facet_of("model", inner), "columns": across, "spacing": {"row": 16, "column": 12}, "spec": spec}
    return chart_of(placed(frame, models), 3, resolve={"axis": {"x": "independent"}}, **panels)


def _shades(rows: Sequence[str], columns: Sequence[str], longest: int, *, angle: int, legend: Chart) -> list[Chart]:
    axis: Chart = {"ticks": False, "domain": False, "labelPadding": 4}
    above = round(room(columns, 150) * (0.87 if angle > -90 else 0.95))  # labels are tilted by that much
    top = axis | {"orient": "top", "labelAngle": angle, "labelLimit": 150, "minExtent": above}
    x = nominal("column", columns, title=None, axis=top)
    y = nominal("row", rows, title=None, axis=axis | {"labelLimit": longest, "minExtent": longest})
    scale = {"domain": [0, 1], "range": list(HEAT)}
    shade = {"field": "estimate", "type": "quantitative", "scale": scale, "legend": legend}
    tip = tooltip({"row": "class", "column": "condition"}, {"estimate": legend["title"]})
    tip.append({"field": "n", "title": "images"})
    return [layer("rect", {"x": x, "y": y, "color": shade, "tooltip": tip}, stroke="white", strokeWidth=1)]


def _scale(place: str, length: int, measure: str) -> Chart:
    look: dict[str, Any] = {"gradientThickness": 10, "gradientLength": length, "orient": place, "tickCount": 3}
    return {"format": "%", "title": measure, **look}


def square_axes(models: Sequence[str], label: int, *, desk: bool) -> tuple[Chart, Chart]:
    """Return the axes of a matrix of models against models."""
    axis: Chart = {"ticks": False, "domain": False, "title": None, "labelLimit": label, "minExtent": label}
    axis |= {} if desk else {"labelFontSize": 10}
    top = axis | {"orient": "top", "labelAngle": -60 if desk else -90, "minExtent": round(0.9 * label)}
    return nominal("column", models, axis=top), nominal("row", models, axis=axis)


def matrix(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Return the points by which the model of the row is more accurate than the model of the column.

    ``frame``: row, column, estimate, low, high, ``shown`` and ``brief`` (texts of the cell), and ``clear``: whether the
    difference remains after Holm's correction.
    """
    desk = width >= WIDE
    label = room(models, 170 if desk else 90, 12 if desk else 10)
    size = max(11, min(46, (width - label - (140 if desk else 60)) / len(models)))
    x, y = square_axes(models, label, desk=desk)
    most = max(0.02, float(frame["estimate"].abs().max()))
    scale = {"domain": [-most, 0, most], "range": ["#b35806", "#f7f7f7", "#2166ac"]}
    legend = {"title": "points", "labelExpr": "format(100 * datum.value, '+.0f')", "gradientThickness": 10}
    legend["tickCount"] = 3
    shade = {"field": "estimate", "type": "quantitative", "scale": scale, "legend": legend if desk else None}
    tip = [{"field": "row"}, {"field": "column"}, *tips(True)[2:]]
    layers = [layer("rect", {"x": x, "y": y, "color": shade, "tooltip": tip}, stroke="white")]
    if size >= 26:
        ink = {"condition": {"test": f"abs(datum.estimate) > {0.6 * most}", "value": "white"}, "value": INK}
        text = {"field": "shown" if size >= 42 else "brief"}
        layers.append(layer("text", {"x": x, "y": y, "text": text, "color": ink}, fontSize=10.5))
    else:
        layers.append(dot_layer({"x": x, "y": y}, 9, "datum.clear", color=INK))
    return chart_of(frame, width={"step": size}, height={"step": min(size, 30)}, layer=layers)
