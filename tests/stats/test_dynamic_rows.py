"""Dynamic rows paired into walks, against counts that were laid down."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from holdfast.core.errors import UserError
from holdfast.core.schema import PREDICTIONS
from holdfast.stats.walks.fmr import NONE_RIGHT, NONE_VALIDATED
from holdfast.stats.walks.walk_rows import fmr_of_rows, paired, side_by_side


def parameters(**changes: Any) -> str:
    return json.dumps({"generator": "g", "oracle": "o", "space": "dataset", "size": 64} | changes)


def rows_of(
    image: str, *, before: bool, after: bool | None, setting: str, model: str = "m", original: bool = True, **more: Any
) -> list[dict[str, Any]]:
    """The rows of one walk; ``after`` None: rejected. What is right over all outputs is always the opposite."""

    def row(condition: str, right: bool | None, status: str = "ok") -> dict[str, Any]:
        given = f'{{"size":{json.loads(setting)["size"]}}}' if condition == "original" else setting
        return {
            "task": "classify", "kind": "dynamic", "condition": condition, "model": model, "label": "dog",
            "sample_id": image, "source_id": image, "parameters": given, "status": status,
            "correct": None if right is None else not right, "correct_restricted": right,
        }  # fmt: skip

    rows = [row("perturbed", before if after is None else after, "rejected" if after is None else "ok")]
    rows += [row("original", before)] if original else []
    return rows + [row(condition, right) for condition, right in more.items()]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=PREDICTIONS)


def measure(found: Any, name: str, **where: Any) -> Any:
    some = found[(found["label"] == "") & (found["measure"] == name)]
    for column, value in where.items():
        some = some[some[column] == value]
    assert len(some) == 1
    return some.iloc[0]


def test_the_counts_of_a_setting() -> None:
    """Ten images, eight right, six validated, three of these right: FMR = (3/6) / (8/10)."""
    setting = parameters()
    rows: list[dict[str, Any]] = []
    for place in range(10):
        after = None if place >= 6 else place < 3
        rows += rows_of(str(place), before=place < 8, after=after, setting=setting, reconstruction=place < 7)
    found = fmr_of_rows(table(rows))
    assert measure(found, "fmr")["estimate"] == pytest.approx(0.5 / 0.8)
    assert measure(found, "validation_rate")["numerator"] == 6
    assert measure(found, "fmr_low")["estimate"] == pytest.approx(3 / 8)
    assert measure(found, "fmr_high")["estimate"] == pytest.approx(7 / 8)
    assert measure(found, "reconstruction")["numerator"] == 7
    assert "random_walk" not in set(found["measure"])
    assert measure(fmr_of_rows(table(rows), space="all"), "standard_accuracy")["numerator"] == 2
    pooled = side_by_side(found).query("label == ''").iloc[0]
    assert [pooled[name] for name in ("SA", "PA", "VR", "FMR")] == pytest.approx([0.8, 0.5, 0.6, 0.5 / 0.8])
    assert pooled["n"] == 10 and pooled["FMR_low"] < pooled["FMR"] < pooled["FMR_high"] and not pooled["reason"]


def test_settings_models_and_sizes_do_not_mix() -> None:
    near, far, large = parameters(step_size=0.001), parameters(step_size=0.1), parameters(size=128)
    rows = rows_of("a", before=True, after=True, setting=near, random_walk=True)
    rows += rows_of("a", before=True, after=False, setting=far, original=False)
    rows += rows_of("a", before=False, after=True, setting=large)
    rows += rows_of("a", before=False, after=False, setting=near, model="n")
    found = fmr_of_rows(table(rows))
    assert measure(found, "fmr", parameters=near, model="m")["estimate"] == 1
    assert measure(found, "fmr", parameters=far)["estimate"] == 0
    assert measure(found, "standard_accuracy", parameters=large)["estimate"] == 0
    assert measure(found, "fmr", parameters=near, model="n")["reason"] == NONE_RIGHT
    assert measure(found, "random_walk", model="n", parameters=near)["reason"]
    assert len(paired(table(rows))) == 4


def test_nothing_validated_nothing_right_and_nothing_at_all() -> None:
    setting = parameters()
    rejected = [row for place in "ab" for row in rows_of(place, before=True, after=None, setting=setting)]
    assert measure(fmr_of_rows(table(rejected)), "fmr")["reason"] == NONE_VALIDATED
    wrong = rows_of("a", before=False, after=False, setting=setting)
    assert measure(fmr_of_rows(table(wrong)), "fmr")["reason"] == NONE_RIGHT
    broken = [row | {"status": "error", "correct": None, "correct_restricted": None} for row in wrong]
    for rows in ([], broken, [row | {"kind": "static"} for row in wrong]):
        with pytest.raises(UserError, match="no finished walk"):
            fmr_of_rows(table(rows))
    # A walk whose original has an error has nothing to be compared with.
    assert paired(table([row for row in wrong if row["condition"] != "original"])).empty
