"""Rendering of a scene as an image.

An image is painted at twice its size and averaged down. Every pixel is ``coverage`` parts object and the rest what
is around it, so that object and surroundings are exactly separable:

- the object's own colours depend on the object's factors, the light and the seed; never on the background, not even
  for glass. Re-rendered on another background, pixels that the object covers wholly keep their values, those at its
  edge change in proportion to what is left of them;
- a change of texture, material or colour leaves every pixel that the object does not touch as it was;
- light (warmth, brightness) and the camera's noise come last and are the same for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import generator
from holdfast.core.types import Image, Mask
from holdfast.diorama.backgrounds import paint_background
from holdfast.diorama.drawing import Grey
from holdfast.diorama.extras import add_clutter, add_occluder, add_shadow
from holdfast.diorama.objects import Layer, paint_object
from holdfast.diorama.scene import Scene, SceneOfSeveral

RENDERER_VERSION = 2  # version of the renderer; it must rise whenever any scene's pixels change

MIN_SIZE, MAX_SIZE = 16, 1024
_SUPERSAMPLING = 2


@dataclass(frozen=True, slots=True)
class RenderedScene:
    """An image, its object's ``coverage`` of each pixel (0..255, ``mask`` from one half on), and what it shows."""

    image: Image
    mask: Mask
    coverage: Grey
    caption: str


def render(scene: Scene, size: int = 64) -> RenderedScene:
    """Paint a scene as a square image of ``size`` pixels. The same scene gives the same bytes."""
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise UserError(f"the size of a scene must be between {MIN_SIZE} and {MAX_SIZE} pixels, not {size}")
    side = size * _SUPERSAMPLING
    canvas = paint_background(scene.background, scene.background_seed, side)
    add_clutter(canvas, scene)
    layer = paint_object(scene, side)
    add_shadow(canvas, scene, layer)
    composite(canvas, layer)
    in_front = add_occluder(canvas, scene, layer)
    visible = np.zeros((side, side), np.uint8)
    height, width = layer.cover.shape
    visible[layer.top : layer.top + height, layer.left : layer.left + width] = layer.cover
    if in_front is not None:
        left_over = visible.astype(np.uint16) * (255 - in_front)
        visible = np.maximum(left_over // 255, left_over > 0).astype(np.uint8)
    image = cast(Image, cv2.resize(canvas, (size, size), interpolation=cv2.INTER_AREA))
    coverage = averaged(visible)
    image = expose(image, scene)
    return RenderedScene(image, coverage > 127, coverage, scene.caption)


@dataclass(frozen=True, slots=True)
class RenderedSeveral:
    """An image, the visible pixels of each object (n, H, W), and the share of each object that is visible."""

    image: Image
    masks: NDArray[np.bool_]
    visible: NDArray[np.float64]


def render_several(scene: SceneOfSeveral, size: int = 128) -> RenderedSeveral:
    """Paint a scene as a square image of ``size`` pixels. The same scene gives the same bytes."""
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


def averaged(visible: Grey) -> Grey:
    """Return the coverage of each 2 × 2 pixels; 0 only without any object, 255 only with nothing else."""
    rows = visible[::2].astype(np.uint16) + visible[1::2]
    total = rows[:, ::2] + rows[:, 1::2]
    share: Grey = np.maximum(total >> 2, total > 0).astype(np.uint8)
    return share


def composite(canvas: Image, layer: Layer) -> None:
    """Paint a layer over a canvas, in place."""
    height, width = layer.cover.shape
    box = canvas[layer.top : layer.top + height, layer.left : layer.left + width]
    alpha = layer.cover.astype(np.float32) / np.float32(255)  # exactly 1 if all is object
    rest = np.float32(1) - alpha
    planes = []
    for colour, behind in zip(layer.colours, cv2.split(box), strict=True):
        colour *= alpha
        colour += behind * rest
        colour += np.float32(0.5)
        planes.append(colour.astype(np.uint8))
    cv2.merge(planes, dst=box)


def expose(image: Image, scene: Scene) -> Image:
    """Apply the light's warmth and brightness, then the camera's noise."""
    warm = 0.09 * scene.warmth
    gains = np.array([1 + warm, 1 + 0.15 * warm, 1 - warm]) * scene.brightness
    table = np.clip(np.arange(256)[:, None] * gains + 0.5, 0, 255).astype(np.uint8)
    image = cast(Image, cv2.LUT(image, table[None]))
    if not scene.noise:
        return image
    draws = np.frombuffer(generator("diorama camera", scene.seed).bytes(image.size), np.uint8)
    noise = cv2.LUT(draws.reshape(image.shape), _normal_quantiles()).astype(np.float32)
    return np.clip(image + noise * np.float32(scene.noise) + np.float32(0.5), 0, 255).astype(np.uint8)


@cache
def _normal_quantiles() -> NDArray[np.float32]:
    """Return the normal distribution at the middles of 256 equal shares, a table from bytes to noise."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((index + 0.5) / 256) for index in range(256)], np.float32)
