"""Diorama-12 as a data source: ``diorama:test?n=240&context=0.95&size=64``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint, generator, seed_from
from holdfast.core.names import Name, unknown
from holdfast.core.protocols import TrueObject
from holdfast.core.types import DEFAULT_MAX_PIXELS, Collection, Image, Mask, Sample
from holdfast.diorama.render import MAX_SIZE, MIN_SIZE, RENDERER_VERSION, render, render_several
from holdfast.diorama.scene import MOST_MEMBERS, Contexts, Scene, SceneOfSeveral, draw_scene, draw_several
from holdfast.diorama.vocabulary import CLASSES, KEYS, SPLITS, Split

LICENCE = "Apache-2.0"
MAX_SCENES = 1_000_000
_CONTEXTS = {"context": "background"} | {f"{factor}_context": factor for factor in ("texture", "material", "colour")}
_OPTIONS = ("n", "size", "seed", "objects", *_CONTEXTS)

_HIDDEN = 0.25  # an object of which less is visible cannot be asked for


@lru_cache(maxsize=16)  # image and mask of a sample are asked for one after the other, by several threads at once
def _rendered(scene: Scene | SceneOfSeveral, size: int) -> Any:
    return render(scene, size) if isinstance(scene, Scene) else render_several(scene, size)


@dataclass(frozen=True, slots=True)
class SceneImage:
    """The image of a scene of one or several objects, painted when it is loaded."""

    scene: Scene | SceneOfSeveral
    size: int

    def fingerprint(self) -> str:
        """Return a hash of the factors, the size and the renderer's version; nothing is painted for it."""
        return _fingerprint("image", self.scene, self.size)

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """Return HWC uint8 RGB, ``size`` × ``size``."""
        if self.size**2 > max_pixels:
            raise SampleError(f"the scene has {self.size}×{self.size} pixels, more than the limit of {max_pixels}")
        image: Image = _rendered(self.scene, self.size).image
        return image.copy()


@dataclass(frozen=True, slots=True)
class SceneMask:
    """The mask of what is visible of a scene's object; of several the one of this number, or all of them (-1)."""

    scene: Scene | SceneOfSeveral
    size: int
    number: int = -1

    def fingerprint(self) -> str:
        """Return a hash of the factors, the size, the object and the renderer's version."""
        return _fingerprint("mask" if isinstance(self.scene, Scene) else f"mask {self.number}", self.scene, self.size)

    def load(self, height: int, width: int) -> Mask:
        """Return HW bool."""
        if (height, width) != (self.size, self.size):
            raise SampleError(f"the mask is {self.size}×{self.size}, the image {width}×{height}")
        drawn = _rendered(self.scene, self.size)
        if isinstance(self.scene, Scene):
            return np.array(drawn.mask)
        return np.array(drawn.masks.any(0) if self.number < 0 else drawn.masks[self.number])


@dataclass(frozen=True, slots=True)
class SceneObjects:
    """The objects of a scene: exact boxes around the visible pixels."""

    scene: SceneOfSeveral
    size: int
    exact: ClassVar[bool] = True  # every object has a mask of its own

    def fingerprint(self) -> str:
        """Return a hash of the factors, the size and the renderer's version."""
        return _fingerprint("objects", self.scene, self.size)

    def load(self, height: int, width: int) -> tuple[TrueObject, ...]:
        """Return the objects from back to front; those that are almost hidden have a problem."""
        if (height, width) != (self.size, self.size):
            raise SampleError(f"the objects are for {self.size}×{self.size} pixels, the image has {width}×{height}")
        drawn = _rendered(self.scene, self.size)
        objects = []
        for number, mask in enumerate(drawn.masks):
            left, top, across, down = cv2.boundingRect(mask.view(np.uint8))
            hidden = not mask.any() or drawn.visible[number] < _HIDDEN
            label = self.scene.members[self.scene.groups.index(number)].label
            box = (float(left), float(top), float(left + across), float(top + down))
            objects.append(
                TrueObject(
                    str(number), label, box, SceneMask(self.scene, self.size, number), float(mask.sum()),
                    crowd=self.scene.groups.count(number) > 1,
                    problem="more than three quarters of the object are hidden" if hidden else "",
                )
            )  # fmt: skip
        return tuple(objects)


def _fingerprint(what: str, scene: Scene | SceneOfSeveral, size: int) -> str:
    kind = what if isinstance(scene, Scene) else f"several {what}"
    return fingerprint({"diorama": kind, "renderer": RENDERER_VERSION, "scene": scene.factors(), "size": size})


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Draw ``diorama:train|test|ood?n=240&context=0.95&size=64&seed=0``.

    Classes take turns, so that they are balanced. A scene depends on the split, the seed and its number alone: a
    larger ``n`` adds scenes and changes none, and another ``context`` changes nothing but the factor it ties.

    Options: ``n`` scenes (240), ``size`` in pixels (64), ``seed`` (0), ``context`` of the background (0), and
    ``texture_context`` (0), ``material_context`` (0), ``colour_context`` (0.3), all in 0..1. ``objects=1..5`` draws
    scenes of one to five objects with a box and a mask each, 128 pixels wide if no size is given; ``objects=0..5``
    has images without any, too.
    """
    if masks is not None:
        raise UserError("diorama scenes have exact masks of their own; leave the mask folder out")
    if name.name not in SPLITS:
        raise unknown("split of diorama", name.name, SPLITS)
    for option in name.options:
        if option not in _OPTIONS:
            raise unknown("option of diorama", option, _OPTIONS)
    split: Split = name.name
    count = _whole(name, "n", 240, 1, MAX_SCENES)
    size = _whole(name, "size", 128 if "objects" in name.options else 64, MIN_SIZE, MAX_SIZE)
    seed = _whole(name, "seed", 0, 0, 2**53)
    contexts = Contexts(
        **{factor: _number(name, option) for option, factor in _CONTEXTS.items() if option in name.options}
    )
    if "objects" in name.options:
        return _several(name, split, seed, count, size, contexts)
    samples = tuple(_sample(split, seed, index, size, contexts) for index in range(count))
    return Collection(f"diorama-{split}", CLASSES, samples, KEYS)


def _sample(split: Split, seed: int, index: int, size: int, contexts: Contexts) -> Sample:
    label = CLASSES[index % len(CLASSES)]
    # 53 bits, so that every reader of JSON keeps the number whole
    scene_seed = seed_from("diorama", split, seed, index) >> 11
    scene = draw_scene(scene_seed, split=split, context=contexts, label=label)
    return Sample(
        sample_id=f"{split}/{label.replace(' ', '-')}/{seed}-{index:06d}", label=label, image=SceneImage(scene, size),
        mask=SceneMask(scene, size), split=split, licence=LICENCE,
        attributes=scene.factors() | {"caption": scene.caption},
    )  # fmt: skip


def _several(name: Name, split: Split, seed: int, count: int, size: int, contexts: Contexts) -> Collection:
    """Return scenes of several objects; the label of an image is the class of its largest object."""
    low, high = _range(name.options["objects"])
    samples: list[Sample] = []
    empty: list[Sample] = []
    for index in range(count):
        scene_seed = seed_from("diorama several", split, seed, index) >> 11
        number = low + int(generator("diorama number of objects", scene_seed).integers(high - low + 1))
        scene = draw_several(scene_seed, split=split, context=contexts, count=number)
        largest = max(scene.members, key=lambda member: member.scale, default=None)
        sample = Sample(
            sample_id=f"{split}/objects/{seed}-{index:06d}", label=largest.label if largest else "",
            image=SceneImage(scene, size), mask=SceneMask(scene, size) if largest else None, split=split,
            licence=LICENCE, attributes={"background": scene.place.background, "objects": number},
            objects=SceneObjects(scene, size),
        )  # fmt: skip
        (samples if largest else empty).append(sample)
    if not samples:
        raise UserError("these scenes have no object at all; ask for objects=0..5, say")
    return Collection(f"diorama-{split}-objects", CLASSES, tuple(samples), KEYS, empty=tuple(empty))


def _range(value: Any) -> tuple[int, int]:
    """Read ``3`` or ``1..5``."""
    match = re.fullmatch(r"(\d{1,2})(?:\.\.(\d{1,2}))?", str(value))
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not 0 <= low <= high <= MOST_MEMBERS:
        raise UserError(f"objects of diorama must be a number or range (1..5), up to {MOST_MEMBERS}, not {value!r}")
    return low, high


def _whole(name: Name, option: str, default: int, low: int, high: int) -> int:
    value: Any = name.options.get(option, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UserError(f"{option} of diorama must be a whole number from {low} to {high}, not {value!r}")
    return value


def _number(name: Name, option: str) -> float:
    value: Any = name.options[option]
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise UserError(f"{option} of diorama must be a number from 0 to 1, not {value!r}")
    return float(value)
