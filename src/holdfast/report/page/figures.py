"""One Vega-Lite specification per figure and width → SVG on the page, SVG and PNG files, an interactive version."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.files import write_atomic

Chart = dict[str, Any]
"""A Vega-Lite specification; its rows lie under ``datasets``, so that both widths share them."""

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name, never fetched

WIDE, NARROW = 940, 340
"""Pixels of a figure on a desk and on a phone."""

LARGE = 200_000
"""Characters of SVG from which on a PNG is not drawn at double size."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, MUTED, RULE = "#1f2430", "#5b6270", "#e3e5ea"

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5c00", "#56b4e9", "#1f2430", "#e69f00")
"""Okabe and Ito's, told apart by people with any of the common colour deficiencies; yellow darkened to brown."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")

CONFIG: dict[str, Any] = {
    "aria": False,  # the figure has one text of its own; a label per mark would quintuple the page
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelSeparation": 6,
        "labelColor": INK,
        "titleColor": MUTED,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": RULE,
        "domainColor": "#b9bec9",
        "tickColor": "#b9bec9",
        "labelLimit": 190,
    },
    "legend": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": INK,
        "titleColor": MUTED,
        "symbolSize": 80,
        "labelLimit": 240,
    },
    "header": {"labelFontSize": 12, "labelColor": INK, "titleColor": MUTED, "labelFontWeight": 600, "labelLimit": 300},
    "title": {"color": INK, "fontSize": 13, "fontWeight": 600, "anchor": "start"},
}


@dataclass(frozen=True)
class Figure:
    """A figure before it is drawn.

    Attributes:
        name: of its files.
        title: what is shown, in sentence case.
        finding: the text that stands for the picture: what there is to see in it.
        draw: the Vega-Lite specification for a width in pixels.
        note: how to read it.
    """

    name: str
    title: str
    finding: str
    draw: Callable[[int], Chart]
    note: str = ""


@dataclass(frozen=True)
class Drawn:
    """A figure as the page shows it: two pictures, and the specification for the interactive one."""

    figure: Figure
    wide: str
    narrow: str
    specification: dict[str, Any]


def draw(figure: Figure, folder: Path) -> Drawn:
    """Render both widths, and write ``<name>.svg`` and ``<name>.png``."""
    import vl_convert

    specifications = {width: _specification(figure, width) for width in (WIDE, NARROW)}
    wide, narrow = (vl_convert.vegalite_to_svg(specifications[width]) for width in (WIDE, NARROW))
    write_atomic(folder / f"{figure.name}.svg", _titled(wide, figure.finding).encode())
    write_atomic(
        folder / f"{figure.name}.png", vl_convert.svg_to_png(_on_white(wide), scale=2 if len(wide) < LARGE else 1)
    )
    data: dict[str, Any] = {}
    for specification in specifications.values():
        data |= specification.pop("datasets", {})
    return Drawn(
        figure,
        inline(wide, f"{figure.name}-wide"),
        inline(narrow, f"{figure.name}-narrow"),
        {"datasets": data, "wide": specifications[WIDE], "narrow": specifications[NARROW]},
    )


def _specification(figure: Figure, width: int) -> Chart:
    made = figure.draw(width)
    config = {name: dict(part) if isinstance(part, dict) else part for name, part in CONFIG.items()}
    if width < WIDE:
        for part in ("axis", "legend", "header"):
            config[part] |= {"labelFontSize": 11, "titleFontSize": 11}
        config["axis"]["labelLimit"] = 130
        config["header"]["labelLimit"] = width - 20
    for name, part in made.pop("config", {}).items():
        config[name] = {**config.get(name, {}), **part}
    return {"$schema": SCHEMA, "config": config, **made}


def inline(svg: str, prefix: str) -> str:
    """An SVG for the middle of a page: names are unique there, and the style sheet says how wide it is."""

    def tidy(found: re.Match[str]) -> str:
        tag = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', found.group())
        tag = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", tag)
        return re.sub(r"(\d+\.\d{2})\d+", r"\1", tag)  # hundredths of a pixel are enough

    svg = re.sub(r"<[a-zA-Z][^>]*>", tidy, svg)  # tags only: what stands between them is the user's text
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def _on_white(svg: str) -> str:
    return re.sub(r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', svg, count=1)


def _titled(svg: str, text: str) -> str:
    from html import escape

    return re.sub(
        r"(<svg [^>]*)>", lambda found: f'{found.group(1)} role="img"><title>{escape(text)}</title>', svg, count=1
    )
