"""OpenCV's GrabCut, started from a centred box: everything outside the box is background."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.annotate.confidence import is_flat, mask_confidence, nothing
from holdfast.annotate.options import numbers, spelled
from holdfast.annotate.shapes import largest_components
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.protocols import MaskProposal
from holdfast.core.types import Image

# Chosen on 40 Oxford-IIIT Pet photos, by mean overlap: a margin of 0.02 gave 0.60, 0.1 gave 0.48; five iterations or a
# working side of 400 instead of 256 gained less than 0.01, the larger side at nearly three times the time.
_DEFAULTS: dict[str, int | float] = {"margin": 0.02, "iterations": 3}
_LARGEST_SIDE, _SMALLEST_SIDE = 256, 16
_COMPONENT_FRACTION = 0.2


@dataclass
class GrabCut:
    """GrabCut as an annotator.

    ``margin`` is the share of width and height left outside the box on each side.
    """

    name: str
    fingerprint: str
    margin: float
    iterations: int

    def propose(self, image: Image) -> MaskProposal:
        """The components of GrabCut's foreground that are at least a fifth as large as its largest."""
        if is_flat(image):
            return nothing(image)
        height, width = image.shape[:2]
        # The colour models need samples: tiny images are enlarged, each side by itself, as large ones are reduced.
        scale = min(1.0, _LARGEST_SIDE / max(height, width))
        size = (max(_SMALLEST_SIDE, round(width * scale)), max(_SMALLEST_SIDE, round(height * scale)))
        interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
        working = np.asarray(cv2.resize(image, size, interpolation=interpolation), np.uint8)
        labels, background, foreground = self._cut(working)
        found = largest_components(labels == cv2.GC_PR_FGD, fraction=_COMPONENT_FRACTION)
        if not found.any():
            return nothing(image)
        soft = _foreground_probability(working, background, foreground)
        mask = cv2.resize(found.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR) > 0.5
        return MaskProposal(mask, mask_confidence(soft, found) if mask.any() else 0.0)

    def _cut(self, image: Image) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64]]:
        height, width = image.shape[:2]
        across, down = max(1, round(width * self.margin)), max(1, round(height * self.margin))
        box = (across, down, width - 2 * across, height - 2 * down)
        labels = np.zeros((height, width), np.uint8)
        background, foreground = np.zeros((1, 65)), np.zeros((1, 65))
        cv2.setRNGSeed(0)  # its k-means starts from OpenCV's own generator
        cv2.grabCut(image, labels, box, background, foreground, self.iterations, cv2.GC_INIT_WITH_RECT)
        return labels, background, foreground


def _foreground_probability(
    image: Image, background: NDArray[np.float64], foreground: NDArray[np.float64]
) -> NDArray[np.float32]:
    """How much likelier each pixel's colour is under the foreground's model than under the background's, 0..1."""
    colours = image.reshape(-1, 3).astype(np.float64)
    difference = _log_likelihood(background, colours) - _log_likelihood(foreground, colours)
    probability = 1 / (1 + np.exp(np.clip(difference, -50, 50)))
    return probability.reshape(image.shape[:2]).astype(np.float32)


def _log_likelihood(model: NDArray[np.float64], colours: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of colours (n, 3) under OpenCV's Gaussian mixture: 5 weights, 5 means, 5 covariances in one row."""
    weights, means, covariances = model[0, :5], model[0, 5:20].reshape(5, 3), model[0, 20:].reshape(5, 3, 3)
    total = np.full(len(colours), -1e3)  # a floor, so that colours neither model knows count as undecided
    for weight, mean, covariance in zip(weights, means, covariances, strict=True):
        if weight <= 0:
            continue
        regular = covariance + 0.01 * np.eye(3)
        offset = colours - mean
        distance = np.einsum("ni,ij,nj->n", offset, np.linalg.inv(regular), offset, optimize=True)
        total = np.logaddexp(total, np.log(weight) - 0.5 * (distance + np.linalg.slogdet(regular)[1]))
    return total


def load(name: Name) -> GrabCut:
    """``grabcut`` or ``grabcut?margin=0.1&iterations=5``."""
    options = numbers(name, _DEFAULTS, {"margin": (0, 0.45), "iterations": (1, 50)})
    identity = fingerprint(["grabcut", 1, options, cv2.__version__])
    return GrabCut(spelled("grabcut", options, _DEFAULTS), identity, options["margin"], options["iterations"])
