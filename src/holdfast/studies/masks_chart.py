"""The figures of the masks study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.report.page.charts import panel_of, placed, records, rule_at
from holdfast.report.page.figures import COLOURS, INK, MUTED, SHAPES, WIDE, Chart
from holdfast.studies.mask_kinds import FAMILIES

if TYPE_CHECKING:
    import pandas as pd


def _x(values: pd.Series[float]) -> Chart:
    low = max(0.0, float(values.min()) - 0.05)
    scale = {"domain": [low, 1.02], "nice": False}
    axis = {"grid": False, "tickCount": 5, "format": ".1f"}
    title = "mean IoU with the exact masks"
    return {"field": "iou", "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _family(families: Sequence[str]) -> Chart:
    """Colour and shape, the same in every figure."""
    places = [FAMILIES.index(name) for name in families]
    legend = {"orient": "top", "direction": "horizontal", "title": None, "offset": 6}
    made: Chart = {}
    for channel, values in (("color", (INK, *COLOURS)), ("shape", SHAPES)):
        scale = {"domain": list(families), "range": [values[place] for place in places]}
        made[channel] = {"field": "family", "type": "nominal", "scale": scale, "legend": legend}
    return made


def _tips(number: str) -> list[Chart]:
    made: list[Chart] = [{"field": "kind", "title": "masks"}, {"field": "iou", "title": "mean IoU", "format": ".2f"}]
    for field, title in (("value", "value"), ("low", "95 % from"), ("high", "to")):
        made.append({"field": field, "type": "quantitative", "title": title, "format": number})
    return made


def _marks(x: Chart, y: Chart, families: Sequence[str], number: str, size: int) -> list[Chart]:
    marked = _family(families)
    return [
        {
            "mark": {"type": "rule", "strokeWidth": 1.6},
            "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": marked["color"]},
        },
        {
            "mark": {"type": "point", "filled": True, "size": size, "opacity": 1},
            "encoding": {"x": x, "y": y | {"field": "value"}, **marked, "tooltip": _tips(number)},
        },
    ]


def changes(frame: pd.DataFrame, width: int, *, panels: Mapping[str, str], families: Sequence[str]) -> Chart:
    """A panel a measure: how far it moves from its value under exact masks, over the masks' IoU.

    Args:
        frame: kind, family, iou, measure, value, low, high; ``effect`` is a difference of fractions.
        width: of the figure.
        panels: measure → title.
        families: of kinds, in order.
    """
    columns = len(panels) if width >= WIDE else 1
    inner = width // columns - 72
    made = []
    for name, title in panels.items():
        shown = "100 * datum.value" if name == "effect" else "datum.value"
        axis: Chart = {"domain": False, "ticks": False, "tickCount": 5, "labelExpr": f"format({shown}, '~g')"}
        y: Chart = {"type": "quantitative", "title": None, "axis": axis, "scale": {"zero": True, "nice": True}}
        made.append(
            {
                "title": {"text": title, "fontSize": 12},
                "width": inner,
                "height": 230,
                "transform": [{"filter": {"field": "measure", "equal": name}}],
                "layer": [
                    rule_at(0, "y"),
                    *_marks(_x(frame["iou"]), y, families, "+.1%" if name == "effect" else "+.4f", 62),
                ],
            }
        )
    data: Chart = {"data": {"name": "rows"}, "datasets": {"rows": records(frame, 6)}}
    layout: Chart = {"columns": columns, "spacing": {"column": 46, "row": 30}}
    fit = {"legend": {"columns": len(families) if width >= WIDE else 2, "columnPadding": 24}}
    return data | layout | {"concat": made, "config": fit}


def by_model(
    frame: pd.DataFrame, truth: pd.DataFrame, width: int, *, models: Sequence[str], families: Sequence[str]
) -> Chart:
    """A panel a model: its background effect over the masks' IoU, and a dashed line where it truly is.

    Args:
        frame: model, kind, family, iou, value, low, high.
        truth: model, truth; empty where it is not known.
        width: of the figure.
        models: in order.
        families: of kinds, in order.
    """
    columns = min(4, len(models)) if width >= WIDE else 1
    inner = (width - 60) // columns - 24 if columns > 1 else width - 70
    axis: Chart = {"domain": False, "ticks": False, "tickCount": 5, "labelExpr": "format(100 * datum.value, '~g')"}
    y: Chart = {"type": "quantitative", "title": "points", "axis": axis, "scale": {"zero": True, "nice": True}}
    layers = _marks(_x(frame["iou"]), y, families, "+.1%", 40)
    if len(truth):
        frame = frame.merge(truth, on="model")
        line = {"type": "rule", "color": MUTED, "strokeDash": [3, 3]}
        layers.insert(0, {"mark": line, "encoding": {"y": y | {"field": "truth", "aggregate": "mean"}}})
    return {
        "data": {"name": "rows"},
        "datasets": {"rows": records(placed(frame, models), 6)},
        "facet": panel_of(inner),
        "columns": columns,
        "spacing": {"row": 18, "column": 18},
        "spec": {"width": inner, "height": 150, "layer": layers},
        "config": {"legend": {"columns": len(families) if width >= WIDE else 2, "columnPadding": 24}},
    }
