"""Outlines in the unit square, of which the shapes of Diorama-12 consist.

An outline is an (n, 2) array of x (to the right) and y (down). A shape is a list of parts, painted in order.
"""

# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Path = Sequence[tuple[float, float] | Points]

_STEPS = 7  # points of a curve between two control points: round at 448 px
_CAP = np.exp(-1j * np.linspace(0, np.pi, 7)[1:-1])  # half a turn, from one side of a tube's end to the other


class Part(NamedTuple):
    """One painted outline.

    ``tone`` runs from 0 (black) over 0.5 (the object's colour) to 1 (white); ``accent`` from the first to the second
    colour. A part without a ``seam`` melts into the one before it.
    """

    outline: Points
    tone: float = 0.5
    accent: float = 0.0
    seam: bool = True


class Shape(NamedTuple):
    """A drawn object: its parts, and whether it is seen from above (its shadow then lies beside it)."""

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
