"""Conditions that take the background away or replace it; diagnostic ones separate context from cutting and pasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import cv2
import numpy as np

from holdfast.core.errors import RejectedError, SampleError
from holdfast.core.protocols import Context
from holdfast.core.types import Donor, Image, Mask, Rendered
from holdfast.scenarios.base.compositing import (
    bounding_box,
    composite,
    flat,
    level_of,
    resized,
    soft_mask,
    without_object,
)
from holdfast.scenarios.base.definition import Parameter, scenario


@scenario(
    id="segmented",
    summary="background black",
    family="cutout",
    group="static",
    aliases=("segmented_image", "black_background"),
    leaves="foreground",
    leaves_while={"jpeg": 0},
    native="bands",
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
    if image.dtype != np.uint8 or image.shape[2] != 3:
        raise SampleError("segmented@released is JPEG, which has 8 bits and three bands")
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


def donor_background(
    donor: Donor, fill: Callable[[Image, Mask], Image | None] | None = None
) -> tuple[Image, dict[str, Any]]:
    """Return a donor's image without its object, and the facts to record about it.

    The object is painted over by ``fill`` (see core.protocols.Context), or its box is tiled with background. A donor
    without a mask, or so full of its object that no background can be tiled, is used as it is and flagged.
    """
    cleared = None
    if donor.mask is not None and donor.mask.any() and not donor.mask.all():
        plain = donor.image.dtype == np.uint8 and donor.image.shape[2] == 3  # as the networks of --fill take it
        painted = fill(donor.image, donor.mask) if fill and plain else None
        cleared = without_object(donor.image, donor.mask) if painted is None else painted
    details = {"donor_id": donor.sample_id, "donor_label": donor.label, "donor_unmasked": cleared is None}
    return donor.image if cleared is None else cleared, details


def cover(image: Image, height: int, width: int) -> Image:
    """Return the image resized until it covers this size, and cropped around its centre; HWC uint8.

    The crop comes first, which is the same image in less time.
    """
    (top, bottom), (left, right), shrinks = covering(image.shape[0], image.shape[1], height, width)
    middle = image[top:bottom, left:right]
    method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return resized(middle, width, height, method)


def covering(
    donor_height: int, donor_width: int, height: int, width: int
) -> tuple[tuple[int, int], tuple[int, int], bool]:
    """Return the donor's rows and columns that are resized to this size, and whether to average areas.

    That costs seven times as much and shows no difference until half of the pixels go.
    """
    scale = max(height / donor_height, width / donor_width)
    rows = min(donor_height, max(1, round(height / scale)))
    columns = min(donor_width, max(1, round(width / scale)))
    top, left = (donor_height - rows) // 2, (donor_width - columns) // 2
    return (top, top + rows), (left, left + columns), scale < 0.5


@scenario(
    id="random_background",
    summary="background of an image of another class",
    family="background",
    group="static",
    aliases=("combine", "random_bg", "random"),
    leaves="foreground",
    leaves_while={"placement": "kept"},
    donor="other_class",
    tool="fill",
    native="bands",
    parameters=(
        Parameter(
            "placement",
            "kept",
            "kept: in place; moved: resized, at a random position, blended; summed: stretched and added",
            choices=("kept", "moved", "summed"),
        ),
        Parameter("scale_low", 0.5, "moved: smallest scale of the object", minimum=0.01, maximum=1),
        Parameter("scale_high", 1.0, "moved: largest scale of the object", minimum=0.01, maximum=1),
        Parameter("opacity", 0.9, "moved: weight of the object if it is blended", minimum=0, maximum=1),
    ),
    variants={"moved": {"placement": "moved"}, "released": {"placement": "summed"}},
)
def random_background(
    image: Image,
    mask: Mask,
    *,
    rng: np.random.Generator,
    context: Context,
    placement: str,
    scale_low: float,
    scale_high: float,
    opacity: float,
    feather: float,
) -> Rendered:
    """Put the object before a donor of another class whose own object was removed first.

    By default the object stays where it is, bit-identical, so that only the background differs. ``moved`` is the
    paper's resize, random position and ``addWeighted`` blending (it gives no numbers; see the parameters) and
    returns the moved mask. The released code (``summed``) stretches the cut-out to the size of the donor, whose
    object stays, and adds the two with saturation: the image has the donor's size and a ghostly object.
    """
    donor = like(image, context.donor(same_class=False))
    if placement == "summed":
        return _summed(image, mask, donor, feather)
    background, details = donor_background(donor, context.fill)
    background = cover(background, *mask.shape)
    if placement == "kept":
        return Rendered(composite(image, background, mask, feather=feather, context=context, reuse=True), mask, details)
    scale = rng.uniform(min(scale_low, scale_high), max(scale_low, scale_high))
    moved, moved_mask, corner = _moved(image, mask, background, scale, rng)
    blended = cast(Image, cv2.addWeighted(moved, opacity, background, 1 - opacity, 0))
    composed = composite(blended, background, moved_mask, feather=feather, context=None)
    return Rendered(composed, moved_mask, {**details, "scale": scale, "moved_to": corner})


def like(image: Image, donor: Donor) -> Donor:
    """Return the donor; SampleError if its depth or its bands are not the image's."""
    own, lent = ((picture.dtype.name, picture.shape[2]) for picture in (image, donor.image))
    if own != lent:
        raise SampleError(
            f"{donor.sample_id} cannot lend its background: it is {lent[0]} of {lent[1]} bands, not {own}"
        )
    return donor


def _moved(
    image: Image, mask: Mask, background: Image, scale: float, rng: np.random.Generator
) -> tuple[Image, Mask, list[int]]:
    """Return the background with the object pasted at a random place, the object's mask there, and its corner."""
    left, top, right, bottom = bounding_box(mask)
    size = (max(1, round((right - left) * scale)), max(1, round((bottom - top) * scale)))
    share = cv2.resize(mask[top:bottom, left:right].astype(np.float32), size, interpolation=cv2.INTER_AREA)
    shape = share >= 0.5
    if not shape.any():  # thinner than a pixel now
        shape = share > 0
    x, y = (int(rng.integers(0, space - part + 1)) for space, part in zip(mask.shape[::-1], size, strict=True))
    pasted, pasted_mask = background.copy(), np.zeros_like(mask)
    pasted[y : y + size[1], x : x + size[0]] = resized(image[top:bottom, left:right], *size, cv2.INTER_AREA)
    pasted_mask[y : y + size[1], x : x + size[0]] = shape
    return pasted, pasted_mask, [x, y]


def _summed(image: Image, mask: Mask, donor: Donor, feather: float) -> Rendered:
    height, width = donor.image.shape[:2]
    cut = composite(image, np.zeros_like(image), mask, feather=feather, context=None, reuse=True)
    stretched = cv2.resize(cut, (width, height), interpolation=cv2.INTER_LINEAR)
    where = cv2.resize(mask.view(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST).astype(np.bool_)
    details = {"donor_id": donor.sample_id, "donor_label": donor.label, "donor_unmasked": True}
    return Rendered(cast(Image, cv2.add(donor.image, stretched)), where, details)


@scenario(
    id="same_class_background",
    summary="background of another image of the same class",
    family="background",
    group="diagnostic",
    aliases=("same_class_bg", "mixed_same"),
    changes="background",
    donor="same_class",
    tool="fill",
    native="bands",
)
def same_class_background(image: Image, mask: Mask, *, context: Context, **_: Any) -> tuple[Image, dict[str, Any]]:
    """Put the object before a donor of the same class: the drop is the cost of pasting, not of the context."""
    background, details = donor_background(like(image, context.donor(same_class=True)), context.fill)
    return cover(background, *mask.shape), details


@scenario(
    id="shared_background",
    summary="background number 1, 2, … of the data, the same for every image",
    family="background",
    changes="background",
    donor="shared",
    counts="number",
    tool="fill",
    native="bands",
    parameters=(Parameter("number", 1, "which background; ?count=12 means the first twelve", minimum=1),),
)
def shared_background(
    image: Image, mask: Mask, *, context: Context, number: int, **_: Any
) -> tuple[Image, dict[str, Any]]:
    """Put every object before the same background: with several, objects and backgrounds are crossed."""
    background, details = donor_background(like(image, context.shared(number)), context.fill)
    return cover(background, *mask.shape), details


GREY = 128


@scenario(
    id="only_background",
    summary="the object's box filled with background",
    family="diagnostic",
    group="diagnostic",
    aliases=("only_bg", "only_bg_t", "background_only"),
    native="bands",
    composites=False,
    tool="fill",
)
def only_background(image: Image, mask: Mask, *, rng: np.random.Generator, context: Context) -> Rendered:
    """Cover the object's box with tiles of background, so that no silhouette is left.

    Outside the box every pixel stays. An object so large that no rectangle of background is left gives an error. With
    ``--fill`` a network paints over the object and a rim around it instead, and every other pixel stays.
    """
    painted = context.fill(image, mask)
    if painted is not None:
        return Rendered(painted, np.zeros_like(mask))
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
    native="bands",
    changes="background",
)
def mean_background(image: Image, mask: Mask, **_: Any) -> Image:
    """Keep only the mean colour of the scene."""
    three = image.shape[2] == 3
    colour = cv2.mean(image, mask=1 - mask.view(np.uint8))[:3] if three else image[~mask].mean(axis=0)
    return flat(image, tuple(colour))


@scenario(
    id="foreground_on_grey",
    summary="background mid-grey",
    family="diagnostic",
    group="diagnostic",
    aliases=("only_foreground", "only_fg", "grey_background"),
    native="bands",
    changes="background",
    parameters=(Parameter("level", GREY, "grey of the background", minimum=0, maximum=255),),
)
def foreground_on_grey(image: Image, mask: Mask, *, level: int, **_: Any) -> Image:
    """Put the object on grey, which unlike black and white is no end of the scale."""
    return flat(image, level_of(image, level))


@scenario(
    id="silhouette",
    summary="the mask's shape, flat and dark, on grey",
    family="diagnostic",
    group="diagnostic",
    aliases=("shape", "shape_only"),
    native="bands",
    parameters=(
        Parameter("shade", 32, "grey of the shape", minimum=0, maximum=255),
        Parameter("level", GREY, "grey of the ground", minimum=0, maximum=255),
    ),
)
def silhouette(
    image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, shade: int, level: int, feather: float
) -> Image:
    """Keep only the outline: no pixel of the image is shown."""
    dark, ground = (flat(image, level_of(image, grey)) for grey in (shade, level))
    return composite(dark, ground, mask, feather=feather, context=context, reuse=True)


@scenario(
    id="generated_background",
    summary="background repainted by --generator, from a prompt per class",
    family="background",
    aliases=("generated", "generated_bg"),
    leaves="foreground",
    paints=True,
    parameters=(
        Parameter("min_share", 0.02, "rejected if the object is a smaller share of the image", minimum=0, maximum=1),
        Parameter(
            "max_border",
            0.0,
            "rejected if the object takes up a larger share of the image's border",
            minimum=0,
            maximum=1,
        ),
    ),
)
def generated_background(
    image: Image,
    mask: Mask,
    *,
    rng: np.random.Generator,
    context: Context,
    min_share: float,
    max_border: float,
    feather: float,
) -> Rendered:
    """Let the context's generator paint around the object, and put the object back bit for bit.

    The paper sorted out by hand what was too small or incomplete; here both are measured on the mask, before anything
    is painted. Whether an oracle still recognises the object is asked by the pipeline, which has one.
    """
    rejection = why_not(mask, min_share=min_share, max_border=max_border)
    if rejection:
        raise RejectedError(rejection)
    painted = context.paint(image, mask)
    over = composite(image, painted.image, mask, feather=feather, context=context)
    return Rendered(over, mask, painted.details)


def why_not(mask: Mask, *, min_share: float, max_border: float) -> str:
    """Return why an object cannot be painted around, or ''."""
    if mask.mean() < min_share:
        return f"too small: the object is less than {100 * min_share:g} % of the image"
    if border_share(mask) > max_border:
        more = f" on more than {100 * max_border:g} % of its length" if max_border else ""
        return f"incomplete: the object touches the image's border{more}"
    return ""


def border_share(mask: Mask) -> float:
    """Return the share of the outermost pixels that is foreground, 0..1."""
    inner = mask[1:-1, 1:-1]
    return float((mask.sum() - inner.sum()) / (mask.size - inner.size))
