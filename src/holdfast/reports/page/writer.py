"""The one writer of pages: sections become an HTML file that opens from disk, and figures and tables next to it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.distribution import installed_version
from holdfast.core.errors import cannot_write
from holdfast.core.files import clear_leftovers, clear_unfinished, write_atomic
from holdfast.reports.page import figures, tables
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import Front, Part, Section
from holdfast.reports.page.tables import Table
from holdfast.reports.page.words import listing
from holdfast.store import Run

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
DRAWN_WORLD = "Drawn scenes: the truth is known there, and photographs may differ."


def about_world(data: str) -> str:
    """Return DRAWN_WORLD for a data source of drawn scenes, else nothing."""
    return DRAWN_WORLD if data.startswith(("diorama:", "diorama-rerendered:")) else ""


def about_runs(runs: Sequence[Run], note: str = "") -> dict[str, str]:
    """Return the subject, the note and the names of the runs that a page is about."""
    specs = [run.spec() for run in runs]
    datasets = dict.fromkeys(str(spec.get("dataset") or run.run_id) for spec, run in zip(specs, runs, strict=True))
    return {
        "subject": listing(list(datasets)),
        "note": note or max(about_world(str(spec.get("data", ""))) for spec in specs),
        "run_names": listing([run.run_id for run in runs], 6),
    }


def write_page(
    front: Front, sections: Sequence[Section], out: Path, *, subject: str, run_names: str, note: str = ""
) -> Path:
    """Draw the figures, write ``figures/``, ``tables/`` and, last of all, ``index.html``; return its path.

    ``subject``: what the page is about, next to its title. ``note``: what a reader must know first.
    """
    about = {"subject": subject, "run_names": run_names, "note": note}
    try:
        for part_of_page in ("figures", "tables"):
            clear_unfinished(out / part_of_page)
        clear_leftovers(out / "index.html")
        wanted = [front.chart] if front.chart is not None else []
        wanted += [part for section in sections for part in section.parts if isinstance(part, Figure)]
        wanted = list({figure.name: figure for figure in reversed(wanted)}.values())
        with ThreadPoolExecutor(2) as threads:  # the renderer lets other threads run
            pairs = list(threads.map(lambda figure: figures.drawn(figure, out / "figures"), wanted))
        drawn = {figure.name: figure for figure, _ in pairs}
        shown = []
        for section in sections:
            for part in section.parts:
                if isinstance(part, Table):
                    tables.write(part, out / "tables")
            parts: list[Part] = [drawn[part.name] if isinstance(part, Figure) else part for part in section.parts]
            shown.append(replace(section, parts=parts))
        first = replace(front, chart=drawn[front.chart.name] if front.chart is not None else None)
        page = render(first, shown, {figure.name: data for figure, data in pairs}, about)
        write_atomic(out / "index.html", page.encode())
    except OSError as error:
        raise cannot_write(f"the page to {out}", error) from error
    return out / "index.html"


def render(front: Front, sections: Sequence[Section], charts: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """Return the HTML of a page."""
    from markupsafe import Markup

    script = (TEMPLATES / "page.js").read_text(encoding="utf8")
    library = chart_library()
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in (library, script))
    # Nothing is loaded from elsewhere, and only these two scripts run: text in a name cannot become one.
    policy = f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"  # noqa: E501
    return templates().get_template("report.html.j2").render(
        front=front,
        sections=sections,
        bodies={section.name: body(section) for section in sections},
        charts=Markup(script_json(charts)),  # noqa: S704 - escaped by script_json
        library=Markup(library),  # noqa: S704 - the chart library, as installed
        script=Markup(script),  # noqa: S704 - ours
        style=Markup((TEMPLATES / "style.css").read_text(encoding="utf8")),  # noqa: S704 - ours
        policy=policy,
        version=installed_version(),
        **about,
    )  # fmt: skip


def body(section: Section) -> Any:
    """Return the HTML of what is below a section's heading, by its own template if it has one."""
    from markupsafe import Markup

    known = templates()
    template = known.from_string(section.template) if section.template else known.get_template("section.html.j2")
    text = template.render(section=section, parts=known.get_template("parts.html.j2").module)
    return Markup(text)  # noqa: S704 - a template has escaped it


@cache
def templates(folder: Path = TEMPLATES) -> Environment:
    """Return the templates of a folder; they refuse unknown values, and escape all of them but in plain texts."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape(disabled_extensions=("txt.j2", "md.j2", "typ.j2", "yaml.j2"), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


@cache
def chart_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one classic script that defines only their names."""
    import vl_convert

    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # the stub lacks the default
    bundle = re.sub(r"</(script)|<!--", lambda match: match.group().replace("<", r"\x3c"), bundle, flags=re.IGNORECASE)
    return f"(() => {{{bundle}\n}})();".replace("\r\n", "\n").replace("\r", "\n")


def script_json(value: Any) -> str:
    """Return JSON that cannot end the script element it is in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
