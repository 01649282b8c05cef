"""Rows in shards → the same counts as rows in one table, and as counting them in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from made_rows import table

from holdfast.stats.core import reduce as module
from holdfast.stats.core.reduce import Counts, reduce

CLASSES = ["zebra", "äpfel", "cat", "Dog", "owl"]


def made(seed: int, count: int = 1500) -> list[dict[str, Any]]:
    """Rows with everything that is counted: repeats, folds, donors, failures, answers without a confidence."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        label = str(rng.choice(CLASSES))
        condition = str(rng.choice(["original", "original", "grey", "random_background", "blur", "fgsm"]))
        failed, pasted, model = rng.random() < 0.1, condition == "random_background", f"m{rng.integers(7)}"
        rows.append(
            {
                "task": "segment" if rng.random() < 0.02 else "classify",
                "model": model,
                "trained_on": str(rng.choice(["", "grey"])),
                "fold": int(rng.integers(-1, 2)),
                "kind": "attack" if condition == "fgsm" else "static",
                "condition": condition,
                "variant": str(rng.choice(["paper", "released"])) if condition == "grey" else "paper",
                "parameters": f'{{"size":{rng.integers(3)}}}' if condition == "blur" else "{}",
                "source_id": f"{label}/{rng.integers(30)}",
                "label": label,
                "correct": None if failed else bool(rng.integers(2)),
                "prediction_restricted": None if failed or rng.random() < 0.1 else str(rng.choice(CLASSES)),
                "confidence": None if model == "m6" or label == "owl" else float(rng.integers(64)) / 64,
                "donor_id": f"d{rng.integers(9)}" if pasted and rng.random() < 0.9 else None,
                "donor_label": str(rng.choice(CLASSES)) if pasted else None,
                "status": "error" if failed else "ok",
                "error": f"e{rng.integers(3)}" if failed else None,
                "image_sha256": f"{label}{condition}",
            }
        )
    return rows


def same(first: Counts, second: Counts) -> None:
    for field in fields(Counts):
        ours, theirs = getattr(first, field.name), getattr(second, field.name)
        if isinstance(ours, pd.DataFrame):
            pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
        else:
            assert ours == theirs, field.name


def in_shards(rows: list[dict[str, Any]], folder: Path) -> ds.Dataset:
    """Shards of very different sizes, each with its own dictionaries, in several row groups."""
    cuts = [0, 1, 350, 351, 800, len(rows)]
    for number, (start, end) in enumerate(pairwise(cuts)):
        shard = table(rows[start:end][::-1])
        pq.write_table(shard, folder / f"part-{9 - number}.parquet", row_group_size=133, compression="zstd")
    return ds.dataset(folder, format="parquet")


@pytest.mark.parametrize("span", [1, 300, 1_000_000])
def test_shards_count_as_one_table_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span: int) -> None:
    rows = made(span)
    whole = reduce(table(rows), order=["grey"])
    monkeypatch.setattr(module, "SPAN", span)
    monkeypatch.setattr(module, "BATCH", 100)
    same(reduce(in_shards(rows, tmp_path), order=["grey"]), whole)


def test_cells_are_what_plain_python_counts() -> None:
    rows = made(5)
    good = [row for row in rows if row["task"] == "classify" and row["status"] == "ok"]
    answers: dict[Any, str] = {}
    for row in good:
        key, answer = (row["model"], row["trained_on"], row["source_id"], row["fold"]), row["prediction_restricted"]
        if row["condition"] == "original" and answer is not None:
            answers[key] = min(answers.get(key, answer), answer)
    expected: defaultdict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    for row in good:
        name = row["condition"] + ("@released" if row["variant"] == "released" else "")
        name += f" {row['parameters']}" if row["condition"] == "blur" else ""
        before = answers.get((row["model"], row["trained_on"], row["source_id"], row["fold"]))
        pasted = row["donor_label"] is not None
        key = (row["model"], row["trained_on"], row["kind"], name, row["label"], row["source_id"], row["donor_id"])
        expected[(*key, row["donor_label"], row["fold"])].update(
            n=1,
            right=row["correct"],
            captured=pasted and row["prediction_restricted"] == row["donor_label"],
            captured_before=pasted and before == row["donor_label"],
        )
    cells = reduce(table(rows)).cells
    found = {
        tuple(None if pd.isna(part) else part for part in row[:9]): dict(zip(cells.columns[9:], row[9:], strict=True))
        for row in cells.itertuples(index=False, name=None)
    }
    assert list(found) == sorted(expected, key=lambda key: [(part is None, part or "") for part in key[:8]] + [key[8]])
    assert max(counter["n"] for counter in expected.values()) > 1
    for key, counter in expected.items():
        assert {name: found[key][name] for name in counter} == dict(counter), key


def test_words_are_categories_that_occur() -> None:
    counts = reduce(table(made(2)))
    for frame in (counts.cells, counts.confidence, counts.confusion):
        for name in frame.select_dtypes("category"):
            assert list(frame[name].cat.categories) == sorted(frame[name].dropna().unique())
    assert "m6" in set(counts.cells["model"])
    assert "m6" not in counts.confidence["model"].cat.categories
    cells = counts.cells.memory_usage(index=False)
    assert cells.sum() < 50 * len(counts.cells)


def test_no_row_and_no_good_row() -> None:
    rows = table(made(3))
    failed = rows.filter(pc.equal(rows["status"], "error"))
    for part, trouble in (
        (rows.slice(0, 0), 0),
        (failed, failed.filter(pc.equal(failed["task"], "classify")).num_rows),
    ):
        counts = reduce(part)
        assert len(counts.cells) == len(counts.confidence) == len(counts.confusion) == 0
        assert list(counts.cells.columns) == list(reduce(rows).cells.columns)
        assert counts.trouble["n"].sum() == trouble
        assert counts.models == counts.classes == []
