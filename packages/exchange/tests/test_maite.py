"""MAITE both ways, against the protocols and the evaluation of the real package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.core.errors import SampleError, UserError
from holdfast.data.readers.maite import from_channels_first, listed_boxes
from holdfast.models.detectors.python_detectors import scores_of_labels
from holdfast_exchange.maite import (
    AccuracyMetric,
    BoxedImages,
    BoxTarget,
    ClassifiedImages,
    MaiteClassifier,
    MaiteDetector,
    RecallMetric,
    ScenarioAugmentation,
    metric_result,
)

protocols = pytest.importorskip("maite.protocols.image_classification")
boxes = pytest.importorskip("maite.protocols.object_detection")
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

SCENES = "diorama:ood?n=12&objects=1..4&size=64"
BOXES = f"""
from holdfast_exchange.maite import BoxedImages, MaiteDetector

scenes, finder = BoxedImages("{SCENES}"), MaiteDetector("embedded:boxes_rho0")
"""


def checked(problem: str) -> Any:
    """Return MAITE's evaluation, which holds every argument and every answer to the protocols at run time."""
    return pytest.importorskip("maite.spotcheck").spotcheck(tasks.evaluate, ai_problem=problem)


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
    assert all(map(np.array_equal, targets, batch[1])) and metadata[0]["condition"].startswith(
        scenario.partition("@")[0]
    )
    inside = batch[2][0]["mask"]
    if scenario == "grey":
        assert (pictures[0] != batch[0][0]).any() and (pictures[0][0] == pictures[0][1])[~inside].all()
    else:
        assert (pictures[0][:, inside] == batch[0][0][:, inside]).all()
    if scenario == "random_background":
        assert (pictures[0][:, ~inside] != batch[0][0][:, ~inside]).any()


def test_datasets_and_models_handed_out_give_the_accuracy_of_a_run(tmp_path: Path) -> None:
    images, model = ClassifiedImages("diorama:test?n=24&size=64"), MaiteClassifier("embedded:resnet_rho0")
    assert isinstance(images, protocols.Dataset) and isinstance(model, protocols.Model)
    theirs, _, _ = checked("image_classification")(
        model=model,
        dataset=images,
        metric=AccuracyMetric(),
        augmentation=ScenarioAugmentation("gaussian_noise@5"),
        batch_size=8,
    )
    run = holdfast.evaluate(
        "diorama:test?n=24&size=64",
        models=["embedded:resnet_rho0"],
        scenarios="original,gaussian_noise@5",
        out=tmp_path / "run",
    )
    ours = metric_result(run, run.counts.models[0], "gaussian_noise@5")
    assert dict(theirs) == pytest.approx(dict(ours)) and 0 < ours["accuracy"] < 1 and ours["n"] == 24
    with pytest.raises(UserError, match="has no boxes"):
        BoxedImages("diorama:test?n=2&size=64")


def test_detectors_and_boxes_go_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = holdfast.evaluate(SCENES, models=["embedded:boxes_rho0"], scenarios="original,grey", out=tmp_path / "run")
    ours = metric_result(run, "embedded:boxes_rho0")
    assert 0 < ours["recall"] < 1 and 0 < ours["ap"] < 1 and ours["recall_low"] < ours["recall"] < ours["recall_high"]
    scenes, finder, metric = BoxedImages(SCENES), MaiteDetector("embedded:boxes_rho0"), RecallMetric()
    assert isinstance(scenes, boxes.Dataset) and isinstance(finder, boxes.Model) and isinstance(metric, boxes.Metric)
    theirs, _, _ = checked("object_detection")(model=finder, dataset=scenes, metric=metric, batch_size=3)
    assert dict(theirs) == pytest.approx(dict(ours), abs=1e-5)

    (tmp_path / "maite_boxes.py").write_text(BOXES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    there_and_back = {"data": "maite:maite_boxes:scenes", "scenarios": "original"}
    back = holdfast.evaluate(**there_and_back, models=["maite:maite_boxes:finder?task=detect"], out=tmp_path / "back")
    assert metric_result(back, back.boxes.models[0]) == pytest.approx(dict(ours), abs=1e-5)
    with pytest.raises(UserError, match=r"finder\?task=detect"):
        holdfast.evaluate(**there_and_back, models=["maite:maite_boxes:finder"], out=tmp_path / "classes")


def test_boxes_follow_the_objects_that_a_scenario_moves(tmp_path: Path) -> None:
    """An independent way to the same images and boxes: the rows of a run."""
    scenario = "random_background@moved"
    scenes, moved = BoxedImages(SCENES), ScenarioAugmentation(scenario)
    assert isinstance(moved, boxes.Augmentation)
    batch = tuple(map(list, zip(*(scenes[index] for index in range(len(scenes))), strict=True)))
    _, targets, facts = moved(batch)
    run = holdfast.evaluate(SCENES, models=["known:perfect"], scenarios=f"original,{scenario}", out=tmp_path / "run")
    rows = run.boxes.objects
    for target, before, own in zip(targets, batch[1], facts, strict=True):
        shown = rows[(rows["sample_id"] == own["id"]) & (rows["condition"] != "original") & ~rows["crowd"]]
        np.testing.assert_allclose(target.boxes, shown[["x1", "y1", "x2", "y2"]], atol=1e-4)
        assert (target.labels == before.labels).all() and (target.boxes != before.boxes).any()


def test_the_mask_moves_and_tensors_with_gradients_are_read(made: Any) -> None:
    torch = pytest.importorskip("torch")
    pictures = [torch.full((3, 24, 24), level, requires_grad=True) for level in (0.2, 0.8)]
    for picture in pictures:
        picture.data[:, 4:12, 4:12] = 1.0
    mask = torch.zeros(24, 24)
    mask[4:12, 4:12] = 1
    facts = [{"id": name, "mask": mask.requires_grad_()} for name in "ab"]
    targets = list(torch.eye(2, requires_grad=True))
    for scenario, moves in (("random_background@moved?opacity=1", True), ("random_background", False)):
        shown, _, after = ScenarioAugmentation(scenario)((pictures, targets, facts))
        for picture, own in zip(shown, after, strict=True):
            own_mask = np.asarray(own["mask"].detach() if torch.is_tensor(own["mask"]) else own["mask"]) > 0
            assert (picture[:, own_mask] == 255).all() and (own_mask.sum() < 64) == moves

    scores = torch.eye(2, requires_grad=True)
    box = BoxTarget(torch.tensor([[1.0, 1, 9, 9]], requires_grad=True), torch.tensor([1]), scores[1:] * 0.9)
    metric, recall = AccuracyMetric(), RecallMetric()
    metric.update(list(scores), targets, facts)
    recall.update([box], [box], facts[:1])
    assert metric.compute()["accuracy"] == recall.compute()["recall"] == 1
    assert "mean over classes" in metric.metadata["id"]
    (listed,) = listed_boxes(box, {1: "light"})
    assert listed.label == "light" and scores_of_labels(box).tolist() == pytest.approx([0.9])
    with pytest.raises(UserError, match="score that is not a number"):
        metric.update([scores[0] * np.nan], targets[:1], facts[:1])
    with pytest.raises(UserError, match="needs boxes and scores that are finite numbers"):
        recall.update([BoxTarget(box.boxes, box.labels, scores[1:] * np.nan)], [box], facts[:1])


def test_what_is_no_picture_is_refused(made: Any) -> None:
    assert (from_channels_first(np.full((1, 2, 2), 0.5)) == 128).all()
    for wrong in (np.zeros((4, 4)), np.full((3, 2, 2), 300), np.full((3, 2, 2), np.nan)):
        with pytest.raises(SampleError, match="a MAITE image"):
            from_channels_first(wrong)
    with pytest.raises(UserError, match="is not a MAITE dataset"):
        holdfast.data_check("maite:maite_objects:threshold")
