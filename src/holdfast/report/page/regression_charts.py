"""Charts of a regression: a tidy frame and a width in pixels become a Vega-Lite specification."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.report.page.charts import SIGNED, dashed_line, in_order, records, room, rule_at
from holdfast.report.page.figures import COLOURS, WIDE, Chart

if TYPE_CHECKING:
    import pandas as pd

GROUPS = {"model": "Models", "scenario": "Scenarios", "class": "Classes"}
"""Kinds of terms, and the headings of their panels."""

RESIDUALS_SHOWN = 1500
"""Dots of a residual plot; where there are more, every n-th is drawn, so that the page stays small."""


def term_parts(terms: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return the kind (model, scenario, class) and the level of each term such as ``class[dog]``."""
    parts = terms.str.extract(re.compile(r"^(model|scenario|class)\[(.*)\]$", re.DOTALL))
    return parts[0], parts[1]


def coefficients(frame: pd.DataFrame, width: int, *, groups: Sequence[str]) -> Chart:
    """Return coefficients with intervals in points, with a panel per group (models, scenarios, classes).

    Args:
        frame: group, row, estimate, low, high, stars; in the order to be shown.
        width: width of the figure.
        groups: in order.
    """
    low, high = float(frame["low"].min()), float(frame["high"].max())
    scale = {"domain": [min(low, 0.0), max(high, 0.0)], "nice": True}
    axis = SIGNED | {"domain": False, "ticks": False, "tickCount": 8 if width >= WIDE else 4}
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
    """Return the four plots: residuals, their absolute values, the Q–Q plot, residuals in order.

    Args:
        frame: model, condition, label, fitted, residual, absolute, quantile, order.
        width: width of the figure.
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
            layers.insert(0, dashed_line([{"x": end, "y": end} for end in ends]))
        parts.append({"title": {"text": title, "fontSize": 12}, "width": inner, "height": 150, "layer": layers})
    data = {"data": {"name": "rows"}, "datasets": {"rows": records(shown)}}
    return data | {"concat": parts, "columns": columns, "spacing": 14, "resolve": {"scale": {"x": "independent"}}}
