"""Gaussian blur of the background or of the object.

The paper gives no strength; the released code blurs 15 × 15 with σ 3, in an alternative 9 × 9 with σ 4, whatever the
size of the image. Ours is that σ of 3 pixels on images up to 500 pixels long (the usual ImageNet image) and in
proportion on larger ones, so that a 12-megapixel image is as blurred as its thumbnail once a model has shrunk both.
"""

from __future__ import annotations

import math
from typing import Any, cast

import cv2

from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask
from holdfast.scenarios.base.definition import Parameter, Value, scenario, severities

REFERENCE = 500
PYRAMID_SIGMA = 3.0
"""From this σ on an image is blurred in a pyramid, in half of the time or less.

The result is the same within two grey levels, except at the image's edges, where another mirror image is used.
"""

PARAMETERS = (
    Parameter(
        "sigma",
        3.0,
        f"standard deviation in pixels; without a radius, it grows with images longer than {REFERENCE} pixels",
        minimum=0.1,
        maximum=500,
    ),
    Parameter("radius", 0, "kernel of 2·radius + 1 pixels at any image size (0: as wide as σ needs)", 0, 500),
)
VARIANTS: dict[str, dict[str, Value]] = {
    "released": {"sigma": 3.0, "radius": 7},
    "released_alternative": {"sigma": 4.0, "radius": 4},
}
_DECLARED: dict[str, Any] = {
    "family": "blur", "group": "static", "native": "bands", "parameters": PARAMETERS, "variants": VARIANTS,
    "severities": severities("sigma", (1.0, 2.0, 3.0, 6.0, 12.0)), "shared": True,
}  # fmt: skip


def pyramid(sigma: float, height: int, width: int) -> tuple[int, float]:
    """Return how often an image of this size is halved before the blur, and the σ that remains."""
    sigma *= max(1.0, max(height, width) / REFERENCE)
    levels = 0 if sigma < PYRAMID_SIGMA else max(1, math.floor(math.log2(sigma / 2)))
    # Going down and up again blurs by one pixel's variance each way, at every level in that level's pixels.
    scale = 4**levels
    return levels, math.sqrt((sigma**2 - 2 * (scale - 1) / 3) / scale)


def gaussian_blur(image: Image, sigma: float, radius: int) -> Image:
    """Return the whole image blurred; HWC uint8 in and out. See PARAMETERS."""
    if radius:
        return cast(Image, cv2.GaussianBlur(image, (2 * radius + 1, 2 * radius + 1), sigma))
    levels, sigma = pyramid(sigma, *image.shape[:2])
    sizes = []
    for _ in range(levels):
        sizes.append((image.shape[1], image.shape[0]))
        image = cast(Image, cv2.pyrDown(image))
    image = cast(Image, cv2.GaussianBlur(image, (0, 0), sigma))
    for size in reversed(sizes):
        image = cast(Image, cv2.pyrUp(image, dstsize=size))
    return image


def _blurred(image: Image, mask: Mask, *, context: Context, sigma: float, radius: int, **_: Any) -> Image:
    """Blur the whole image, so that the object's colours bleed into the blur around it."""
    return cast(Image, context.memo(("blur", sigma, radius), lambda: gaussian_blur(image, sigma, radius)))


blur_background = scenario(
    id="blur_background", summary="Gaussian blur outside the mask", aliases=("blur_bg", "blurred_background"),
    changes="background", **_DECLARED,
)(_blurred)  # fmt: skip
blur_object = scenario(
    id="blur_object", summary="Gaussian blur inside the mask", aliases=("blur_foreground", "blurred_object"),
    changes="object", **_DECLARED,
)(_blurred)  # fmt: skip
