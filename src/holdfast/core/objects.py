"""Objects and their boxes: what detectors are asked about; ``core.schema`` has the tables that hold the answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Image, LabelSpace, Mask, MaskSource

FOUND_IOU = 0.5  # IoU from which on a prediction stands for an object
MOST_PREDICTIONS = 300  # predictions that are kept of one picture, the best first
LEAST_SCORE = 0.01  # predictions of a lower score are not kept
MOST_OBJECTS = 10_000  # objects of one picture; a picture with more is an error

SMALL, LARGE = 32**2, 96**2
"""Areas in pixels: small objects lie below the first, large ones from the second on, as in COCO."""

Boxes = NDArray[np.floating[Any]]
"""(n, 4): x1, y1, x2, y2 in pixels; x to the right, y down, the corner of the first pixel at 0, 0."""


@dataclass(frozen=True, slots=True)
class TrueObject:
    """One object of a picture."""

    object_id: str  # unique in its picture
    label: str  # its class
    box: tuple[float, float, float, float]  # x1, y1, x2, y2 in pixels
    mask: MaskSource | None = None  # its pixels, or None where only the box is known
    area: float = 0.0  # in pixels; 0 stands for the box's area
    crowd: bool = False  # whether the box holds a group that nobody counted
    mask_made: bool = False  # whether an annotator made the mask from the box
    problem: str = ""  # why the annotation cannot be used, or ''

    def pixels(self, height: int, width: int) -> Mask:
        """Return the object's pixels, HW bool: its mask, or its whole box where there is none."""
        if self.mask is not None:
            return self.mask.load(height, width)
        mask = np.zeros((height, width), np.bool_)
        x1, y1, x2, y2 = self.box
        mask[math.floor(y1) : math.ceil(y2), math.floor(x1) : math.ceil(x2)] = True
        return mask


@runtime_checkable
class ObjectsSource(Protocol):
    """The objects of one picture: small, picklable, masks not decoded yet."""

    def fingerprint(self) -> str:
        """Return a hash of all boxes, labels and masks. Raises SampleError where they cannot be read."""

    def load(self, height: int, width: int) -> tuple[TrueObject, ...]:
        """Return the objects of a picture of this size; unusable ones have a ``problem``."""


@dataclass(frozen=True, slots=True)
class Detections:
    """What a detector answers for one picture: boxes in its pixels, scores 0..1, places in the detector's labels."""

    boxes: Boxes
    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    masks: tuple[Mask, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.scores)


@runtime_checkable
class Detector(Protocol):
    """A model that finds objects. It owns all of its preprocessing.

    ``fingerprint`` changes whenever the weights, the preprocessing or the outputs do.
    """

    name: str
    labels: LabelSpace
    fingerprint: str

    def detect(self, images: Sequence[Image]) -> list[Detections]:
        """Return the objects of each RGB image of any size. Batching must not change them."""


def size_class(area: float) -> str:
    """Return small, medium or large for an area in pixels."""
    return "small" if area < SMALL else "medium" if area < LARGE else "large"


def as_array(value: Any, dtype: Any = None) -> NDArray[Any]:
    """Return an array of NumPy; a tensor may be on a GPU or want gradients."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, dtype)


def box_areas(boxes: Boxes) -> NDArray[np.float64]:
    """Return the area of each box; 0 where it is empty or turned inside out."""
    sides = np.maximum(np.asarray(boxes, np.float64)[:, 2:] - np.asarray(boxes, np.float64)[:, :2], 0)
    return np.asarray(sides[:, 0] * sides[:, 1])


def box_overlaps(boxes: Boxes, others: Boxes, *, crowd: Sequence[bool] | NDArray[np.bool_] = ()) -> NDArray[np.float64]:
    """Return the IoU of every box with every other, (n, m).

    Where an other is a crowd, the overlap is the share of the box that lies on it, as in COCO.
    """
    a, b = np.asarray(boxes, np.float64).reshape(-1, 4), np.asarray(others, np.float64).reshape(-1, 4)
    sides = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    both = np.prod(np.maximum(sides, 0), axis=2)
    areas: NDArray[np.float64] = box_areas(a)[:, np.newaxis]
    whole: NDArray[np.float64] = areas + box_areas(b)[np.newaxis] - both
    if len(crowd):
        whole = np.where(np.asarray(crowd, np.bool_)[None], areas, whole)
    return np.asarray(np.divide(both, whole, out=np.zeros_like(both), where=whole > 0))
