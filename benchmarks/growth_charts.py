"""The curves of growth.py as two pictures of small multiples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WIDTH, HEIGHT, ACROSS = 150, 110, 5
CONFIG = {
    "font": "DejaVu Sans, sans-serif",
    "view": {"stroke": "#ccc"},
    "axis": {"grid": True, "gridColor": "#eee", "labelFontSize": 9, "titleFontSize": 9, "labelColor": "#333"},
    "background": "white",
}


def draw(curves: list[dict[str, Any]], folder: Path) -> None:
    """``time.svg`` and ``memory.svg``, with PNG beside them to be looked at."""
    import vl_convert

    folder.mkdir(parents=True, exist_ok=True)
    for name, draw_one in (("time", _time), ("memory", _memory)):
        specification = {
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
            "config": CONFIG, "columns": ACROSS, "spacing": 14, "concat": [draw_one(curve) for curve in curves],
        }  # fmt: skip
        (folder / f"{name}.svg").write_text(vl_convert.vegalite_to_svg(specification))


def _panel(curve: dict[str, Any], title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "fontSize": 10, "anchor": "start"},
        "width": WIDTH,
        "height": HEIGHT,
        "data": {"values": curve["points"]},
    }


def _axis(curve: dict[str, Any]) -> dict[str, Any]:
    return {
        "field": "size", "type": "quantitative", "title": curve["axis"],
        "scale": {"type": "log", "nice": False},
        "axis": {"values": [one["size"] for one in curve["points"]], "format": ".3~s", "labelOverlap": True},
    }  # fmt: skip


def _time(curve: dict[str, Any]) -> dict[str, Any]:
    """Processor time less what is fixed, both axes logarithmic: a straight line of slope 1 is linear growth."""
    points = [
        {**one, "beyond": one["processor"] - curve["fixed"]}
        for one in curve["points"]
        if one["processor"] - curve["fixed"] > 0.02 * curve["points"][-1]["processor"]
    ]
    last = points[-1]
    linear = [{"size": one["size"], "beyond": last["beyond"] * one["size"] / last["size"]} for one in points]
    y = {"field": "beyond", "type": "quantitative", "title": "s beyond fixed", "scale": {"type": "log", "nice": False},
         "axis": {"format": "~g", "tickCount": 4}}  # fmt: skip
    x = _axis(curve)
    return {
        **_panel(curve, f"{curve['name']}  {curve['shown']}"),
        "layer": [
            {"data": {"values": linear}, "mark": {"type": "line", "strokeDash": [3, 3], "color": "#999"},
             "encoding": {"x": x, "y": y}},
            {"data": {"values": points}, "mark": {"type": "line", "point": {"size": 22}, "color": "#00796b"},
             "encoding": {"x": x, "y": y}},
        ],
    }  # fmt: skip


def _memory(curve: dict[str, Any]) -> dict[str, Any]:
    points = [{**one, "megabytes": one["memory"] / 1e6} for one in curve["points"] if one["memory"] is not None]
    y = {"field": "megabytes", "type": "quantitative", "title": "peak MB", "scale": {"zero": True},
         "axis": {"tickCount": 4}}  # fmt: skip
    return {
        **_panel(curve, curve["name"]),
        "data": {"values": points},
        "mark": {"type": "line", "point": {"size": 22}, "color": "#c2410c"},
        "encoding": {"x": _axis(curve), "y": y},
    }
