"""The contract suite of measures."""

from __future__ import annotations

import re
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from holdfast import registry
from holdfast.core.lazy import pd
from holdfast.core.measures import Measure, Shown
from holdfast.core.names import SWEEPS
from holdfast.core.schema import PREDICTIONS

_IMAGES, _CLASSES = 24, ("anchor", "bell", "cup")
_CONDITIONS = ("original", "greyscale", "random_background", "same_class_background", "only_background")
_SHOWN = (*((name, "paper") for name in _CONDITIONS), *((name, f"draw_{draw}") for name in SWEEPS for draw in (1, 2)))


def check_measure(name: str, rows: pd.DataFrame | None = None) -> None:
    """Check that a measure is registered, declares what it returns, and depends on nothing but its rows.

    Args:
        name: as it is registered.
        rows: rows with the columns of the one table; by default made-up predictions of two classifiers. A measure of
            another task needs rows of that task.

    Raises:
        AssertionError: says what is missing or wrong.
    """
    assert re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name), f"measure {name!r}: use lower-case words"
    assert name in registry.measures, (
        f"measure {name} is not registered; pyproject.toml needs "
        f'[project.entry-points."holdfast.measures"] with {name} = "MODULE:ATTRIBUTE", and the package installed'
    )
    measure = registry.measures.get(name)
    assert isinstance(measure, Measure), f"measure {name} must be a holdfast.core.measures.Measure"
    _check_declared(name, measure)
    given = made_rows() if rows is None else rows
    before = given.copy(deep=True)
    table = measure.function(given[list(measure.reads)])
    pd.testing.assert_frame_equal(given, before, obj=f"the rows that measure {name} was given")
    declared = [column.name for column in measure.columns]
    missing = [column for column in declared if column not in table]
    assert not missing, f"measure {name} declares {', '.join(missing)}, which its table does not have"
    assert len(table), f"measure {name} returns no row of {len(given)} rows; give it rows of {', '.join(measure.tasks)}"
    for column in measure.columns:
        if column.shown != "text":
            values = pd.to_numeric(table[column.name], errors="coerce")
            assert values.notna().sum() == table[column.name].notna().sum(), (
                f"measure {name}: {column.name} is declared as {column.shown}, but has values that are not numbers"
            )
    shuffled = given.sample(frac=1, random_state=1).reset_index(drop=True)
    _assert_same(measure, table, measure.of(shuffled), f"measure {name} depends on the order of the rows")
    failed = given.head(5).assign(status="error", error="made up", correct=None, source_id="never shown")
    more = measure.of(pd.concat([given, failed], ignore_index=True))
    assert len(more), f"measure {name} returns no row once some rows have failed"
    empty = measure.of(given.iloc[:0])
    assert empty.empty, f"measure {name} returns {len(empty)} rows of no rows"


def _check_declared(name: str, measure: Measure) -> None:
    assert measure.question.endswith("?"), f"measure {name}: question must be a question, not {measure.question!r}"
    unknown = [column for column in measure.reads if column not in PREDICTIONS.names]
    assert measure.reads and not unknown, (
        f"measure {name} reads {unknown or 'nothing'}; the columns are those of holdfast.core.schema.PREDICTIONS"
    )
    assert measure.tasks, f"measure {name} must name the tasks whose rows it is about"
    declared = [column.name for column in measure.columns]
    assert declared and len(set(declared)) == len(declared), f"measure {name}: each column once, at least one"
    for column in measure.columns:
        where = f"measure {name}, column {column.name}"
        assert column.meaning.endswith("."), f"{where}: meaning must be a sentence, not {column.meaning!r}"
        assert column.shown in get_args(Shown), f"{where}: shown must be one of {', '.join(get_args(Shown))}"
        ends = {column.low, column.high} - {""}
        assert ends <= set(declared), f"{where}: declare {', '.join(sorted(ends - set(declared)))} as columns, too"


def _assert_same(measure: Measure, first: pd.DataFrame, other: pd.DataFrame, what: str) -> None:
    names = [column.name for column in measure.columns]
    keys = [column.name for column in measure.columns if column.shown == "text"] or names
    first, other = (
        frame[names].astype(dict.fromkeys(keys, str)).sort_values(keys, kind="stable").reset_index(drop=True)
        for frame in (first, other)
    )
    try:
        pd.testing.assert_frame_equal(first, other, check_dtype=False, check_categorical=False, rtol=1e-9)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error


def made_rows() -> pd.DataFrame:
    """Return predictions of two made-up classifiers under seven conditions, with all columns of the one table."""
    generator = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for model, right in (("good", 0.9), ("poor", 0.6)):
        for place, (condition, variant) in enumerate(_SHOWN):
            for image in range(_IMAGES):
                label, donor = _CLASSES[image % 3], _CLASSES[(image + 1) % 3]
                correct = bool(generator.random() < right - 0.1 * (place % 5))
                said = label if correct else donor
                rows.append({
                    "row_id": f"{model}-{condition}-{variant}-{image}", "task": "classify", "kind": "static",
                    "dataset": "made",
                    "sample_id": f"{image}", "source_id": f"{image}", "condition": condition, "variant": variant,
                    "parameters": "{}", "seed": 0, "fold": -1, "trained_on": "", "model": model,
                    "label": label, "prediction": said, "prediction_restricted": said, "correct": correct,
                    "correct_restricted": correct,
                    "confidence": 0.8, "donor_id": f"{image + 1 + place}", "donor_label": donor, "status": "ok",
                    "image_sha256": f"{condition}-{variant}-{image}",
                })  # fmt: skip
    whole = [{name: row.get(name) for name in PREDICTIONS.names} for row in rows]
    table: pd.DataFrame = pa.Table.from_pylist(whole, schema=PREDICTIONS).to_pandas()
    return table
