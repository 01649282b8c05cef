"""Models as attribution sees them: a score per picture, and the module with its layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.protocols import Classifier, DifferentiableClassifier

if TYPE_CHECKING:
    import torch

Score = Callable[..., "torch.Tensor"]


@dataclass(frozen=True)
class ExplainedNetwork:
    """A model that can be explained."""

    name: str  # for messages
    # RGB batch NCHW in 0..1, at the model's input size, and the targets, tensors whose first axis is the pictures
    # → the scores that are explained, (n,)
    score: Score
    device: str = "cpu"  # where batches go
    module: torch.nn.Module | None = None  # the network itself, for its layers and weights; None for a black box
    differentiable: bool = True  # whether gradients pass the score
    dense: bool = False  # whether it scores every pixel, so that its last layer is the answer itself


def of_classifier(classifier: Classifier) -> ExplainedNetwork:
    """Wrap a classifier; its targets are output indices, (n,), and the score is the output's logit.

    A black box is scored by its probability instead, and only asked for answers.
    """
    if not isinstance(classifier, DifferentiableClassifier):
        return ExplainedNetwork(classifier.name, _black_box(classifier), differentiable=False)

    def score(batch: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = classifier.logits(batch).gather(1, targets[:, None])[:, 0]
        return answer

    return ExplainedNetwork(classifier.name, score, classifier.device, getattr(classifier, "module", None))


def of_segmenter(segmenter: Any) -> ExplainedNetwork:
    """Wrap a segmenter with ``logits`` (RGB batch NCHW in 0..1 → (n, labels, h, w)) and ``module``.

    Its targets are places of labels, (n,), and regions, (n, height, width) 0..1. The score is the mean of the label's
    logits over the region (Vinogradova, Dibrov and Myers 2020).
    """

    def score(batch: torch.Tensor, targets: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
        import torch

        planes = segmenter.logits(batch)
        chosen = planes[torch.arange(len(planes), device=planes.device), targets]
        weight = torch.nn.functional.interpolate(regions[:, None].to(chosen), chosen.shape[-2:], mode="area")[:, 0]
        answer: torch.Tensor = (chosen * weight).sum((1, 2)) / weight.sum((1, 2)).clamp_min(1e-9)
        return answer

    return ExplainedNetwork(segmenter.name, score, segmenter.device, segmenter.module, dense=True)


def _black_box(classifier: Classifier) -> Score:
    def score(batch: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        import torch

        pictures = (batch * 255).round().clamp(0, 255).to("cpu", torch.uint8).permute(0, 2, 3, 1).numpy()
        answers = classifier.predict([np.ascontiguousarray(picture) for picture in pictures])
        return torch.from_numpy(np.asarray(answers, np.float32)).gather(1, targets.cpu()[:, None])[:, 0]

    return score
