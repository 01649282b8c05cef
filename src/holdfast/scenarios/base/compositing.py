"""Compositing: join two images along the edge of a mask."""

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

    A ``feather`` of 0 takes every pixel whole from one of the two. Pass the ``context`` if ``mask`` is the photo's own,
    whose soft edge is then cached. ``reuse``: whether ``outside`` may become the result; a fresh array costs several
    times as much as filling it.
    """
    if feather == 0:
        return cast(Image, cv2.copyTo(inside, mask.view(np.uint8), outside if reuse else outside.copy()))
    weight: NDArray[np.float32] = (
        context.memo(("soft mask", feather), lambda: soft_mask(mask, feather)) if context else soft_mask(mask, feather)
    )
    return cast(Image, cv2.blendLinear(inside, outside, weight, 1 - weight))


def soft_mask(mask: Mask, feather: float) -> NDArray[np.float32]:
    """Return the mask as HW, 0..1, with an edge of about ``feather`` pixels (a Gaussian of half that width)."""
    soft: Any = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), feather / 2)
    return cast("NDArray[np.float32]", np.clip(soft, 0, 1))


def flat(like: Image, colour: tuple[float, ...]) -> Image:
    """Return an image of one colour (RGB, 0..255, rounded) with the size of another image."""
    height, width = like.shape[:2]
    seed = np.rint(np.array([[colour]])).astype(np.uint8)
    return cast(Image, cv2.resize(seed, (width, height), interpolation=cv2.INTER_NEAREST))


def bounding_box(mask: Mask) -> Box:
    """Return the smallest box around the foreground of a mask that has some."""
    left, top, width, height = cv2.boundingRect(mask.view(np.uint8))
    return left, top, left + width, top + height
