"""Scenes of boxes with everything that makes matching hard: crowds, ties, many predictions, empty images."""

from __future__ import annotations

import numpy as np

from holdfast.stats.objects.matching import PredictedBoxes, TrueBoxes


def made_boxes(
    seed: int, *, images: int = 12, classes: int = 3, most_objects: int = 9, most_guesses: int = 40, ties: bool = True
) -> tuple[TrueBoxes, PredictedBoxes]:
    """Return objects and predictions; some images have neither, some objects are crowds or have another area."""
    rng = np.random.default_rng(seed)
    objects, guesses = rng.integers(0, most_objects + 1, images), rng.integers(0, most_guesses + 1, images)
    objects[0] = guesses[0] = objects[1] = 0
    image = np.repeat(np.arange(images), objects)
    corners = _boxes(rng, len(image))
    label = rng.integers(0, classes, len(image))
    area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1]) * rng.uniform(0.4, 1, len(image))
    truth = TrueBoxes(image, label, corners, area, rng.random(len(image)) < 0.15)
    guess_image = np.repeat(np.arange(images), guesses)
    said = _boxes(rng, len(guess_image))
    given = rng.integers(0, classes, len(guess_image))
    for place, where in enumerate(guess_image):  # most are near an object of the image
        near = np.flatnonzero(image == where)
        if len(near) and rng.random() < 0.8:
            which = rng.choice(near)
            said[place] = corners[which] + rng.normal(0, rng.choice([0, 1, 4, 12]), 4)
            said[place, 2:] = np.maximum(said[place, 2:], said[place, :2] + 1)
            given[place] = label[which] if rng.random() < 0.85 else given[place]
    score = rng.random(len(guess_image))
    return truth, PredictedBoxes(guess_image, given, said, np.round(score, 1) if ties else score)


def _boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    corner = rng.uniform(0, 300, (count, 2))
    side = np.exp(rng.uniform(np.log(6), np.log(260), (count, 2)))
    return np.concatenate([corner, corner + side], axis=1)
