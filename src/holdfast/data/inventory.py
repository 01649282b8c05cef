"""The inventory of a dataset: classes, sizes, formats and masks, and what is wrong with them. Images are streamed."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import cv2
import numpy as np
from PIL import Image as Pillow

from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import DEFAULT_MAX_PIXELS, ORIGINAL, Collection, Image, Mask, Sample
from holdfast.data.findings import DataFinding, PhotoFacts, Survey, find, short_digest
from holdfast.data.images import ORIENTATION, EncodedImage, decode_image, open_header
from holdfast.data.masks import VOID, EncodedMask, decode_mask
from holdfast.data.native import bits_of, is_native_only
from holdfast.data.near import perceptual_hash

_TOGETHER = 256  # images that are looked at at a time
_SMALL_VALUES = 32  # more classes than this in a label map are none
_CLEARLY = 1.5  # times as strong must edges be under a turned mask
_TURNS = {
    2: Pillow.Transpose.FLIP_LEFT_RIGHT, 3: Pillow.Transpose.ROTATE_180, 4: Pillow.Transpose.FLIP_TOP_BOTTOM,
    5: Pillow.Transpose.TRANSPOSE, 6: Pillow.Transpose.ROTATE_270, 7: Pillow.Transpose.TRANSVERSE,
    8: Pillow.Transpose.ROTATE_90,
}  # fmt: skip
"""What EXIF's orientation asks for."""


@dataclass(frozen=True)
class Inventory:
    """What a dataset holds."""

    name: str  # of the dataset
    images: int  # number of images; ``photos`` counts their sources
    photos: int
    classes: Mapping[str, int]  # label → number of images
    masked: Mapping[str, int]  # label → number of images with a mask
    splits: Mapping[str, int]  # split → number of images, if there are splits
    conditions: Mapping[str, int]  # condition → number of images
    formats: Mapping[str, int]  # format of the files → number
    sizes: Mapping[str, int]  # "width × height" → number, the commonest first
    turned: int  # images that EXIF turns
    bytes: int  # size of all files
    # smallest, median and largest share of an image that its mask covers; empty without masks.
    covered: tuple[float, ...]
    findings: tuple[DataFinding, ...]  # what is wrong, gravest first


def take_inventory(
    collection: Collection,  # of any reader
    *,
    label_rows: Sequence[str] = (),  # a sentence for each row of a label file that matches no class
    max_pixels: int = DEFAULT_MAX_PIXELS,  # larger images are not decoded
    # called with the name of the step, how many images are done, and their number.
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Inventory:
    """Read every image and mask of a collection once, and return what they show."""
    survey = Survey(collection, label_rows)
    formats, sizes, areas = Counter[str](), Counter[str](), array("d")
    turned = size = 0
    progress("data", 0, len(collection))
    for done, (sample, facts) in enumerate(_looked_at(collection.samples, max_pixels), start=1):
        survey.add(sample, facts)
        if not facts.problem:
            formats[facts.format or "in memory"] += 1
            sizes[f"{facts.size[1]} × {facts.size[0]}"] += 1
        turned, size = turned + facts.turned, size + facts.bytes
        if facts.covered == facts.covered:
            areas.append(facts.covered)
        progress("data", done, len(collection))
    samples = collection.samples
    counted = Counter(sample.label for sample in samples)
    return Inventory(
        name=collection.name, images=len(samples), photos=len({sample.source_id for sample in samples}),
        classes={label: counted[label] for label in collection.classes},
        masked=dict(Counter(sample.label for sample in samples if sample.mask is not None)),
        splits=dict(Counter(sample.split for sample in samples if sample.split)),
        conditions=dict(Counter(sample.condition for sample in samples)), formats=dict(formats.most_common()),
        sizes=dict(sizes.most_common()), turned=turned, bytes=size,
        covered=tuple(float(share) for share in np.quantile(areas, (0, 0.5, 1))) if areas else (),
        findings=tuple(find(survey)),
    )  # fmt: skip


def _looked_at(samples: Sequence[Sample], max_pixels: int) -> Iterator[tuple[Sample, PhotoFacts]]:
    """Yield each sample with its facts; a few hundred are in memory at a time."""
    rest = iter(samples)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        while group := list(islice(rest, _TOGETHER)):
            yield from zip(group, threads.map(partial(look_at, max_pixels=max_pixels), group), strict=True)


def look_at(sample: Sample, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> PhotoFacts:
    """Return what an image and its mask show."""
    facts, header = PhotoFacts(), None
    try:
        if isinstance(sample.image, EncodedImage):
            data = sample.image.read()
            facts = replace(facts, digest=short_digest(data), bytes=len(data))
            facts = replace(facts, format="DICOM" if data[128:132] == b"DICM" else "NPY")
            if not is_native_only(data):
                header = open_header(data)
                facts = replace(facts, format=header.format or "", deep=bits_of(data, header) > 8)
            image = decode_image(data, max_pixels=max_pixels)
        else:
            facts = replace(facts, digest=short_digest(sample.image.fingerprint().encode()))
            image = sample.image.load(max_pixels=max_pixels)
    except SampleError as error:
        return replace(facts, problem=str(error))
    orientation = int(header.getexif().get(ORIENTATION, 1)) if header is not None else 1
    turned = orientation in _TURNS
    look = perceptual_hash(image).tobytes()
    facts = replace(facts, size=image.shape[:2], brightest=int(image.max()), turned=turned, look=look)
    if sample.mask is None:
        return facts
    return replace(facts, **_mask_facts(sample.mask, image, orientation if turned else 1))


def _mask_facts(source: Any, image: Image, orientation: int) -> dict[str, Any]:
    height, width = image.shape[:2]
    try:
        mask: Mask = source.load(height, width)
    except SampleError as error:
        if orientation >= 5 and height != width:  # turned by a quarter: the stored sides are the other way round
            try:
                source.load(width, height)
            except SampleError:
                return {"mask_problem": str(error)}
            return {"turned_mask": True}
        return {"mask_problem": str(error)}
    return {
        "covered": float(mask.mean()),
        "turned_mask": orientation != 1 and _fits_better_turned(image, mask, orientation),
        "void_ring": isinstance(source, EncodedMask) and _is_void_ring(source, mask),
    }


def _fits_better_turned(image: Image, mask: Mask, orientation: int) -> bool:
    """Return whether the image's edges are clearly stronger along the mask turned as EXIF turns the image."""
    turned = np.asarray(Pillow.fromarray(mask.view(np.uint8)).transpose(_TURNS[orientation])).astype(np.bool_)
    if turned.shape != mask.shape:  # a quarter turn of sides that differ: the mask was drawn on the upright image
        return False
    grey = cv2.GaussianBlur(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (5, 5), 0).astype(np.float32)
    edges = cv2.magnitude(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
    along, along_turned = _mean_along(edges, mask), _mean_along(edges, turned)
    return along_turned > _CLEARLY * along + 1


def _mean_along(edges: Any, mask: Mask) -> float:
    outline = cv2.morphologyEx(mask.view(np.uint8), cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)).astype(np.bool_)
    return float(edges[outline].mean()) if outline.any() else 0.0


def _is_void_ring(source: EncodedMask, mask: Mask) -> bool:
    """Return whether a mask file holds 0, a few small values and 255, and is read as 255 alone."""
    if source.format not in ("auto", "grey"):
        return False
    data = source.read()
    header = open_header(data)
    if header.mode not in ("L", "P") or header.format in ("JPEG", "MPO", "WEBP"):
        return False
    values = np.unique(np.asarray(header))
    small = values[(values > 0) & (values < 128)]
    between = values[(values >= 128) & (values < VOID)]
    if values[-1] != VOID or between.size or not 0 < small.size <= _SMALL_VALUES:
        return False
    return not np.array_equal(decode_mask(data, format="index"), mask)


def check_exchange(collection: Collection, limit: int) -> None:
    """Raise a UserError if images cannot exchange backgrounds within their class and with others."""
    labels = [sample.label for sample in collection.samples if sample.condition == ORIGINAL]
    if len(set(labels)) in (0, 1, len(labels)):  # too few: perhaps because they cannot be read
        for finding in take_inventory(collection).findings:
            if finding.kind == "unreadable":
                raise UserError(f"{finding.sentence} First: {finding.examples[0]}. {finding.advice}")
    classes = len(collection.classes)
    if limit == len(labels) and classes > 1 and len(set(labels)) in (1, limit):
        raise UserError(
            f"a check exchanges backgrounds within and between classes, for which --limit {limit} leaves too few "
            f"images; use {2 * classes} or more, two for each of the {classes} classes"
        )
    if len(set(labels)) < 2:
        only = f"only {labels[0]!r}" if labels else "no originals"
        raise UserError(
            f"a check exchanges backgrounds between classes, so it needs a folder each for two classes or more "
            f"(photos/cat/1.jpg, photos/dog/1.jpg); {collection.name} has {only}"
        )
    if len(set(labels)) == len(labels):
        raise UserError(
            f"a check exchanges backgrounds within a class too, so it needs two images or more of each class; "
            f"{collection.name} has one of each"
        )
