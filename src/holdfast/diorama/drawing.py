"""Noise fields, and outlines in the unit square of which the shapes of Diorama-12 consist.

There is a small pool of fields from fixed seeds, of which every scene takes its own crops. A crop is chosen in units of
the field, so that a scene looks the same at every size. An outline is an (n, 2) array of x (to the right) and y (down).
A shape is a list of parts, painted in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, cast

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


def _cells(rng: np.random.Generator, *, pebbles: bool = False) -> Plane:
    """Return a random level around each of some scattered points; of pebbles it falls with the distance."""
    source = np.full((_SIDE, _SIDE), 255, np.uint8)
    cells = np.arange(0, _SIDE, 32)
    rows, columns = np.meshgrid(cells, cells, indexing="ij")
    jitter = rng.integers(0, 30, (2, *rows.shape))
    source[rows + jitter[0], columns + jitter[1]] = 0
    distance, labels = cv2.distanceTransformWithLabels(source, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    field: Plane = rng.random(labels.max() + 1, dtype=np.float32)[labels]
    return field * 14 - distance if pebbles else field


_MAKERS: dict[str, Any] = {
    "soft": lambda rng: _fractal(rng, [(6, 1.0), (13, 0.5), (27, 0.25), (55, 0.12)]),
    "rough": lambda rng: _fractal(rng, [(8, 1.0), (17, 0.7), (35, 0.55), (71, 0.45), (143, 0.35), (287, 0.25)]),
    "grain": lambda rng: _fractal(rng, [(170, 1.0), (340, 0.5)]),
    "facets": _cells,
    "pebbles": lambda rng: _cells(rng, pebbles=True),
}


def crop(kind: str, rng: np.random.Generator, size: tuple[int, int], wide: float, tall: float) -> Grey:
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
    return cast(Grey, cv2.resize(piece, (width, height), interpolation=cv2.INTER_LINEAR))


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


# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005


Points = NDArray[np.float64]
Path = Sequence[tuple[float, float] | Points]

_STEPS = 7  # points of a curve between two control points: round at 448 px
_CAP = np.exp(-1j * np.linspace(0, np.pi, 7)[1:-1])  # half a turn, from one side of a tube's end to the other


class Part(NamedTuple):
    """A painted outline: ``tone`` black to white, ``accent`` first to second colour; without ``seam`` it melts in."""

    outline: Points
    tone: float = 0.5
    accent: float = 0.0
    seam: bool = True


class PartList(list[Part]):
    """PartList in the order in which they are painted."""

    def add(self, outline: Points, tone: float = 0.5, accent: float = 0.0, *, seam: bool = True) -> None:
        """Paint one more outline over the others."""
        self.append(Part(outline, tone, accent, seam))


class Shape(NamedTuple):
    """A drawn object: its parts, and whether it is seen from above (its shadow then is next to it)."""

    parts: list[Part]
    from_above: bool = False


@cache
def _spline(count: int, closed: bool) -> tuple[Points, Points]:
    """Return matrices that take control points to the points and tangents of their Catmull-Rom curve."""
    t = np.arange(_STEPS) / _STEPS
    value = 0.5 * np.stack([-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, t**3 - t**2])
    slope = 0.5 * np.stack([-1 + 4 * t - 3 * t**2, -10 * t + 9 * t**2, 1 + 8 * t - 9 * t**2, 3 * t**2 - 2 * t])
    segments = count if closed else count - 1
    matrices = []
    for weights in (value, slope):
        matrix = np.zeros((segments * _STEPS + (not closed), count))
        for segment in range(segments):
            for offset in range(4):
                _spread(matrix[segment * _STEPS :][:_STEPS], weights[offset], segment + offset - 1, count, closed)
        matrices.append(matrix)
    if not closed:
        matrices[0][-1, -1] = 1
        matrices[1][-1, -2:] = -1, 1
    return matrices[0], matrices[1]


def _spread(rows: Points, weights: Points, index: int, count: int, closed: bool) -> None:
    """Add the weight of one control point; points beyond an open end are mirrored neighbours."""
    if closed or 0 <= index < count:
        rows[:, index % count] += weights
        return
    end, inner = (0, 1) if index < 0 else (count - 1, count - 2)
    rows[:, end] += 2 * weights
    rows[:, inner] -= weights


def blob(path: Path | Points) -> Points:
    """Return the smooth closed curve through some points."""
    points: Points = _spline(len(path), True)[0] @ np.asarray(path)
    return points


def curve(path: Path | Points) -> Points:
    """Return the smooth open curve through some points."""
    points: Points = _spline(len(path), False)[0] @ np.asarray(path)
    return points


def tube(path: Path | Points, widths: Sequence[float] | Points) -> Points:
    """Return a limb: a smooth line with the thickness ``widths`` at each of its points and round ends."""
    value, complex_value, complex_slope = _tube_matrices(len(path))
    control = np.array(path, np.float64).view(np.complex128)[:, 0]  # as complex numbers, i times is a quarter turn
    centre = complex_value.dot(control)
    across = complex_slope.dot(control)
    half = np.maximum(value.dot(widths), 0.004)
    across *= half * 0.5j / np.maximum(np.abs(across), 1e-9)
    count, cap = len(centre), len(_CAP)
    outline = np.empty(2 * (count + cap), np.complex128)
    outline[:count] = centre + across
    outline[count : count + cap] = centre[-1] + _CAP * across[-1]
    outline[count + cap : -cap] = (centre - across)[::-1]
    outline[-cap:] = centre[0] - _CAP * across[0]
    return outline.view(np.float64).reshape(-1, 2)


@cache
def _tube_matrices(count: int) -> tuple[Points, NDArray[np.complex128], NDArray[np.complex128]]:
    value, slope = _spline(count, False)
    return value, value.astype(np.complex128), slope.astype(np.complex128)


@cache
def _circle(count: int) -> Points:
    angles = np.arange(count) * (2 * np.pi / count)
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def oval(x: float, y: float, wide: float, high: float, turn: float = 0.0) -> Points:
    """Return an ellipse with these half axes, turned by some radians."""
    points = _circle(28 if max(wide, high) > 0.05 else 14) * (wide, high)
    if turn:
        points = points @ turning(turn).T
    return points + (x, y)


def polygon(path: Path | Points) -> Points:
    """Return an outline of straight edges."""
    return np.asarray(path, np.float64)


def box(left: float, top: float, right: float, bottom: float, round_by: float = 0.0) -> Points:
    """Return a rectangle with rounded corners."""
    if not round_by:
        return np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
    corners = _circle(16) * round_by
    middle = np.array([(left + right) / 2, (top + bottom) / 2])
    reach = np.array([(right - left) / 2 - round_by, (bottom - top) / 2 - round_by])
    order = np.repeat(np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)]), 4, axis=0)
    outline: Points = middle + corners + order * reach
    return outline


def turning(angle: float) -> Points:
    """Return the matrix that turns (x, y) clockwise on the screen."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([(c, -s), (s, c)])


def moved(points: Points, x: float, y: float, angle: float = 0.0, scale: float = 1.0) -> Points:
    """Return the outline scaled and turned about the origin, then shifted."""
    turned: Points = (points @ turning(angle).T) * scale + (x, y)
    return turned


def vary(base: float, proportion: float, share: float) -> float:
    """Return a length that a proportion in -1..1 makes up to ``share`` longer or shorter."""
    return base * (1 + share * proportion)
