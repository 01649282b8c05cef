"""Cut-outs: the object without its background."""

from __future__ import annotations

from typing import Any, cast

import cv2
import numpy as np

from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask
from holdfast.scenarios.base.compositing import composite, soft_mask
from holdfast.scenarios.base.definition import Parameter, scenario


@scenario(
    id="segmented",
    summary="background black",
    family="cutout",
    group="static",
    aliases=("segmented_image", "black_background"),
    leaves="foreground",
    leaves_while={"jpeg": 0},
    parameters=(Parameter("jpeg", 0, "JPEG quality it has been through (0: none)", minimum=0, maximum=100),),
    variants={"released": {"jpeg": 95}},
)
def segmented(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, jpeg: int, feather: float
) -> Image:
    """Make the background (0, 0, 0). Released: also JPEG at OpenCV's usual quality, so black is only nearly black."""
    cut = composite(image, np.zeros_like(image), mask, feather=feather, context=context, reuse=True)
    if jpeg == 0:
        return cut
    coded: Any = cv2.imencode(".jpg", cv2.cvtColor(cut, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, jpeg])[1]
    return cast(Image, cv2.imdecode(coded, cv2.IMREAD_COLOR_RGB))


@scenario(
    id="transparent",
    summary="background transparent (RGBA)",
    family="cutout",
    group="static",
    aliases=("segmented_image_transparent", "transparent_img", "transparent_image", "transparent_background"),
    leaves="foreground",
    parameters=(Parameter("hidden", False, "keep the background's colours under alpha 0"),),
    variants={"released": {"hidden": True}},
)
def transparent(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, hidden: bool, feather: float
) -> Image:
    """Return RGBA with background (0, 0, 0, 0) and an opaque object. Released: its colours stay, under alpha 0."""
    rgba = cast(Image, cv2.cvtColor(image, cv2.COLOR_RGB2RGBA))
    seen = mask if feather == 0 else soft_mask(mask, feather) > 0.5 / 255
    if not hidden:
        pixels = rgba.view(np.uint32)[:, :, 0]
        pixels *= seen  # a pixel of four bytes at once, to (0, 0, 0, 0)
    if feather > 0 or hidden:
        alpha = soft_mask(mask, feather) if feather > 0 else mask
        cv2.insertChannel(np.rint(alpha * np.float32(255)).astype(np.uint8), rgba, 3)
    return rgba
