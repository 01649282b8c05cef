"""The curves of growth.py as two images of small multiples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HEIGHT, ACROSS = 180, 105, 3
CONFIG = {
    "font": "DejaVu Sans, sans-serif",
    "view": {"stroke": "#ccc"},
    "axis": {"grid": True, "gridColor": "#eee", "labelFontSize": 11, "titleFontSize": 11, "labelColor": "#333"},
    "background": "white",
}


def draw(curves: list[dict[str, Any]], folder: Path) -> None:
    """``time.svg`` and ``memory.svg``, three panels wide, so that a telephone shows them at half their size."""
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
        "title": {"text": title, "fontSize": 12, "anchor": "start"},
        "width": WIDTH,
        "height": HEIGHT,
        "data": {"values": curve["points"]},
    }


def _axis(curve: dict[str, Any]) -> dict[str, Any]:
    largest = curve["points"][-1]["size"]
    return {
        "field": "size", "type": "quantitative", "title": curve["axis"],
        "scale": {"domain": [0, largest], "nice": False},
        "axis": {"values": [0, *(one["size"] for one in curve["points"] if one["size"] > largest / 6)],
                 "format": ".3~s", "labelFlush": True},
    }  # fmt: skip


def _time(curve: dict[str, Any]) -> dict[str, Any]:
    """Processor time, and the straight line that comes nearest: what linear growth would be."""
    sizes, seconds = ([one[name] for one in curve["points"]] for name in ("size", "processor"))
    price, fixed = np.polyfit(sizes, seconds, 1, w=1 / np.array(seconds))
    linear = [{"size": size, "processor": fixed + price * size} for size in (0, sizes[-1])]
    y = {"field": "processor", "type": "quantitative", "title": "processor s", "scale": {"zero": True},
         "axis": {"format": ".1~f", "tickCount": 4}}  # fmt: skip
    x = _axis(curve)
    return {
        **_panel(curve, f"{curve['name']}  {curve['shown'].strip('–')}"),
        "layer": [
            {"data": {"values": linear}, "mark": {"type": "line", "strokeDash": [3, 3], "color": "#777"},
             "encoding": {"x": x, "y": y}},
            {"mark": {"type": "line", "point": {"size": 26, "color": "#00796b"}, "color": "#00796b"},
             "encoding": {"x": x, "y": y}},
        ],
    }  # fmt: skip


def _memory(curve: dict[str, Any]) -> dict[str, Any]:
    points = [{**one, "megabytes": one["memory"] / 1e6} for one in curve["points"]]
    y = {"field": "megabytes", "type": "quantitative", "title": "peak MB", "scale": {"zero": True},
         "axis": {"tickCount": 4}}  # fmt: skip
    return {
        **_panel(curve, curve["name"]),
        "data": {"values": points},
        "mark": {"type": "line", "point": {"size": 26, "color": "#c2410c"}, "color": "#c2410c"},
        "encoding": {"x": _axis(curve), "y": y},
    }
