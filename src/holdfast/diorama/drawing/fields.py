"""Noise fields: a small pool from fixed seeds, of which every scene takes its own crops.

A crop is chosen in units of the field, so that a scene looks the same at every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.fingerprint import generator
from holdfast.core.types import Image

Plane = NDArray[np.float32]
Grey = NDArray[np.uint8]

_SIDE = 512
_VARIANTS = 3
_LEVELS = 4


@cache
def _pyramid(kind: str, variant: int) -> tuple[Grey, ...]:
    """Return one field and its halvings, each spread over 0..255."""
    field = _MAKERS[kind](generator("diorama field", kind, variant))
    low, high = np.percentile(field, (0.5, 99.5))
    levels = [np.clip((field - low) * (255 / (high - low)), 0, 255).astype(np.uint8)]
    for _ in range(_LEVELS - 1):
        levels.append(cast(Grey, cv2.resize(levels[-1], None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)))
    for level in levels:
        level.setflags(write=False)
    return tuple(levels)


def _fractal(rng: np.random.Generator, octaves: Sequence[tuple[int, float]]) -> Plane:
    field = np.zeros((_SIDE, _SIDE), np.float32)
    for cells, weight in octaves:
        lattice = rng.standard_normal((cells, cells), dtype=np.float32)
        field += weight * cv2.resize(lattice, (_SIDE, _SIDE), interpolation=cv2.INTER_CUBIC)
    return field


def _soft(rng: np.random.Generator) -> Plane:
    return _fractal(rng, [(6, 1.0), (13, 0.5), (27, 0.25), (55, 0.12)])


def _rough(rng: np.random.Generator) -> Plane:
    return _fractal(rng, [(8, 1.0), (17, 0.7), (35, 0.55), (71, 0.45), (143, 0.35), (287, 0.25)])


def _grain(rng: np.random.Generator) -> Plane:
    return _fractal(rng, [(170, 1.0), (340, 0.5)])


def _nearest(rng: np.random.Generator) -> tuple[Plane, NDArray[np.int32]]:
    """Return the distance to the nearest of some scattered points, and its number."""
    source = np.full((_SIDE, _SIDE), 255, np.uint8)
    cells = np.arange(0, _SIDE, 32)
    rows, columns = np.meshgrid(cells, cells, indexing="ij")
    jitter = rng.integers(0, 30, (2, *rows.shape))
    source[rows + jitter[0], columns + jitter[1]] = 0
    distance, labels = cv2.distanceTransformWithLabels(source, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    return distance.astype(np.float32), labels.astype(np.int32)


def _facets(rng: np.random.Generator) -> Plane:
    _, labels = _nearest(rng)
    field: Plane = rng.random(labels.max() + 1, dtype=np.float32)[labels]
    return field


def _pebbles(rng: np.random.Generator) -> Plane:
    distance, labels = _nearest(rng)
    field: Plane = rng.random(labels.max() + 1, dtype=np.float32)[labels] * 14 - distance
    return field


_MAKERS: dict[str, Any] = {"soft": _soft, "rough": _rough, "grain": _grain, "facets": _facets, "pebbles": _pebbles}


def crop(
    kind: str, rng: np.random.Generator, size: tuple[int, int], wide: float, tall: float, *, sharp: bool = False
) -> Grey:
    """Return a piece of a field, (height, width) of ``size``; ``wide`` and ``tall`` are its shares of the field."""
    draws = rng.random(4)
    levels = _pyramid(kind, int(draws[0] * _VARIANTS))
    height, width = size
    shrink = min(wide * _SIDE / width, tall * _SIDE / height)
    level = 0 if shrink < 1.6 else 1 if shrink < 3.2 else 2
    field = levels[level]
    side = field.shape[0]
    w, h = max(2, round(wide * side)), max(2, round(tall * side))
    x, y = int(draws[1] * (side - w + 1)), int(draws[2] * (side - h + 1))
    piece = field[y : y + h, x : x + w]
    if draws[3] < 0.5:
        piece = piece[:, ::-1]
    how = cv2.INTER_NEAREST if sharp else cv2.INTER_LINEAR
    return cast(Grey, cv2.resize(piece, (width, height), interpolation=how))


def plane(kind: str, rng: np.random.Generator, size: tuple[int, int], wide: float, tall: float) -> Plane:
    """Return ``crop`` as floats in -1..1."""
    field = crop(kind, rng, size, wide, tall).astype(np.float32)
    field *= np.float32(1 / 127.5)
    field -= np.float32(1)
    return field


_RAMP = np.arange(256, dtype=np.float32) / 255


def ramp(field: Grey, colours: Sequence[Sequence[float]]) -> Image:
    """Return a grey field through a scale of evenly spaced colours (dark end first), as RGB."""
    stops = np.linspace(0, 1, len(colours))
    table = np.stack([np.interp(_RAMP, stops, channel) for channel in zip(*colours, strict=True)], 1)
    return cast(Image, cv2.LUT(cv2.merge((field, field, field)), table.astype(np.uint8)[None]))
