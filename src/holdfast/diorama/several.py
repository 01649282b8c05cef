"""Scenes with several objects, exact masks and boxes: ``diorama:test?objects=1..5&context=0.95``.

One background, one light, objects painted from back to front. The tie ρ goes from background to class: the background
belongs to the first object's class with probability ρ, and each further object is of the background's own class with
probability ρ, else of any class.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.fingerprint import generator
from holdfast.core.types import Image
from holdfast.diorama.backgrounds import paint_background
from holdfast.diorama.extras import add_clutter, add_shadow
from holdfast.diorama.objects import paint_object
from holdfast.diorama.render import averaged, composite, expose
from holdfast.diorama.scene import Contexts, Scene, draw_scene
from holdfast.diorama.vocabulary import CLASSES, Split, home_background

MOST_MEMBERS = 20
CROWD = 6  # objects of a crowd, which share one box

_CROWDED, _TINY = 0.05, 0.1  # shares of scenes with a crowd, and of objects that are tiny
_TOUCHING = 0.3  # how much of the smaller of two boxes may lie under the other
_TRIES = 25


@dataclass(frozen=True, slots=True)
class SceneOfSeveral:
    """A place and its members from back to front; ``groups`` says which object each member belongs to."""

    place: Scene
    members: tuple[Scene, ...]
    groups: tuple[int, ...]

    def factors(self) -> dict[str, object]:
        """Return the factors as JSON values."""
        return {
            "place": self.place.factors(),
            "members": [member.factors() for member in self.members],
            "groups": list(self.groups),
        }


@dataclass(frozen=True, slots=True)
class RenderedSeveral:
    """A picture, the visible pixels of each object (n, H, W), and the share of each object that is visible."""

    image: Image
    masks: NDArray[np.bool_]
    visible: NDArray[np.float64]


def draw_several(
    seed: int, *, split: Split = "train", context: float | Contexts = 0.0, count: int = 3
) -> SceneOfSeveral:
    """Draw a scene of ``count`` objects, one of which may be a crowd; every factor follows from the seed."""
    contexts = context if isinstance(context, Contexts) else Contexts(float(context))
    rng = generator("diorama several", seed)
    first = CLASSES[int(rng.integers(len(CLASSES)))]
    place = draw_scene(seed, split=split, context=contexts, label=first)
    place = dataclasses.replace(place, occluder="none", occlusion=0.0)
    at_home = [label for label in CLASSES if home_background(label, split) == place.background]
    crowd = int(rng.integers(count)) if count > 1 and rng.random() < _CROWDED else -1
    members: list[Scene] = []
    groups: list[int] = []
    boxes: list[NDArray[np.float64]] = []
    for number in range(count):
        tied, other = rng.random(), CLASSES[int(rng.integers(len(CLASSES)))]
        label = first if number == 0 else at_home[0] if at_home and tied < contexts.background else other
        small = rng.random() < _TINY or number == crowd
        middle, corner = rng.random(2), rng.random(2)
        for _ in range(CROWD if number == crowd else 1):
            drawn = draw_scene(int(rng.integers(2**53)), split=split, context=contexts, label=label)
            scale, x, y = _free_place(rng, boxes, count, small, (middle, corner) if number == crowd else None)
            members.append(
                dataclasses.replace(
                    drawn, scale=scale, x=x, y=y, background=place.background, warmth=place.warmth,
                    brightness=place.brightness, light_direction=place.light_direction, shadow=place.shadow,
                    background_seed=place.background_seed, occluder="none", occlusion=0.0, clutter=(),
                )
            )  # fmt: skip
            groups.append(number)
            boxes.append(_box_of(scale, x, y))
    return SceneOfSeveral(place, tuple(members), tuple(groups))


def _free_place(
    rng: np.random.Generator,
    boxes: list[NDArray[np.float64]],
    count: int,
    small: bool,
    crowd: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> tuple[float, float, float]:
    """Return scale and place of the next object: the least covered of some draws, or the first that is free enough."""
    best, least = (0.1, 0.5, 0.5), 2.0
    for _ in range(_TRIES):
        u = rng.random(3)
        scale = 0.08 + 0.06 * u[0] if small else 0.2 + (0.5 if count < 3 else 0.28) * u[0]
        x, y = u[1], 0.1 + 0.85 * u[2]
        if crowd is not None:
            x, y = np.clip(crowd[0] * 0.8 + 0.1 + 0.3 * (u[1:] - 0.5), 0, 1)
        box = _box_of(scale, x, y)
        covered = max((_covered(box, other) for other in boxes), default=0.0)
        if covered < least:
            best, least = (round(float(scale), 4), round(float(x), 4), round(float(y), 4)), covered
        if covered <= _TOUCHING:
            break
    return best


def _box_of(scale: float, x: float, y: float) -> NDArray[np.float64]:
    """Return about where an object lies, in shares of the picture's side."""
    side = min(scale * 1.1, 0.97)
    left, top = (1 - side) * x, (1 - side) * y
    return np.array([left, top, left + side, top + side])


def _covered(box: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    sides = np.maximum(np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2]), 0)
    smaller = min(float(np.prod(box[2:] - box[:2])), float(np.prod(other[2:] - other[:2])))
    return float(np.prod(sides)) / smaller


def render_several(scene: SceneOfSeveral, size: int = 128) -> RenderedSeveral:
    """Paint a scene as a square picture of ``size`` pixels. The same scene gives the same bytes."""
    side = 2 * size
    canvas = paint_background(scene.place.background, scene.place.background_seed, side)
    add_clutter(canvas, scene.place)
    covers = np.zeros((1 + max(scene.groups, default=-1), side, side), np.uint8)
    whole = np.zeros(len(covers))
    for member, group in zip(scene.members, scene.groups, strict=True):
        layer = paint_object(member, side)
        add_shadow(canvas, member, layer)
        composite(canvas, layer)
        height, width = layer.cover.shape
        rows, columns = slice(layer.top, layer.top + height), slice(layer.left, layer.left + width)
        window = covers[:, rows, columns]
        window[:] = (window.astype(np.uint16) * (255 - layer.cover.astype(np.uint16)) // 255).astype(np.uint8)
        window[group] = np.maximum(window[group], layer.cover)
        whole[group] += float(layer.cover.sum())
    visible = np.divide(covers.sum((1, 2), dtype=np.float64), whole, out=np.zeros_like(whole), where=whole > 0)
    image = np.asarray(cv2.resize(canvas, (size, size), interpolation=cv2.INTER_AREA), np.uint8)
    masks = np.stack([averaged(cover) > 127 for cover in covers]) if len(covers) else np.zeros((0, size, size), bool)
    return RenderedSeveral(expose(image, scene.place), masks, visible)
