"""Objects and their boxes: what detectors are asked about, and the columns of the tables that hold the answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from holdfast.core.schema import declared_schema
from holdfast.core.types import Image, LabelSpace, Mask, MaskSource

FOUND_IOU = 0.5  # IoU from which on a prediction stands for an object
MOST_PREDICTIONS = 300  # predictions that are kept of one picture, the best first
LEAST_SCORE = 0.01  # predictions of a lower score are not kept
MOST_OBJECTS = 10_000  # objects of one picture; a picture with more is an error

SMALL, LARGE = 32**2, 96**2
"""Areas in pixels: small objects lie below the first, large ones from the second on, as in COCO."""

Boxes = NDArray[np.floating[Any]]
"""(n, 4): x1, y1, x2, y2 in pixels; x to the right, y down, the corner of the first pixel at 0, 0."""

_KEY = """
    row_id         text   of the picture's row in the one table
    sample_id      text   name of the picture
    source_id      text   name of the photo behind it: the cluster in every paired statistic
    condition      word   what was done to the picture; "original" is nothing
    variant        word   which way of doing it
    parameters     word   all settings of the condition, as JSON
    seed           long   seed of everything random
    model          word   name of the detector
    donor_id       text   name of the picture whose background was pasted in, else null
"""

_BOX = """
    x1             float  left edge of the box in pixels of the picture as shown
    y1             float  upper edge
    x2             float  right edge
    y2             float  lower edge
"""

OBJECTS = declared_schema(f"""
    objects{_KEY.rstrip()}
    object_id      text   name of the object, unique in its picture, the same under every condition
    label          word   its class{_BOX.rstrip()}
    area           float  of the mask where there is one, else of the box, in the picture as shown
    crowd          flag   a group under one box: not counted, and predictions on it are no false alarms
    size           word   small, medium or large
    target         flag   the object that the condition is about; false where it is about all of them
    mask_made      flag   an annotator made the mask from the box
    status         word   ok, removed, unknown_class, invalid, error or skipped
    error          text   why not
    found          flag   a prediction of its class at the threshold overlaps it by half or more; null: not asked
    iou            float  intersection over union with that prediction, else 0
    score          float  of that prediction, else 0
    mask_iou       float  of the masks, where the detector gives some and the object was found; else null
    predicted      word   class of the prediction at the threshold that overlaps it most, by half or more, or empty
""")
"""A row per true object × condition × detector, ``details/objects``.

``removed``: the condition took the object out; ``found`` then says that the detector still sees it. ``unknown_class``:
the detector has no such output. ``invalid``: the annotation is unusable, ``error`` says why. ``error`` and ``skipped``:
there is no picture or no answer. Recall counts rows that are ``ok`` and no crowd.
"""

IMAGES = declared_schema(f"""
    images{_KEY.rstrip()}
    n_objects      int    objects in the picture as shown: those that are ok and no crowd
    n_predictions  int    predictions at the threshold, of the dataset's classes
    false_alarms   int    of these, those that match no object and lie on no crowd
    threshold      float  of the score, frozen in the run
    status         word   ok, error or skipped
    error          text   why not
""")
"""A row per picture × condition × detector, ``details/images``."""

DETECTIONS = declared_schema(f"""
    detections{_KEY.rstrip()}{_BOX.rstrip()}
    score          float  of the prediction, 0 to 1
    label          word   the class that was predicted
    mask_iou       float  of its mask with the object of its class that its box overlaps most; null without masks
""")
"""A row per prediction of one of the dataset's classes, ``details/detections``, at any score of LEAST_SCORE or more."""


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
