"""What a command did, for its last lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.types import Problem


@dataclass
class Summary:
    """Counts rows made now and rows stored before, and rows with trouble by message, with one example each.

    ``rows`` counts every row that was made, ``errors`` those of them with status ``error``; for ``generate``, ``rows``
    counts images and ``errors`` requests without one.
    """

    rows: int = 0
    already: int = 0
    trouble: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # sentences for the user
    times: dict[str, float] = field(default_factory=dict)  # seconds by kind of work
    errors: int = 0

    def add(self, sample_id: str, message: str, rows: int = 1) -> None:
        """Count rows that went wrong for the same reason."""
        self.trouble[message] += rows
        self.examples.setdefault(message, sample_id)

    def add_problems(self, problems: Iterable[Problem]) -> None:
        """Count what a reader could not use."""
        for problem in problems:
            self.add(problem.sample_id, problem.message)

    def count(
        self, rows: pa.Table | Sequence[Mapping[str, Any]], *, key: str = "sample_id", fine: Sequence[str] = ("ok",)
    ) -> None:
        """Count rows that were made, and what is wrong with those whose status is not ``fine``."""
        self.rows += len(rows)
        if isinstance(rows, pa.Table) and "status" not in rows.column_names:  # an oracle's verdicts
            return
        if isinstance(rows, pa.Table):
            rows = rows.filter(~pc.field("status").isin(list(fine))).select([key, "status", "error"]).to_pylist()
        for row in rows:
            if row["status"] not in fine:
                self.add(str(row[key]), f"{row['status']}: {row['error']}")
                self.errors += row["status"] == "error"

    def line(self, done: str = "made", *, count: int | None = None) -> str:
        """Return how many rows were made, failed and were there before, for a command's last line."""
        count = self.rows - self.errors if count is None else count
        failed = f", {self.errors} error{'s' if self.errors > 1 else ''}" if self.errors else ""
        return f"{count} {done}{failed}, {self.already} there already"

    def merge(self, other: Summary) -> None:
        """Add the counts of a shard."""
        self.rows += other.rows
        self.already += other.already
        self.errors += other.errors
        self.trouble.update(other.trouble)
        self.examples = other.examples | self.examples
        known = set(map(_without_figures, self.notes))  # another worker said the same
        self.notes += [note for note in other.notes if _without_figures(note) not in known]
        for name, seconds in other.times.items():
            self.times[name] = self.times.get(name, 0.0) + seconds


def _without_figures(note: str) -> str:
    """Return a note without the figures in parentheses at its end: every worker has measured its own."""
    return re.sub(r" \([^()]*\d[^()]*\)$", "", note)
