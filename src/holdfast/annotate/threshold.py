"""Mask maker for objects on a plain background: Otsu's threshold on the distance from the border's colour."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.annotate.confidence import fill_holes, is_flat, largest_components, mask_confidence, nothing, numbers
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.protocols import MaskProposal
from holdfast.core.types import Image


@dataclass
class Threshold:
    """The threshold as a mask maker."""

    name: str
    fingerprint: str

    def propose(self, image: Image) -> MaskProposal:
        """Return the largest region that differs from the border, with its holes filled."""
        if is_flat(image):
            return nothing(image)
        distance = _distance_from_border(image)
        cut, _ = cv2.threshold(distance, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
        mask = largest_components(fill_holes(distance > cut))
        soft = np.clip(distance.astype(np.float32) / (2 * cut + 1), 0, 1)
        return MaskProposal(mask, mask_confidence(soft, mask))


def _distance_from_border(image: Image) -> NDArray[np.uint8]:
    """Return the distance in Lab from the border's median colour, with the largest scaled to 255."""
    lab = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2LAB).astype(np.float32)
    border = np.concatenate([lab[0], lab[-1], lab[:, 0], lab[:, -1]])
    distance = np.linalg.norm(lab - np.median(border, axis=0), axis=2)
    largest = float(distance.max())
    scaled: NDArray[np.uint8] = np.round(distance * (255 / largest if largest else 0)).astype(np.uint8)
    return scaled


def load(name: Name) -> Threshold:
    """Load ``threshold``, which has no options."""
    numbers(name, {}, {})
    return Threshold("threshold", fingerprint(["threshold", 1, cv2.__version__]))
