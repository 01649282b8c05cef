"""The untouched image, to which all conditions are compared."""

from __future__ import annotations

from typing import Any

from holdfast.core.types import ORIGINAL, Image, Mask
from holdfast.scenarios.base.definition import scenario


@scenario(
    id=ORIGINAL,
    summary="the image as it is",
    family="original",
    group="static",
    aliases=("image", "clean", "normal"),
    composites=False,
    needs_mask=False,
    leaves="everything",
    native="bands",
)
def original(image: Image, mask: Mask, **_: Any) -> Image:
    """Return the same array."""
    return image
