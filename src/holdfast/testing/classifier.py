"""``check_classifier``: the contract suite of model adapters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.protocols import Classifier, StagedClassifier
from holdfast.core.types import Image

TOLERANCE = 1e-4
_SIZES = ((37, 53), (1, 1), (2, 600), (600, 2), (1, 2000), (64, 64), (224, 224))


def check_classifier(classifier: Classifier | str, *, device: str = "cpu") -> None:
    """Raise AssertionError with a sentence where a classifier, or the model of a name, breaks the contract.

    Checked: labels and probabilities fit each other, any image size, the input left alone, the same answer every
    time, in every batch and order, and through ``prepare``; a name loads twice with one fingerprint.
    """
    if isinstance(classifier, str):
        from holdfast.models import load_classifier

        name, classifier = classifier, load_classifier(classifier, device=device)
        again = load_classifier(name, device=device)
        _require(again.fingerprint == classifier.fingerprint, "loading it twice gives two fingerprints")
        _require(again.name == classifier.name, "loading it twice gives two names")
    _check_identity(classifier)
    images = _images()
    before = [image.copy() for image in images]
    answers = classifier.predict(images)
    for image, copy in zip(images, before, strict=True):
        _require(np.array_equal(image, copy), "predict changes its input")
    _check_probabilities(answers, len(images), len(classifier.labels))
    _require(np.array_equal(classifier.predict(images), answers), "the same images get another answer")
    for index, image in enumerate(images):
        alone = classifier.predict([image])
        _require(_close(alone[0], answers[index]), f"image {index} alone gets another answer than in a batch")
    _require(_close(classifier.predict(images[::-1])[::-1], answers), "the order of the images matters")
    _require(classifier.predict([]).shape == (0, len(classifier.labels)), "no images should give no rows")
    locked = images[0].copy()
    locked.flags.writeable = False
    _require(_close(classifier.predict([locked])[0], answers[0]), "a read-only image gets another answer")
    view = np.ascontiguousarray(images[0][:, ::-1])[:, ::-1]
    _require(_close(classifier.predict([view])[0], answers[0]), "an image with strides gets another answer")
    if isinstance(classifier, StagedClassifier):
        _check_stages(classifier, images, answers)
    if hasattr(classifier, "logits"):
        _check_logits(classifier)


def _check_identity(classifier: Classifier) -> None:
    _require(isinstance(classifier, Classifier), "a classifier has name, labels, fingerprint and predict")
    _require(bool(classifier.name) and bool(classifier.fingerprint), "name and fingerprint may not be empty")
    labels = classifier.labels
    _require(len(labels) > 0 and all(labels.names), "every output has a name")
    _require(len(labels.wnids) in (0, len(labels)), "WordNet ids are known for all outputs or for none")


def _check_probabilities(answers: NDArray[Any], images: int, labels: int) -> None:
    _require(isinstance(answers, np.ndarray) and answers.dtype == np.float32, "probabilities are a float32 array")
    _require(answers.shape == (images, labels), f"shape {answers.shape} where {(images, labels)} was expected")
    _require(bool(np.isfinite(answers).all()), "probabilities are finite")
    _require(bool((answers >= 0).all()), "probabilities are not negative")
    _require(_close(answers.sum(axis=1, dtype=np.float64), np.ones(images)), "rows of probabilities sum to 1")


def _check_stages(classifier: StagedClassifier, images: list[Image], answers: NDArray[np.float32]) -> None:
    with ThreadPoolExecutor(4) as pool:
        prepared = list(pool.map(classifier.prepare, images))
    _require(_close(classifier.predict_prepared(prepared), answers), "prepare and predict_prepared differ from predict")


def _check_logits(classifier: Any) -> None:
    import torch

    batch = torch.rand((2, 3, 40, 56), generator=torch.Generator().manual_seed(0)).requires_grad_()
    logits = classifier.logits(batch)
    _require(logits.shape == (2, len(classifier.labels)), f"logits have shape {tuple(logits.shape)}")
    logits.logsumexp(1).sum().backward()
    gradient = batch.grad
    _require(gradient is not None and bool(gradient.isfinite().all()), "gradients of the logits are not finite")
    assert gradient is not None
    _require(bool((gradient != 0).any()), "gradients of the logits do not reach the batch")


def _images() -> list[Image]:
    """Return noise over gradients, which has structure at every scale, so that a wrong crop or resize shows."""
    rng = np.random.default_rng(20)
    images = []
    for height, width in _SIZES:
        slope = np.linspace(0, 255, width)[None, :, None] * np.linspace(0.2, 1, height)[:, None, None]
        noise = rng.normal(0, 40, (height, width, 3))
        images.append((slope + noise).clip(0, 255).astype(np.uint8))
    return images


def _close(first: NDArray[Any], second: NDArray[Any]) -> bool:
    return bool(np.allclose(first, second, rtol=0, atol=TOLERANCE))


def _require(held: bool, sentence: str) -> None:
    if not held:
        raise AssertionError(sentence)
