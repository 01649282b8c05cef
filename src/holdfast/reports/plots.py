"""Charts and tables of a run for notebooks and scripts: the report's own, one at a time."""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd  # noqa: TID253 - a class here derives from DataFrame; results.py imports this module when asked

from holdfast.core.errors import UserError, cannot_write
from holdfast.core.files import clear_leftovers, write_atomic
from holdfast.core.names import typed_name
from holdfast.reports.assembly import page_front, report_sections
from holdfast.reports.page.evidence import Evidence
from holdfast.reports.page.figures import WIDE, Figure, png, specification, svg
from holdfast.reports.page.parts import Part
from holdfast.reports.page.sections import ReportEvidence
from holdfast.reports.page.tables import CLASS, Column, Table, model_column, ranged, yes_no
from holdfast.reports.page.words import class_words, plural
from holdfast.reports.page.writer import chart_library, script_json, templates
from holdfast.reports.static.accuracy import maps, scenario_columns, scenarios
from holdfast.reports.static.comparison import drop_columns, drop_parts
from holdfast.reports.static.front import answer_figure
from holdfast.reports.static.score import robustness_columns
from holdfast.reports.static.verdicts import effect_parts, verdict_columns

if TYPE_CHECKING:
    from holdfast.store import Run

PLOTS: dict[str, Callable[[Evidence], Sequence[Part]]] = {
    "verdict": lambda evidence: [answer_figure(evidence)],
    "effects": effect_parts,
    "accuracy": lambda evidence: scenarios(evidence).parts,
    "drops": drop_parts,
    "classes": lambda evidence: maps(evidence).parts,
}
"""Charts that need only a part of the report's statistics; every other one is found by the name of its file."""


class Plot(dict[str, Any]):
    """A Vega-Lite specification with its rows: notebooks draw it, and ``save`` writes it.

    It is a plain dictionary to other libraries (``altair.Chart.from_dict(plot)``, ``json.dumps(plot)``).
    """

    def __init__(self, figure: Figure, width: int = WIDE) -> None:
        title = {"text": textwrap.wrap(figure.title, max(20, width // 8)), "anchor": "start", "offset": 12}
        super().__init__(specification(figure, width))
        self |= {"title": title, "description": figure.finding, "background": "white"}
        self.name, self.caption = figure.name, figure.title

    def save(self, path: str | Path) -> Path:
        """Write the chart as its ending says: ``.html`` (interactive, from disk), ``.json``, ``.svg`` or ``.png``."""
        out = Path(path)
        makers: dict[str, Callable[[], str | bytes]] = {
            ".html": self._page, ".json": lambda: json.dumps(self, ensure_ascii=False, indent=1),
            ".svg": lambda: svg(self), ".png": lambda: png(svg(self)),
        }  # fmt: skip
        if out.suffix.lower() not in makers:
            raise UserError(f"a plot is saved as {', '.join(makers)}, not as {out.name!r}")
        data = makers[out.suffix.lower()]()
        try:
            clear_leftovers(out)
            write_atomic(out, data.encode() if isinstance(data, str) else data)
        except OSError as error:
            raise cannot_write(out, error) from error
        return out

    def _page(self) -> str:
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self.caption)}</title>'
            f'</head>\n<body><main id="chart"></main>\n<script>{chart_library()}</script>\n'
            f'<script>vegaEmbed("#chart", {script_json(self)}, {{renderer: "svg"}});</script></body></html>\n'
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"application/vnd.vegalite.v6+json": dict(self), "image/svg+xml": svg(self), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Plot({self.name!r}: {self.caption})"


def plot(runs: Sequence[Run], name: str, *, width: int = WIDE, settings: dict[str, Any], **options: Any) -> Plot:
    """Return one chart of the report of some runs.

    Args:
        runs: as in ``report.build``.
        name: a name in ``PLOTS``, or the name of a file in the report's ``figures/``.
        width: in pixels.
        settings: outcome, average, resamples and seed.
        options: score_conditions, background_conditions and analysis, as in ``report.build``.
    """
    report = ReportEvidence(runs, **settings, **options)
    if name in PLOTS and report.has_classified and report.classified.models:
        figures = [part for part in PLOTS[name](report.classified) if isinstance(part, Figure)]
        if not figures:
            raise UserError(f"this run has no chart of {name}: no condition other than the original was answered")
        return Plot(figures[0], width)
    sections, chart = report_sections(report), page_front(report).chart
    drawn = {} if chart is None else {chart.name: chart}
    drawn |= {part.name: part for section in sections for part in section.parts if isinstance(part, Figure)}
    if name in drawn:
        return Plot(drawn[name], width)
    known = list(dict.fromkeys([*(PLOTS if "answer" in drawn else ()), *drawn]))
    near = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UserError(f"no chart is called {name!r}.{hint} This run has {', '.join(known) or 'none'}")


def fmr_columns(short: Mapping[str, str]) -> list[Column]:
    """Return the columns of FMR as shown."""
    words = {"SA": "accuracy on the originals", "PA": "accuracy on accepted images", "VR": "share that is accepted"}
    return [
        model_column(short), Column("label", "Class", show=lambda name: class_words(name) if name else "all"),
        Column("n", "Images", "integer"), *(Column(key, key, "number", digits=3, hint=words[key]) for key in words),
        ranged("FMR", "FMR", "number", 3, "PA / SA"), Column("reason", "Why there is none"),
    ]  # fmt: skip


def row_columns(short: Mapping[str, str]) -> list[Column]:
    """Return the columns of predictions as shown."""
    return [
        Column("sample_id", "Image"), Column("condition", "Condition"), model_column(short), CLASS,
        Column("prediction", "Prediction", show=class_words), Column("correct", "Right", show=yes_no),
        Column("confidence", "Confidence", "number", digits=3), Column("status", "Status"),
    ]  # fmt: skip


_COLUMNS = {
    "accuracy": scenario_columns, "drops": drop_columns, "verdicts": verdict_columns, "scores": robustness_columns,
    "fmr": fmr_columns, "rows": row_columns,
}  # fmt: skip
_ROWS, _WIDTH = 30, 132


class ResultFrame(pd.DataFrame):
    """A frame of a run's statistics, printed as the report prints it; every other operation gives a plain DataFrame."""

    kind: str
    _metadata = ["kind"]  # noqa: RUF012 - pandas wants a list

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _table(self) -> Table:
        known = {column.key: column for column in _COLUMNS[self.kind]({})}
        asked = self.kind == "rows" and len(self.columns) <= len(known)  # a few columns of rows are all shown
        names = map(str, self if asked else known)
        columns = [known.get(name, Column(name, name)) for name in names if name in self]
        return Table(self.kind, self.kind, pd.DataFrame(self), columns, shown=_ROWS)

    @property
    def _more(self) -> str:
        return f"{plural(len(self), 'row')} × {len(self.columns)} columns, some of them not shown: .columns lists them"

    @property
    def _warnings(self) -> list[str]:
        """Return why scores say nothing, a line for each model of which that is known."""
        rows = self.to_dict("records") if self.kind == "scores" and "warning" in self else []
        return [f"Take care: {row['model']} {row['warning']}." for row in rows if row["warning"]]

    def _repr_html_(self) -> str:
        caption = " ".join([*self._warnings, self._more])
        return str(templates().get_template("summary_table.html.j2").render(table=self._table(), caption=caption))

    def __repr__(self) -> str:
        shown = self._table()
        head = [f"{column.title}{f' ({column.unit})' if column.unit else ''}" for column in shown.heads]
        lines = [
            head,
            *([f"{cell.text} ({cell.interval})" if cell.interval else cell.text for cell in row] for row in shown.rows),
        ]
        widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
        while len(widths) > 1 and sum(widths) + 2 * len(widths) > _WIDTH:
            widths.pop()
        printed = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=False)).rstrip() for line in lines
        ]
        return "\n".join([*printed, *self._warnings, f"[{self._more}]"])


class RowFrame(ResultFrame):
    """Every prediction of a run, with what programs ask an Arrow table for."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a plain DataFrame."""
        return pd.DataFrame(self)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return a dictionary per row, None for what is missing and a list for several values."""
        plain = pd.DataFrame(self).astype(object)
        return [
            {str(name): value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}
            for row in plain.where(plain.notna(), None).to_dict("records")
        ]


def result_frame(frame: pd.DataFrame, kind: str) -> ResultFrame:
    """Return the frame as one that prints itself as the report does; ``kind`` is accuracy, drops or verdicts.

    Its conditions have the names that are typed.
    """
    shown = ResultFrame(frame)
    if "condition" in shown:
        shown["condition"] = [typed_name(str(name)) for name in shown["condition"]]
    shown.kind = kind
    return shown


def row_frame(frame: pd.DataFrame) -> RowFrame:
    """Return rows as a frame that prints itself."""
    shown = RowFrame(frame)
    shown.kind = "rows"
    return shown
