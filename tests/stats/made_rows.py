"""Rows of the one table with known truth, for the tests of the statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from holdfast.core.schema import PREDICTIONS

DEFAULTS: dict[str, Any] = {
    "task": "classify",
    "kind": "static",
    "dataset": "made",
    "split": "",
    "fold": -1,
    "variant": "paper",
    "parameters": "{}",
    "seed": 0,
    "trained_on": "",
    "protocol": "argmax",
    "status": "ok",
    "schema_version": 1,
    "run_id": "made",
}


def table(rows: list[Mapping[str, Any]]) -> pa.Table:
    """Fill in what a test does not care about. ``correct`` doubles as ``correct_restricted`` if that is missing."""
    filled = []
    for number, row in enumerate(rows):
        one = {**DEFAULTS, **row, "row_id": str(number)}
        one.setdefault("sample_id", one["source_id"])
        one.setdefault("correct_restricted", one.get("correct"))
        if one.get("correct") is not None:
            one.setdefault("prediction", one["label"] if one["correct"] else "something else")
        one.setdefault("prediction_restricted", one.get("prediction"))
        filled.append(one)
    return pa.Table.from_pylist(filled, schema=PREDICTIONS)
