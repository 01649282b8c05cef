"""Compositing: two images joined along a mask, and objects removed by mirrored tiles of the background next to them."""

from __future__ import annotations

from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; right and bottom are exclusive."""


def composite(
    inside: Image, outside: Image, mask: Mask, *, feather: float, context: Context | None, reuse: bool = False
) -> Image:
    """Return ``inside`` where the mask is true and ``outside`` elsewhere.

    A ``feather`` of 0 takes every pixel whole from one of the two. Pass the ``context`` if ``mask`` is the image's own,
    whose soft edge is then cached. ``reuse``: whether ``outside`` may become the result; a fresh array costs several
    times as much as filling it.
    """
    if feather == 0:
        return cast(Image, cv2.copyTo(inside, mask.view(np.uint8), outside if reuse else outside.copy()))
    weight: NDArray[np.float32] = (
        context.memo(("soft mask", feather), lambda: soft_mask(mask, feather)) if context else soft_mask(mask, feather)
    )
    if inside.dtype != np.uint8:
        blended = inside * weight[..., None] + outside * (1 - weight[..., None])
        return np.where(inside == outside, inside, np.rint(blended).astype(inside.dtype))
    return cast(Image, cv2.blendLinear(inside, outside, weight, 1 - weight))


def soft_mask(mask: Mask, feather: float) -> NDArray[np.float32]:
    """Return the mask as HW, 0..1, with an edge of about ``feather`` pixels (a Gaussian of half that width)."""
    soft: Any = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), feather / 2)
    return cast("NDArray[np.float32]", np.clip(soft, 0, 1))


def flat(like: Image, colour: tuple[float, ...]) -> Image:
    """Return an image of one colour (one value a band, rounded) with the size and depth of another image."""
    height, width = like.shape[:2]
    seed = np.rint(np.array([[colour]])).astype(like.dtype)
    return cast(Image, cv2.resize(seed, (width, height), interpolation=cv2.INTER_NEAREST))


def level_of(like: Image, level: float) -> tuple[float, ...]:
    """Return a grey of 0..255 in the bands and on the scale of an image."""
    return (level * full_scale(like) / 255,) * int(like.shape[2])


def full_scale(image: Image) -> int:
    """Return 255, and at 16 bits the top of the fewest bits (8, 10, 12, 14 or 16) that hold the brightest value."""
    if image.dtype == np.uint8:
        return 255
    brightest = int(image.max())
    return next((1 << bits) - 1 for bits in (8, 10, 12, 14, 16) if brightest < 1 << bits)


def resized(image: Image, width: int, height: int, method: int) -> Image:
    """Return the image at this size; OpenCV averages areas of at most four bands at once."""
    if image.shape[2] <= 4:
        return cast(Image, cv2.resize(image, (width, height), interpolation=method))
    bands = [cv2.resize(image[..., band], (width, height), interpolation=method) for band in range(image.shape[2])]
    return cast(Image, np.ascontiguousarray(np.stack(bands, axis=2)))


def bounding_box(mask: Mask) -> Box:
    """Return the smallest box around the foreground of a mask that has some."""
    left, top, width, height = cv2.boundingRect(mask.view(np.uint8))
    return left, top, left + width, top + height


THIN = 1 / 16
"""A strip next to the box with a smaller share of the image makes stripes; a patch inside may be larger."""

RIM = 50
"""The rim around the box is the longer side divided by this."""

GRID = 32
"""Cells along the longer side of the grid in which such a patch is searched."""


def without_object(image: Image, mask: Mask) -> Image | None:
    """Return a copy whose object's box is background, so that no outline is left.

    None if nothing is known of the background (see ``plan_tiles``). HWC uint8; HW bool with some true.
    """
    plan = plan_tiles(mask)
    if plan is None:
        return None
    tile, box = plan
    left, top, right, bottom = box
    filled = image.copy()
    filled[top:bottom, left:right] = mirrored(image, tile, box)
    return filled


def plan_tiles(mask: Mask) -> tuple[Box, Box] | None:
    """Return the tile to mirror, and the box that it fills.

    The tile is the largest of the four strips between the box and the image's edges. If all are thin (the box
    nearly fills the image), it is the largest rectangle free of foreground anywhere, the box's corners among them.
    None if there is no such rectangle: nothing is known of the background then. HW bool with some true.
    """
    height, width = mask.shape
    box = with_rim(bounding_box(mask), height, width)
    left, top, right, bottom = box
    strips: list[Box] = [
        (0, 0, left, height),
        (right, 0, width, height),
        (0, 0, width, top),
        (0, bottom, width, height),
    ]
    tile = max(strips, key=_area)
    if _area(tile) < THIN * height * width:
        patch = largest_free_rectangle(mask)
        if patch is not None:
            tile = max(tile, patch, key=_area)
    return None if _area(tile) == 0 else (tile, box)


def with_rim(box: Box, height: int, width: int) -> Box:
    """Return a box with a rim: the object's soft edge lies outside its mask and would show its outline."""
    left, top, right, bottom = box
    rim = max(right - left, bottom - top) // RIM
    return max(0, left - rim), max(0, top - rim), min(width, right + rim), min(height, bottom + rim)


def largest_free_rectangle(mask: Mask) -> Box | None:
    """Return the largest rectangle without foreground, on a grid; None if no whole cell is free."""
    height, width = mask.shape
    cell = max(1.0, max(height, width) / GRID)
    rows, columns = max(1, int(height / cell)), max(1, int(width / cell))
    free = cv2.resize(mask.astype(np.float32), (columns, rows), interpolation=cv2.INTER_AREA) == 0
    best: Box = (0, 0, 0, 0)
    heights = [0] * columns
    for row in range(rows):
        heights = [above + 1 if is_free else 0 for above, is_free in zip(heights, free[row].tolist(), strict=True)]
        best = max(best, _under_histogram(heights, row + 1), key=_area)
    if _area(best) == 0:
        return None
    left, top, right, bottom = best
    exact = (-(-left * width // columns), -(-top * height // rows), right * width // columns, bottom * height // rows)
    return exact if _area(exact) else None


def _under_histogram(heights: list[int], bottom: int) -> Box:
    """Return the largest rectangle on ``bottom`` under a histogram, in one pass with a stack of open bars."""
    best: Box = (0, 0, 0, 0)
    stack: list[tuple[int, int]] = []  # (left edge, height), heights rising
    for column, height in enumerate([*heights, 0]):
        start = column
        while stack and stack[-1][1] >= height:
            start, tall = stack.pop()
            best = max(best, (start, bottom - tall, column, bottom), key=_area)
        stack.append((start, height))
    return best


def mirrored(image: Image, tile: Box, box: Box) -> Image:
    """Return the content of ``box`` when ``tile`` is mirrored as often as needed; shared pixels stay in place."""
    left, top, right, bottom = tile
    before_x, before_y = max(0, left - box[0]), max(0, top - box[1])
    after_x, after_y = max(0, box[2] - right), max(0, box[3] - bottom)
    spread = cv2.copyMakeBorder(image[top:bottom, left:right], before_y, after_y, before_x, after_x, cv2.BORDER_REFLECT)
    x, y = box[0] - left + before_x, box[1] - top + before_y
    return cast(Image, spread[y : y + box[3] - box[1], x : x + box[2] - box[0]])


def _area(box: Box) -> int:
    return max(0, box[2] - box[0]) * max(0, box[3] - box[1])
