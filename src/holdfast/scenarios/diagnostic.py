"""Diagnostic conditions: they separate the effect of the context from that of cutting and pasting."""

from __future__ import annotations

import cv2
import numpy as np

from holdfast.core.errors import SampleError
from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask, Rendered
from holdfast.scenarios.base.compositing import composite, flat
from holdfast.scenarios.base.definition import Parameter, scenario
from holdfast.scenarios.tiles import without_object

GREY = 128


@scenario(
    id="only_background",
    summary="the object's box filled with background",
    family="diagnostic",
    group="diagnostic",
    aliases=("only_bg", "only_bg_t", "background_only"),
    composites=False,
)
def only_background(image: Image, mask: Mask, *, rng: np.random.Generator, context: Context) -> Rendered:
    """Cover the object's box with tiles of background, so that no silhouette is left.

    Outside the box every pixel stays. An object so large that no rectangle of background is left gives an error.
    """
    filled = without_object(image, mask)
    if filled is None:
        raise SampleError("the object leaves no rectangle of background to fill its box with")
    return Rendered(filled, np.zeros_like(mask))


@scenario(
    id="mean_background",
    summary="background in its mean colour",
    family="diagnostic",
    group="diagnostic",
    aliases=("mean_bg",),
    leaves="foreground",
)
def mean_background(image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, feather: float) -> Image:
    """Keep only the mean colour of the scene."""
    colour = cv2.mean(image, mask=1 - mask.view(np.uint8))[:3]
    return composite(image, flat(image, tuple(colour)), mask, feather=feather, context=context, reuse=True)


@scenario(
    id="foreground_on_grey",
    summary="background mid-grey",
    family="diagnostic",
    group="diagnostic",
    aliases=("only_foreground", "only_fg", "grey_background"),
    leaves="foreground",
    parameters=(Parameter("level", GREY, "grey of the background", minimum=0, maximum=255),),
)
def foreground_on_grey(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, level: int, feather: float
) -> Image:
    """Put the object on grey, which unlike black and white is no end of the scale."""
    return composite(image, flat(image, (level,) * 3), mask, feather=feather, context=context, reuse=True)


@scenario(
    id="silhouette",
    summary="the mask's shape, flat and dark, on grey",
    family="diagnostic",
    group="diagnostic",
    aliases=("shape", "shape_only"),
    parameters=(
        Parameter("shade", 32, "grey of the shape", minimum=0, maximum=255),
        Parameter("level", GREY, "grey of the ground", minimum=0, maximum=255),
    ),
)
def silhouette(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, shade: int, level: int, feather: float
) -> Image:
    """Keep only the outline: no pixel of the image is shown."""
    return composite(
        flat(image, (shade,) * 3), flat(image, (level,) * 3), mask, feather=feather, context=context, reuse=True
    )
