"""Write the summary tables of a run as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.results import Results
from holdfast.store import Run, read_table

if TYPE_CHECKING:
    import pandas as pd


def summary_tables(run: Run, results: Path) -> dict[str, str]:
    """Return name → CSV of every table that the rows allow; ``results``: a folder of tables that a verb wrote.

    Names that begin as a formula does get an apostrophe, so that no spreadsheet computes them.
    """
    tables: dict[str, str] = {}
    for name, make in _wanted(Results(run)):
        try:
            tables[name] = _csv(make())
        except UserError:
            continue  # these rows do not have what it takes: one condition has no score
    for path in sorted(results.glob("*.parquet")):
        tables[path.stem] = _csv(read_table(path).to_pandas())
    return tables


def _wanted(opened: Results) -> Iterator[tuple[str, Callable[[], pd.DataFrame]]]:
    rows = opened.rows(["task", "kind"])
    tasks, kinds = (set(pc.unique(rows[name]).to_pylist()) for name in ("task", "kind"))
    if "classify" in tasks and kinds - {"dynamic"}:
        yield "accuracy", opened.accuracy
        yield "accuracy_restricted", lambda: opened.accuracy(outcome="restricted")
    # of detect, classes are kinds of pictures, and nothing is lost between them
    if "classify" in tasks and kinds - {"dynamic"} and opened.run.spec().get("verb") != "detect":
        yield "drops", opened.drops
        yield "robustness_score", opened.scores
        yield "robustness_score_background", lambda: opened.scores(over="background")
    if "dynamic" in kinds:
        yield "fmr", opened.fmr
    if "question" in tasks:
        yield "questions", opened.questions
    if "segment" in tasks:
        yield "segments", opened.segments
        yield "segments_by_class", lambda: opened.segments(classes=True)


def _csv(frame: pd.DataFrame) -> str:
    frame = frame.copy()
    for name in frame.columns:
        if frame[name].dtype.kind not in "biuf":
            frame[name] = [_inert(value) if isinstance(value, str) else value for value in frame[name].astype(object)]
    return str(frame.to_csv(index=False, lineterminator="\n"))


def _inert(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
