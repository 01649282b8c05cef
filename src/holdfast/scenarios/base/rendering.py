"""Rendering: run a scenario and check its input, its output and its promise."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from holdfast.core.errors import PromiseError, SampleError
from holdfast.core.protocols import Context
from holdfast.core.types import NEEDS_MASK, Image, Mask, Rendered
from holdfast.scenarios.base.condition import Condition
from holdfast.scenarios.base.definition import Leaves, Scenario

CHECKED_PIXELS = 1 << 14
"""About how many pixels the run-time check looks at, in whole rows at even distances."""


def render(
    condition: Condition,
    image: Image,
    mask: Mask | None,
    *,
    rng: np.random.Generator,
    context: Context,
    definition: Scenario | None = None,
) -> Rendered:
    """Make one condition's image.

    Args:
        condition: The scenario and its parameters.
        image: HWC uint8 RGB; it is not changed.
        mask: HW bool of the same size, true on the foreground; None if there is none.
        rng: The only randomness there is.
        context: Donors, the label and what the conditions of this source image share.
        definition: The scenario itself, if it is not registered.

    Returns:
        The image (HWC uint8, RGB or RGBA), where the foreground is in it, and details that JSON can hold.

    Raises:
        SampleError: This image or mask cannot be used.
        PromiseError: The scenario changed what it promised to leave, or returned something that is no image.

    Examples:
        >>> grey, image = holdfast.parse_conditions("grey")[0], np.full((8, 8, 3), (9, 90, 200), np.uint8)
        >>> made = holdfast.render(grey, image, np.eye(8) > 0, rng=np.random.default_rng(0), context=context)
        >>> made.image.shape
        (8, 8, 3)
    """
    definition = definition or condition.definition
    check_input(definition, image, mask)
    image = np.ascontiguousarray(image)
    guarded, guarded_mask = _read_only(image), None if mask is None else _read_only(mask)
    returned: Any = definition(
        guarded,
        guarded_mask,  # type: ignore[arg-type]  # None only if the scenario declares that it needs no mask
        rng=rng,
        context=context,
        **condition.parameters,
    )
    result = returned if isinstance(returned, Rendered) else Rendered(returned, mask)
    if result.image is guarded:  # the caller's own array, writeable if it was
        result = Rendered(image, result.mask, result.details)
    if result.mask is guarded_mask:
        result = Rendered(result.image, mask, result.details)
    promise = definition.promise(condition.parameters)
    _check_output(definition, result, image, promise, masked=mask is not None)
    _check_promise(definition, result.image, image, mask, promise)
    return result


def _read_only(array: Any) -> Any:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def mask_missing(scenario: str) -> str:
    """Return the reason why a scenario is skipped on an image that has no mask."""
    return f"{scenario} {NEEDS_MASK}"


def check_input(definition: Scenario, image: Image, mask: Mask | None) -> None:
    """Raise SampleError if a scenario cannot be made of this image and mask."""
    depths, bands = (np.uint8, np.uint16) if definition.native else (np.uint8,), definition.native == "bands"
    if image.dtype not in depths or image.ndim != 3 or (image.shape[2] != 3 and not bands) or image.size == 0:
        wanted = "RGB" if definition.native else "uint8 RGB"
        raise SampleError(f"{definition.id} needs an HWC {wanted} image, not {image.dtype} of shape {image.shape}")
    if mask is None:
        if definition.needs_mask:
            raise SampleError(mask_missing(definition.id))
        return
    if mask.dtype != np.bool_ or mask.ndim != 2:
        raise SampleError(f"{definition.id} needs an HW bool mask, not {mask.dtype} of shape {mask.shape}")
    if mask.shape != image.shape[:2]:
        raise SampleError(f"the mask is {_size(mask)} and the image {_size(image)} pixels")
    if definition.needs_mask:
        if not mask.any():
            raise SampleError("the mask is empty: nothing is foreground")
        if mask.all():
            raise SampleError("the mask covers the whole image: nothing is background")


def _check_output(definition: Scenario, result: Rendered, image: Image, promise: Leaves, *, masked: bool) -> None:
    """Check the output; another size needs a mask of its own and a scenario without promises."""
    picture, mask = result.image, result.mask
    if (
        not isinstance(picture, np.ndarray)
        or picture.dtype != image.dtype
        or picture.ndim != 3
        or picture.shape[2] not in ({3, 4} if _is_plain(image) else {image.shape[2]})
    ):
        raise PromiseError(f"scenario {definition.id} must return an HWC uint8 image of 3 or 4 channels")
    if not picture.flags.c_contiguous:
        raise PromiseError(f"scenario {definition.id} must return a contiguous image (np.ascontiguousarray)")
    fits = mask is not None and mask.dtype == np.bool_ and mask.shape == picture.shape[:2]
    if picture.shape[:2] != image.shape[:2] and ((masked and not fits) or promise != "nothing"):
        raise PromiseError(
            f"scenario {definition.id} made {_size(picture)} of {_size(image)} pixels without a mask that says so"
        )
    if mask is not None and not fits:
        raise PromiseError(f"scenario {definition.id} must return a mask that fits its image")


def _check_promise(definition: Scenario, picture: Image, image: Image, mask: Mask | None, promise: Leaves) -> None:
    if promise == "nothing" or picture is image:
        return
    step = max(1, image.shape[0] * image.shape[1] // CHECKED_PIXELS)
    before = image[::step]
    after: Any = picture[::step]
    where: Any = None
    if promise != "everything":
        assert mask is not None, "a promise about a part needs a mask"
        where = mask[::step].view(np.uint8)
        where = where if promise == "foreground" else 1 - where
        if not where.any():  # OpenCV reads an empty selection as no selection
            return
    if not _is_plain(image):
        kept = after == before if where is None else (after == before)[where.view(np.bool_)]
        if not kept.all():
            raise PromiseError(f"scenario {definition.id} promises to leave the {promise} as it is and changed it")
        return
    if after.shape[2] == 4:
        if promise != "background" and cv2.norm(255 - cv2.extractChannel(after, 3), cv2.NORM_INF, mask=where):
            raise PromiseError(f"scenario {definition.id} must not make part of the {promise} transparent")
        after = cv2.cvtColor(after, cv2.COLOR_RGBA2RGB)
    if cv2.norm(before, after, cv2.NORM_INF, mask=where):
        raise PromiseError(f"scenario {definition.id} promises to leave the {promise} as it is and changed it")


def _is_plain(image: Image) -> bool:
    """Return whether an image is 8-bit RGB, as nearly all are."""
    return image.dtype == np.uint8 and image.shape[2] == 3


def _size(array: Any) -> str:
    return f"{array.shape[1]}×{array.shape[0]}"
