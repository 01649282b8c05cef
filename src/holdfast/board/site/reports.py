"""The full report of an entry, made of its table alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

from holdfast.board.entry import Entry
from holdfast.board.numbers import read_table
from holdfast.core.schema import PREDICTIONS, SAMPLES
from holdfast.report import build
from holdfast.results import background_conditions, static_conditions
from holdfast.store import Run


def write_report(entry: Entry, table: Path, out: Path) -> Path:
    """``index.html``, ``figures/`` and ``tables/``, as of ``holdfast report``, without pictures: a board has none."""
    rows = read_table(table, entry).cast(PREDICTIONS)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / entry.id)
        run.path.mkdir(parents=True)
        run.begin({"verb": "evaluate", "dataset": entry.dataset.name, "models": [entry.model.name]})
        run.write_samples(SAMPLES.empty_table())
        run.predictions.write(rows)
        return build(
            [run], out, score_conditions=static_conditions, background_conditions=background_conditions,
            note=f"Made of the table of the board's entry {entry.id}.",
        )  # fmt: skip
