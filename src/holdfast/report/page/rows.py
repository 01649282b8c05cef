"""The rows of one or several runs, each row once, and the answers to a few photos."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from holdfast.core.conditions import condition_name
from holdfast.core.errors import UserError
from holdfast.store import Run

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = [
    "source_id", "sample_id", "condition", "variant", "parameters", "model", "trained_on", "label", "prediction",
    "correct", "prediction_restricted", "correct_restricted", "confidence", "status", "error",
]  # fmt: skip


@dataclass(frozen=True)
class ReportRows:
    """All rows, and the runs they come from."""

    runs: Sequence[Run]
    dataset: ds.Dataset


def join_runs(runs: Sequence[Run]) -> ReportRows:
    """Return the rows of all runs, each row once.

    Raises UserError where there is no run, where the runs have different datasets (their photos cannot be paired),
    and where they hold different rows for the same model, photo and condition.
    """
    if not runs:
        raise UserError("a report needs at least one run directory")
    if len(runs) == 1:
        return ReportRows(runs, runs[0].predictions.dataset())
    names = {run.spec().get("dataset") for run in runs}
    if len(names) > 1:
        known = ", ".join(sorted(str(name) for name in names))
        raise UserError(f"these runs have different datasets ({known}): make one report per dataset")
    parts = [run.predictions.dataset() for run in runs]
    ids = pa.chunked_array([chunk for part in parts for chunk in part.to_table(columns=["row_id"])["row_id"].chunks])
    whole = ds.dataset(parts)
    if pc.count_distinct(ids).as_py() < len(ids):
        table = whole.to_table()
        first = pa.table({"row_id": table["row_id"], "at": pa.array(range(len(table)))})
        kept = first.group_by("row_id").aggregate([("at", "min")])["at_min"]
        whole = ds.dataset(table.take(kept))
    _check_keys(whole)
    return ReportRows(runs, whole)


def recorded_rounds(runs: Sequence[Run]) -> dict[str, list[list[str]]]:
    """Return model → the photos of each round, of runs that stopped as soon as they were sure."""
    return {
        str(model): spec["rounds"]
        for run, spec in ((run, run.spec()) for run in runs)
        if spec.get("rounds")
        for model in run.rows(["model"])["model"].unique().to_pylist()
    }


def _check_keys(rows: ds.Dataset) -> None:
    import duckdb

    with duckdb.connect() as database:
        database.register("rows", rows)
        twice = database.execute(
            """select model, condition from rows
            group by task, kind, dataset, sample_id, split, fold, condition, variant, parameters, seed, model,
                trained_on, protocol
            having count(*) > 1 limit 1"""
        ).fetchone()
    if twice:
        raise UserError(
            f"two of these runs have different answers of {twice[0]} under {twice[1]} to the same photo (other weights "
            "or changed photos): make one report per run"
        )


def answers(rows: ReportRows, sources: Collection[str], conditions: Collection[str]) -> pd.DataFrame:
    """Return the rows of some photos, with ``name``: the condition's name as in ``stats.core.reduce``."""
    wanted = ds.field("source_id").isin(sorted(sources)) & (ds.field("task") == "classify")
    frame: pd.DataFrame = rows.dataset.to_table(columns=_COLUMNS, filter=wanted).to_pandas()
    for column in ("condition", "variant", "parameters", "model", "label", "prediction", "prediction_restricted"):
        frame[column] = frame[column].astype(object)
    known = set(conditions)
    rows_of = zip(frame["condition"], frame["variant"], frame["parameters"], strict=True)
    # reduce adds the parameters where the whole table has several of them
    frame["name"] = [name if (name := condition_name(*row[:2])) in known else condition_name(*row) for row in rows_of]
    return frame
