"""Kinds of masks that are worse than exact ones: eroded, dilated, boxed, or found by a mask maker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from holdfast.annotate import load_annotator
from holdfast.core.errors import UserError
from holdfast.core.types import Image, Mask

EXACT, BOX, GRABCUT_IN_BOX, SALIENT = "exact", "box", "grabcut-box", "u2netp"
SMALLER, LARGER, BOXED, MADE = "eroded", "dilated", "box", "found in the image"
FAMILIES = (EXACT, SMALLER, LARGER, BOXED, MADE)

CUT_SIDE, CUT_ROUNDS = 256, 5
"""Longer side of the images that GrabCut works on, and its iterations (OpenCV's default of five)."""

_GROWN = re.compile(r"(erode|dilate)-(\d*\.?\d+)")


@dataclass(frozen=True)
class MaskKind:
    """A way to make masks."""

    name: str  # ``exact``, ``erode-0.1``, ``dilate-0.1``, ``box``, ``grabcut-box``, or a mask maker's name
    family: str  # one of ``FAMILIES``
    radius: float = 0.0  # by how much the exact mask is dilated, in √area of the object; less than 0: eroded

    @property
    def is_made_from_exact(self) -> bool:
        """Whether the mask is made from the exact one, and not by a mask maker."""
        return bool(self.radius) or self.name in (BOX, GRABCUT_IN_BOX)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return re.sub(r"[^A-Za-z0-9._-]+", "_", self.name)


def kinds_of(names: Sequence[str]) -> tuple[list[MaskKind], list[str]]:
    """Return the kinds of these names without repetition, and the names whose network is not installed."""
    kinds, absent = [], []
    for name in dict.fromkeys(names):
        if name == EXACT:
            continue
        if grown := _GROWN.fullmatch(name):
            size = float(grown[2])
            if not 0 < size <= 1:
                raise UserError(f"{name}: masks are eroded and dilated by a share of the object's size, 0 to 1")
            eroded = grown[1] == "erode"
            kinds.append(MaskKind(name, SMALLER if eroded else LARGER, -size if eroded else size))
        elif name in (BOX, GRABCUT_IN_BOX):
            kinds.append(MaskKind(name, BOXED if name == BOX else MADE))
        else:
            try:
                load_annotator(name)
            except UserError as error:
                if name != SALIENT:
                    own = f"erode-0.1, dilate-0.1, {BOX}, {GRABCUT_IN_BOX}"
                    raise UserError(f"{error} (kinds of masks other than mask makers: {own})") from error
                absent.append(name)
                continue
            kinds.append(MaskKind(name, MADE))
    if not kinds:
        raise UserError("this study compares masks: name one kind or more with --set kinds=dilate-0.1,box")
    if len({kind.folder for kind in kinds}) < len(kinds):
        raise UserError("two of the kinds would share a folder; name them in two studies")
    return kinds, absent


def grown(mask: Mask, radius: float) -> Mask:
    """Dilate a mask (below 0: erode) by a share of √area of the object, of which the innermost pixels always stay."""
    if not mask.any() or mask.all():
        return mask.copy()
    reach = abs(radius) * float(np.sqrt(mask.sum()))
    # The image's edge is not an edge of the object: an animal that is cut off there continues beyond it.
    inside = mask if radius < 0 else ~mask
    depth = cv2.distanceTransform(inside.astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    if radius > 0:
        return np.asarray(depth <= reach)
    left = np.asarray(depth > reach)
    return left if left.any() else np.asarray(depth >= depth.max())


def box_of(mask: Mask) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) around the object; the last two are the first pixels outside."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def degraded(kind: MaskKind, image: Image, mask: Mask) -> Mask:
    """Return the mask of a kind that is made from the exact one."""
    if kind.radius:
        return grown(mask, kind.radius)
    if not mask.any():
        return mask.copy()
    left, top, right, bottom = box_of(mask)
    if kind.name == BOX:
        boxed = np.zeros_like(mask)
        boxed[top:bottom, left:right] = True
        return boxed
    return _cut_in_box(image, (left, top, right, bottom))


def _cut_in_box(image: Image, box: tuple[int, int, int, int]) -> Mask:
    """Return OpenCV's GrabCut from a box, at one size for all images; everything if the box is everything."""
    height, width = image.shape[:2]
    scale = CUT_SIDE / max(height, width)
    size = (max(8, round(width * scale)), max(8, round(height * scale)))
    across, down = size[0] / width, size[1] / height
    left, right = round(box[0] * across), round(box[2] * across)
    top, bottom = round(box[1] * down), round(box[3] * down)
    labels = np.zeros((size[1], size[0]), np.uint8)
    if (right - left, bottom - top) == size:
        return np.ones((height, width), np.bool_)
    working = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST)
    background, foreground = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)  # its k-means starts from OpenCV's own generator
    rectangle = (left, top, max(1, right - left), max(1, bottom - top))
    cv2.grabCut(working, labels, rectangle, background, foreground, CUT_ROUNDS, cv2.GC_INIT_WITH_RECT)
    object_pixels = (labels == cv2.GC_PR_FGD).astype(np.float32)
    return np.asarray(cv2.resize(object_pixels, (width, height), interpolation=cv2.INTER_LINEAR) > 0.5)
