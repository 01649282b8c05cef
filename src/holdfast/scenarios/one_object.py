"""Conditions about one object of several: its surroundings changed, or itself taken out; the others stay as they are.

Which object it is follows from the image alone, so that both conditions are about the same one.
"""

from __future__ import annotations

import cv2
import numpy as np

from holdfast.core.errors import SampleError
from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask, Rendered
from holdfast.scenarios.background import cover, donor_background
from holdfast.scenarios.base.compositing import bounding_box, composite, largest_free_rectangle, mirrored, with_rim
from holdfast.scenarios.base.definition import Parameter, scenario


@scenario(
    id="object_surroundings",
    summary="what is around one object, taken from an image of another class",
    family="objects",
    group="objects",
    leaves="foreground",
    donor="other_class",
    tool="fill",
    parameters=(
        Parameter("margin", 0.5, "width of the changed frame, in sides of the object's box", minimum=0.05, maximum=10),
    ),
)
def object_surroundings(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, margin: float, feather: float
) -> Rendered:
    """Replace the frame around one object's box; every object stays bit-identical, as does what is further off."""
    name, pixels = context.target(mask)
    left, top, right, bottom = bounding_box(pixels)
    across, down = round((right - left) * margin), round((bottom - top) * margin)
    kept = np.ones_like(mask)
    kept[max(0, top - down) : bottom + down, max(0, left - across) : right + across] = False
    kept |= mask
    if kept.all():
        raise SampleError("nothing but objects is around the chosen one")
    background, details = donor_background(context.donor(same_class=False), context.fill)
    changed = composite(image, cover(background, *mask.shape), kept, feather=feather, context=None)
    if feather > 0:  # the soft edge may reach into objects
        changed = np.ascontiguousarray(cv2.copyTo(image, mask.view(np.uint8), changed), np.uint8)
    return Rendered(changed, mask, {**details, "target": name})


@scenario(
    id="object_removed",
    summary="one object taken out, its place filled with background",
    family="objects",
    group="objects",
    composites=False,
)
def object_removed(image: Image, mask: Mask, *, rng: np.random.Generator, context: Context) -> Rendered:
    """Fill one object's box with mirrored background from where no object is; the other objects stay bit-identical."""
    name, pixels = context.target(mask)
    tile = largest_free_rectangle(mask)
    if tile is None:
        raise SampleError("the objects leave no rectangle of background to fill the chosen one's box with")
    box = with_rim(bounding_box(pixels), *mask.shape)
    left, top, right, bottom = box
    others = mask & ~pixels
    filled = image.copy()
    filled[top:bottom, left:right] = mirrored(image, tile, box)
    filled[others] = image[others]
    return Rendered(filled, others, {"target": name, "removed": [name]})
