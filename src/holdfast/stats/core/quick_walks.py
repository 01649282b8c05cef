"""The FMR family of one model's walks under one setting, in milliseconds; see ``stats.core.quick``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.quick import coded, equals, keep
from holdfast.stats.walks.fmr import measures
from holdfast.stats.walks.walk_rows import DYNAMIC, PERTURBED, RANDOM_WALK, RECONSTRUCTION

if TYPE_CHECKING:
    import pandas as pd


def setting_of(table: pa.Table) -> dict[str, Any]:
    """The parameters of the walks of a table; a UserError where it has none, or walks of several settings."""
    walks = keep(keep(table.select(["kind", "condition", "parameters"]), "kind", DYNAMIC), "condition", PERTURBED)
    found = coded(walks["parameters"])[1]
    if len(found) != 1:
        raise UserError(f"this table has walks of {len(found)} settings; an entry is about one")
    try:
        told = json.loads(found[0])
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise UserError("the parameters of this table's walks are not a JSON object")
    return told


def walk_measures(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as of ``stats.walks.fmr.fmr``, all images pooled, of one model and one setting."""
    return measures(walks_of(table))


def walks_of(table: pa.Table) -> pd.DataFrame:
    """A row a walk of one model and one setting: what ``stats.walks.fmr.measures`` takes.

    As ``walk_rows.paired`` has it: rejected walks count as not validated, images whose original or walk has an
    error are left out, right answers are counted in the space that the walks' parameters name.
    """
    import pandas as pd

    told = setting_of(table)
    table = keep(table, "kind", DYNAMIC)
    sample, samples = coded(table["sample_id"])
    condition, status = ({one: equals(table, column, one) for one in names} for column, names in (
        ("condition", (ORIGINAL, PERTURBED, RECONSTRUCTION, RANDOM_WALK)), ("status", ("ok", "rejected")),
    ))  # fmt: skip
    parameters, texts = coded(table["parameters"])
    same_size = np.array([_size(text) == told.get("size", 0) for text in texts])[parameters]
    column = table["correct" if told.get("space") == "all" else "correct_restricted"]
    right = column.cast(pa.float64()).to_numpy(zero_copy_only=False)

    def answers(name: str) -> Floats:
        """(samples,) 1, 0, or NaN where there is none."""
        found = np.full(len(samples), np.nan)
        there = np.flatnonzero(condition[name] & status["ok"] & same_size)[::-1]  # the first of several stays
        found[sample[there]] = right[there]
        return found

    original = answers(ORIGINAL)
    walked = condition[PERTURBED] & (status["ok"] | status["rejected"]) & ~np.isnan(original[sample])
    images = sample[walked]
    columns: dict[str, Any] = {
        "source_id": table["source_id"].combine_chunks().filter(pa.array(walked)).to_numpy(zero_copy_only=False),
        "right_original": original[images].astype(bool),
        "validated": status["ok"][walked],
        "right_perturbed": np.where(status["ok"][walked], right[walked], np.nan),
    }
    for name in (RECONSTRUCTION, RANDOM_WALK):
        if not np.isnan(baseline := answers(name)[images]).all():
            columns[f"right_{name}"] = baseline
    if not len(images):
        raise UserError("there is no finished walk in this table; holdfast perturb makes them")
    return pd.DataFrame(columns)


def _size(text: str) -> object:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return told.get("size", 0) if isinstance(told, dict) else None
