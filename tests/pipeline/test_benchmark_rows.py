"""Images of published test sets in the one table, beside conditions made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.pipeline.evaluate import EvaluateSpec, evaluate
from holdfast.stats.reduce import reduce
from shapes import draw

WNIDS = {"cross": "n00000001", "disc": "n00000002", "square": "n00000003"}
MODEL = """
import toy_models
from toy_models import Colour

class Wnids(Colour):
    labels = ("n00000001", "n00000002", "n00000003")

model = Wnids("colour", "1")
"""


@pytest.fixture
def model(toy_models: str, tmp_path: Path) -> str:
    (tmp_path / "modules" / "wnid_models.py").write_text(MODEL)
    return "python:wnid_models:model"


def test_stored_corruptions_bear_the_names_of_those_made_here(model: str, tmp_path: Path) -> None:
    import cv2

    for label, wnid in WNIDS.items():
        image, _ = draw(label, 0)
        for severity in (1, 5):
            path = tmp_path / "c" / "contrast" / str(severity) / wnid / "a.png"
            path.parent.mkdir(parents=True)
            cv2.imwrite(str(path), image)
        path = tmp_path / "photos" / wnid / "a.png"
        path.parent.mkdir(parents=True)
        cv2.imwrite(str(path), image)
    stored, _ = evaluate(
        EvaluateSpec(f"imagenet-c:{tmp_path / 'c'}", models=(model,), scenarios="original"), tmp_path / "1"
    )
    scenarios = "original,contrast@1,contrast@5,industrial"
    here, _ = evaluate(EvaluateSpec(str(tmp_path / "photos"), models=(model,), scenarios=scenarios), tmp_path / "2")
    names = ["contrast@severity_1", "contrast@severity_5"]
    assert sorted(reduce(stored.rows()).conditions) == names
    assert set(names) < set(reduce(here.rows()).conditions)
    rows = stored.rows().to_pylist()
    assert {row["source_id"] for row in rows} == {f"{wnid}/a" for wnid in WNIDS.values()}
    assert all(row["correct"] for row in rows)  # wnids found their outputs
    made = here.rows().to_pylist()
    by_condition = {name: [row for row in made if row["condition"] == name] for name in ("contrast", "shift_object")}
    assert {row["status"] for row in by_condition["contrast"]} == {"ok"}  # without any mask
    assert {row["status"] for row in by_condition["shift_object"]} == {"skipped"}
