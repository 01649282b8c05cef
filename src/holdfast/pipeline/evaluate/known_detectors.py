"""``known:KIND``: hand-made detectors that know a dataset's images, so that what they should score is known.

They look at pixels only: an object counts as shown if all of its pixels are as in the dataset, a scene if its
surroundings are. Scenarios leave the object bit-identical, so the answers under each condition follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name, checked, unknown
from holdfast.core.protocols import Detections, TrueObject
from holdfast.core.types import Collection, Image, LabelSpace, Mask, Sample
from holdfast.models.options import display_name

KINDS = {
    "perfect": "boxes every object whose pixels are there",
    "shift": "the same, all boxes moved by ?pixels=K to the right",
    "texture": "boxes where objects were, whenever the surroundings are there, whether or not the objects are",
    "scene": "boxes every object, and calls it by its class only in its own surroundings",
}
_SAME = 0.5  # share of the surroundings' pixels from which on a scene is the same
MOST_SCENES = 2_000


@dataclass(frozen=True)
class _KnownScene:
    image: Image
    objects: tuple[TrueObject, ...]
    masks: tuple[Mask, ...]
    around: Mask


class KnownDetector:
    """A ``Detector`` that compares images with those of a collection."""

    def __init__(self, name: str, kind: str, pixels: int, collection: Collection) -> None:
        if len(collection.samples) > MOST_SCENES:
            raise UserError(f"known: keeps all images in memory, at most {MOST_SCENES}")
        self.name, self.labels, self._kind, self._pixels = name, LabelSpace(collection.classes), kind, pixels
        self._scenes = [scene for sample in collection.samples if (scene := _known(sample)) is not None]
        digests = sorted(sample.image.fingerprint() for sample in collection.samples)
        self.fingerprint = fingerprint(["known", 1, kind, pixels, collection.classes, digests])

    def detect(self, images: Sequence[Image]) -> list[Detections]:
        """Return the boxes that this kind of detector gives."""
        return [self._answer(image) for image in images]

    def _answer(self, image: Image) -> Detections:
        boxes, labels = [], []
        for scene in self._scenes:
            if scene.image.shape != image.shape:
                continue
            same = (scene.image == image).all(2)
            at_home = bool(same[scene.around].mean() >= _SAME) if scene.around.any() else False
            for each, mask in zip(scene.objects, scene.masks, strict=True):
                if not (at_home if self._kind == "texture" else bool(same[mask].all())):
                    continue
                place = self.labels.names.index(each.label)
                if self._kind == "scene" and not at_home:
                    place = (place + 1) % len(self.labels)
                shift = self._pixels if self._kind == "shift" else 0
                boxes.append([each.box[0] + shift, each.box[1], each.box[2] + shift, each.box[3]])
                labels.append(place)
        scores = np.full(len(boxes), 0.9, np.float32)
        return Detections(np.array(boxes, np.float32).reshape(-1, 4), scores, np.array(labels, np.int64))


def _known(sample: Sample) -> _KnownScene | None:
    if sample.objects is None:
        return None
    try:
        image = sample.image.load()
        height, width = image.shape[:2]
        objects = tuple(each for each in sample.objects.load(height, width) if not each.problem and not each.crowd)
        masks = tuple(each.pixels(height, width) for each in objects)
        union = sample.mask.load(height, width) if sample.mask is not None else np.zeros((height, width), np.bool_)
    except SampleError:
        return None
    around = np.ones_like(union)
    if union.any():  # what fills an object's place covers the box of them all
        rows, columns = np.flatnonzero(union.any(1)), np.flatnonzero(union.any(0))
        around[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = False
    return _KnownScene(image, objects, masks, around if around.any() else ~union)


def load(name: Name, *, device: str, collection: Collection | None = None) -> KnownDetector:
    """Load one of ``KINDS``; it works in one process, where the images are."""
    del device
    if name.name not in KINDS:
        raise unknown("known detector", name.name, KINDS)
    pixels = checked(name, {"pixels": int}).get("pixels", 0)
    if collection is None or not collection.samples:
        raise UserError("known: detectors work in the process that reads the dataset; leave --workers out")
    return KnownDetector(display_name(name, name.name), name.name, pixels, collection)
