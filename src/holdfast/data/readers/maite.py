"""``maite:MODULE:ATTRIBUTE``: a dataset that follows MAITE's protocol for image classification or object detection.

Typing is structural: nothing here imports the package ``maite``. Its images are (channels, height, width).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import SampleError, UserError, first_line
from holdfast.core.fingerprint import array_sha256
from holdfast.core.names import Name
from holdfast.core.protocols import as_array
from holdfast.core.types import DEFAULT_MAX_PIXELS, Collection, Image, Problem, Sample
from holdfast.data import reading
from holdfast.data.boxes import ListedObject, ListedObjects, largest_label
from holdfast.data.images import check_size
from holdfast.data.masks import ArrayMask
from holdfast.data.readers.listed import canonical
from holdfast.registry import find_attribute


def from_channels_first(picture: Any) -> Image:
    """Return an image (C, H, W) of whole numbers 0..255, or of fractions 0..1, as HWC uint8 RGB."""
    array = as_array(picture)
    if array.ndim != 3 or array.shape[0] not in (1, 3) or not array.size:
        raise SampleError(f"a MAITE image is (channels, height, width) with 1 or 3 channels, not {array.shape}")
    if array.dtype != np.uint8:
        fractions = array.dtype.kind == "f"
        if not np.isfinite(array).all() or array.min() < 0 or array.max() > (1 if fractions else 255):
            raise SampleError("a MAITE image holds whole numbers 0 to 255 or fractions 0 to 1; this one holds others")
        array = np.rint(array * (255 if fractions else 1)).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(array, (3, *array.shape[1:])).transpose(1, 2, 0))


@dataclass(frozen=True, slots=True)
class MaiteImage:
    """The image of one item; the dataset is found by its name, so that other processes find it, too."""

    dataset: str
    index: int

    def fingerprint(self) -> str:
        """Return a hash of the pixels."""
        return array_sha256(self.load())

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """Return HWC uint8 RGB."""
        image = from_channels_first(_item(_dataset(self.dataset), self.index)[0])
        check_size(image.shape[1], image.shape[0], max_pixels=max_pixels)
        return image


@lru_cache(maxsize=8)
def _dataset(name: str) -> Any:
    target = find_attribute(Name("maite", name))[0]
    dataset = target() if isinstance(target, type) else target
    if not all(hasattr(dataset, part) for part in ("__getitem__", "__len__", "metadata")):
        raise UserError(f"maite:{name} is not a MAITE dataset: it needs __getitem__, __len__ and metadata")
    return dataset


def _item(dataset: Any, index: int) -> tuple[Any, Any, Mapping[str, Any]]:
    try:
        picture, target, metadata = dataset[index]
    except Exception as error:  # the user's own code
        raise SampleError(f"item {index} cannot be read: {type(error).__name__}: {first_line(error)}") from error
    return picture, target, metadata


def listed_boxes(target: Any, classes: Mapping[int, str]) -> tuple[ListedObject, ...]:
    """Return the boxes of a target; a label is the name of its number, or the number if it has none."""
    boxes, labels = as_array(target.boxes, np.float64).reshape(-1, 4), as_array(target.labels).reshape(-1)
    if len(boxes) != len(labels):
        raise SampleError(f"the target has {len(boxes)} boxes and {len(labels)} labels")
    return tuple(
        ListedObject(str(place), classes.get(int(label), str(int(label))), tuple(box))
        for place, (box, label) in enumerate(zip(boxes.tolist(), labels.tolist(), strict=True))
    )


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read a dataset of MAITE's: classes from ``index2label``, id, ``mask`` and attributes from the items' metadata."""
    options = reading.text_options(name, ())
    dataset = _dataset(name.name)
    classes = {int(index): str(label) for index, label in dict(dataset.metadata.get("index2label", {})).items()}
    samples, empty, problems = list[Sample](), list[Sample](), list[Problem]()
    for index in range(len(dataset)):
        try:
            _, target, metadata = _item(dataset, index)
            objects = ListedObjects(listed_boxes(target, classes)) if hasattr(target, "boxes") else None
            label = _label(target, classes) if objects is None else largest_label(objects.objects)
        except SampleError as error:
            problems.append(Problem(f"item {index}", str(error)))
            continue
        plain = {key: value for key, value in metadata.items() if key != "id" and np.isscalar(value)}
        mask = metadata.get("mask")
        sample = Sample(
            str(metadata.get("id", index)), label, MaiteImage(name.name, index),
            None if mask is None else ArrayMask(as_array(mask, np.bool_)), attributes=canonical(plain),
            objects=objects,
        )  # fmt: skip
        (samples if label else empty).append(sample)
    samples = reading.without_repeats(samples, problems)
    listed = [sample.objects for sample in samples if isinstance(sample.objects, ListedObjects)]
    boxed = {each.label for own in listed for each in own.objects}
    named = [label for label in dict.fromkeys(classes.values() or sorted(boxed)) if label in boxed]
    return reading.finish(
        str(dataset.metadata.get("id", name.name)), samples, problems, where=f"maite:{name.name}",
        classes=classes.values() if classes else None, masks=masks, format=options["mask_format"], empty=empty,
        object_classes=named,
    )  # fmt: skip


def _label(target: Any, classes: Mapping[int, str]) -> str:
    scores = as_array(target, np.float64)
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise SampleError(f"the target is a score for each class, not an array of shape {scores.shape}")
    label = int(scores.argmax())
    return classes.get(label, str(label))
