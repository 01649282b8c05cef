"""Figures: Vega-Lite specifications drawn as SVG for the page, and as SVG and PNG files next to it."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from holdfast.core.files import write_atomic
from holdfast.core.names import NO_XML

Chart = dict[str, Any]  # A Vega-Lite specification; its rows are under ``datasets``, so that both widths share them

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name, never fetched

WIDE, NARROW = 940, 340  # Pixels of a figure on a desk and on a phone
LARGE = 200_000  # From this many characters of SVG on, the PNG is not drawn at double size

INK, MUTED = "#1f2430", "#5b6270"

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5c00", "#56b4e9", "#1f2430", "#e69f00")
"""Okabe and Ito's colours, distinct under all common colour deficiencies; yellow is darkened to brown."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")

# Without "aria", because the figure has one text of its own; a label per mark would quintuple the page.
_THEME = (Path(__file__).parent / "templates" / "vega.json").read_text(encoding="utf8")


@dataclass(frozen=True)
class Figure:
    """A figure of a page.

    ``note``: how to read it. wide, narrow: addresses of the images for a desk and for a phone, once it is drawn.
    """

    name: str  # name of its files
    title: str  # what is shown, in sentence case
    finding: str  # the text that replaces the image for readers who cannot see it
    draw: Callable[[int], Chart]  # returns the Vega-Lite specification for a width in pixels
    note: str = ""
    wide: str = ""
    narrow: str = ""
    kind: ClassVar[str] = "figure"


def drawn(figure: Figure, folder: Path) -> tuple[Figure, dict[str, Any]]:
    """Write ``<name>.svg`` and ``<name>.png``; return the drawn figure and the data of its interactive version."""
    specifications = {width: specification(figure, width) for width in (WIDE, NARROW)}
    wide, narrow = (svg(specifications[width]) for width in (WIDE, NARROW))
    write_atomic(folder / f"{figure.name}.svg", _titled(wide, figure.finding).encode())
    write_atomic(folder / f"{figure.name}.png", png(wide))
    data: dict[str, Any] = {}
    for chart in specifications.values():
        data |= chart.pop("datasets", {})
    shown = replace(figure, wide=as_picture(wide), narrow=as_picture(narrow))
    return shown, {"datasets": data, "wide": specifications[WIDE], "narrow": specifications[NARROW]}


def svg(chart: Chart) -> str:
    """Return a specification drawn as SVG."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(chart))


def png(drawing: str) -> bytes:
    """Return an SVG as a PNG on white, at double size unless it is large."""
    import vl_convert

    return bytes(vl_convert.svg_to_png(_on_white(drawing), scale=2 if len(drawing) < LARGE else 1))


def specification(figure: Figure, width: int) -> Chart:
    """Return the whole Vega-Lite specification of a figure for a width in pixels."""
    chart = figure.draw(width)
    config = json.loads(_THEME)
    if width < WIDE:
        for part in ("axis", "legend", "header"):
            config[part] |= {"labelFontSize": 11, "titleFontSize": 11}
        config["axis"]["labelLimit"] = 130
        config["header"]["labelLimit"] = width - 20
    for name, part in chart.pop("config", {}).items():
        config[name] = {**config.get(name, {}), **part}
    return {"$schema": SCHEMA, "config": config, **_drawable(chart)}


def _drawable(value: Any) -> Any:
    """Return the value without what the renderer aborts the process for, or JSON has no number for."""
    if isinstance(value, dict):
        return {name: _drawable(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_drawable(part) for part in value]
    if isinstance(value, str):
        return NO_XML.sub("\N{REPLACEMENT CHARACTER}", value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_picture(svg: str) -> str:
    """Return the SVG as the address of an image: a page of a dozen charts then has a dozen elements, not thousands."""
    return f"data:image/svg+xml;base64,{base64.b64encode(_shorter(svg).encode()).decode()}"


def _shorter(svg: str) -> str:
    """Return the SVG with coordinates cut to hundredths of a pixel, and without attributes that change no pixel.

    Texts, opacities and scales keep their digits. A font that all texts have is named once.
    """
    fonts = set(_FONT.findall(svg))

    def shorter(tag: re.Match[str]) -> str:
        text = _UNSEEN.sub("", _COORDINATES.sub(lambda place: _LONG.sub(r"\1", place.group()), tag.group()))
        return _FONT.sub("", text) if len(fonts) == 1 else text

    drawing = _TAG.sub(shorter, svg)
    return drawing.replace("<svg ", f"<svg{fonts.pop()} ", 1) if len(fonts) == 1 else drawing


_FONT = re.compile(r' font-family="[^"]*"')
_UNSEEN = re.compile(
    r' (?:class|role|pointer-events|aria-[a-z]+)="[^"]*"| (?:opacity|stroke-width)="1"| text-anchor="start"'
)
_TAG = re.compile(r"<[^<>]*>")
_COORDINATES = re.compile(r'\s(?:d|x|y|x1|x2|y1|y2|width|height)="[^"]*"|\stransform="translate\([^)"]*\)')
_LONG = re.compile(r"(\d+\.\d{2})\d+")


def _on_white(svg: str) -> str:
    return re.sub(r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', svg, count=1)


def _titled(svg: str, text: str) -> str:
    from html import escape

    return re.sub(
        r"(<svg [^>]*)>", lambda match: f'{match.group(1)} role="img"><title>{escape(text)}</title>', svg, count=1
    )
