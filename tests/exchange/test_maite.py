"""MAITE both ways, against the protocols and the evaluation of the real package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.core.errors import SampleError, UserError
from holdfast.data.readers.maite import from_channels_first
from holdfast.exchange.maite import AccuracyMetric, ScenarioAugmentation, metric_result

protocols = pytest.importorskip("maite.protocols.image_classification")
tasks = pytest.importorskip("maite.tasks")

MODULE = """
import numpy as np

NAMES = {0: "dark", 1: "light"}

class Squares:
    metadata = {"id": "squares", "index2label": NAMES}
    def __len__(self):
        return 12
    def __getitem__(self, index):
        level = 40 if index % 2 == 0 else 200
        picture = np.full((3, 16, 20), level + index, np.uint8)
        picture[0] = 10
        mask = np.zeros((16, 20), bool)
        mask[4:12, 5:15] = True
        facts = {"id": f"square-{index}", "camera": "AB"[index % 2], "mask": mask}
        return picture, np.eye(2)[(index % 2) ^ (index == 5)], facts

class Threshold:
    metadata = {"id": "threshold", "index2label": NAMES}
    def __call__(self, batch):
        return [np.eye(2)[int(np.asarray(picture)[1].mean() > 120)] for picture in batch]

squares, threshold = Squares(), Threshold()
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "maite_objects.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import maite_objects  # type: ignore[import-not-found]

    return maite_objects


def test_a_run_and_maites_own_evaluation_agree(made: Any, tmp_path: Path) -> None:
    assert isinstance(made.squares, protocols.Dataset) and isinstance(made.threshold, protocols.Model)
    run = holdfast.evaluate(
        "maite:maite_objects:squares",
        models=["maite:maite_objects:threshold"],
        scenarios="original,blur_background",
        out=tmp_path / "run",
    )
    metric = AccuracyMetric()
    assert isinstance(metric, protocols.Metric)
    theirs, _, _ = tasks.evaluate(model=made.threshold, dataset=made.squares, metric=metric, batch_size=4)
    (model,) = run.counts.models
    ours = metric_result(run, model)
    assert "camera" in run.run.samples()["attributes"][0].as_py()
    assert metric_result(run, model, "blur_background")["n"] == 12
    assert dict(theirs) == pytest.approx(dict(ours)) and ours["n"] == 12 and 0.9 < ours["accuracy"] < 1
    with pytest.raises(UserError, match="under blur"):
        metric_result(run, model, "blur")


@pytest.mark.parametrize("scenario", ["grey", "blur_background@3", "random_background"])
def test_a_scenario_is_an_augmentation(made: Any, scenario: str) -> None:
    augmentation = ScenarioAugmentation(scenario)
    assert isinstance(augmentation, protocols.Augmentation)
    batch = tuple(map(list, zip(*(made.squares[index] for index in range(4)), strict=True)))
    pictures, targets, metadata = augmentation(batch)
    again = augmentation(batch)[0]
    assert all(picture.shape == (3, 16, 20) and picture.dtype == np.uint8 for picture in pictures)
    assert all((first == second).all() for first, second in zip(pictures, again, strict=True))
    assert targets is batch[1] and metadata[0]["condition"].startswith(scenario.partition("@")[0])
    inside = batch[2][0]["mask"]
    if scenario == "grey":
        assert (pictures[0] != batch[0][0]).any() and (pictures[0][0] == pictures[0][1])[~inside].all()
    else:
        assert (pictures[0][:, inside] == batch[0][0][:, inside]).all()
    if scenario == "random_background":
        assert (pictures[0][:, ~inside] != batch[0][0][:, ~inside]).any()


def test_what_is_no_picture_is_refused(made: Any) -> None:
    assert (from_channels_first(np.full((1, 2, 2), 0.5)) == 128).all()
    for wrong in (np.zeros((4, 4)), np.full((3, 2, 2), 300), np.full((3, 2, 2), np.nan)):
        with pytest.raises(SampleError, match="a MAITE image"):
            from_channels_first(wrong)
    with pytest.raises(UserError, match="is no MAITE dataset"):
        holdfast.data("maite:maite_objects:threshold")
