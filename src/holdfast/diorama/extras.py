"""Surroundings of an object: distractors behind it, its shadow, things in front of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import cv2
import numpy as np

from holdfast.core.fingerprint import generator
from holdfast.core.types import Image
from holdfast.diorama.backgrounds import WITHOUT_GROUND
from holdfast.diorama.backgrounds.brush import Painting, Rgb, shade
from holdfast.diorama.drawing import Grey, Points, tube
from holdfast.diorama.objects import Layer, fixed_point
from holdfast.diorama.scene import MAX_OCCLUDED, Scene

_PAINTS = (
    (214, 66, 58), (60, 128, 196), (246, 190, 64), (86, 164, 98), (164, 98, 170), (240, 140, 70), (230, 226, 214),
)  # fmt: skip


def add_clutter(canvas: Image, scene: Scene) -> None:
    """Paint the distractors, smaller than the object and towards the sides, so that it rarely hides them."""
    rng = generator("diorama clutter", scene.seed)
    paint = Painting(canvas, rng)
    for place, kind in enumerate(scene.clutter):
        left = (place % 2 == 0) == (scene.seed % 2 == 0)
        x = rng.uniform(0.04, 0.26) if left else rng.uniform(0.74, 0.96)
        y, size = rng.uniform(0.62, 0.95), rng.uniform(0.07, 0.12)
        _CLUTTER[kind](paint, x, y, size, paint.tint(paint.pick(_PAINTS)))


def _block(paint: Painting, x: float, y: float, size: float, ends: Sequence[float], colour: Rgb) -> None:
    """Fill a symmetric block: half its width at the foot, the foot's height, then the same of its top, in sizes."""
    wide, foot, narrow, top = (size * end for end in ends)
    paint.area([(x - wide, y - foot), (x + wide, y - foot), (x + narrow, y - top), (x - narrow, y - top)], colour)


def _ball(paint: Painting, x: float, y: float, size: float, colour: Rgb) -> None:
    paint.disc(x, y - size * 0.8, size * 0.8, shade(colour, 0.72))
    paint.disc(x - size * 0.08, y - size * 0.88, size * 0.66, colour)
    paint.disc(x - size * 0.28, y - size * 1.1, size * 0.18, shade(colour, 1, 90))


def _box(paint: Painting, x: float, y: float, size: float, colour: Rgb) -> None:
    left, edge, right = x - size, x + size * 0.5, x + size
    top, back = y - size * 1.3, y - size * 1.6
    paint.area([(left, y), (edge, y), (edge, top), (left, top)], colour)
    paint.area([(edge, y), (right, y - size * 0.3), (right, back), (edge, top)], shade(colour, 0.68))
    paint.area([(left, top), (edge, top), (right, back), (x - size * 0.5, back)], shade(colour, 1.2))


def _plant(paint: Painting, x: float, y: float, size: float, colour: Rgb) -> None:
    for leaf in range(6):
        lean = (leaf - 2.5) * 0.5
        tip = (x + math.sin(lean) * size * 1.9, y - size * 0.7 - math.cos(lean) * size * 1.3)
        path = [(x, y - size * 0.7), ((x + tip[0]) / 2, tip[1]), tip]
        paint.stroke(path, [size * 0.15, size * 0.34, size * 0.04], paint.tint((70, 140, 70), 0.2))
    _block(paint, x, y, size, (0.6, 0.9, 0.4, 0.0), colour)


def _sign(paint: Painting, x: float, y: float, size: float, colour: Rgb) -> None:
    paint.stroke([(x, y), (x, y - size * 2.4)], [size * 0.16, size * 0.16], (120, 124, 128))
    paint.disc(x, y - size * 2.6, size * 0.8, (248, 248, 246))
    paint.disc(x, y - size * 2.6, size * 0.66, colour)
    _block(paint, x, y, size, (0.4, 2.5, 0.4, 2.7), (248, 248, 246))


def _cone(paint: Painting, x: float, y: float, size: float, colour: Rgb) -> None:
    """Draw a traffic cone: broad foot, point up, unlike a cone for ice cream."""
    _block(paint, x, y, size, (0.8, 0.0, 0.8, 0.16), (70, 70, 74))
    _block(paint, x, y, size, (0.55, 0.16, 0.1, 1.7), (240, 110, 40))
    _block(paint, x, y, size, (0.42, 0.6, 0.3, 1.0), (246, 244, 240))


def _balloon(paint: Painting, x: float, y: float, size: float, colour: Rgb) -> None:
    y -= 0.45
    paint.stroke([(x, y), (x + size * 0.2, y + size), (x, y + size * 2.2)], [0.006, 0.006, 0.006], (236, 236, 236))
    outline = [(x - size * 0.16, y + size * 0.12), (x + size * 0.16, y + size * 0.12), (x, y - size * 0.2)]
    paint.area(outline, shade(colour, 0.75))
    paint.disc(x, y - size * 0.75, size * 0.85, colour)
    paint.disc(x - size * 0.28, y - size * 1.05, size * 0.2, shade(colour, 1, 80))


def _pot(paint: Painting, x: float, y: float, size: float, colour: Rgb) -> None:
    paint.area(paint.lump(x, y - size * 0.7, size * 0.85, size * 0.72, 12), colour)
    _block(paint, x, y, size, (0.4, 1.2, 0.5, 1.6), shade(colour, 0.8))
    path = [(x - size * 0.55, y - size * 0.9), (x - size * 0.6, y - size * 0.6)]
    paint.stroke(path, [size * 0.12, size * 0.12], shade(colour, 1, 70))


def _lamp(paint: Painting, x: float, y: float, size: float, colour: Rgb) -> None:
    paint.stroke([(x, y), (x, y - size * 2.2)], [size * 0.14, size * 0.1], (74, 70, 70))
    _block(paint, x, y, size, (0.5, 0.0, 0.3, 0.2), (74, 70, 70))
    _block(paint, x, y, size, (0.75, 1.9, 0.4, 2.9), shade(colour, 0.6, 100))


_CLUTTER = {
    "ball": _ball, "box": _box, "plant": _plant, "sign": _sign, "cone": _cone, "balloon": _balloon, "pot": _pot,
    "lamp": _lamp,
}  # fmt: skip


def add_shadow(canvas: Image, scene: Scene, layer: Layer) -> None:
    """Darken the ground in the object's shadow: flattened at its foot, or next to it from above."""
    if not scene.shadow or scene.background in WITHOUT_GROUND:
        return
    side = canvas.shape[0]
    coarse = 4
    small = cast(Grey, cv2.resize(layer.cover, None, fx=1 / coarse, fy=1 / coarse, interpolation=cv2.INTER_LINEAR))
    height = layer.cover.shape[0]
    throw = -math.sin(math.radians(scene.light_direction))
    if layer.from_above:
        squash, shear, dx, dy = 1.0, 0.0, 0.03 * throw * side, 0.03 * side
    else:
        squash, shear, dx, dy = 0.26, 0.5 * throw, 0.0, 0.01 * side
    foot = layer.top + height - 4
    # Rows shrink towards the foot, and lean away from the light the higher they were.
    matrix = np.array(
        [
            [1.0, -shear, (layer.left + dx + shear * (height - 4)) / coarse],
            [0.0, squash, (foot + dy - squash * (height - 4)) / coarse],
        ]
    )
    low = cv2.warpAffine(small, matrix, (side // coarse, side // coarse), flags=cv2.INTER_LINEAR)
    low = cv2.blur(low, (3, 3))
    keep = cv2.convertScaleAbs(cv2.resize(low, (side, side), interpolation=cv2.INTER_LINEAR), alpha=scene.shadow)
    keep = cv2.bitwise_not(keep)
    cv2.multiply(canvas, cv2.merge((keep, keep, keep)), canvas, scale=1 / 255)


def add_occluder(canvas: Image, scene: Scene, layer: Layer) -> Grey | None:
    """Paint the thing in front, in a strip of ``scene.occlusion`` of the object's area; return its coverage or None."""
    if scene.occluder == "none":
        return None
    side = canvas.shape[0]
    rng = generator("diorama occluder", scene.seed)
    below = scene.occluder in ("tuft", "boulder")
    at_left = bool(rng.random() < 0.5)
    share = cv2.reduce(layer.cover, 1 if below else 0, cv2.REDUCE_SUM, dtype=cv2.CV_32F).ravel().astype(np.float64)
    if not below and at_left:
        share = share[::-1]
    hidden = np.cumsum(share[::-1])
    cut = int(np.searchsorted(hidden, min(scene.occlusion, MAX_OCCLUDED) * hidden[-1]))
    # Two pixels short of the strip: smooth edges spread a little.
    if below:
        edge = (layer.top + len(share) - cut + 2) / side
    elif at_left:
        edge = (layer.left + cut - 2) / side
    else:
        edge = (layer.left + len(share) - cut + 2) / side
    mask = np.zeros((side, side), np.uint8)
    middle = (layer.left + layer.cover.shape[1] / 2) / side
    for outline, colour in _OCCLUDERS[scene.occluder](Painting(canvas, rng), edge, at_left, middle):
        if below:
            outline[:, 1] = np.maximum(outline[:, 1], edge)
        elif at_left:
            outline[:, 0] = np.minimum(outline[:, 0], edge)
        else:
            outline[:, 0] = np.maximum(outline[:, 0], edge)
        fixed = fixed_point(outline, side)
        cv2.fillPoly(canvas, [fixed], (*colour,), cv2.LINE_AA, 4)
        cv2.fillPoly(mask, [fixed], 255, cv2.LINE_AA, 4)
    return mask


Painted = list[tuple[Points, Rgb]]  # outlines with their colours


def _tuft(paint: Painting, edge: float, at_left: bool, middle: float) -> Painted:
    """Draw blades of grass along the foot."""
    blades: Painted = []
    for blade in range(16):
        x = middle + (blade - 7.5) * 0.055 + paint.rng.uniform(-0.02, 0.02)
        tip = edge + paint.rng.random() * 0.04
        lean = paint.rng.uniform(-0.05, 0.05)
        outline = tube([(x, 1.05), (x + lean * 0.3, (1.05 + tip) / 2), (x + lean, tip)], [0.045, 0.035, 0.006])
        blades.append((outline, paint.tint((88, 150, 62), 0.2)))
    return blades


def _boulder(paint: Painting, edge: float, at_left: bool, middle: float) -> Painted:
    x, wide = middle + paint.rng.uniform(-0.15, 0.15), paint.rng.uniform(0.2, 0.32)
    high = max(1.08 - edge, 0.08)
    grey = paint.tint((150, 144, 136), 0.1)
    stone: Painted = []
    for share, light in ((1.0, 0.62), (0.86, 0.8), (0.68, 0.95), (0.4, 1.1)):
        outline = paint.lump(
            x - wide * 0.3 * (1 - share), edge + high * (1.12 - 0.12 * share), wide * share, high * share, 11
        )
        stone.append((outline, shade(grey, light)))
    return stone


def _post(paint: Painting, edge: float, at_left: bool, middle: float) -> Painted:
    """Draw a wooden post next to the object, its top cut to a point."""
    wide, top = paint.rng.uniform(0.07, 0.11), paint.rng.uniform(0.2, 0.45)
    left = edge - wide if at_left else edge
    wood = paint.tint((150, 108, 74), 0.15)
    beam = np.array([(left, top), (left + wide / 2, top - 0.05), (left + wide, top), (left + wide, 1.05), (left, 1.05)])
    side = beam * (0.4, 1) + (0.6 * (left + wide), 0)
    return [(beam, wood), (side, shade(wood, 0.75))]


def _leaves(paint: Painting, edge: float, at_left: bool, middle: float) -> Painted:
    """Draw a branch that reaches in from one side."""
    leaves: Painted = []
    outside = -0.08 if at_left else 1.08
    for _ in range(9):
        y = paint.rng.uniform(0.2, 0.95)
        tip = edge + (outside - edge) * 0.4 * paint.rng.random()
        path = [
            (outside, y + paint.rng.uniform(-0.1, 0.1)),
            ((outside + tip) / 2, y - 0.03),
            (tip, y + paint.rng.uniform(-0.04, 0.06)),
        ]
        leaves.append((tube(path, [0.03, 0.1, 0.01]), paint.tint((64, 132, 66), 0.22)))
    return leaves


_OCCLUDERS = {"tuft": _tuft, "boulder": _boulder, "post": _post, "leaves": _leaves}
