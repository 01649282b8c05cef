"""A world small enough to work out by hand: linear generator, model and oracle on images of 2 × 2 pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from holdfast.core.protocols import Verdict
from holdfast.core.types import LabelSpace
from holdfast.data.labels import map_labels
from holdfast.pipeline.walk.walk import UnderTest, WalkInput

CLASSES = ("one", "two", "three")
PIXELS = 12


class LinearGenerator:
    """Decodes 0.5 + mixing × (latent - 0.5). Latents and mixing have few binary digits, so that sums are exact."""

    name, fingerprint, device = "linear", "linear", "cpu"

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        mixing = np.eye(PIXELS) + rng.integers(-1, 2, (PIXELS, PIXELS)) * rng.integers(0, 2, (PIXELS, PIXELS)) / 4
        self.mixing = mixing.astype(np.float32)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        return (batch.flatten(1) * 255).round() / 256

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        mixed = 0.5 + (latent - 0.5) @ torch.from_numpy(self.mixing).T
        # Whether clamp lets gradients pass at exactly 0 and 1 has changed between versions of torch.
        inside = (mixed >= 0) & (mixed <= 1)
        return torch.where(inside, mixed, mixed.detach().clamp(0, 1)).view(-1, 3, 2, 2)


class LinearClassifier:
    """Logits are linear in the pixels."""

    fingerprint, device = "linear", "cpu"

    def __init__(self, seed: int, outputs: Sequence[str] = CLASSES, name: str = "linear") -> None:
        self.name = name
        self.labels = LabelSpace(tuple(outputs))
        self.weights = np.random.default_rng(seed).normal(0, 2, (len(outputs), PIXELS)).astype(np.float32)

    def logits(self, batch: torch.Tensor) -> torch.Tensor:
        return (batch.flatten(1) - 0.5) @ torch.from_numpy(self.weights).T

    def predict(self, images: Sequence[np.ndarray]) -> np.ndarray:
        batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
        return self.logits(batch).softmax(1).numpy()


class BlackBox:
    """The same answers without gradients."""

    def __init__(self, inner: LinearClassifier) -> None:
        self.name, self.labels, self.fingerprint = "closed", inner.labels, "closed"
        self.predict = inner.predict


class LinearOracle:
    """Accepts where the share of the class, by linear scores, is at least ``least``."""

    name, fingerprint, classes = "linear", "linear", CLASSES

    def __init__(self, seed: int, least: float) -> None:
        self.least = least
        self.weights = np.random.default_rng(seed).normal(0, 1, (len(CLASSES), PIXELS)).astype(np.float32)

    def judge_batch(self, batch: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shares = ((batch.flatten(1) - 0.5) @ torch.from_numpy(self.weights).T).softmax(1)
        score = shares.gather(1, labels[:, None])[:, 0]
        margin = score - shares.scatter(1, labels[:, None], -1).amax(1)
        return score >= self.least, score, margin, shares.argmax(1)

    def judge(self, images: Sequence[np.ndarray], labels: Sequence[str]) -> list[Verdict]:
        batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
        places = torch.tensor([CLASSES.index(label) for label in labels])
        columns = zip(*self.judge_batch(batch, places), strict=True)
        return [Verdict(bool(yes), float(own), float(lead), CLASSES[int(saw)]) for yes, own, lead, saw in columns]


class PhotoOracle:
    """The same for images only."""

    name, fingerprint, classes = "photos", "photos", CLASSES

    def __init__(self, inner: LinearOracle) -> None:
        self.judge = inner.judge


def judged_model(classifier: LinearClassifier | BlackBox, space: str = "dataset") -> UnderTest:
    return UnderTest(classifier, map_labels(CLASSES, {}, classifier.labels), space)


def made_walkers(seed: int, count: int, budgets: Sequence[int | None] = (None,)) -> list[WalkInput]:
    rng = np.random.default_rng([seed, 7])
    return [
        WalkInput(
            f"image {number}",
            rng.integers(60, 196, (2, 2, 3), np.uint8),
            int(rng.integers(len(CLASSES))),
            seed=number,
            steps=budgets[number % len(budgets)],
        )
        for number in range(count)
    ]
