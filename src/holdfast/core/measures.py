"""What a measure is: a pure function from the one table to a table, with the meaning of every column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

Shown = Literal["text", "percent", "points", "number", "integer", "p"]


@dataclass(frozen=True)
class MeasureColumn:
    """One column of the table that a measure returns.

    Args:
        name: the column's name.
        meaning: what a value is, one sentence.
        shown: how a report writes it; ``percent`` and ``points`` show fractions times 100.
        low: name of the column with the lower end of its 95 % interval, if it has one.
        high: name of the column with the upper end.
    """

    name: str
    meaning: str
    shown: Shown = "text"
    low: str = ""
    high: str = ""


@dataclass(frozen=True)
class Measure:
    """A statistic of a run: ``results.measure(name)``, ``holdfast ls measures``, and a table in the report.

    Args:
        question: what it answers, one sentence; the heading of its table.
        function: takes a DataFrame with the columns of ``reads`` and returns one with ``columns``. It reads nothing
            else, and changes nothing: the same rows in any order give the same table.
        reads: columns of the one table (``holdfast.core.schema.PREDICTIONS``).
        columns: what it returns, in this order.
        tasks: whose rows it is about; ``walks`` are latent walks.
        note: how to read the table, if the columns do not say it.
    """

    question: str
    function: Callable[[pd.DataFrame], pd.DataFrame]
    reads: Sequence[str]
    columns: Sequence[MeasureColumn]
    tasks: Sequence[str] = ("classify",)
    note: str = ""

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the table of some rows, which have at least the columns of ``reads``."""
        table, names = self.function(rows[list(self.reads)]), [column.name for column in self.columns]
        return table[names] if len(table) else table.reindex(columns=names)
