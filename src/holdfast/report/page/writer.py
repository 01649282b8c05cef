"""Sections → one HTML file that runs from disk, and the files beside it."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.files import write_atomic
from holdfast.report.page import figures, tables
from holdfast.report.page.parts import Section, ShownFigure, ShownTable

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def write(sections: Sequence[Section], out: Path, **about: Any) -> Path:
    """Draw the figures, write every file, and last of all ``index.html``.

    Args:
        sections: in order.
        out: the folder.
        **about: what else the template shows (title, subject, facts, limits, run_names).
    """
    wanted = [part.figure for section in sections for part in section.parts if isinstance(part, ShownFigure)]
    with ThreadPoolExecutor(2) as threads:  # the renderer lets other threads run
        drawn = {
            one.figure.name: one for one in threads.map(lambda figure: figures.draw(figure, out / "figures"), wanted)
        }
    shown = []
    for section in sections:
        parts = []
        for part in section.parts:
            if isinstance(part, ShownFigure):
                one = drawn[part.figure.name]
                part = ShownFigure(part.figure, one.wide, one.narrow)
            elif isinstance(part, ShownTable):
                tables.write(part.table, out / "tables")
            parts.append(part)
        shown.append(replace(section, parts=parts))
    charts = {name: one.specification for name, one in drawn.items()}
    page = render(shown, charts, about)
    write_atomic(out / "index.html", page.encode())
    return out / "index.html"


def render(sections: Sequence[Section], charts: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """The page as text."""
    from markupsafe import Markup

    script = (TEMPLATES / "page.js").read_text(encoding="utf8")
    library = chart_library()
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in (library, script))
    # Nothing is loaded from anywhere, and no script runs but these two: a name that looks like one cannot.
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"  # noqa: E501
    return templates().get_template("report.html.j2").render(
        sections=sections,
        charts=Markup(script_json(charts)),  # noqa: S704 - escaped by script_json
        library=Markup(library),  # noqa: S704 - the chart library, as installed
        script=Markup(script),  # noqa: S704 - ours
        style=Markup((TEMPLATES / "style.css").read_text(encoding="utf8")),  # noqa: S704 - ours
        policy=policy,
        version=importlib.metadata.version("holdfast"),
        **about,
    )  # fmt: skip


@cache
def templates() -> Environment:
    """Templates that escape everything they are given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one classic script that leaves nothing but their names."""
    import vl_convert

    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # the stub lacks the default
    bundle = re.sub(r"</(script)|<!--", lambda found: found.group().replace("<", r"\x3c"), bundle, flags=re.IGNORECASE)
    return f"(() => {{{bundle}\n}})();".replace("\r\n", "\n").replace("\r", "\n")


def script_json(value: Any) -> str:
    """JSON that ends no script element, whatever is in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
