"""Average precision: equal to pycocotools, and an interval that covers."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from made_boxes import made_boxes

from holdfast.stats.objects.matching import SIZES, PredictedBoxes, TrueBoxes, match
from holdfast.stats.objects.precision import (
    average_precision,
    change_interval,
    precision_influence,
    resampled_precision,
)


def _with_pycocotools(truth: TrueBoxes, predicted: PredictedBoxes, *, images: int, classes: int) -> Any:
    """Return COCOeval's table of precision at 100 predictions an image, and its first six numbers."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def sides(corners: np.ndarray) -> list[float]:
        return [corners[0], corners[1], corners[2] - corners[0], corners[3] - corners[1]]

    coco = COCO()
    coco.dataset = {
        "info": {},
        "images": [{"id": image + 1} for image in range(images)],
        "categories": [{"id": label + 1} for label in range(classes)],
        "annotations": [
            {
                "id": place + 1, "image_id": int(truth.image[place]) + 1, "category_id": int(truth.label[place]) + 1,
                "bbox": sides(truth.corners[place]), "area": truth.area[place], "iscrowd": int(truth.crowd[place]),
            }
            for place in range(len(truth.image))
        ],
    }  # fmt: skip
    answers = [
        {
            "image_id": int(predicted.image[place]) + 1, "category_id": int(predicted.label[place]) + 1,
            "bbox": sides(predicted.corners[place]), "score": predicted.score[place],
        }
        for place in range(len(predicted.image))
    ]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(answers), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.eval["precision"][..., -1], evaluation.stats[:6]


@pytest.mark.parametrize(
    "scene",
    [
        *({"seed": seed} for seed in range(12)),
        {"seed": 20, "ties": False},
        {"seed": 21, "most_guesses": 700, "images": 4, "classes": 2},
        {"seed": 22, "most_objects": 40, "most_guesses": 150, "images": 6, "classes": 1},
        {"seed": 23, "classes": 30, "images": 30},
    ],
    ids=str,
)
def test_equal_to_pycocotools(scene: dict[str, Any]) -> None:
    truth, predicted = made_boxes(**scene)
    images, classes = scene.get("images", 12), scene.get("classes", 3)
    table, numbers = _with_pycocotools(truth, predicted, images=images, classes=classes)
    ours = average_precision(match(truth, predicted, classes=classes))
    np.testing.assert_array_equal(ours.precision, table)
    assert [-1.0 if np.isnan(value) else value for value in ours.numbers().values()] == numbers.tolist()


def test_no_prediction_no_object_and_nothing_at_all() -> None:
    truth, predicted = made_boxes(1)
    none = PredictedBoxes(
        *(column[:0] for column in (predicted.image, predicted.label, predicted.corners)), np.zeros(0)
    )
    assert average_precision(match(truth, none, classes=3)).mean() == 0
    empty = TrueBoxes(*(getattr(truth, name)[:0] for name in ("image", "label", "corners", "area", "crowd")))
    for said in (predicted, none):
        table = match(empty, said, classes=3)
        assert np.isnan(average_precision(table).mean())
        assert np.isnan(resampled_precision(table, 12, resamples=5)).all()


def test_a_perfect_detector_has_1_in_every_resample() -> None:
    truth, _ = made_boxes(5, classes=2)
    said = PredictedBoxes(truth.image, truth.label, truth.corners, np.linspace(1, 0.5, len(truth.image)))
    table = match(truth, said, classes=2)
    numbers = average_precision(table).numbers()
    assert numbers["ap"] == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(resampled_precision(table, 12, resamples=50), 1, atol=1e-6)


def test_a_resample_is_what_the_repeated_photos_give() -> None:
    """Drawing images again by hand and matching again gives what the table of matches gives."""
    from holdfast.stats.core.bootstrap import drawn_weights

    truth, predicted = made_boxes(3, images=15, ties=False)
    resampled = resampled_precision(match(truth, predicted, classes=3), 15, resamples=6, seed=4)
    weights = drawn_weights(15, 6, 4)
    for draw in range(6):
        copies = np.repeat(np.arange(15), weights[:, draw].astype(int))
        rows = [np.flatnonzero(truth.image == image) for image in copies]
        said = [np.flatnonzero(predicted.image == image) for image in copies]
        own, theirs = np.concatenate(rows), np.concatenate(said)
        repeated = match(
            TrueBoxes(
                np.repeat(np.arange(15), [len(part) for part in rows]), truth.label[own], truth.corners[own],
                truth.area[own], truth.crowd[own],
            ),
            PredictedBoxes(
                np.repeat(np.arange(15), [len(part) for part in said]), predicted.label[theirs],
                predicted.corners[theirs], predicted.score[theirs],
            ),
            classes=3,
        )  # fmt: skip
        table = average_precision(repeated)
        expected = [table.mean(), table.mean(overlap=0.5), table.mean(overlap=0.75)]
        np.testing.assert_allclose(resampled[draw], expected, atol=2e-3)  # k/n against 0.07 in float32, in float64


def test_one_photo_has_no_interval() -> None:
    assert np.isnan(change_interval(0.5, np.array([0.5, 0.6]), 1)[1:]).all()
    _, low, high = change_interval(0.5, np.random.default_rng(0).normal(0.5, 0.1, 400), 1000)
    assert low == pytest.approx(0.3, abs=0.03) and high == pytest.approx(0.7, abs=0.03)


def test_resamples_that_all_agree_are_no_certainty() -> None:
    _, low, high = change_interval(1.0, np.ones(400), 30)
    assert low == pytest.approx(1 - 0.116, abs=0.001) and high > 1


@pytest.mark.parametrize("seed", range(4))
def test_what_an_image_adds_is_what_goes_without_it(seed: int) -> None:
    """The derivative against average precision of all images but one."""
    images = 60
    table = match(*made_boxes(seed, images=images), classes=3, sizes=("all",))
    added = precision_influence(table, images)
    np.testing.assert_allclose(added.sum(axis=0), 0, atol=1e-12)
    whole = average_precision(table, ("all",)).numbers()
    for place, name in enumerate(("ap", "ap50", "ap75")):
        rest = [
            average_precision(table.among(np.delete(np.arange(images), image)), ("all",)).numbers()[name]
            for image in range(images)
        ]
        moved = whole[name] - np.array(rest)
        assert np.corrcoef(added[:, place], moved)[0, 1] > 0.9
        assert added[:, place].std() == pytest.approx(moved.std(), rel=0.15)


def test_sizes_by_name() -> None:
    truth, predicted = made_boxes(2)
    small = average_precision(match(truth, predicted, classes=3, sizes=("all",)), ("all",))
    assert small.mean() == average_precision(match(truth, predicted, classes=3)).mean()
    assert set(SIZES) == {"all", "small", "medium", "large"}
