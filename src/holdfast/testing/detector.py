"""``check_detector``: the contract suite of adapters of object detectors."""

from __future__ import annotations

import numpy as np

from holdfast.core.objects import Detections, Detector
from holdfast.core.types import Image

_SIZES = ((37, 53), (64, 64), (64, 64), (20, 200), (9, 9))


def check_detector(detector: Detector | str, *, device: str = "cpu") -> None:
    """Raise AssertionError with a sentence where a detector, or the one of a name, breaks the contract.

    Checked: any image size, the input left alone, boxes inside the picture, scores 0..1 with the best first, labels
    that exist, the same answer every time and in every batch; a name loads twice with one fingerprint.
    """
    if isinstance(detector, str):
        from holdfast.models import load_detector

        name, detector = detector, load_detector(detector, device=device)
        again = load_detector(name, device=device)
        _require(again.fingerprint == detector.fingerprint, "loading it twice gives two fingerprints")
    _require(isinstance(detector, Detector), "a detector has name, labels, fingerprint and detect")
    _require(bool(detector.name) and bool(detector.fingerprint), "name and fingerprint may not be empty")
    _require(len(detector.labels) > 0 and all(detector.labels.names), "every output has a name")
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in _SIZES]
    before = [image.copy() for image in images]
    answers = detector.detect(images)
    _require(len(answers) == len(images), f"{len(answers)} answers to {len(images)} images")
    for image, copy, answer in zip(images, before, answers, strict=True):
        _require(np.array_equal(image, copy), "detect changes its input")
        _check_answer(answer, image, len(detector.labels))
    _require(detector.detect([]) == [], "no images should give no answers")
    for other, what in (
        (detector.detect(images), "the same images get another answer"),
        ([detector.detect([image])[0] for image in images], "an image alone gets another answer than in a batch"),
        (detector.detect(images[::-1])[::-1], "the order of the images matters"),
    ):
        _require(all(_alike(first, second) for first, second in zip(answers, other, strict=True)), what)


def _check_answer(answer: Detections, image: Image, labels: int) -> None:
    height, width = image.shape[:2]
    _require(answer.boxes.shape == (len(answer), 4), f"boxes have shape {answer.boxes.shape}")
    _require(len(answer.labels) == len(answer.scores), "there is a label for every score")
    inside = (answer.boxes >= 0).all() and (answer.boxes <= [width, height] * 2).all()
    _require(bool(inside), "boxes lie inside the picture")
    _require(bool((answer.boxes[:, 2:] > answer.boxes[:, :2]).all()), "boxes are x1, y1, x2, y2 and not empty")
    _require(bool(((answer.scores >= 0) & (answer.scores <= 1)).all()), "scores lie between 0 and 1")
    _require(bool((np.diff(answer.scores) <= 0).all()), "the best box comes first")
    _require(bool(((answer.labels >= 0) & (answer.labels < labels)).all()), "labels are places in the list of labels")


def _alike(first: Detections, second: Detections) -> bool:
    """Return whether two answers are the same but for the last digits; boxes of equal scores may change places."""
    return len(first) == len(second) and np.allclose(first.scores, second.scores, atol=1e-4)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)
