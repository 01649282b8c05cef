"""Boxes as annotation files have them, checked when an image's size is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.errors import SampleError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.protocols import MOST_OBJECTS, TrueObject
from holdfast.data.masks import CocoMask

NO_BOX = (0.0, 0.0, 0.0, 0.0)

CORNERS, SIZED, SHARES = "corners", "sized", "shares"
"""How four numbers are meant: x1 y1 x2 y2; x y width height; YOLO's middle and size as shares of the image."""


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One annotation: ``values`` as they were read, which may be anything."""

    object_id: str
    label: str
    values: tuple[Any, ...]
    form: str = CORNERS
    crowd: bool = False
    area: float = 0.0
    segmentation: Any = field(default=None, repr=False)  # COCO's, or YOLO's polygon as shares
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """The objects of one image from an annotation file; ``stated`` is its (height, width) there, if it has one."""

    objects: tuple[ListedObject, ...]
    stated: tuple[int, int] | None = None

    @property
    def exact(self) -> bool:
        """Whether every object has a mask of its own."""
        return all(each.segmentation for each in self.objects)

    def fingerprint(self) -> str:
        """Return a hash of all boxes, labels and masks; numbers that JSON does not know are hashed as text."""
        rows = [
            [each.object_id, each.label, [repr(value) for value in each.values], each.form, each.crowd,
             repr(each.area), repr(each.segmentation)]
            for each in self.objects
        ]  # fmt: skip
        return fingerprint(["boxes", rows, self.stated])

    def load(self, height: int, width: int) -> tuple[TrueObject, ...]:
        """Return the objects of an image of this size."""
        if len(self.objects) > MOST_OBJECTS:
            raise SampleError(f"the image has {len(self.objects):,} boxes, more than {MOST_OBJECTS:,}")
        if self.stated is not None and self.stated != (height, width):
            stated = f"{self.stated[1]} × {self.stated[0]}"
            raise SampleError(f"the boxes are for an image of {stated} pixels, this one has {width} × {height}")
        return tuple(_checked(each, height, width) for each in self.objects)


def _checked(each: ListedObject, height: int, width: int) -> TrueObject:
    box, problem = checked_box(each.values, each.form, height, width)
    mask, area = None, each.area
    if each.segmentation and not problem:
        shapes = each.segmentation
        if each.form == SHARES:
            shapes = [[value * (height if at % 2 else width) for at, value in enumerate(each.segmentation)]]
        mask = CocoMask((shapes,), height, width)
    if not (math.isfinite(area) and area > 0):
        area = 0.0
    return TrueObject(
        each.object_id, each.label, box, mask, area, each.crowd, problem=each.problem or problem
    )  # fmt: skip


def checked_box(
    values: Sequence[Any], form: str, height: int, width: int
) -> tuple[tuple[float, float, float, float], str]:
    """Return the corners in pixels, cut at the edges, and why they cannot be used, or ''."""
    if len(values) != 4 or any(isinstance(value, (bool, str, bytes)) or value is None for value in values):
        return NO_BOX, "the box is not four numbers"
    try:
        a, b, c, d = (float(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        return NO_BOX, "the box is not four numbers"
    if not all(map(math.isfinite, (a, b, c, d))):
        return NO_BOX, "the box holds a number that is not finite"
    if form == SHARES:
        a, b, c, d = (a - c / 2) * width, (b - d / 2) * height, c * width, d * height
    if form in (SHARES, SIZED):
        if c < 0 or d < 0:
            return NO_BOX, "the box has a negative width or height"
        c, d = a + c, b + d
    if c <= a or d <= b:
        return NO_BOX, "the box is empty"
    x1, y1, x2, y2 = max(a, 0.0), max(b, 0.0), min(c, float(width)), min(d, float(height))
    if x2 <= x1 or y2 <= y1:
        return NO_BOX, "the box lies outside the image"
    return (x1, y1, x2, y2), ""


def unique_objects(objects: Iterable[ListedObject]) -> tuple[ListedObject, ...]:
    """Return the objects with unique ids; every further one of an id cannot be used."""
    from dataclasses import replace

    seen: dict[str, int] = {}
    unique = []
    for each in objects:
        seen[each.object_id] = seen.get(each.object_id, 0) + 1
        if (count := seen[each.object_id]) > 1:
            problem = f"the annotation id {each.object_id} is used {count} times"
            each = replace(each, object_id=f"{each.object_id}#{count}", problem=each.problem or problem)
        unique.append(each)
    return tuple(unique)


def largest_label(objects: Iterable[ListedObject]) -> str:
    """Return the class of the largest usable object, '' without any; crowds decide only if nothing else does."""

    def size(each: ListedObject) -> float:
        box, problem = checked_box(each.values, SIZED if each.form == SHARES else each.form, 2**31, 2**31)
        return -1.0 if problem else (box[2] - box[0]) * (box[3] - box[1])

    usable = [each for each in objects if not each.problem and each.label and size(each) > 0]
    return max(usable, key=lambda each: (not each.crowd, size(each))).label if usable else ""


def coco_objects(
    instances: Iterable[Mapping[str, Any]], categories: Mapping[str, str], category_of: Any
) -> tuple[ListedObject, ...]:
    """Return the objects of COCO annotations; ``category_of`` gives the key of an annotation's category."""
    objects = []
    for place, instance in enumerate(instances):
        box = instance.get("bbox")
        category = category_of(instance)
        try:
            area = float(instance.get("area") or 0)
        except (TypeError, ValueError, OverflowError):
            area = 0.0
        objects.append(
            ListedObject(
                str(instance.get("id", f"n{place}")), categories.get(category, ""),
                tuple(box) if isinstance(box, (list, tuple)) else (), SIZED, bool(instance.get("iscrowd")), area,
                instance.get("segmentation") or None,
                "" if category in categories else f"the category {category.strip()} is not in the file's list",
            )
        )  # fmt: skip
    return unique_objects(objects)
