"""Guidance of a mask maker by a person: a box and points, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.core.errors import UserError

Point = tuple[float, float]
Box = tuple[float, float, float, float]

SMALLEST_BOX = 3
"""Pixels; a box of fewer is a slip of the hand."""

MOST_POINTS = 1000


@dataclass(frozen=True, slots=True)
class Guidance:
    """A box (x0, y0, x1, y1) that holds every point inside; 0 ≤ x ≤ width - 1, 0 ≤ y ≤ height - 1."""

    box: Box | None
    inside: tuple[Point, ...]
    outside: tuple[Point, ...]


def checked_guidance(
    height: int, width: int, box: Sequence[float] | None, inside: Iterable[Sequence[float]], outside: Iterable[Point]
) -> Guidance:
    """Check and tidy what a person drew on an image of this size.

    The box's corners may come in any order and lie outside the image: it is cut off there. A point inside that lies
    beside the box enlarges it. Raises UserError for senseless guidance.
    """
    within = tuple(_point(point, height, width) for point in inside)
    without = tuple(_point(point, height, width) for point in outside)
    if max(len(within), len(without)) > MOST_POINTS:
        raise UserError(f"there are more than {MOST_POINTS} points; draw the rest of the mask by hand")
    if box is None and not within:
        raise UserError("draw a box around the object, or click inside it, first")
    both = {_pixel(point) for point in within} & {_pixel(point) for point in without}
    if both:
        raise UserError("the pixel {}, {} is marked as inside and as outside; take one of them back".format(*min(both)))
    return Guidance(None if box is None else _box(box, height, width, within), within, without)


def _numbers(values: Sequence[float], count: int, what: str) -> list[float]:
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        numbers = []
    if len(numbers) != count or not all(math.isfinite(number) for number in numbers):
        raise UserError(f"{what} is {count} numbers in pixels, not {values!r:.80}")
    return numbers


def _point(values: Sequence[float], height: int, width: int) -> Point:
    x, y = _numbers(values, 2, "a point")
    # One pixel of grace: a click on the image's very edge may be rounded to either side.
    if not (-1 <= x <= width and -1 <= y <= height):
        raise UserError(f"the point {x:g}, {y:g} is not in the image, which is {width} × {height} pixels")
    return min(max(x, 0.0), width - 1.0), min(max(y, 0.0), height - 1.0)


def _pixel(point: Point) -> tuple[int, int]:
    return round(point[0]), round(point[1])


def _box(values: Sequence[float], height: int, width: int, inside: Sequence[Point]) -> Box:
    a, b, c, d = _numbers(values, 4, "a box")
    x0, x1, y0, y1 = max(min(a, c), 0.0), min(max(a, c), width - 1.0), max(min(b, d), 0.0), min(max(b, d), height - 1.0)
    if x0 > x1 or y0 > y1:
        raise UserError(f"the box lies outside the image, which is {width} × {height} pixels")
    x0, x1 = min([x0, *(x for x, _ in inside)]), max([x1, *(x for x, _ in inside)])
    y0, y1 = min([y0, *(y for _, y in inside)]), max([y1, *(y for _, y in inside)])
    across, down = round(x1) - round(x0) + 1, round(y1) - round(y0) + 1
    if across < min(SMALLEST_BOX, width) or down < min(SMALLEST_BOX, height):
        raise UserError(f"the box is only {across} × {down} pixels; draw it around the whole object")
    return x0, y0, x1, y1
