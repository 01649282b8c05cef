"""Tables: a frame is shown on the page, and written as CSV (every value) and LaTeX (as shown)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from holdfast.core.files import write_atomic
from holdfast.core.lazy import pd
from holdfast.core.names import typed_name
from holdfast.core.numbers import MISSING, number, p_value
from holdfast.reports.page.words import class_words, condition_label
from holdfast.store.run import guarded

Kind = Literal["text", "percent", "points", "number", "integer", "p"]

SHOWN = 40  # Rows of a table on the page; the CSV has all rows
LATEX_ROWS = 200  # Rows of a LaTeX table


@dataclass(frozen=True)
class Column:
    """One column as shown.

    ``kind``: how a value is written; ``percent`` and ``points`` show fractions times 100. low, high: names of the
    columns with the interval's ends, shown small behind the value.
    """

    key: str  # name of the frame's column
    title: str  # the heading
    kind: Kind = "text"
    low: str = ""
    high: str = ""
    digits: int = 1  # digits after the decimal point
    show: Callable[[Any], str] | None = None  # returns the text of a value, if the value itself is not text to show
    hint: str = ""  # what the column means, for the heading's tooltip
    beside: str = ""  # name of the column with words that are small in the same cell
    alone: bool = False  # whether it has one value on the whole page, and is left out

    @property
    def unit(self) -> str:
        """The unit of the numbers, if they have one."""
        return {"percent": "%", "points": "points"}.get(self.kind, "")


def plain(kind: Kind, **titles: str) -> list[Column]:
    """Return columns of one kind, by key and title."""
    return [Column(key, title, kind) for key, title in titles.items()]


def ranged(key: str, title: str, kind: Kind = "percent", digits: int = 1, hint: str = "") -> Column:
    """Return a column whose interval is in ``key_low`` and ``key_high``."""
    return Column(key, title, kind, f"{key}_low", f"{key}_high", digits=digits, hint=hint)


def with_intervals(kind: Kind, **titles: str) -> list[Column]:
    """Return columns of one kind with intervals, by key and title."""
    return [ranged(key, title, kind) for key, title in titles.items()]


CONDITION = Column("condition", "Condition", show=condition_label)
CLASS = Column("label", "Class", show=class_words)


def model_column(short: Mapping[str, str], title: str = "Model") -> Column:
    """Return the column ``model``, shown by the short names if there are some; not shown if there is one."""
    return Column("model", title, show=lambda name: short.get(name, name), alone=len(short) == 1)


def yes_no(value: Any) -> str:
    """Return yes or no, to show a flag."""
    return "yes" if value else "no"


@dataclass(frozen=True)
class Cell:
    """One cell: the text, the interval or nothing, the value to sort by, and small words or nothing."""

    text: str
    interval: str
    sort: str | float
    beside: str = ""


@dataclass(frozen=True)
class Table:
    """A table of a page; the first column names the row.

    ``crossed`` names two columns: a second LaTeX file has the first down and the second across, as papers print it, and
    in its cells the first numbers that have an interval.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    columns: Sequence[Column]
    note: str = ""
    shown: int = SHOWN
    folded: bool = False
    crossed: tuple[str, str] | None = None
    kind: ClassVar[str] = "table"

    @cached_property
    def heads(self) -> list[Column]:
        """The columns that are shown: without one that has no value in any row."""
        return [column for column in self.written if not column.alone]

    @cached_property
    def written(self) -> list[Column]:
        """The columns of the LaTeX file: those that have a value in some row, the model's even if there is only one."""
        known = [column.key in self.frame and self.frame[column.key].notna().any() for column in self.columns]
        return [column for column, has_any in zip(self.columns, known, strict=True) if has_any or self.frame.empty]

    @cached_property
    def rows(self) -> list[list[Cell]]:
        """The cells that are shown, row by row."""
        return self.cells(self.heads)

    def cells(self, columns: Sequence[Column]) -> list[list[Cell]]:
        """Return the cells of some columns, row by row."""
        records = self.frame.head(self.shown).to_dict("records")
        return [[_cell(record, column) for column in columns] for record in records]

    @property
    def left_out(self) -> int:
        """How many rows only the CSV has."""
        return len(self.frame) - len(self.rows)


def _cell(record: dict[Any, Any], column: Column) -> Cell:
    value = record.get(column.key)
    if column.kind == "text" or isinstance(value, str):
        text = MISSING if _absent(value) else column.show(value) if column.show else str(value)
        return Cell(text, "", text)
    if _absent(value):
        return Cell(MISSING, "", "")
    value = float(value)  # type: ignore[arg-type]
    interval = ""
    if column.low and not _absent(record.get(column.low)):
        interval = f"{_number(float(record[column.low]), column)} to {_number(float(record[column.high]), column)}"
    beside = str(record.get(column.beside) or "") if column.beside else ""
    return Cell(column.show(value) if column.show else _number(value, column), interval, value, beside)


def _number(value: float, column: Column) -> str:
    if column.kind == "p":
        return p_value(value)
    if column.kind == "integer":
        return number(value, 0)
    return number(100 * value if column.kind in ("percent", "points") else value, column.digits)


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value)) or value != value


def write(table: Table, folder: Path) -> None:
    """Write ``<name>.csv`` and ``<name>.tex``."""
    write_atomic(folder / f"{table.name}.csv", as_csv(table.frame).encode())
    write_atomic(folder / f"{table.name}.tex", as_latex(table).encode())
    if table.crossed:
        write_atomic(folder / f"{table.name}_crossed.tex", as_crossed_latex(table, *table.crossed).encode())


def as_csv(frame: pd.DataFrame) -> str:
    """Return every row at full precision, without columns that have no value; text like a formula is guarded."""
    if len(frame):
        frame = frame.loc[:, frame.notna().any().to_numpy()]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([guarded(str(name)) for name in frame.columns])
    if "condition" in frame:
        frame = frame.assign(
            condition=[typed_name(name) if isinstance(name, str) else name for name in frame["condition"]]
        )
    for record in frame.astype(object).itertuples(index=False, name=None):
        writer.writerow([_csv_value(value) for value in record])
    return out.getvalue()


def _csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return guarded(value.replace("\r\n", "\n").replace("\r", "\n"))  # the writer quotes line feeds only
    if _absent(value):
        return ""
    if isinstance(value, (bool, int)):
        return value
    return repr(float(value)) if hasattr(value, "__float__") and not hasattr(value, "__index__") else value


def as_latex(table: Table) -> str:
    """Return a booktabs table as shown on the page, with more rows."""
    whole = Table(table.name, table.caption, table.frame, table.columns, shown=max(table.shown, LATEX_ROWS))
    align = "".join("l" if column.kind == "text" else "r" for column in table.written)
    heads = [latex(f"{column.title} ({column.unit})" if column.unit else column.title) for column in table.written]
    rows = [[_latex_cell(cell) for cell in row] for row in whole.cells(table.written)]
    more = [f"% {whole.left_out} more rows are in {table.name}.csv"] if whole.left_out else []
    return _booktabs(table.caption, align, heads, rows, more)


def as_crossed_latex(table: Table, down: str, across: str) -> str:
    """Return a booktabs table of one column against another, the best of each column of numbers in bold."""
    by_key = {column.key: column for column in table.columns}
    value = next(column for column in table.columns if column.low)
    records = table.frame.to_dict("records")
    rows = list(dict.fromkeys(record[down] for record in records))
    heads = list(dict.fromkeys(record[across] for record in records))
    cells = {(record[down], record[across]): record for record in records}
    best = {
        name: max((cells[row, name][value.key] for row in rows if (row, name) in cells), default=None) for name in heads
    }
    texts = [[latex(_cell({down: row}, by_key[down]).text)] for row in rows]
    for row, line in zip(rows, texts, strict=True):
        for name in heads:
            record = cells.get((row, name))
            text = _latex_cell(replace(_cell(record, value), interval="")) if record else latex(MISSING)
            line.append(rf"\textbf{{{text}}}" if record and len(rows) > 1 and record[value.key] == best[name] else text)
    turned = [rf"\rotatebox{{90}}{{{latex(_cell({across: name}, by_key[across]).text)}}}" for name in heads]
    caption = f"{value.title}{f' ({value.unit})' if value.unit else ''}, {by_key[down].title} by {by_key[across].title}"
    return _booktabs(caption, "l" + "r" * len(heads), [latex(by_key[down].title), *turned], texts, [], ", graphicx")


def _booktabs(
    caption: str, align: str, heads: Sequence[str], rows: Sequence[Sequence[str]], more: Sequence[str], extra: str = ""
) -> str:
    lines = [
        rf"% needs \usepackage{{booktabs{extra}}}", r"\begin{table}", rf"\caption{{{latex(caption)}}}",
        rf"\begin{{tabular}}{{{align}}}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows), *more, r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _latex_cell(cell: Cell) -> str:
    return latex(f"{cell.text} ({cell.interval})" if cell.interval else cell.text)


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "−": "$-$", "–": "--", "×": r"$\times$", "±": r"$\pm$", "…": r"\ldots{}",
    "\n": " ", "\r": " ", "\t": " ",
})  # fmt: skip


def latex(text: str) -> str:
    """Return text with every special character of LaTeX escaped."""
    return text.translate(_LATEX)
