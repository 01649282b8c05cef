"""Industrial conditions: the object elsewhere, nearer or farther, or smeared as by a camera that shakes.

What was behind the object is not in the image. Its place and a rim around it (of soft edge and a little shadow) are
filled from their surroundings by OpenCV's inpainting (Telea), made softer the deeper inside, if that leaves shards
with edges that nothing had: a guess without texture. So a drop here holds the cost of that guess as well;
``shift_object?distance=0`` pastes the object back over it and measures the rim's part. Shadows and reflections stay
where they were.

The corruption ``motion_blur`` of ImageNet-C takes the whole image and half a Gaussian. Here an even streak, to and
fro, takes one part and none of the other's colours: what moves is smeared within itself, what stands still stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import RejectedError
from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask, Rendered
from holdfast.scenarios.base.compositing import bounding_box, composite
from holdfast.scenarios.base.definition import Parameter, scenario, severities
from holdfast.scenarios.blur import REFERENCE

RIM = 50
"""The filled rim around the object is the longer side of its box divided by this."""

FILLED_AT = 128
"""A longer image is filled at this length and the result enlarged: it is smooth, and the time grows with the hole."""

_SOFTER = (1, 2, 4, 8)
"""Standard deviations of the blurs, each from this many pixels inside the hole on."""

DIRECTIONS = 16

VISIBLE = Parameter(
    "visible", 0.8, "rejected if a smaller share of the object would be left in the image", minimum=0.01, maximum=1
)


def filled_behind(image: Image, mask: Mask, context: Context) -> Image:
    """Return the scene with the object's place filled; HWC uint8. RejectedError where nothing is left around it."""

    def make() -> Image | None:
        left, top, right, bottom = bounding_box(mask)
        rim = max(right - left, bottom - top) // RIM
        hole = cv2.dilate(mask.view(np.uint8), np.ones((2 * rim + 1, 2 * rim + 1), np.uint8))
        return None if hole.all() else _inpainted(image, cast("NDArray[np.uint8]", hole))

    filled = context.memo("filled behind the object", make)
    if filled is None:
        raise RejectedError("too large: nothing of the scene is left around the object to fill its place with")
    return cast(Image, filled)


def _inpainted(image: Image, hole: NDArray[np.uint8]) -> Image:
    height, width = hole.shape
    factor = min(1.0, FILLED_AT / max(height, width))
    # Not below 2: of a single row, OpenCV's inpainting makes another image every time.
    size = (max(2, round(width * factor)), max(2, round(height * factor)))
    # A pixel of the small image that is partly hole is hole: nothing of the object may bleed into the guess.
    small_hole: Any = (cv2.resize(hole.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0).astype(np.uint8)
    if small_hole.all():
        small_hole = cv2.resize(hole, size, interpolation=cv2.INTER_NEAREST)
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    guess: Any = cv2.inpaint(small, small_hole, 3, cv2.INPAINT_TELEA).astype(np.float32)
    depth: Any = cv2.distanceTransform(small_hole, cv2.DIST_L2, 5)[..., None]
    for sigma in _SOFTER:
        weight = np.clip(depth / sigma - 1, 0, 1)
        guess = guess * (1 - weight) + cv2.GaussianBlur(guess, (0, 0), sigma) * weight
    enlarged = cv2.resize(np.rint(guess).astype(np.uint8), (width, height))
    return cast(Image, cv2.copyTo(enlarged, hole, image.copy()))


def touched_sides(mask: Mask) -> tuple[bool, bool, bool, bool]:
    """Return whether the object reaches the left, top, right and bottom edge, where it is cut off."""
    return bool(mask[:, 0].any()), bool(mask[0].any()), bool(mask[:, -1].any()), bool(mask[-1].any())


@scenario(
    id="shift_object",
    summary="the object elsewhere, what was behind it guessed",
    family="displacement",
    group="industrial",
    aliases=("shifted_object", "displaced_object"),
    parameters=(
        Parameter("distance", 0.15, "how far, as a share of the image's shorter side", minimum=0, maximum=1),
        VISIBLE,
    ),
    severities=severities("distance", (0.05, 0.1, 0.15, 0.2, 0.3)),
)
def shift_object(
    image: Image,
    mask: Mask,
    *,
    rng: np.random.Generator,
    context: Context,
    distance: float,
    visible: float,
    feather: float,
) -> Rendered:
    """Move the object by whole pixels in a random direction, and its mask with it.

    It may leave the image in part. A direction that leaves less than ``visible`` of it, or that would show where an
    object was cut off by the image's edge, is passed over for the next of 16; along that edge it may slide. If
    none is left, the image is rejected rather than shifted less.
    """
    background = filled_behind(image, mask, context)
    length = distance * min(mask.shape)
    wanted = visible * np.count_nonzero(mask)
    first = rng.uniform(0, 2 * math.pi)
    for dx, dy in _directions(first, touched_sides(mask)) if length else [(0.0, 0.0)]:
        x, y = round(length * dx), round(length * dy)
        moved_mask = _shifted(mask, x, y)
        if np.count_nonzero(moved_mask) >= wanted and moved_mask.any():
            composed = composite(_shifted(image, x, y), background, moved_mask, feather=feather, context=None)
            return Rendered(composed, moved_mask, {"moved_by": [x, y]})
    raise RejectedError(
        f"no room: shifted by {100 * distance:g} % of the shorter side, less than {100 * visible:g} % of the object "
        "would be visible, or its cut edge would be"
    )


def _directions(first: float, touched: tuple[bool, bool, bool, bool]) -> Iterator[tuple[float, float]]:
    """Return unit vectors all around, from the first angle on, without parts that lead away from a touched side."""
    left, top, right, bottom = touched
    for step in range(DIRECTIONS):
        angle = first + 2 * math.pi * step / DIRECTIONS
        dx, dy = math.cos(angle), math.sin(angle)
        dx = 0.0 if (left and dx > 0) or (right and dx < 0) else dx
        dy = 0.0 if (top and dy > 0) or (bottom and dy < 0) else dy
        norm = math.hypot(dx, dy)
        if norm > 0:
            yield dx / norm, dy / norm


def _shifted(array: NDArray[Any], x: int, y: int) -> Any:
    """Return the array moved right and down by whole pixels; new pixels are 0."""
    height, width = array.shape[:2]
    shifted = np.zeros_like(array)
    if abs(x) < width and abs(y) < height:
        shifted[max(0, y) : height + min(0, y), max(0, x) : width + min(0, x)] = array[
            max(0, -y) : height + min(0, -y), max(0, -x) : width + min(0, -x)
        ]
    return shifted


@scenario(
    id="scale_object",
    summary="the object smaller or larger, what was behind it guessed",
    family="displacement",
    group="industrial",
    aliases=("scaled_object", "resized_object"),
    parameters=(Parameter("factor", 0.5, "of its height and width", minimum=0.02, maximum=10), VISIBLE),
    variants={"larger": {"factor": 1.5}},
    severities=severities("factor", (0.8, 0.65, 0.5, 0.35, 0.25)),
)
def scale_object(
    image: Image,
    mask: Mask,
    *,
    rng: np.random.Generator,
    context: Context,
    factor: float,
    visible: float,
    feather: float,
) -> Rendered:
    """Resize the object about the middle of its box, and its mask with it; severities make it smaller.

    If it touches an edge of the image it stays on that edge, so that no cut shows; one that touches two opposite
    edges cannot become smaller and is rejected, as is one of which too little is left inside when it becomes larger.
    """
    left, top, right, bottom = bounding_box(mask)
    touches_left, touches_top, touches_right, touches_bottom = touched_sides(mask)
    if factor < 1 and ((touches_left and touches_right) or (touches_top and touches_bottom)):
        raise RejectedError("incomplete: the object reaches two opposite edges of the image and cannot become smaller")
    background = filled_behind(image, mask, context)
    width, height = max(1, round((right - left) * factor)), max(1, round((bottom - top) * factor))
    x = _anchored(left, right, width, touches_left, touches_right)
    y = _anchored(top, bottom, height, touches_top, touches_bottom)
    box = image[top:bottom, left:right], mask[top:bottom, left:right]
    resized, share = _resized(*box, (width, height))
    shape = share >= 0.5
    if not shape.any():  # thinner than a pixel now
        shape = share > 0
    pasted, moved_mask = _placed(background, resized, shape, x, y)
    if np.count_nonzero(moved_mask) < max(1.0, visible * np.count_nonzero(shape)):
        raise RejectedError(
            f"no room: at {factor:g} times its size, the object is less than {100 * visible:g} % visible"
        )
    composed = composite(pasted, background, moved_mask, feather=feather, context=None)
    return Rendered(composed, moved_mask, {"scale": factor, "moved_to": [x, y]})


def _anchored(low: int, high: int, length: int, touches_low: bool, touches_high: bool) -> int:
    """Return where the resized box begins: on the touched edge, or so that its middle stays."""
    if touches_low and not touches_high:
        return low
    if touches_high and not touches_low:
        return high - length
    return (low + high - length) // 2


def _resized(image: Image, mask: Mask, size: tuple[int, int]) -> tuple[Image, NDArray[np.float32]]:
    """Return the resized object and its share of every pixel, HW 0..1, without colours of the background."""
    method = cv2.INTER_AREA if size[0] * size[1] < mask.size else cv2.INTER_LINEAR
    weight = mask.astype(np.float32)
    share: Any = cv2.resize(weight, size, interpolation=method)
    colour: Any = cv2.resize(image * weight[..., None], size, interpolation=method)
    return np.rint(colour / np.maximum(share, 1e-6)[..., None]).clip(0, 255).astype(np.uint8), share


def _placed(background: Image, piece: Image, shape: Mask, x: int, y: int) -> tuple[Image, Mask]:
    """Return the background with a piece at (x, y), as far as it lies inside, and the mask of the piece."""
    height, width = background.shape[:2]
    rows, columns = shape.shape
    pasted, where = background.copy(), np.zeros((height, width), np.bool_)
    top, left, bottom, right = max(0, y), max(0, x), min(height, y + rows), min(width, x + columns)
    if top < bottom and left < right:
        pasted[top:bottom, left:right] = piece[top - y : bottom - y, left - x : right - x]
        where[top:bottom, left:right] = shape[top - y : bottom - y, left - x : right - x]
    return pasted, where


_SMEARED: dict[str, Any] = {
    "family": "vibration",
    "group": "industrial",
    "parameters": (
        Parameter(
            "length", 15.0, f"of the streak in pixels; it grows with images longer than {REFERENCE} pixels", 1, 500
        ),
    ),
    "severities": severities("length", (5.0, 9.0, 15.0, 25.0, 41.0)),
}
_STEPS = 4  # points of the streak a pixel


def streak_kernel(length: float, angle: float) -> NDArray[np.float32]:
    """Return a straight line through the middle with a sum of 1, its points shared among the four pixels around."""
    reach = math.ceil(length / 2)
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1), np.float64)
    count = max(1, round(_STEPS * (length - 1))) + 1
    along = np.linspace(-(length - 1) / 2, (length - 1) / 2, count)
    x, y = along * math.cos(angle) + reach, along * math.sin(angle) + reach
    column, row = np.floor(x).astype(int), np.floor(y).astype(int)
    for down, weight_y in ((0, row + 1 - y), (1, y - row)):
        for right, weight_x in ((0, column + 1 - x), (1, x - column)):
            inside = (row + down < len(kernel)) & (column + right < len(kernel))
            weights = (weight_y * weight_x)[inside]
            np.add.at(kernel, ((row + down)[inside], (column + right)[inside]), weights)
    return cast("NDArray[np.float32]", (kernel / kernel.sum()).astype(np.float32))


def _smeared(image: Image, part: Mask, length: float, rng: np.random.Generator) -> tuple[Image, dict[str, Any]]:
    """Smear one part along a random line, from its own pixels only; the other part's pixels are undefined."""
    length *= max(1.0, max(image.shape[:2]) / REFERENCE)
    angle = float(rng.uniform(0, math.pi))
    kernel = streak_kernel(length, angle)
    weight = part.astype(np.float32)
    total: Any = cv2.filter2D(image * weight[..., None], -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    share: Any = cv2.filter2D(weight, -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    smeared = np.rint(total / np.maximum(share, 1e-3)[..., None]).clip(0, 255).astype(np.uint8)
    return cast(Image, smeared), {"angle": round(math.degrees(angle), 3)}


@scenario(
    id="motion_blur_background", summary="motion blur outside the mask", aliases=("motion_blur_bg",),
    changes="background", **_SMEARED,
)  # fmt: skip
def motion_blur_background(
    image: Image, mask: Mask, *, rng: np.random.Generator, length: float, **_: Any
) -> tuple[Image, dict[str, Any]]:
    """Blur the background as by a camera that follows the object."""
    return _smeared(image, ~mask, length, rng)


@scenario(
    id="motion_blur_object", summary="motion blur inside the mask", aliases=("motion_blur_foreground",),
    changes="object", **_SMEARED,
)  # fmt: skip
def motion_blur_object(
    image: Image, mask: Mask, *, rng: np.random.Generator, length: float, **_: Any
) -> tuple[Image, dict[str, Any]]:
    """Blur the object as if it shook; its outline stays, so that the background can stay."""
    return _smeared(image, mask, length, rng)
