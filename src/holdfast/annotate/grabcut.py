"""OpenCV's GrabCut, started from a centred box: everything outside the box is background; or led by a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.annotate.confidence import is_flat, mask_confidence, nothing
from holdfast.annotate.guidance import Box, Point, checked_guidance
from holdfast.annotate.guided import guided_cut
from holdfast.annotate.mixtures import foreground_probability
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
        soft = foreground_probability(working, background, foreground)
        mask = cv2.resize(found.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR) > 0.5
        return MaskProposal(mask, mask_confidence(soft, found) if mask.any() else 0.0)

    def embed(self, image: Image) -> Image:
        """The image itself: what GrabCut computes depends on the guidance."""
        return image

    def guided(
        self, embedding: Image, *, box: Box | None = None, inside: Sequence[Point] = (), outside: Sequence[Point] = ()
    ) -> MaskProposal:
        """The object that the box and the points mean; neither ``margin`` nor ``iterations`` play a part."""
        height, width = embedding.shape[:2]
        return guided_cut(embedding, checked_guidance(height, width, box, inside, outside))

    def _cut(self, image: Image) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64]]:
        height, width = image.shape[:2]
        across, down = max(1, round(width * self.margin)), max(1, round(height * self.margin))
        box = (across, down, width - 2 * across, height - 2 * down)
        labels = np.zeros((height, width), np.uint8)
        background, foreground = np.zeros((1, 65)), np.zeros((1, 65))
        cv2.setRNGSeed(0)  # its k-means starts from OpenCV's own generator
        cv2.grabCut(image, labels, box, background, foreground, self.iterations, cv2.GC_INIT_WITH_RECT)
        return labels, background, foreground


def load(name: Name) -> GrabCut:
    """``grabcut`` or ``grabcut?margin=0.1&iterations=5``."""
    options = numbers(name, _DEFAULTS, {"margin": (0, 0.45), "iterations": (1, 50)})
    identity = fingerprint(["grabcut", 1, options, cv2.__version__])
    return GrabCut(spelled("grabcut", options, _DEFAULTS), identity, options["margin"], options["iterations"])
