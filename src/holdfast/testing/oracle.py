"""``check_oracle``: the contract suite of oracles."""

from __future__ import annotations

import numpy as np

from holdfast.core.protocols import Oracle, TensorOracle, Verdict
from holdfast.core.types import Image

TOLERANCE = 1e-4
_SIZES = ((64, 64), (64, 64), (37, 53), (224, 224), (1, 1), (2, 100))


def check_oracle(oracle: Oracle) -> None:
    """Raise AssertionError with a sentence where an oracle breaks the contract.

    Checked: every image gets a verdict within range, the input is left alone, and the verdict does not change with the
    batch, the order or a second asking; one that judges tensors gives the verdicts that it gives for the same images.
    """
    _require(isinstance(oracle, Oracle), "an oracle has name, fingerprint, classes and judge")
    _require(bool(oracle.name) and bool(oracle.fingerprint), "name and fingerprint may not be empty")
    _require(
        len(oracle.classes) > 0 and len(set(oracle.classes)) == len(oracle.classes), "classes are there, each once"
    )
    images = _images()
    labels = [oracle.classes[place % len(oracle.classes)] for place in range(len(images))]
    before = [image.copy() for image in images]
    given = oracle.judge(images, labels)
    _require(len(given) == len(images), "every image gets a verdict")
    for image, copy in zip(images, before, strict=True):
        _require(np.array_equal(image, copy), "judge changes its input")
    for verdict, label in zip(given, labels, strict=True):
        _check_verdict(verdict, label)
    _require(_same(oracle.judge(images, labels), given), "the same images get another verdict")
    alone = [oracle.judge([image], [label])[0] for image, label in zip(images, labels, strict=True)]
    _require(_same(alone, given), "an image alone gets another verdict than in a batch")
    _require(_same(oracle.judge(images[::-1], labels[::-1])[::-1], given), "the order of the images matters")
    _require(oracle.judge([], []) == [], "no images should give no verdicts")
    if isinstance(oracle, TensorOracle):
        _check_tensors(oracle)


def _check_verdict(verdict: Verdict, label: str) -> None:
    _require(isinstance(verdict, Verdict), "a verdict is a core.protocols.Verdict")
    _require(-TOLERANCE <= verdict.score <= 1 + TOLERANCE, f"a score of {verdict.score} is not within 0..1")
    _require(-1 - TOLERANCE <= verdict.margin <= 1 + TOLERANCE, f"a margin of {verdict.margin} is not within -1..1")
    _require(verdict.accepted or bool(verdict.reason), "a rejection says why")
    _require(not verdict.accepted or verdict.saw == label, "an accepted image shows its class")


def _check_tensors(oracle: TensorOracle) -> None:
    import torch

    images = [image for image in _images() if image.shape[:2] == (64, 64)]
    device = str(getattr(oracle, "device", "cpu"))
    batch = torch.from_numpy(np.stack(images)).to(device).permute(0, 3, 1, 2).float() / 255
    for place, label in enumerate(oracle.classes):
        given = oracle.judge(images, [label] * len(images))
        accepted, score, margin, saw = oracle.judge_batch(batch, torch.full((len(images),), place, device=device))
        for column, wanted in ((accepted, "accepted"), (score, "score"), (margin, "margin")):
            expected = np.array([float(getattr(verdict, wanted)) for verdict in given])
            close = np.allclose(column.float().cpu().numpy(), expected, rtol=0, atol=TOLERANCE)
            _require(close, f"judge and judge_batch disagree on {wanted} for {label!r}")
        names = getattr(oracle, "answers", oracle.classes)
        seen = [names[position] for position in saw.tolist()]
        _require(
            seen == [verdict.saw for verdict in given], f"judge and judge_batch saw different things for {label!r}"
        )


def _same(first: list[Verdict], second: list[Verdict]) -> bool:
    return all(
        left.accepted == right.accepted
        and left.saw == right.saw
        and abs(left.score - right.score) < TOLERANCE
        and abs(left.margin - right.margin) < TOLERANCE
        for left, right in zip(first, second, strict=True)
    )


def _images() -> list[Image]:
    """Return noise over gradients, of several sizes."""
    rng = np.random.default_rng(30)
    images = []
    for height, width in _SIZES:
        slope = np.linspace(0, 255, width)[None, :, None] * np.linspace(0.2, 1, height)[:, None, None]
        images.append((slope * rng.random(3) + rng.normal(0, 30, (height, width, 3))).clip(0, 255).astype(np.uint8))
    return images


def _require(held: bool, sentence: str) -> None:
    if not held:
        raise AssertionError(sentence)
