"""How far to trust an automatic mask: one figure for all mask makers, so that their doubtful ones can be listed."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.annotate.shapes import fill_holes
from holdfast.core.protocols import MaskProposal
from holdfast.core.types import Image, Mask

SMALL_AREA, LARGE_AREA = 0.1, 0.9
"""Foregrounds of less or more of the image than this grow implausible, down to 0 for none and for all of it."""

BORDER_SLACK = 0.6
"""How much of the border may be foreground before it counts against a mask: close-ups touch the border and are fine."""

_WORKING_SIDE = 256


def mask_confidence(soft: NDArray[np.float32], mask: Mask) -> float:
    """Confidence in a mask, 0..1: the product of five factors, each 0..1.

    1. agreement: the overlap (intersection over union) to be expected if ``soft`` were true probabilities. It is
       high when the maker was decided inside and outside the mask, and is the factor that follows the true overlap.
    2. area: 1 between 10 % and 90 % of the image, falling linearly to 0 at none and all.
    3. wholeness: the share of the mask in its largest component.
    4. fullness: the share of the mask in its own outline once holes are filled.
    5. border: 1 up to 60 % of the image's border, falling linearly to 0 when all of it is foreground.

    On 120 Oxford-IIIT Pet photos its rank correlation with the true overlap is about 0.5 for u2netp, 0.6 for grabcut.

    Args:
        soft: HW, 0..1, how sure the maker is of foreground at each pixel.
        mask: HW, the mask that came of it; of the same size.
    """
    if soft.shape != mask.shape:
        raise ValueError(f"soft map {soft.shape} and mask {mask.shape} differ in size")
    if not mask.any():
        return 0.0
    soft, mask = _working_size(soft, mask)
    area = int(mask.sum())
    if not area:  # so thin that it vanished at the working size
        return 0.0
    agreement = float(soft[mask].sum()) / (area + float(soft[~mask].sum()))
    return float(np.clip(agreement * shape_confidence(mask), 0, 1))


def shape_confidence(mask: Mask) -> float:
    """The factors 2 to 5 of ``mask_confidence``: what the mask alone tells, 0..1, for makers that know the first."""
    mask = _working_size(np.zeros(mask.shape, np.float32), mask)[1]
    area = int(mask.sum())
    if not area:
        return 0.0
    share = area / mask.size
    plausible = min(1.0, share / SMALL_AREA, (1 - share) / (1 - LARGE_AREA))
    components = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)[2]
    wholeness = int(components[1:, cv2.CC_STAT_AREA].max()) / area
    fullness = area / int(fill_holes(mask).sum())
    edge = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
    border = min(1.0, (1 - float(edge.mean())) / (1 - BORDER_SLACK))
    return plausible * wholeness * fullness * border


def _working_size(soft: NDArray[np.float32], mask: Mask) -> tuple[NDArray[np.float32], Mask]:
    height, width = mask.shape
    if max(height, width) <= _WORKING_SIDE:
        return soft, mask
    size = (min(width, _WORKING_SIDE), min(height, _WORKING_SIDE))
    smaller = np.asarray(cv2.resize(soft, size, interpolation=cv2.INTER_AREA), np.float32)
    return smaller, cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA) >= 0.5


def is_flat(image: Image) -> bool:
    """Whether all pixels have one colour, so that there is nothing to find."""
    return bool((image == image[:1, :1]).all())


def nothing(image: Image) -> MaskProposal:
    """The proposal for an image in which nothing was found: an empty mask, confidence 0."""
    return MaskProposal(np.zeros(image.shape[:2], np.bool_), 0.0)
