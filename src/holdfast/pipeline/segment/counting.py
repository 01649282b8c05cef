"""Two class maps of one picture → what measures of segmentation are made of: pixels and boundary pixels, counted."""

from __future__ import annotations

import functools
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Mask

TOLERANCE = 0.0075
"""How far apart two boundaries may lie to meet, as a share of the picture's diagonal (Csurka and others, 2013)."""

Map = NDArray[np.uint8]
"""HW, places in a list of classes whose first is the background."""


def truth_map(mask: Mask, place: int) -> Map:
    """Return the class of every pixel of a picture with one object; 0 is background."""
    return mask.astype(np.uint8) * np.uint8(place)


def tolerance(height: int, width: int) -> int:
    """Return how many pixels two boundaries of a picture may lie apart: at least 1."""
    return max(1, round(TOLERANCE * float(np.hypot(height, width))))


def count(truth: Map, predicted: Map) -> dict[int, dict[str, int]]:
    """Return the columns of ``core.schema.SEGMENTS`` for every class that is in either map.

    A boundary pixel is one of the class with a pixel of another class above, below, left or right of it; the picture's
    edge is no boundary. It is met where the other boundary has a pixel within ``tolerance``, in a straight line.
    """
    disk = _disk(tolerance(*truth.shape))
    counts = {}
    for place in np.union1d(np.unique(truth), np.unique(predicted)).tolist():
        real, said = truth == place, predicted == place
        both, own, theirs = int((real & said).sum()), int(real.sum()), int(said.sum())
        real_edge, said_edge = boundary(real), boundary(said)
        counts[int(place)] = {
            "intersection": both,
            "union": own + theirs - both,
            "truth": own,
            "predicted": theirs,
            "truth_boundary": int(real_edge.sum()),
            "truth_boundary_met": _met(real_edge, said_edge, disk),
            "predicted_boundary": int(said_edge.sum()),
            "predicted_boundary_met": _met(said_edge, real_edge, disk),
        }
    return counts


def boundary(mask: Mask) -> Mask:
    """Return the pixels of a mask that touch one outside it."""
    inside = np.ones_like(mask)
    inside[1:] &= mask[:-1]
    inside[:-1] &= mask[1:]
    inside[:, 1:] &= mask[:, :-1]
    inside[:, :-1] &= mask[:, 1:]
    return mask & ~inside


@functools.cache
def _disk(radius: int) -> Any:
    across = np.arange(-radius, radius + 1)
    return (across[:, None] ** 2 + across[None, :] ** 2 <= radius**2).astype(np.uint8)


def _met(edge: Mask, other: Mask, disk: Any) -> int:
    if not edge.any() or not other.any():
        return 0
    near = cv2.dilate(other.view(np.uint8), disk)
    return int((edge & near.astype(np.bool_)).sum())
