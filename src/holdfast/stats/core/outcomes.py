"""Success of any task as counts, from which drops, verdicts and the release gate are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.tasks import Task
from holdfast.stats.core.reduce import Counts, reduce


def outcome_counts(
    task: Task,
    rows: pa.Table,
    details: Callable[[str], pa.Table],
    *,
    order: list[str] | None = None,
    copies: Mapping[str, str] | None = None,
) -> Counts:
    """Return the successes of a task's answers as counts.

    Args:
        task: the task.
        rows: the one table.
        details: returns a table of the task by name.
        order: names of conditions in the order wanted.
        copies: image → the image that it repeats.

    Returns:
        Counts in which ``right`` and ``right_restricted`` are sums of ``task.outcome``. If an image has several units,
        ``source_id`` names the unit and ``clusters`` its image.
    """
    own = rows.filter(pa.array([value == task.name for value in rows["task"].to_pylist()], pa.bool_()))
    units = task.units(own, details)
    success = np.asarray(task.outcome(units), np.float64)
    answered = np.array([value == "ok" for value in units["status"].to_pylist()], bool)
    success = np.where(answered, success, 0.0)
    if success.shape != (len(units),) or not ((success >= 0) & (success <= 1)).all():
        raise UserError(
            f"the outcome of the task {task.name} must be {len(units)} numbers from 0 to 1, one for each {task.unit}; "
            f"got an array of shape {success.shape}"
        )
    chance = task.chance(units)
    for name in ("correct", "correct_restricted"):
        units = _with(units, name, pa.array(success))
    units = _with(units, "task", pa.array([task.name] * len(units), pa.string()))
    if "unit_id" not in units.column_names:
        return replace(reduce(units, order=order, copies=copies, task=task.name), chance=chance)
    photos = [(copies or {}).get(name, name) for name in units["source_id"].to_pylist()]
    names = units["unit_id"].to_pylist()
    counts = reduce(_with(units, "source_id", pa.array(names, pa.string())), order=order, task=task.name)
    return replace(counts, clusters=dict(zip(names, photos, strict=True)), copies=len(copies or ()), chance=chance)


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)
