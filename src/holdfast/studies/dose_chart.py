"""The figure of the dose study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.report.page.charts import records, rule_at
from holdfast.report.page.figures import COLOURS, MUTED, WIDE, Chart

if TYPE_CHECKING:
    import pandas as pd


def dose_chart(frame: pd.DataFrame, dots: pd.DataFrame, measures: Mapping[str, str], width: int) -> Chart:
    """A panel a measure: means with intervals joined by a line, and a dot for every training.

    Args:
        frame: rho, and each measure with ``_low`` and ``_high``.
        dots: rho, seed, measure, value.
        measures: name → title, in order; differences of fractions, but for those called ``cross…``.
        width: of the figure.
    """
    import pandas as pd

    means = pd.concat(
        frame[["rho", name, f"{name}_low", f"{name}_high"]].set_axis(["rho", "value", "low", "high"], axis=1)
        .assign(measure=name)
        for name in measures
    )  # fmt: skip
    columns = 2 if width >= WIDE else 1
    inner = (width - columns * 74) // columns
    panels = [_panel(name, title, inner) for name, title in measures.items()]
    data = {"means": records(_labelled(means), 6), "dots": records(_labelled(dots), 6)}
    return {"datasets": data, "concat": panels, "columns": columns, "spacing": 24}


def _labelled(frame: pd.DataFrame) -> pd.DataFrame:
    # Doses lie close together near 1: they are told apart as names in order, not as numbers on a scale.
    return frame.sort_values("rho", kind="stable").assign(dose=[f"{rho:g}" for rho in sorted(frame["rho"])])


def _panel(name: str, title: str, inner: int) -> Chart:
    points = not name.startswith("cross")
    x = {"field": "dose", "type": "ordinal", "sort": None, "title": "ρ of training", "axis": {"labelAngle": 0}}
    # The first doses do a hundredth of what the last one does: evenly up to ``even``, by powers of ten beyond.
    even = 0.01 if points else 0.0005
    ticks = (0.01, 0.03, 0.1, 0.3, 0.8) if points else (0.001, 0.01, 0.1, 0.4)
    axis: Chart = {"domain": False, "ticks": False, "values": [*(-value for value in reversed(ticks)), 0, *ticks]}
    axis |= {"labelOverlap": False, "labelExpr": f"format({100 if points else 1} * datum.value, '~g')"}
    scale = {"type": "symlog", "constant": even, "nice": False}
    y = {"type": "quantitative", "title": "points" if points else None, "axis": axis, "scale": scale}
    number = ".1%" if points else ".4f"
    tip = [
        {"field": "dose", "title": "ρ"},
        *(
            {"field": field, "type": "quantitative", "title": text, "format": number}
            for field, text in (("value", "mean"), ("low", "95 % from"), ("high", "to"))
        ),
    ]
    single = [
        {"field": "seed", "title": "seed"},
        {"field": "value", "type": "quantitative", "title": "value", "format": number},
    ]
    blue = {"color": COLOURS[0]}
    layers: list[Chart] = [
        rule_at(0, "y"),
        {
            "data": {"name": "dots"},
            "transform": [{"filter": {"field": "measure", "equal": name}}],
            "mark": {"type": "point", "filled": True, "size": 24, "opacity": 0.7, "color": MUTED, "xOffset": 9},
            "encoding": {"x": x, "y": y | {"field": "value"}, "tooltip": single},
        },
        *(
            {
                "data": {"name": "means"},
                "transform": [{"filter": {"field": "measure", "equal": name}}],
                "mark": mark | blue,
                "encoding": encoding | {"x": x},
            }
            for mark, encoding in (
                ({"type": "rule", "strokeWidth": 2}, {"y": y | {"field": "low"}, "y2": {"field": "high"}}),
                ({"type": "line", "strokeWidth": 1.5, "opacity": 0.5}, {"y": y | {"field": "value"}}),
                (
                    {"type": "point", "filled": True, "size": 60, "opacity": 1},
                    {"y": y | {"field": "value"}, "tooltip": tip},
                ),
            )
        ),
    ]
    return {"title": {"text": title, "fontSize": 12}, "width": inner, "height": 210, "layer": layers}
