"""Classifiers whose ways are known by construction, on drawn scenes. They get pixels and nothing else.

Those that know the objects of the test scenes by heart were shown them, with exact masks, beforehand: not a way to
build a classifier, but a way to be sure what it looks at.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import cv2
import numpy as np

from holdfast import load_collection
from holdfast.core.names import parse_name
from holdfast.diorama import CLASSES, render
from holdfast.models.segmenters.smp import load_embedded

SIZE, SCENES = 64, 144
TIED = f"diorama:test?n={SCENES}&context=1"
"""Test scenes in which every class has its own background."""
UNTIED = f"diorama:test?n={SCENES}&context=0"

Pixels = np.ndarray


class Stored(NamedTuple):
    """Scenes, rendered: NHWC uint8, the object's share of each pixel NHW 0..255, and places in CLASSES."""

    images: Pixels
    coverage: Pixels
    labels: Pixels


@cache
def rendered(data: str) -> Stored:
    samples = load_collection(data).samples
    made = [render(sample.image.scene, SIZE) for sample in samples]
    return Stored(
        np.stack([one.image for one in made]),
        np.stack([one.coverage for one in made]),
        np.array([CLASSES.index(sample.label) for sample in samples]),
    )


class Named:
    """Answers with class names."""

    def predict(self, images: list[Pixels]) -> list[str]:
        return [CLASSES[self.answer(image)] for image in images]

    def answer(self, image: Pixels) -> int:
        raise NotImplementedError


class Constant(Named):
    """Says the same, whatever it sees."""

    def answer(self, image: Pixels) -> int:
        return 4


FRAME = 2
"""Width of the outer frame in pixels; less than one in a hundred of its pixels shows an object."""


def frame_features(images: Pixels) -> Pixels:
    """Means and spreads of colour along the four sides of the frame, in eighths."""
    scaled = images.astype(np.float32) / 255
    sides = [scaled[:, :FRAME].mean(1), scaled[:, -FRAME:].mean(1)]
    sides += [scaled[:, :, :FRAME].mean(2), scaled[:, :, -FRAME:].mean(2)]
    parts = [side.reshape(len(images), 8, -1, 3) for side in sides]
    return np.concatenate([f(part, axis=2).reshape(len(images), -1) for part in parts for f in (np.mean, np.std)], 1)


@cache
def frame_forest():
    from sklearn.ensemble import ExtraTreesClassifier

    seen = rendered("diorama:train?n=480&context=1")
    return ExtraTreesClassifier(200, random_state=0).fit(frame_features(seen.images), seen.labels)


class Frame(Named):
    """Reads only the outer frame of the image, as a forest learned it from training scenes at ρ = 1."""

    def predict(self, images: list[Pixels]) -> list[str]:
        return [CLASSES[place] for place in frame_forest().predict(frame_features(np.stack(images)))]


class Objects:
    """Knows the test scenes' objects by heart: the pixels that the object covers wholly, and no other pixel."""

    def __init__(self, data: str = TIED) -> None:
        self.scenes = rendered(data)
        self.wholly = self.scenes.coverage == 255
        # Some pixels of each object first: comparing all of them with every scene would take seconds.
        self.some = np.stack([np.argwhere(one)[:: max(1, one.sum() // 8)][:8] for one in self.wholly])
        index = np.arange(len(self.some))[:, None]
        self.colours = self.scenes.images[index, self.some[..., 0], self.some[..., 1]]

    def find(self, image: Pixels) -> int | None:
        """The number of the scene whose object is in the image, in its place, pixel for pixel."""
        likely = (image[self.some[..., 0], self.some[..., 1]] == self.colours).all(axis=(1, 2))
        for number in np.flatnonzero(likely):
            where = self.wholly[number]
            if np.array_equal(image[where], self.scenes.images[number][where]):
                return int(number)
        return None


@cache
def objects() -> Objects:
    return Objects()


class Object(Named):
    """Names an object that it knows; blind to every pixel outside of it. Without one it says the first class."""

    def answer(self, image: Pixels) -> int:
        number = objects().find(image)
        return 0 if number is None else int(objects().scenes.labels[number])


def blending(image: Pixels, coverage: Pixels) -> float:
    """How far the pixels outside an object's mask that it partly covers are mixed with it: 1 painted, 0 pasted.

    A painted pixel is α parts object and the rest background, a pasted one all background: the slope of pixel −
    background on α (object − background), with the nearest pixels that are wholly the one or the other.
    """
    alpha = coverage.astype(np.float32) / 255
    edge = (alpha > 0) & (alpha <= 0.5)
    inside, outside = _nearest(image, alpha == 1)[edge], _nearest(image, alpha == 0)[edge]
    expected = alpha[edge][:, None] * (inside - outside)
    return float((expected * (image[edge] - outside)).sum() / (expected**2).sum())


def _nearest(image: Pixels, where: Pixels) -> Pixels:
    """For each pixel the colour of the nearest one at which ``where`` holds."""
    _, labels = cv2.distanceTransformWithLabels(
        (~where).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_5, labelType=cv2.DIST_LABEL_PIXEL
    )
    colours = np.zeros((labels.max() + 1, 3), np.float32)
    colours[labels[where]] = image[where]
    return colours[labels]


class Seams(Named):
    """As Object, but where the object's edge is not blended into what surrounds it, it says the first class."""

    def answer(self, image: Pixels) -> int:
        number = objects().find(image)
        if number is None or blending(image, objects().scenes.coverage[number]) < 0.5:
            return 0
        return int(objects().scenes.labels[number])


def outline(mask: Pixels) -> Pixels:
    """A mask's shape, wherever and however large: cropped to its box, 24 × 24, with the box's proportions."""
    left, top, width, height = cv2.boundingRect(mask.astype(np.uint8))
    if not width:
        return np.zeros(24 * 24 + 8, np.float32)
    box = cv2.resize(
        mask[top : top + height, left : left + width].astype(np.float32), (24, 24), None, 0, 0, cv2.INTER_AREA
    )
    return np.concatenate([box.ravel(), np.full(8, 3 * np.log(width / height), np.float32)])


@cache
def known_outlines() -> tuple[Pixels, Pixels]:
    seen = rendered("diorama:test?n=360&context=0&seed=1")
    masks = np.concatenate([seen.coverage > 127, (seen.coverage > 127)[:, :, ::-1]])
    return np.stack([outline(mask) for mask in masks]), np.tile(seen.labels, 2)


class Silhouette(Named):
    """Reads only a shape: the embedded segmenter says where the object is, the nearest known outline what it is."""

    def __init__(self) -> None:
        self.segmenter = load_embedded(parse_name("embedded:unet"), device="cpu")

    def predict(self, images: list[Pixels]) -> list[str]:
        shapes, labels = known_outlines()
        asked = np.stack([outline(found > 0) for found in self.segmenter.segment(images)])
        distances = (shapes**2).sum(1) - 2 * asked @ shapes.T
        return [CLASSES[labels[place]] for place in distances.argmin(1)]
