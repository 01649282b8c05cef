"""The proof that a network, asked directly, sees what ``predict`` shows it; made before it is used that way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.numbers import percent
from holdfast.core.protocols import Classifier, DifferentiableClassifier
from holdfast.core.types import Image
from holdfast.models.attacks import answers, model_input
from holdfast.models.segmenters.torch_segmenter import class_map
from holdfast.models.torch_classifier import TorchClassifier, as_batch, ways_in

IMAGES = 6  # originals that are compared
CLOSE = 0.3  # by how much a probability may differ: images are rounded to bytes, and ``--fast`` computes coarsely
CLOSE_CALL = 0.1  # and by how much if that changes the prediction
LEAST = 0.75  # share of the originals that agree at least
_PIXELS = 0.9  # share of the pixels of an original that get the same class at least
FLAT_CLOSE = 0.01  # nothing is rounded in images of one colour
_COLOURS = ((0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (128, 128, 128))


@dataclass(frozen=True)
class Agreement:
    """How a network's own answers compare with those of ``predict``."""

    model: str
    images: int
    same: int  # images with the same prediction
    close: int  # images whose scores agree, up to rounding
    most: float  # the largest difference of a probability, or of the share of pixels with the same class

    @property
    def sentence(self) -> str:
        """Return the agreement for people."""
        return (
            f"{self.model}: its network, asked directly, gives the predictions of predict on {self.same} of "
            f"{self.images} originals (probabilities differ by at most {self.most:.2g})"
        )


def prove(classifier: Classifier, originals: Sequence[Image]) -> Agreement | None:
    """Compare a classifier's network with its ``predict``; None for a black box, which has no other way to be asked.

    Raises a UserError that names the parameter which says how images reach the network, if the two disagree.
    """
    if not isinstance(classifier, DifferentiableClassifier) or not len(originals):
        return None
    if isinstance(classifier, TorchClassifier):
        classifier.check_clear()
        flat = flat_images(classifier)
        check_flat(classifier, answers(classifier, flat))
    direct = answers(classifier, [model_input(classifier, image) for image in originals])
    return compared(classifier, classifier.predict(originals), direct)


def flat_images(classifier: TorchClassifier) -> list[Image]:
    """Return images of one colour each: they stay the same however they are resized, so that no error cancels out."""
    return [np.full((*classifier.preprocessing.size, 3), colour, np.uint8) for colour in _COLOURS]


def check_flat(classifier: TorchClassifier, direct: NDArray[Any], within: float = FLAT_CLOSE) -> None:
    """Raise a UserError if direct answers to ``flat_images`` are not those of ``predict``."""
    apart = np.abs(classifier.predict(flat_images(classifier)) - direct)
    if bool((np.nan_to_num(apart) > within).any()):
        raise disagreement(classifier, f"probabilities for images of one colour differ by {np.nanmax(apart):.2g}")


def compared(model: Any, own: NDArray[Any], direct: NDArray[Any]) -> Agreement:
    """Return the agreement of probabilities, (n, outputs); raise a UserError if there is too little of it."""
    apart = np.abs(np.asarray(own, np.float64) - np.asarray(direct, np.float64)).max(1)
    # Probabilities that are not finite are an answer, too, and the same one if both ways give it.
    apart = np.where(np.isfinite(apart), apart, 0.0 if np.array_equal(np.isnan(own), np.isnan(direct)) else 1.0)
    same = np.asarray(own).argmax(1) == np.asarray(direct).argmax(1)
    close = apart <= np.where(same, CLOSE, CLOSE_CALL)
    agreement = Agreement(model.name, len(apart), int(same.sum()), int(close.sum()), float(apart.max()))
    if agreement.close < LEAST * agreement.images:
        raise disagreement(
            model, f"on {agreement.same} of {agreement.images} originals it gives the same prediction, and "
            f"probabilities differ by up to {agreement.most:.2g}"
        )  # fmt: skip
    return agreement


def prove_segmenter(segmenter: Any, originals: Sequence[Image]) -> Agreement | None:
    """Compare a segmenter's network with its ``segment``, pixel by pixel; see ``prove``."""
    if not hasattr(segmenter, "logits") or not len(originals):
        return None
    shares = []
    for image, own in zip(originals, segmenter.segment(originals), strict=True):
        planes = segmenter.logits(as_batch([segmenter.shown(image)], segmenter.device))[0].float().cpu().numpy()
        shares.append(float((class_map(planes, image.shape[:2]) == own).mean()))
    close = sum(share >= _PIXELS for share in shares)
    agreement = Agreement(segmenter.name, len(shares), close, close, 1 - min(shares))
    if close < LEAST * len(shares):
        raise disagreement(segmenter, f"only {percent(min(shares), 0)} of the pixels of an original get the same class")
    return agreement


def disagreement(model: Any, what: str) -> UserError:
    """Return the error for a network that sees something else than ``predict`` shows it."""
    return UserError(
        f"{model.name}: its network, asked directly, disagrees with its own predict: {what}. Every number from "
        f"gradients or from the device would be wrong; {ways_in(model)} says how images reach the network: correct it"
    )
