"""Textures: patterns painted on an object, in its own frame, so that they turn and grow with it."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from holdfast.diorama.fields import Plane, plane

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
    "stripes": _stripes,
    "dots": _dots,
    "checker": _checker,
    "scales": _scales,
    "grid": _grid,
    "marble": _marble,
    "two-tone": _two_tone,
    "zigzag": _zigzag,
    "patches": _patches,
    "waves": _waves,
    "speckle": _speckle,
    "rings": _rings,
}


LIGHT_INK = frozenset({"dots", "scales", "grid", "waves", "patches", "rings"})
"""Textures that are lighter than their ground; the others are darker, to keep similar ones distinct."""


def pattern(texture: str, u: Plane, v: Plane, rng: np.random.Generator) -> Plane | None:
    """Return where the texture's colour goes, 0..1, or None for a plain object.

    ``u`` and ``v`` are coordinates along and across the object, about -0.5..0.5.
    """
    if texture == "plain":
        return None
    return _PATTERNS[texture](u, v, rng)
