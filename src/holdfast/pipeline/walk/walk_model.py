"""The model under test as a walk sees it: scores of the dataset's classes, its loss, and whether it has gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.protocols import Classifier, DifferentiableClassifier
from holdfast.core.types import Image
from holdfast.data.labels import LabelMap
from holdfast.pipeline.specs import WalkOptions
from holdfast.pipeline.specs.walks import SPACES
from holdfast.registry import unknown

if TYPE_CHECKING:
    import torch


_BATCH = 64


def seen(classifier: Classifier, images: Sequence[Image]) -> NDArray[np.float32]:
    """Return probabilities, (n, labels), of RGB images of one size as a walk sees them.

    A walk hands the whole image to the model at its input size. ``predict`` may resize and crop first, as is usual for
    photos; an image made against one view and tested in the other looks far more harmless than it is.
    """
    import torch

    if not isinstance(classifier, DifferentiableClassifier):
        return classifier.predict(images)
    with torch.inference_mode():
        answers = [
            classifier.logits(
                torch.from_numpy(np.stack(images[start : start + _BATCH])).permute(0, 3, 1, 2).float() / 255
            )
            for start in range(0, len(images), _BATCH)
        ]
        probabilities: NDArray[np.float32] = torch.cat(answers).float().softmax(1).cpu().numpy()
    return probabilities


def needs_gradients(options: WalkOptions) -> bool:
    """Return whether a step differentiates the loss.

    A random direction needs no gradient where the form of the step, ``sign`` or ``normalised``, fixes its length.
    """
    return not options.black_box and (options.direction == "loss" or options.gradient in ("raw", "adam"))


def check_gradients(classifier: Classifier, options: WalkOptions) -> None:
    """Raise a UserError if a walk needs gradients and the model has none."""
    if isinstance(classifier, DifferentiableClassifier):
        return
    if needs_gradients(options):
        raise UserError(
            f"the walk follows gradients, and {classifier.name} has none; --black-box 50 estimates them from its "
            "answers to 50 random changes per step, there and back"
        )
    if options.start == "fgsm":
        raise UserError(f"an FGSM start follows gradients, and {classifier.name} has none; --start clean does not")


class UnderTest:
    """A classifier whose outputs compete class by class: a class scores as its best output does.

    ``space`` says which outputs compete in the loss: those of the dataset's classes (``dataset``) or ``all``.
    ``answers`` names them: the dataset's classes, then, with ``all``, the outputs that belong to no class.
    """

    def __init__(self, classifier: Classifier, label_map: LabelMap, space: str = "dataset") -> None:
        import torch

        if space not in SPACES:
            raise unknown("label space", space, SPACES)
        self.classifier = classifier
        self.space = space
        self.differentiable = isinstance(classifier, DifferentiableClassifier)
        claimed = {output for own in label_map.members for output in own}
        others = [output for output in range(len(label_map.outputs)) if output not in claimed and space == "all"]
        self.answers = (*label_map.classes, *(label_map.outputs[output] for output in others))
        widest = max(len(own) for own in label_map.members)
        device = getattr(classifier, "device", "cpu") if self.differentiable else "cpu"
        # Every class as wide as the widest, its first output repeated, which changes no maximum.
        best_of = [[*own, *[own[0]] * (widest - len(own))] for own in label_map.members]
        self._best_of = torch.tensor(best_of, device=device)
        self._others = torch.tensor(others, dtype=torch.long, device=device)

    def scores(self, batch: torch.Tensor) -> torch.Tensor:
        """Return logits, or a black box's log-probabilities, (n, answers), of an RGB tensor NCHW in 0..1."""
        import torch

        raw = self._raw(batch)
        return torch.cat([raw[:, self._best_of].amax(2), raw[:, self._others]], dim=1)

    def loss(self, batch: torch.Tensor, labels: torch.Tensor, kind: str = "cross_entropy") -> torch.Tensor:
        """Return the loss of each image, (n,); ``labels`` are places of the true classes."""
        return losses(self.scores(batch), labels, kind)

    def _raw(self, batch: torch.Tensor) -> torch.Tensor:
        import torch

        if isinstance(self.classifier, DifferentiableClassifier):
            logits: torch.Tensor = self.classifier.logits(batch)
            return logits.float()
        images = (batch.detach().clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
        probabilities = self.classifier.predict(list(np.ascontiguousarray(images)))
        return torch.from_numpy(np.log(np.maximum(probabilities, 1e-12))).float()


def losses(scores: torch.Tensor, labels: torch.Tensor, kind: str) -> torch.Tensor:
    """Return per image the cross-entropy, or by how much the best other answer leads, from scores (n, answers)."""
    import torch
    import torch.nn.functional

    if kind == "cross_entropy":
        return torch.nn.functional.cross_entropy(scores, labels, reduction="none")
    own = scores.gather(1, labels[:, None])
    if scores.shape[1] == 1:
        return -own[:, 0]
    return scores.scatter(1, labels[:, None], -torch.inf).amax(1) - own[:, 0]
