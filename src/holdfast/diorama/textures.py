"""Textures and materials of an object: patterns in its own frame, and how its material answers light.

No material is see-through: what an object looks like never depends on what is behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np

from holdfast.diorama.drawing import Plane, plane

Rgb = tuple[float, float, float]


class Material(NamedTuple):
    """How a material answers light.

    ``base`` and ``tint``: its own colour, and how far it takes the object's place. ``grain`` is added to the height
    (``relief``) or the shade (``stain``). ``mirror`` is the share of light that comes from bands of the surroundings.
    """

    base: Rgb
    tint: float
    diffuse: float = 0.55
    gloss: float = 0.0
    shine: int = 12
    relief: float = 0.0
    stain: float = 0.0
    mirror: float = 0.0
    rim: float = 0.0
    puff: float = 1.0  # how round it is modelled
    line: float = 0.34  # how dark its contours are
    grain: str = ""


MATERIALS: dict[str, Material] = {
    "natural": Material((0, 0, 0), 0.0, diffuse=0.5, stain=0.1, grain="fur"),
    "wood": Material((206, 146, 84), 0.76, diffuse=0.42, stain=0.3, gloss=0.08, grain="wood", puff=0.8),
    "metal": Material((190, 200, 212), 0.72, diffuse=0.25, gloss=0.75, shine=14, mirror=0.55, puff=1.2, line=0.46),
    "gold": Material((246, 196, 74), 0.86, diffuse=0.3, gloss=0.6, shine=10, mirror=0.45, puff=1.2, line=0.42),
    "stone": Material((160, 158, 152), 0.8, diffuse=0.55, relief=0.5, stain=0.24, grain="stone", line=0.42),
    "glass": Material(
        (178, 228, 246), 0.84, diffuse=0.16, gloss=1.0, shine=26, rim=0.6, mirror=0.2, puff=1.3, line=0.3
    ),
    "wool": Material((236, 226, 214), 0.22, diffuse=0.5, relief=0.7, stain=0.16, grain="knit", puff=1.3, line=0.3),
    "paper": Material((252, 248, 240), 0.62, diffuse=0.14, stain=0.26, grain="folds", puff=0.3, line=0.22),
    "clay": Material((208, 112, 76), 0.76, diffuse=0.62, relief=0.3, grain="dents", puff=1.5, line=0.3),
    "plastic": Material((0, 0, 0), 0.0, diffuse=0.38, gloss=1.0, shine=22, puff=1.4, line=0.4),
}


def tinted(colour: Rgb, material: Material, *, saturate: bool) -> Rgb:
    """Return a colour as it looks in a material: its brightness stays readable, its hue changes."""
    light = (0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2]) / 255
    if saturate:  # plastic and glass glow
        grey = light * 255
        colour = tuple(min(max(grey + (c - grey) * 1.3, 0), 255) for c in colour)  # type: ignore[assignment]
    depth = 0.42 + 0.95 * light
    mixed = [c + (b * depth - c) * material.tint for c, b in zip(colour, material.base, strict=True)]
    return mixed[0], mixed[1], mixed[2]


def _wood(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    """Return long, wavering rings across the object."""
    waver = plane("soft", rng, (u.shape[0], u.shape[1]), 0.2, 0.4)
    phase = v * np.float32(34) + waver * np.float32(5)
    return np.sin(phase, out=phase)


def _stone(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    specks = plane("grain", rng, (u.shape[0], u.shape[1]), 0.3, 0.3)
    return specks * np.float32(0.7) + plane("rough", rng, (u.shape[0], u.shape[1]), 0.5, 0.5) * np.float32(0.6)


def _knit(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    """Return columns of V-shaped stitches."""
    column = u * np.float32(13)
    column -= np.floor(column)
    column -= np.float32(0.5)
    np.abs(column, out=column)
    phase = v * np.float32(13 * 6.2832) - column * np.float32(6.5)
    stitch = np.sin(phase, out=phase)
    stitch -= (column < 0.09) * np.float32(0.9)
    return stitch


_GRAINS: dict[str, Callable[[Plane, Plane, np.random.Generator], Plane]] = {
    "fur": lambda u, v, rng: plane("rough", rng, (u.shape[0], u.shape[1]), 0.4, 0.4),
    "wood": _wood,
    "stone": _stone,
    "knit": _knit,
    "folds": lambda u, v, rng: plane("facets", rng, (u.shape[0], u.shape[1]), 0.3, 0.3),
    "dents": lambda u, v, rng: plane("soft", rng, (u.shape[0], u.shape[1]), 0.8, 0.8),
}


def grain(material: Material, u: Plane, v: Plane, rng: np.random.Generator) -> Plane | None:
    """Return the material's own structure, about -1..1."""
    return _GRAINS[material.grain](u, v, rng) if material.grain else None


_TURN = np.float32(2 * np.pi)


def _edge(wave: Plane, sharpness: float = 3.0) -> Plane:
    """Return a wave around 0 as a pattern of 0 and 1 with soft borders."""
    wave *= np.float32(sharpness)
    wave += np.float32(0.5)
    return np.clip(wave, 0, 1, out=wave)


def _sine(phase: Plane) -> Plane:
    phase *= _TURN
    return np.sin(phase, out=phase)


def _stripes(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    lean = np.float32(rng.uniform(-0.35, 0.35))
    return _edge(_sine((u + lean * v) * np.float32(5.5)))


def _dots(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    f = np.float32(5.2)
    wave = _sine((u + v) * f)
    wave *= _sine((u - v) * f)
    wave -= np.float32(0.32)
    return _edge(wave, 3.5)


def _checker(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    f = np.float32(3.4)
    wave = _sine(u * f)
    wave *= _sine(v * f)
    return _edge(wave, 5)


def _grid(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    f = np.float32(6.0)
    wave = np.maximum(_sine(u * f), _sine(v * f))
    wave -= np.float32(0.8)
    return _edge(wave, 5)


def _scales(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    """Return rows of arcs, each row shifted by half a scale."""
    f = np.float32(7.0)
    row = v * (f * np.float32(1.3))
    whole = np.floor(row)
    row -= whole
    across = u * f + whole * np.float32(0.5)
    across -= np.floor(across)
    across -= np.float32(0.5)
    row -= np.float32(0.05)
    distance = across * across * np.float32(2.2) + row * row * np.float32(0.9)
    return _edge(distance - np.float32(0.42), 4)


def _marble(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    swirl = plane("soft", rng, (u.shape[0], u.shape[1]), 0.3, 0.3)
    wave = np.abs(_sine((u + v * np.float32(0.6)) * np.float32(1.9) + swirl * np.float32(1.0)))
    return _edge(np.float32(0.28) - wave, 3)


def _two_tone(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    return _edge(v + np.float32(rng.uniform(-0.05, 0.05)), 14)


def _zigzag(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    saw = u * np.float32(3.2)
    saw -= np.floor(saw)
    saw -= np.float32(0.5)
    np.abs(saw, out=saw)
    return _edge(_sine(v * np.float32(4.6) + saw * np.float32(1.7)), 4)


def _waves(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    swing = _sine(u * np.float32(2.2)) * np.float32(0.24)
    return _edge(_sine(v * np.float32(7.5) + swing * np.float32(1.6)), 2.2)


def _patches(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    field = plane("soft", rng, (u.shape[0], u.shape[1]), 0.75, 0.75)
    return _edge(field - field.mean(), 7)


def _speckle(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    return _edge(plane("grain", rng, (u.shape[0], u.shape[1]), 0.16, 0.16) - np.float32(0.22), 4)


def _rings(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    x, y = rng.uniform(-0.15, 0.15, 2)
    radius = cv2.magnitude(u - np.float32(x), v - np.float32(y))
    return _edge(_sine(radius * np.float32(7.0)))


_PATTERNS: dict[str, Callable[[Plane, Plane, np.random.Generator], Plane]] = {
    "stripes": _stripes, "dots": _dots, "checker": _checker, "scales": _scales, "grid": _grid,
    "marble": _marble, "two-tone": _two_tone, "zigzag": _zigzag, "patches": _patches, "waves": _waves,
    "speckle": _speckle, "rings": _rings,
}  # fmt: skip


LIGHT_INK = frozenset({"dots", "scales", "grid", "waves", "patches", "rings"})
"""Textures that are lighter than their ground; the others are darker, to keep similar ones distinct."""


def pattern(texture: str, u: Plane, v: Plane, rng: np.random.Generator) -> Plane | None:
    """Return where the texture's colour goes, 0..1, for coordinates of about -0.5..0.5, or None for a plain object."""
    if texture == "plain":
        return None
    return _PATTERNS[texture](u, v, rng)
