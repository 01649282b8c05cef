"""Tidying masks."""

from __future__ import annotations

import cv2
import numpy as np

from holdfast.core.types import Mask


def largest_components(mask: Mask, *, fraction: float = 1.0) -> Mask:
    """The largest 8-connected component and every other with at least ``fraction`` of its area."""
    count, labels, statistics, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    if count < 2:
        return np.zeros_like(mask)
    areas = statistics[1:, cv2.CC_STAT_AREA]
    kept = np.zeros(count, np.bool_)
    if fraction >= 1:
        kept[1 + int(areas.argmax())] = True  # one, even where two are equally large
    else:
        kept[1:] = areas >= fraction * areas.max()
    result: Mask = kept[labels]
    return result


def fill_holes(mask: Mask) -> Mask:
    """The mask with every background region that does not reach the border made foreground."""
    padded = np.pad(~mask, 1, constant_values=True).astype(np.uint8)
    _, labels = cv2.connectedComponents(padded, connectivity=4)
    result: Mask = (labels != labels[0, 0])[1:-1, 1:-1]
    return result
