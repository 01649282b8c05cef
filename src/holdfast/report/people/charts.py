"""Charts of people's votes: tidy frame and width in pixels → Vega-Lite specification."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.lazy import pd
from holdfast.report.page.charts import FIT, INTERVAL, chart_of, dot_layer, layer, nominal, row_axis, tooltip
from holdfast.report.page.figures import COLOURS, Chart

DECISIONS = {"accepted": COLOURS[2], "undecided": "#b9bec9", "rejected": COLOURS[1]}


def divided(frame: pd.DataFrame, width: int) -> Chart:
    """How many images got how large a share of yes, by what became of them."""
    present = [name for name in DECISIONS if name in set(frame.loc[frame["images"] > 0, "decision"])]
    names = list(dict.fromkeys(frame["yes"]))
    scale = {"domain": present, "range": [DECISIONS[name] for name in present]}
    legend = {"orient": "top", "title": None, "direction": "horizontal", "symbolType": "square"}
    colour = {"field": "decision", "type": "nominal", "scale": scale, "legend": legend}
    axis = {"labelAngle": 0, "ticks": False, "domain": False, "labelOverlap": True}
    x = nominal("yes", names, title="people who say yes", axis=axis)
    y = {"field": "images", "type": "quantitative", "stack": "zero", "axis": {"title": "images", "tickMinStep": 1}}
    tips = [{"field": name} for name in ("yes", "decision", "images")]
    bars = layer("bar", {"x": x, "y": y, "color": colour, "tooltip": tips}, opacity=1)
    return chart_of(frame, width=width, height=220, autosize=FIT, **bars)


def grades(frame: pd.DataFrame, width: int, *, rows: Sequence[str], steps: tuple[float, float]) -> Chart:
    """Mean ratings with intervals, a line per row."""
    y, _ = row_axis(rows, width, 240)
    axis = {"title": "mean rating", "domain": False, "ticks": False, "tickMinStep": 1, "format": "d"}
    x = {"type": "quantitative", "scale": {"domain": list(steps), "nice": False, "clamp": True}, "axis": axis}
    tips = tooltip({"row": "of"}, INTERVAL | {"estimate": "mean"}, ".2f")
    ends = {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}}
    layers = [
        layer("rule", ends, strokeWidth=1.7, color=COLOURS[0]),
        dot_layer({"y": y, "x": x | {"field": "estimate"}, "tooltip": tips}, 64, color=COLOURS[0]),
    ]
    return chart_of(frame, width=width, height={"step": 26}, autosize=FIT, layer=layers)
