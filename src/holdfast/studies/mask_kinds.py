"""Masks made worse on purpose, or by a mask maker: their files, and how far they are from the exact ones."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

from holdfast import api
from holdfast.annotate import load_annotator
from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.types import ORIGINAL, Image, Mask, Sample
from holdfast.data.writers import encode_mask
from holdfast.pipeline.files import file_name
from holdfast.pipeline.jobs.progress import Progress
from holdfast.pipeline.samples import DataSpec, read

if TYPE_CHECKING:
    import pandas as pd

EXACT, BOX, GRABCUT_IN_BOX, SALIENT = "exact", "box", "grabcut-box", "u2netp"
SMALLER, LARGER, BOXED, MADE = "eroded", "dilated", "box", "found in the picture"
FAMILIES = (EXACT, SMALLER, LARGER, BOXED, MADE)

CUT_SIDE, CUT_ROUNDS = 256, 5
"""Longer side of the pictures that GrabCut works on, and its iterations (OpenCV's usual five)."""

_GROWN = re.compile(r"(erode|dilate)-(\d*\.?\d+)")


@dataclass(frozen=True)
class Kind:
    """One way to come by masks.

    Attributes:
        name: ``exact``, ``erode-0.1``, ``dilate-0.1``, ``box``, ``grabcut-box``, or a mask maker's name.
        family: one of ``FAMILIES``.
        radius: by how much the exact mask is dilated, in √area of the object; less than 0: eroded.
    """

    name: str
    family: str
    radius: float = 0.0

    @property
    def folder(self) -> str:
        """A name for files."""
        return re.sub(r"[^A-Za-z0-9._-]+", "_", self.name)


def kinds_of(names: Sequence[str]) -> tuple[list[Kind], list[str]]:
    """The kinds of these names, none twice, and those that were left out because their network is not installed."""
    made, absent = [], []
    for name in dict.fromkeys(names):
        if name == EXACT:
            continue
        if grown := _GROWN.fullmatch(name):
            size = float(grown[2])
            if not 0 < size <= 1:
                raise UserError(f"{name}: masks are eroded and dilated by a share of the object's size, 0 to 1")
            eroded = grown[1] == "erode"
            made.append(Kind(name, SMALLER if eroded else LARGER, -size if eroded else size))
        elif name in (BOX, GRABCUT_IN_BOX):
            made.append(Kind(name, BOXED if name == BOX else MADE))
        else:
            try:
                load_annotator(name)
            except UserError as error:
                if name != SALIENT:
                    own = f"erode-0.1, dilate-0.1, {BOX}, {GRABCUT_IN_BOX}"
                    raise UserError(f"{error} (kinds of masks besides mask makers: {own})") from error
                absent.append(name)
                continue
            made.append(Kind(name, MADE))
    if not made:
        raise UserError("this study compares masks: name one kind or more with --set kinds=dilate-0.1,box")
    if len({kind.folder for kind in made}) < len(made):
        raise UserError("two of the kinds would have one folder; name them in two studies")
    return made, absent


def grown(mask: Mask, radius: float) -> Mask:
    """A mask dilated (or, below 0, eroded) by a disc whose radius is a share of √area of the object.

    Where eroding would leave nothing, the innermost pixels stay: every picture keeps an object.
    """
    if not mask.any() or mask.all():
        return mask.copy()
    reach = abs(radius) * float(np.sqrt(mask.sum()))
    # The picture's edge is no edge of the object: an animal that is cut off there goes on beyond it.
    inside = mask if radius < 0 else ~mask
    depth = cv2.distanceTransform(inside.astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    if radius > 0:
        return np.asarray(depth <= reach)
    left = np.asarray(depth > reach)
    return left if left.any() else np.asarray(depth >= depth.max())


def box_of(mask: Mask) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) around the object; the last two are the first pixels outside."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def degraded(kind: Kind, image: Image, mask: Mask) -> Mask:
    """The mask of a kind that is made from the exact one, HW."""
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
    """OpenCV's GrabCut started from a box, HW; the box itself where it is the whole picture.

    On pictures of 64 pixels its smoothness outweighs the colours and the object is lost, on photos it is not: all are
    cut at the same size.
    """
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
    found = (labels == cv2.GC_PR_FGD).astype(np.float32)
    return np.asarray(cv2.resize(found, (width, height), interpolation=cv2.INTER_LINEAR) > 0.5)


def samples_of(spec: DataSpec) -> list[Sample]:
    """The pictures as they are that have an exact mask."""
    samples = [one for one in read(spec).samples if one.mask is not None and one.condition == ORIGINAL]
    if not samples:
        raise UserError(f"{spec.data} has no masks to hold others against; name a folder of them: --set masks=FOLDER")
    return samples


def write_kind(kind: Kind, samples: Sequence[Sample], spec: DataSpec, folder: Path, progress: Progress) -> None:
    """Write the masks of a kind, and the list by which readers find them; what is there stays."""
    if not kind.radius and kind.name not in (BOX, GRABCUT_IN_BOX):
        api.mask(
            spec.data, out=folder, annotator=kind.name, masks=spec.masks, limit=spec.limit, seed=spec.seed,
            progress=progress,
        )  # fmt: skip
        return
    if (folder / "masks.csv").is_file():
        return
    rows = []
    for done, sample in enumerate(samples):
        progress(f"mask {kind.name}", done, len(samples))
        path = f"{file_name(sample)}.png"
        try:
            image = sample.image.load(max_pixels=spec.max_pixels)
            assert sample.mask is not None
            made = degraded(kind, image, sample.mask.load(*image.shape[:2]))
        except SampleError:  # the run will say so
            continue
        write_atomic(folder / path, encode_mask(made))
        rows.append([path, sample.sample_id, "ok"])
    text = io.StringIO()
    csv.writer(text).writerows([["path", "sample_id", "status"], *rows])
    write_atomic(folder / "masks.csv", text.getvalue().encode())


def overlaps(samples: Sequence[Sample], others: Mapping[str, Mapping[str, Sample]], max_pixels: int) -> pd.DataFrame:
    """How far each mask is from the exact one: kind, source_id, iou, lost, added, usable.

    ``lost`` is the share of the object that the mask leaves out; ``added`` the background it takes in, as a share of
    the object's area; ``usable``: neither empty nor the whole picture.

    Args:
        samples: with exact masks.
        others: kind → sample id → the same picture with that kind's mask.
        max_pixels: larger pictures are left out.
    """
    import pandas as pd

    rows = []
    for sample, image, exact in masked(samples, max_pixels):
        for kind, made in others.items():
            mask = mask_of(made.get(sample.sample_id), image)
            found = np.zeros_like(exact) if mask is None else mask
            both, area = int((found & exact).sum()), max(int(exact.sum()), 1)
            rows.append(
                {
                    "kind": kind,
                    "source_id": sample.source_id,
                    "iou": both / max(int((found | exact).sum()), 1),
                    "lost": 1 - both / area,
                    "added": (int(found.sum()) - both) / area,
                    "usable": bool(found.any() and not found.all()),
                }
            )
    return pd.DataFrame(rows)


def masked(samples: Sequence[Sample], max_pixels: int) -> Iterator[tuple[Sample, Image, Mask]]:
    """Each sample with its picture and its exact mask; those that cannot be read are left out."""
    for sample in samples:
        try:
            image = sample.image.load(max_pixels=max_pixels)
        except SampleError:
            continue
        exact = mask_of(sample, image)
        if exact is not None and exact.any():
            yield sample, image, exact


def mask_of(sample: Sample | None, image: Image) -> Mask | None:
    """The sample's mask for this picture, HW, or None where there is none that can be read."""
    if sample is None or sample.mask is None:
        return None
    try:
        return sample.mask.load(*image.shape[:2])
    except SampleError:
        return None


def sheet(pictures: Sequence[tuple[Image, Mask]], side: int = 120) -> Image:
    """Pictures two by two, each cut to a square; what the mask takes for background is nearly white."""
    shown = []
    for image, mask in pictures:
        height, width = image.shape[:2]
        faded = np.where(mask[..., None], image, 255 - (255 - image.astype(np.uint16)) // 6).astype(np.uint8)
        least = min(height, width)
        top, left = (height - least) // 2, (width - least) // 2
        square = np.ascontiguousarray(faded[top : top + least, left : left + least])
        rough = cv2.INTER_AREA if least > side else cv2.INTER_NEAREST
        shown.append(np.asarray(cv2.resize(square, (side, side), interpolation=rough), np.uint8))
    shown += [np.full((side, side, 3), 255, np.uint8)] * (-len(shown) % 2)
    return np.concatenate([np.concatenate(shown[place : place + 2], axis=1) for place in range(0, len(shown), 2)])
