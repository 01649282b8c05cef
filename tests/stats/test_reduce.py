"""Rows → counts, against counting by hand."""

from __future__ import annotations

import numpy as np
import pyarrow.dataset as ds
import pytest
from made_rows import table

from holdfast.stats.core.reduce import BINS, reduce, right_column


def row(source: str, condition: str, correct: bool | None, **more: object) -> dict[str, object]:
    label = source.split("/")[0]
    return {"model": "m", "source_id": source, "condition": condition, "label": label, "correct": correct, **more}


def small() -> list[dict[str, object]]:
    return [
        row("cat/1", "original", True, confidence=0.9),
        row("cat/2", "original", False, confidence=0.9005, prediction="dog"),
        row("dog/1", "original", True, confidence=1.0),
        row("cat/1", "random_background", False, donor_id="dog/1", donor_label="dog", prediction="dog"),
        row("cat/2", "random_background", False, donor_id="dog/1", donor_label="dog", prediction="dog"),
        row("dog/1", "random_background", True, donor_id="cat/1", donor_label="cat", prediction="dog"),
        row("dog/2", "original", None, status="error", error="cannot be read"),
    ]


def test_cells_hold_rights_and_captures() -> None:
    cells = reduce(table(small())).cells.set_index(["condition", "source_id"])
    assert len(cells) == 6
    assert cells["right"].to_dict() == {
        ("original", "cat/1"): 1,
        ("original", "cat/2"): 0,
        ("original", "dog/1"): 1,
        ("random_background", "cat/1"): 0,
        ("random_background", "cat/2"): 0,
        ("random_background", "dog/1"): 1,
    }
    pasted = cells.loc["random_background"]
    assert pasted["captured"].to_dict() == {"cat/1": 1, "cat/2": 1, "dog/1": 0}
    # cat/2 was called a dog before any dog's background came in
    assert pasted["captured_before"].to_dict() == {"cat/1": 0, "cat/2": 1, "dog/1": 0}


def test_a_fold_is_compared_with_its_own_original() -> None:
    rows = [
        row("cat/1", "original", False, fold=0, prediction="dog"),
        row("cat/1", "original", True, fold=1),
        *(
            row("cat/1", "random_background", False, fold=f, donor_id="d", donor_label="dog", prediction="dog")
            for f in (0, 1)
        ),
    ]
    cells = reduce(table(rows)).cells
    pasted = cells[cells["condition"] == "random_background"].set_index("fold")
    assert pasted["captured_before"].to_dict() == {0: 1, 1: 0}


def test_confidence_confusion_and_trouble() -> None:
    counts = reduce(table(small()))
    bins = counts.confidence.set_index("bin")
    assert bins["n"].to_dict() == {900: 2, BINS - 1: 1}
    assert bins["right"].to_dict() == {900: 1, BINS - 1: 1}
    assert bins.loc[900, "confidence"] == pytest.approx(1.8005)
    assert bins.loc[900, "brier"] == pytest.approx(0.1**2 + 0.9005**2)
    confusion = counts.confusion[counts.confusion["condition"] == "original"]
    found = {(r.label, r.prediction): r.n for r in confusion.itertuples()}
    assert found == {("cat", "cat"): 1, ("cat", "dog"): 1, ("dog", "dog"): 1}
    assert counts.trouble[["status", "error", "n"]].to_numpy().tolist() == [["error", "cannot be read", 1]]


def test_conditions_are_named_by_variant_and_parameters_and_ordered() -> None:
    rows = [
        row("cat/1", "original", True),
        row("cat/1", "blur", True, parameters='{"size":3}'),
        row("cat/1", "blur", True, parameters='{"size":9}'),
        row("cat/1", "grey", True, variant="released"),
        row("cat/1", "grey", True),
        row("cat/1", "blur", True, task="segment", parameters='{"size":27}'),
    ]
    counts = reduce(table(rows), order=["grey", "blur"])
    assert counts.conditions == ["original", "grey", 'blur {"size":3}', 'blur {"size":9}', "grey@released"]


def test_conditions_with_the_same_images_count_once() -> None:
    rows = [
        row(source, condition, True, image_sha256=f"{source}{content}")
        for source in ("cat/1", "cat/2")
        for condition, content in (("original", "a"), ("segmented", "b"), ("transparent", "b"), ("grey", "c"))
    ]
    counts = reduce(table(rows))
    assert counts.same_images == {"transparent": "segmented"}
    assert set(counts.distinct()["condition"]) == {"original", "segmented", "grey"}


def test_a_dataset_on_disk_reduces_as_a_table_does(tmp_path: object) -> None:
    rng = np.random.default_rng(0)
    rows = [row(f"cat/{i}", c, bool(rng.integers(2))) for i in range(50) for c in ("original", "grey")]
    whole = table(rows)
    ds.write_dataset(whole, tmp_path, format="parquet")
    ours, theirs = reduce(whole), reduce(ds.dataset(tmp_path))
    assert ours.cells.equals(theirs.cells)
    assert int(ours.cells["n"].sum()) == 100


def test_outcomes_have_their_columns() -> None:
    assert [right_column("full"), right_column("restricted")] == ["right", "right_restricted"]
