"""Average precision of 100,000 objects under 13 conditions, with and without its interval."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from common import Row

from holdfast.stats.objects.matching import PredictedBoxes, TrueBoxes, match
from holdfast.stats.objects.precision import average_precision, resampled_precision

OBJECTS, PHOTOS, CLASSES, GUESSES, CONDITIONS = 100_000, 13_700, 80, 100, 13
"""As in COCO: seven objects a photo, 80 classes, a hundred predictions a photo."""


def rows() -> Iterator[Row]:
    spent = interval = 0.0
    for condition in range(CONDITIONS):
        truth, predicted = made_scene(condition)
        start = time.perf_counter()
        table = match(truth, predicted, classes=CLASSES)
        average_precision(table)
        spent += time.perf_counter() - start
        start = time.perf_counter()
        resampled_precision(table, PHOTOS)
        interval += time.perf_counter() - start
    yield Row("AP, AP50, AP75, AP by size: 100,000 objects × 13 conditions, 18 million boxes", spent, "s", at_most=60)
    yield Row("intervals of AP: 100,000 objects × 13 conditions", interval, "s", at_most=60)


def made_scene(seed: int) -> tuple[TrueBoxes, PredictedBoxes]:
    """Return objects and predictions: a few near each object, the others anywhere."""
    rng = np.random.default_rng(seed)
    image, label = np.sort(rng.integers(0, PHOTOS, OBJECTS)), rng.integers(0, CLASSES, OBJECTS)
    corner, side = rng.uniform(0, 500, (OBJECTS, 2)), np.exp(rng.uniform(2, 5.5, (OBJECTS, 2)))
    corners = np.concatenate([corner, corner + side], axis=1)
    truth = TrueBoxes(image, label, corners, side.prod(axis=1), rng.random(OBJECTS) < 0.01)
    near = np.repeat(np.arange(OBJECTS), 4)
    others = PHOTOS * GUESSES - len(near)
    other_corner, other_side = rng.uniform(0, 500, (others, 2)), np.exp(rng.uniform(2, 5.5, (others, 2)))
    moved = corners[near] + rng.normal(0, 0.08, (len(near), 4)) * np.tile(side[near], 2)
    return truth, PredictedBoxes(
        np.append(image[near], rng.integers(0, PHOTOS, others)),
        np.append(label[near], rng.integers(0, CLASSES, others)),
        np.concatenate([moved, np.concatenate([other_corner, other_corner + other_side], axis=1)]),
        np.append(rng.random(len(near)), rng.random(others) ** 3),
    )
