"""Motion blur of the background or of the object: a camera or a part that shakes while the shutter is open.

The corruption ``motion_blur`` of ImageNet-C takes the whole picture and half a Gaussian. Here an even streak, to and
fro, takes one part and none of the other's colours: what moves is smeared within itself, what stands still stays.
"""

from __future__ import annotations

import math
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask, Rendered
from holdfast.scenarios.base.compositing import composite
from holdfast.scenarios.base.definition import Parameter, Value, scenario
from holdfast.scenarios.blur import REFERENCE

PARAMETERS = (
    Parameter(
        "length",
        15.0,
        f"of the streak in pixels; it grows with images longer than {REFERENCE} pixels",
        minimum=1,
        maximum=500,
    ),
)
SEVERITIES: dict[int, dict[str, Value]] = {
    1: {"length": 5.0},
    2: {"length": 9.0},
    3: {"length": 15.0},
    4: {"length": 25.0},
    5: {"length": 41.0},
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
    id="motion_blur_background",
    summary="motion blur outside the mask",
    family="vibration",
    group="industrial",
    aliases=("motion_blur_bg",),
    leaves="foreground",
    parameters=PARAMETERS,
    severities=SEVERITIES,
)
def motion_blur_background(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, length: float, feather: float
) -> Rendered:
    """Blur the background as by a camera that follows the object."""
    smeared, details = _smeared(image, ~mask, length, rng)
    return Rendered(composite(image, smeared, mask, feather=feather, context=context, reuse=True), mask, details)


@scenario(
    id="motion_blur_object",
    summary="motion blur inside the mask",
    family="vibration",
    group="industrial",
    aliases=("motion_blur_foreground",),
    leaves="background",
    parameters=PARAMETERS,
    severities=SEVERITIES,
)
def motion_blur_object(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, length: float, feather: float
) -> Rendered:
    """Blur the object as if it shook; its outline stays, so that the background can stay."""
    smeared, details = _smeared(image, mask, length, rng)
    return Rendered(composite(smeared, image, mask, feather=feather, context=context), mask, details)
