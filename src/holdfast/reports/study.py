"""The page, tables and figures of a study."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import cannot_write
from holdfast.core.files import clear_unfinished, write_atomic
from holdfast.core.lazy import pd
from holdfast.core.types import Image
from holdfast.reports.page.figures import Chart, Figure
from holdfast.reports.page.parts import (
    Code,
    Front,
    Gallery,
    Part,
    Photo,
    Section,
    Tile,
    answer,
    first_figure,
    png_tile,
    proof,
)
from holdfast.reports.page.tables import Column, Table, as_csv
from holdfast.reports.page.writer import DRAWN_WORLD as DRAWN_WORLD
from holdfast.reports.page.writer import about_world as about_world
from holdfast.reports.page.writer import write_page
from holdfast.store import write_table


@dataclass(frozen=True)
class Finding:
    """One thing a study found: a section of its page.

    ``columns``: the columns to show; by default all, with ``x_low`` and ``x_high`` as the interval of ``x``. ``chart``:
    returns the Vega-Lite specification for a width in pixels (940 on a desk, 340 on a phone), or None.
    """

    heading: str  # in sentence case; it also names the files
    sentences: Sequence[str]  # the finding in words, which also replace the chart for readers who cannot see it
    table: pd.DataFrame | None = None  # the numbers, or None
    columns: Sequence[Column] | None = None
    chart: Callable[[int], Chart] | None = None
    caption: str = ""  # what the chart and the table show
    images: Mapping[str, Image] = field(default_factory=dict)  # RGB images by caption
    rows: Mapping[str, Mapping[str, Image]] = field(default_factory=dict)  # rows of such images by their headings

    @property
    def name(self) -> str:
        """The name of its files."""
        return re.sub(r"[^a-z0-9]+", "-", self.heading.lower()).strip("-")


@dataclass(frozen=True)
class StudyResult:
    """The result of a study."""

    title: str  # what it is about
    question: str  # one paragraph: what was asked, and how it was answered
    findings: Sequence[Finding | Section]  # in order; sections of a report may be among them
    facts: Mapping[str, object] = field(default_factory=dict)  # noun → number, for the top of the page
    note: str | None = None  # what a reader must know first; None: what the world of the study's data asks for
    runs: Sequence[str] = ()  # names of the runs behind it


def write_study(result: StudyResult, out: Path, asked: Mapping[str, Any]) -> Path:
    """Write ``report/index.html`` with its figures, and every table as CSV and Parquet in ``results/``."""
    names = [finding.name for finding in result.findings]
    assert len({*names, "question", "how"}) == len(names) + 2, f"headings that make the same name: {names}"
    first = Section("question", "What was asked", [result.question])
    sections = [first, *(_section(finding) for finding in result.findings)]
    for kind in (Figure, Table):  # two of one name would overwrite each other
        given = [part.name for section in sections for part in section.parts if isinstance(part, kind)]
        assert len(set(given)) == len(given), f"names given twice: {given}"
    how = json.dumps(asked, indent=2, ensure_ascii=False)
    last = Section("how", "What was run", parts=[Code("Settings and versions", how)])
    try:
        clear_unfinished(out / "results")
        for part in [part for section in sections for part in section.parts]:
            if isinstance(part, Table):
                write_atomic(out / "results" / f"{part.name}.csv", as_csv(part.frame).encode())
                table = pa.Table.from_pandas(part.frame, preserve_index=False)
                write_table(out / "results" / f"{part.name}.parquet", table)
    except OSError as error:
        raise cannot_write(f"the study to {out}", error) from error
    leading = next((section for section in sections[1:] if section.lead), first)
    parts = [part for section in sections for part in section.parts]
    front = Front(
        result.title,
        answer(leading.lead[0], " ".join(leading.lead[1:3])),
        [(str(number), noun) for noun, number in result.facts.items()],
        "Settings, versions and seeds are at the end.",
        proof(parts),
        first_figure(leading.parts) or first_figure(parts),
    )
    return write_page(
        front,
        [*sections, last],
        out / "report",
        subject="A study",
        note=result.note or "",
        run_names=", ".join(result.runs) or "this study",
    )


def _section(finding: Finding | Section) -> Section:
    if isinstance(finding, Section):
        return finding
    parts: list[Part] = []
    caption = finding.caption or finding.heading
    if finding.chart is not None:
        parts.append(Figure(finding.name, caption, " ".join(finding.sentences), finding.chart))
    rows = {**({"": finding.images} if finding.images else {}), **finding.rows}
    if rows:
        tiles = {heading: [_tile(text, image) for text, image in row.items()] for heading, row in rows.items()}
        parts.append(Gallery([Photo(heading, "", "", row, of="") for heading, row in tiles.items()]))
    if finding.table is not None:
        columns = finding.columns or columns_of(finding.table)
        parts.append(Table(finding.name, caption, finding.table, columns))
    return Section(finding.name, finding.heading, list(finding.sentences), parts)


def columns_of(frame: pd.DataFrame) -> list[Column]:
    """Return a column per column of the frame; ``x_low`` and ``x_high`` become the interval of ``x``."""
    names = [str(name) for name in frame.columns]
    ends = {f"{name}_{end}" for name in names for end in ("low", "high") if f"{name}_low" in names}
    columns = []
    for name in names:
        if name in ends:
            continue
        title = name.replace("_", " ")
        kind = frame[name].dtype.kind
        if kind not in "iuf":
            columns.append(Column(name, title))
        elif kind == "f":
            low, high = f"{name}_low", f"{name}_high"
            if not {low, high} <= set(names):
                low = high = ""
            columns.append(Column(name, title, "number", low, high, digits=3))
        else:
            columns.append(Column(name, title, "integer"))
    return columns


def _tile(caption: str, image: Image) -> Tile:
    import cv2

    good, encoded = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    assert good
    return png_tile(caption, encoded.tobytes())
