"""Charts of people's votes: tidy frame and width in pixels → Vega-Lite specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.report.page.charts import in_order, records, room
from holdfast.report.page.figures import COLOURS, WIDE, Chart

if TYPE_CHECKING:
    import pandas as pd

_FIT = {"type": "fit-x", "contains": "padding"}
DECISIONS = {"accepted": COLOURS[2], "undecided": "#b9bec9", "rejected": COLOURS[1]}


def divided(frame: pd.DataFrame, width: int) -> Chart:
    """How many images got how large a share of yes, by what became of them.

    ``frame``: ``yes`` (the share, a label in order), ``images``, ``decision``.
    """
    present = [name for name in DECISIONS if name in set(frame.loc[frame["images"] > 0, "decision"])]
    names = list(dict.fromkeys(frame["yes"]))
    colour = {
        "field": "decision",
        "type": "nominal",
        "scale": {"domain": present, "range": [DECISIONS[name] for name in present]},
        "legend": {"orient": "top", "title": None, "direction": "horizontal", "symbolType": "square"},
    }
    x = {"field": "yes", "type": "nominal", "scale": in_order(names), "title": "people who say yes"}
    x["axis"] = {"labelAngle": 0, "ticks": False, "domain": False, "labelOverlap": True}
    y = {"field": "images", "type": "quantitative", "stack": "zero", "axis": {"title": "images", "tickMinStep": 1}}
    tips = [{"field": name} for name in ("yes", "decision", "images")]
    return {
        "data": {"name": "rows"},
        "datasets": {"rows": records(frame)},
        "width": width,
        "height": 220,
        "autosize": _FIT,
        "mark": {"type": "bar", "opacity": 1},
        "encoding": {"x": x, "y": y, "color": colour, "tooltip": tips},
    }


def grades(frame: pd.DataFrame, width: int, *, rows: Sequence[str], steps: tuple[float, float]) -> Chart:
    """Mean ratings with intervals, a line per row.

    ``steps``: the least and the largest rating there is.
    """
    label = room(rows, 240 if width >= WIDE else 138, 12 if width >= WIDE else 11)
    y: dict[str, Any] = {"field": "row", "type": "nominal", "scale": in_order(rows), "title": None}
    y["axis"] = {"ticks": False, "domain": False, "labelPadding": 6, "minExtent": label, "labelLimit": label}
    axis = {"title": "mean rating", "domain": False, "ticks": False, "tickMinStep": 1, "format": "d"}
    x = {"type": "quantitative", "scale": {"domain": list(steps), "nice": False, "clamp": True}, "axis": axis}
    tips: list[Chart] = [{"field": "row", "title": "of"}]
    for field, title in (("estimate", "mean"), ("low", "95 % from"), ("high", "to")):
        tips.append({"field": field, "type": "quantitative", "title": title, "format": ".2f"})
    layers: list[Chart] = [
        {
            "mark": {"type": "rule", "strokeWidth": 1.7, "color": COLOURS[0]},
            "encoding": {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 64, "opacity": 1, "color": COLOURS[0]},
            "encoding": {"y": y, "x": x | {"field": "estimate"}, "tooltip": tips},
        },
    ]
    data = {"data": {"name": "rows"}, "datasets": {"rows": records(frame)}}
    return data | {"width": width, "height": {"step": 26}, "autosize": _FIT, "layer": layers}
