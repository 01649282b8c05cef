"""The figures of the study of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.report.page.charts import in_order, records, room
from holdfast.report.page.figures import INK, WIDE, Chart
from holdfast.report.page.words import number

if TYPE_CHECKING:
    import pandas as pd

OPPOSED, NEITHER, ALIKE = "#b35806", "#f7f7f7", "#2166ac"
"""−1, 0 and 1: told apart by people with any of the common colour deficiencies."""


def correlations(frame: pd.DataFrame, width: int, *, rows: Sequence[str], columns: Sequence[str]) -> Chart:
    """Spearman's ρ as shades from −1 to 1, with the number and, where it fits, its interval.

    Args:
        frame: row, column, spearman, low, high.
        width: of the figure.
        rows: in order from the top.
        columns: in order from the left.
    """
    desk = width >= WIDE
    label = room(rows, 170 if desk else 96, 12 if desk else 10)
    size = min(104, (width - label - (110 if desk else 12)) // len(columns))
    axis: Chart = {"ticks": False, "domain": False, "title": None, "labelLimit": label, "labelPadding": 4}
    axis |= {} if desk else {"labelFontSize": 10}
    x = {"field": "column", "type": "nominal", "scale": in_order(columns)}
    above = min(room(columns, 170 if desk else 96, 12 if desk else 10), label)
    x["axis"] = axis | {"orient": "top", "labelAngle": -40 if desk else -90, "minExtent": round(0.75 * above)}
    y = {"field": "row", "type": "nominal", "scale": in_order(rows), "axis": axis | {"minExtent": label}}
    scale = {"domain": [-1, 0, 1], "range": [OPPOSED, NEITHER, ALIKE]}
    legend = {"title": "Spearman's ρ", "gradientThickness": 10, "gradientLength": 120, "values": [-1, 0, 1]}
    shade = {"field": "spearman", "type": "quantitative", "scale": scale, "legend": legend if desk else None}
    tip: list[Chart] = [{"field": "row", "title": "metric"}, {"field": "column", "title": "with"}]
    tip += [
        {"field": field, "type": "quantitative", "title": title, "format": ".2f"}
        for field, title in (("spearman", "Spearman's ρ"), ("low", "95 % from"), ("high", "to"))
    ]
    place = {"x": x, "y": y}
    layers: list[Chart] = [
        {
            "mark": {"type": "rect", "stroke": "white", "strokeWidth": 1},
            "encoding": place | {"color": shade, "tooltip": tip},
        }
    ]
    ink = {"condition": {"test": "abs(datum.spearman) > 0.72", "value": "white"}, "value": INK}
    with_interval = size >= 78
    mark: Chart = {"type": "text", "fontSize": 13 if with_interval else 10.5, "dy": -7 if with_interval else 0}
    layers.append({"mark": mark, "encoding": place | {"text": {"field": "shown" if desk else "brief"}, "color": ink}})
    if with_interval:
        small: Chart = {"type": "text", "fontSize": 10, "dy": 9}
        layers.append({"mark": small, "encoding": place | {"text": {"field": "span"}, "color": ink}})
    known = frame.dropna(subset=["spearman"])
    numbered = known.assign(
        shown=[number(value, 2) for value in known["spearman"]],
        brief=[number(value, 1) for value in known["spearman"]],
        span=[f"{number(low)} to {number(high)}" for low, high in zip(known["low"], known["high"], strict=True)],
    )
    data = {"data": {"name": "rows"}, "datasets": {"rows": records(numbered, 3)}}
    return data | {"width": {"step": size}, "height": {"step": 44 if with_interval else 30}, "layer": layers}
