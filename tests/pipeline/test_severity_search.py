"""``eval --search``: the failure points of the grid with fewer answers, and what it refuses."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.pipeline.evaluate.evaluate import evaluate
from holdfast.pipeline.specs import EvaluateSpec
from holdfast.results import Results

MODEL = """
import numpy as np

def reader(images):
    # light or dark by the mean, with a border that every photo's name shifts: contrast and fog break photos one by one
    return np.array([[i.std() - i[0, 0, 0] / 8, 0.0] for i in images], np.float32)

reader.labels = ("bright", "dark")
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EvaluateSpec:
    (tmp_path / "readers.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("readers", None)
    for number in range(32):
        rng = np.random.default_rng(number)
        image = rng.integers(0, 40 + 6 * number, (32, 32, 3)).astype(np.uint8)
        for label in ("bright", "dark"):
            path = tmp_path / "photos" / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), image)
    levels = ",".join(f"contrast@{severity}" for severity in range(1, 6))
    return EvaluateSpec(str(tmp_path / "photos"), models=("python:readers:reader",), scenarios=f"original,{levels}")


def test_search_finds_the_failure_points_of_the_grid_with_fewer_answers(spec: EvaluateSpec, tmp_path: Path) -> None:
    grid, _ = evaluate(spec, tmp_path / "grid")
    run, summary = evaluate(replace(spec, search=True), tmp_path / "searched")
    by_grid, by_search = (Results(each).failure_points(resamples=100) for each in (grid, run))
    assert by_grid.points["back"].iloc[0] == 0 < by_grid.points["n"].iloc[0]  # monotone, so both must agree
    columns = ["n", "median", "mean", "mean_low", "mean_high", "never"]
    assert by_search.points[columns].equals(by_grid.points[columns]) and by_search.curves.equals(by_grid.curves)
    stored, every = (each.predictions.dataset().count_rows() for each in (run, grid))
    (note,) = (note for note in summary.notes if note.startswith("search:"))
    assert stored < 0.6 * every and f"search: {stored - 64:,} of the {every - 64:,} answers" in note
    again, _ = evaluate(replace(spec, search=True), tmp_path / "searched")  # nothing is asked twice
    assert again.predictions.dataset().count_rows() == stored
    whole, _ = evaluate(spec, tmp_path / "searched")  # and the grid resumes where the search was
    assert whole.predictions.dataset().count_rows() == every


def test_what_a_search_cannot_do_is_said(spec: EvaluateSpec, tmp_path: Path) -> None:
    for changed, words in (
        ({"scenarios": "original,contrast@1,contrast@2"}, "three severities or more"),
        ({"scenarios": spec.scenarios.removeprefix("original,")}, "name original, too"),
        ({"fast": True}, "use only one of them"),
    ):
        with pytest.raises(UserError, match=words):
            evaluate(replace(spec, search=True, **changed), tmp_path / "refused")
