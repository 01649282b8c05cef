"""``check_classifier``, ``check_detector``, ``check_oracle``: the contract suites of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.protocols import Classifier, Detections, Detector, Oracle, StagedClassifier, TensorOracle, Verdict
from holdfast.core.types import Image

TOLERANCE = 1e-4
_SIZES = ((37, 53), (1, 1), (2, 600), (600, 2), (1, 2000), (64, 64), (224, 224))


def check_classifier(classifier: Classifier | str, *, device: str = "cpu") -> None:
    """Raise AssertionError with a sentence if a classifier, or the model of a name, breaks the contract.

    Checked: labels and probabilities fit each other, any image size, the input left alone, the same answer every
    time, in every batch and order, and through ``prepare``; a name loads twice with one fingerprint.
    """
    if isinstance(classifier, str):
        from holdfast.models import load_classifier

        classifier = loaded_twice(load_classifier, classifier, device)
    assert isinstance(classifier, Classifier), "a classifier has name, labels, fingerprint and predict"
    assert classifier.name and classifier.fingerprint, "name and fingerprint may not be empty"
    labels = classifier.labels
    assert len(labels) > 0 and all(labels.names), "every output has a name"
    assert len(labels.wnids) in (0, len(labels)), "WordNet ids are known for all outputs or for none"
    images = _pictures(_SIZES)
    before = [image.copy() for image in images]
    answers = classifier.predict(images)
    for image, copy in zip(images, before, strict=True):
        assert np.array_equal(image, copy), "predict changes its input"
    _check_probabilities(answers, len(images), len(classifier.labels))
    assert np.array_equal(classifier.predict(images), answers), "the same images get another answer"
    for index, image in enumerate(images):
        alone = classifier.predict([image])
        assert _close(alone[0], answers[index]), f"image {index} alone gets another answer than in a batch"
    assert _close(classifier.predict(images[::-1])[::-1], answers), "the order of the images matters"
    assert classifier.predict([]).shape == (0, len(classifier.labels)), "no images should give no rows"
    locked = images[0].copy()
    locked.flags.writeable = False
    assert _close(classifier.predict([locked])[0], answers[0]), "a read-only image gets another answer"
    view = np.ascontiguousarray(images[0][:, ::-1])[:, ::-1]
    assert _close(classifier.predict([view])[0], answers[0]), "an image with strides gets another answer"
    if isinstance(classifier, StagedClassifier):
        with ThreadPoolExecutor(4) as pool:
            staged = classifier.predict_prepared(list(pool.map(classifier.prepare, images)))
        assert _close(staged, answers), "prepare and predict_prepared differ from predict"
    if hasattr(classifier, "logits"):
        _check_logits(classifier)


def _check_probabilities(answers: NDArray[Any], images: int, labels: int) -> None:
    assert isinstance(answers, np.ndarray) and answers.dtype == np.float32, "probabilities are a float32 array"
    assert answers.shape == (images, labels), f"shape {answers.shape}, expected {(images, labels)}"
    assert np.isfinite(answers).all(), "probabilities are finite"
    assert (answers >= 0).all(), "probabilities are not negative"
    assert _close(answers.sum(axis=1, dtype=np.float64), np.ones(images)), "rows of probabilities sum to 1"


def _check_logits(classifier: Any) -> None:
    import torch

    batch = torch.rand((2, 3, 40, 56), generator=torch.Generator().manual_seed(0)).requires_grad_()
    logits = classifier.logits(batch)
    assert logits.shape == (2, len(classifier.labels)), f"logits have shape {tuple(logits.shape)}"
    logits.logsumexp(1).sum().backward()
    gradient = batch.grad
    assert gradient is not None and gradient.isfinite().all(), "gradients of the logits are not finite"
    assert gradient is not None
    assert (gradient != 0).any(), "gradients of the logits do not reach the batch"


def loaded_twice(load: Callable[..., Any], name: str, device: str) -> Any:
    """Return what a name loads, after checking that loading it again gives the same."""
    loaded, again = (load(name, device=device) for _ in range(2))
    assert again.fingerprint == loaded.fingerprint, "loading it twice gives two fingerprints"
    assert again.name == loaded.name, "loading it twice gives two names"
    return loaded


def _pictures(sizes: Sequence[tuple[int, int]]) -> list[Image]:
    """Return noise over coloured slopes, which has structure at every scale, so that a wrong crop or resize shows."""
    rng = np.random.default_rng(20)
    images = []
    for height, width in sizes:
        slope = np.linspace(0, 255, width)[None, :, None] * np.linspace(0.2, 1, height)[:, None, None]
        noise = rng.normal(0, 40, (height, width, 3))
        images.append((slope * rng.uniform(0.3, 1, 3) + noise).clip(0, 255).astype(np.uint8))
    return images


def _close(first: NDArray[Any], second: NDArray[Any]) -> bool:
    return bool(np.allclose(first, second, rtol=0, atol=TOLERANCE))


_DETECTOR_SIZES = ((37, 53), (64, 64), (64, 64), (20, 200), (9, 9))


def check_detector(detector: Detector | str, *, device: str = "cpu") -> None:
    """Raise AssertionError with a sentence if a detector, or the one of a name, breaks the contract.

    Checked: any image size, the input left alone, boxes inside the image, scores 0..1 with the best first, labels
    that exist, the same answer every time and in every batch; a name loads twice with one fingerprint.
    """
    if isinstance(detector, str):
        from holdfast.models import load_detector

        detector = loaded_twice(load_detector, detector, device)
    assert isinstance(detector, Detector), "a detector has name, labels, fingerprint and detect"
    assert detector.name and detector.fingerprint, "name and fingerprint may not be empty"
    assert len(detector.labels) > 0 and all(detector.labels.names), "every output has a name"
    images = _pictures(_DETECTOR_SIZES)
    before = [image.copy() for image in images]
    answers = detector.detect(images)
    assert len(answers) == len(images), f"{len(answers)} answers to {len(images)} images"
    for image, copy, answer in zip(images, before, answers, strict=True):
        assert np.array_equal(image, copy), "detect changes its input"
        _check_answer(answer, image, len(detector.labels))
    assert detector.detect([]) == [], "no images should give no answers"
    for other, what in (
        (detector.detect(images), "the same images get another answer"),
        ([detector.detect([image])[0] for image in images], "an image alone gets another answer than in a batch"),
        (detector.detect(images[::-1])[::-1], "the order of the images matters"),
    ):
        assert all(_alike(first, second) for first, second in zip(answers, other, strict=True)), what


def _check_answer(answer: Detections, image: Image, labels: int) -> None:
    height, width = image.shape[:2]
    assert answer.boxes.shape == (len(answer), 4), f"boxes have shape {answer.boxes.shape}"
    assert len(answer.labels) == len(answer.scores), "there is a label for every score"
    inside = (answer.boxes >= 0) & (answer.boxes <= [width, height] * 2)
    assert inside.all(), "boxes lie inside the image"
    assert (answer.boxes[:, 2:] > answer.boxes[:, :2]).all(), "boxes are x1, y1, x2, y2 and not empty"
    assert ((answer.scores >= 0) & (answer.scores <= 1)).all(), "scores lie between 0 and 1"
    assert (np.diff(answer.scores) <= 0).all(), "the best box comes first"
    assert ((answer.labels >= 0) & (answer.labels < labels)).all(), "labels are places in the list of labels"


def _alike(first: Detections, second: Detections) -> bool:
    """Return whether two answers are the same but for the last digits; boxes of equal scores may change places."""
    return len(first) == len(second) and np.allclose(first.scores, second.scores, atol=1e-4)


_ORACLE_SIZES = ((64, 64), (64, 64), (37, 53), (224, 224), (1, 1), (2, 100))


def check_oracle(oracle: Oracle) -> None:
    """Raise AssertionError with a sentence if an oracle breaks the contract.

    Checked: every image gets a verdict within range, the input is left alone, and the verdict does not change with the
    batch, the order or a second asking; one that judges tensors gives the verdicts that it gives for the same images.
    """
    assert isinstance(oracle, Oracle), "an oracle has name, fingerprint, classes and judge"
    assert oracle.name and oracle.fingerprint, "name and fingerprint may not be empty"
    assert len(oracle.classes) > 0 and len(set(oracle.classes)) == len(oracle.classes), "classes are there, each once"
    images = _pictures(_ORACLE_SIZES)
    labels = [oracle.classes[place % len(oracle.classes)] for place in range(len(images))]
    before = [image.copy() for image in images]
    given = oracle.judge(images, labels)
    assert len(given) == len(images), "every image gets a verdict"
    for image, copy in zip(images, before, strict=True):
        assert np.array_equal(image, copy), "judge changes its input"
    for verdict, label in zip(given, labels, strict=True):
        _check_verdict(verdict, label)
    assert _same(oracle.judge(images, labels), given), "the same images get another verdict"
    alone = [oracle.judge([image], [label])[0] for image, label in zip(images, labels, strict=True)]
    assert _same(alone, given), "an image alone gets another verdict than in a batch"
    assert _same(oracle.judge(images[::-1], labels[::-1])[::-1], given), "the order of the images matters"
    assert oracle.judge([], []) == [], "no images should give no verdicts"
    if isinstance(oracle, TensorOracle):
        _check_tensors(oracle)


def _check_verdict(verdict: Verdict, label: str) -> None:
    assert isinstance(verdict, Verdict), "a verdict is a core.protocols.Verdict"
    assert -TOLERANCE <= verdict.score <= 1 + TOLERANCE, f"a score of {verdict.score} is not within 0..1"
    assert -1 - TOLERANCE <= verdict.margin <= 1 + TOLERANCE, f"a margin of {verdict.margin} is not within -1..1"
    assert verdict.accepted or verdict.reason, "a rejection says why"
    assert not verdict.accepted or verdict.saw == label, "an accepted image shows its class"


def _check_tensors(oracle: TensorOracle) -> None:
    import torch

    images = [image for image in _pictures(_ORACLE_SIZES) if image.shape[:2] == (64, 64)]
    device = str(getattr(oracle, "device", "cpu"))
    batch = torch.from_numpy(np.stack(images)).to(device).permute(0, 3, 1, 2).float() / 255
    for place, label in enumerate(oracle.classes):
        given = oracle.judge(images, [label] * len(images))
        accepted, score, margin, saw = oracle.judge_batch(batch, torch.full((len(images),), place, device=device))
        for column, wanted in ((accepted, "accepted"), (score, "score"), (margin, "margin")):
            expected = np.array([float(getattr(verdict, wanted)) for verdict in given])
            close = np.allclose(column.float().cpu().numpy(), expected, rtol=0, atol=TOLERANCE)
            assert close, f"judge and judge_batch disagree on {wanted} for {label!r}"
        names = getattr(oracle, "answers", oracle.classes)
        seen = [names[position] for position in saw.tolist()]
        assert seen == [verdict.saw for verdict in given], f"judge and judge_batch saw different things for {label!r}"


def _same(first: list[Verdict], second: list[Verdict]) -> bool:
    return all(
        left.accepted == right.accepted
        and left.saw == right.saw
        and abs(left.score - right.score) < TOLERANCE
        and abs(left.margin - right.margin) < TOLERANCE
        for left, right in zip(first, second, strict=True)
    )
