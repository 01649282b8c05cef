"""The backgrounds of scenes."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import cv2
import numpy as np

from holdfast.core.fingerprint import generator
from holdfast.core.types import Image
from holdfast.diorama.backgrounds import built, nature
from holdfast.diorama.backgrounds.brush import Painting

PAINTERS: dict[str, Callable[[Painting, np.random.Generator], None]] = {
    "sea": nature.sea, "reef": nature.reef, "sky": nature.sky, "grass": nature.grass, "forest": nature.forest,
    "sand": nature.sand, "snow": nature.snow, "rock": nature.rock, "street": built.street, "wall": built.wall,
    "room": built.room, "stage": built.stage, "market": built.market, "night sky": nature.night_sky,
    "field": nature.field, "shore": nature.shore, "moon": built.moon, "volcano": built.volcano,
    "kitchen": built.kitchen, "library": built.library,
}  # fmt: skip
WITHOUT_GROUND = frozenset({"sea", "reef", "sky", "night sky"})
"""Backgrounds without a ground, on which nothing casts a shadow."""


def paint_background(kind: str, seed: int, side: int) -> Image:
    """Return a square image of a background, RGB, a little out of focus; half of them are mirrored."""
    rng = generator("diorama background", kind, seed)
    painting = Painting(np.zeros((side, side, 3), np.uint8), rng)
    PAINTERS[kind](painting, rng)
    canvas = painting.canvas[:, ::-1] if rng.random() < 0.5 else painting.canvas
    focus = 2 * (side // 128) + 1
    return cast(Image, cv2.blur(canvas, (focus, focus)))
