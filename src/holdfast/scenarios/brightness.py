"""Brighter and sharper, outside or inside the mask.

The paper names ``addWeighted`` and unsharp masking and gives no numbers. Ours: gain 1.4, then unsharp masking by half
the difference to a 5 × 5 blur, in one saturating sum: 1.4·(1.5·image − 0.5·blur). The released code,
``addWeighted(image, 1.5, blur, 0.9, 1.9)``, adds the blur instead of subtracting it: no sharpening, and overexposed at
2.4 times the brightness. It has the background only, and the σ of its blur is not told; OpenCV's for 9 × 9 is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import cv2
import numpy as np

from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask
from holdfast.scenarios.base.compositing import composite
from holdfast.scenarios.base.definition import Parameter, Value, scenario

GAIN = 1.4
SHARPEN = 0.5
PARAMETERS = (
    Parameter("image_weight", GAIN * (1 + SHARPEN), "weight of the image in the sum", minimum=-20, maximum=20),
    Parameter("blur_weight", -GAIN * SHARPEN, "weight of its blurred copy (below 0 sharpens)", minimum=-20, maximum=20),
    Parameter("offset", 0.0, "added to every channel", minimum=-255, maximum=255),
    Parameter("radius", 2, "blur kernel of 2·radius + 1 pixels", minimum=1, maximum=500),
)
SEVERITIES: dict[int, dict[str, Value]] = {
    severity: {"image_weight": gain * (1 + SHARPEN), "blur_weight": -gain * SHARPEN}
    for severity, gain in enumerate((1.1, 1.2, 1.4, 1.7, 2.1), start=1)
}


def brighten(image: Image, image_weight: float, blur_weight: float, offset: float, radius: int) -> Image:
    """Return image_weight·image + blur_weight·blur + offset of the whole image, rounded, clipped to 0..255."""
    blurred = cv2.GaussianBlur(image, (2 * radius + 1, 2 * radius + 1), 0)
    return cast(Image, cv2.addWeighted(image, image_weight, blurred, blur_weight, offset, dst=blurred))


def _shared(image: Image, context: Context, settings: Mapping[str, Any]) -> Image:
    key = tuple(settings[parameter.name] for parameter in PARAMETERS)
    return cast(Image, context.memo(("bright", *key), lambda: brighten(image, **settings)))


@scenario(
    id="bright_background",
    summary="brighter and sharper outside the mask",
    family="light",
    group="static",
    aliases=("bright_bg", "brightness_background"),
    leaves="foreground",
    parameters=PARAMETERS,
    variants={"released": {"image_weight": 1.5, "blur_weight": 0.9, "offset": 1.9, "radius": 4}},
    severities=SEVERITIES,
)
def bright_background(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, feather: float, **settings: Any
) -> Image:
    """Put the object as it is into an overexposed scene."""
    bright = _shared(image, context, settings)
    return composite(image, bright, mask, feather=feather, context=context)


@scenario(
    id="bright_object",
    summary="brighter and sharper inside the mask",
    family="light",
    group="static",
    aliases=("bright_foreground", "brightness_object"),
    leaves="background",
    parameters=PARAMETERS,
    severities=SEVERITIES,
)
def bright_object(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, feather: float, **settings: Any
) -> Image:
    """Put the overexposed object into the scene as it is."""
    bright = _shared(image, context, settings)
    return composite(bright, image, mask, feather=feather, context=context)
