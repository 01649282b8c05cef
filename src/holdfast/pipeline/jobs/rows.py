"""Make rows: key columns of a sample, outcome columns of answers, and rows of items that fail.

``core.errors`` says which is which: a UserError and trouble of the machine stop the command, as ``sys.exit`` does.
Everything else is about one item and becomes a row with status ``error``. Memory that runs out halves the batch; it
stops the command where one item does not fit.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError, half_may_work, stop_or_sentence
from holdfast.core.schema import CLASSIFY
from holdfast.core.types import NEEDS_MASK, Sample
from holdfast.data.labels import LabelMap, outcomes
from holdfast.store import Run

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Row = dict[str, Any]
"""A row of the table; under the name of a details table, it carries the list of its rows there.

``run_id`` and ``schema_version`` are filled in, if the table has these columns.
"""


def sample_key(sample: Sample, *, dataset: str, condition: str, variant: str, model: str, **columns: Any) -> Row:
    """Return the key columns of a row; ``columns``: seed and parameters, and what differs from a classifier's row."""
    return {
        "task": CLASSIFY,
        "kind": sample.kind,
        "dataset": dataset,
        "sample_id": sample.sample_id,
        "source_id": sample.source_id,
        "split": sample.split,
        "fold": sample.fold,
        "condition": condition,
        "variant": variant,
        "model": model,
        "trained_on": "",
        "protocol": "argmax",
    } | columns


def outcome_rows(probabilities: NDArray[np.float32], labels: LabelMap, truths: Sequence[str]) -> list[Row]:
    """Return the outcome columns of each answer of a classifier, as ``data.labels.outcomes`` has them."""
    columns = outcomes(probabilities, labels, truths)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def only_trouble(table: ds.Dataset, fine: Sequence[str] = ("ok",)) -> str:
    """Return how many rows failed, and why the first did, if no row has a ``fine`` status; else ""."""
    if table.head(1, filter=pc.field("status").isin(list(fine))).num_rows:
        return ""
    name = "sample_id" if "sample_id" in table.schema.names else "row_id"
    for status, noun in (("error", "errors"), ("skipped", "rows skipped")):
        rows = table.filter(pc.field("status") == status)
        if first := rows.head(1, columns=["error", name]).to_pylist():
            return f"{rows.count_rows()} {noun}, the first: {first[0]['error']} ({first[0][name]})"
    return ""


def check_answered(run: Run, models: Sequence[str], fine: Sequence[str] = ("ok",)) -> None:
    """Raise a UserError that names the models that have errors and not one answer; their rows are stored."""
    table = run.predictions.dataset()
    troubles = {model: only_trouble(table.filter(pc.field("model") == model), fine) for model in models}
    silent_models = [f"{model} gave no answer at all: {trouble}" for model, trouble in troubles.items() if trouble]
    if silent_models:
        advice = "Fix it and run the same command with --retry-errors"
        if NEEDS_MASK in silent_models[0]:
            data = shlex.quote(run.spec()["data"])
            advice = f"Make masks (holdfast mask {data} --out masks) and give them with --masks masks"
        raise UserError(f"{'; '.join(silent_models)}. {advice}")


def answered(answer: Row | SampleError) -> Row:
    """Return the outcome columns of an answer; status and error of one that ``answer_each`` could not get."""
    return {"status": "error", "error": str(answer)[:500]} if isinstance(answer, SampleError) else answer


def answer_each(ask: Callable[[Sequence[Item]], Sequence[Answer]], items: Sequence[Item]) -> list[Answer | SampleError]:
    """Return the answer to each item, or the SampleError that its row reports."""
    # If a batch fails, its halves are asked, down to the items that fail. Errors that stop the command are raised.
    # ``ask``: answers several items at once.
    if not items:
        return []
    try:
        return list(ask(items))
    except Exception as error:
        if len(items) == 1 or not half_may_work(error):
            return [SampleError(stop_or_sentence(error))]
    # Outside the except clause: the error's frames would keep the batch in memory.
    half = len(items) // 2
    return answer_each(ask, items[:half]) + answer_each(ask, items[half:])
