"""Materials: how an object's material changes its colours, its grain and its reflections.

No material is see-through: what an object looks like never depends on what stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from holdfast.diorama.fields import Plane, plane

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


def _fur(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    return plane("rough", rng, (u.shape[0], u.shape[1]), 0.4, 0.4)


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


def _folds(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    return plane("facets", rng, (u.shape[0], u.shape[1]), 0.3, 0.3)


def _dents(u: Plane, v: Plane, rng: np.random.Generator) -> Plane:
    return plane("soft", rng, (u.shape[0], u.shape[1]), 0.8, 0.8)


_GRAINS: dict[str, Callable[[Plane, Plane, np.random.Generator], Plane]] = {
    "fur": _fur,
    "wood": _wood,
    "stone": _stone,
    "knit": _knit,
    "folds": _folds,
    "dents": _dents,
}


def grain(material: Material, u: Plane, v: Plane, rng: np.random.Generator) -> Plane | None:
    """Return the material's own structure, about -1..1."""
    return _GRAINS[material.grain](u, v, rng) if material.grain else None
