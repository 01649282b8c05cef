"""Tools that paint backgrounds. Coordinates are shares of the picture's side, y down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import cv2
import numpy as np

from holdfast.core.types import Image
from holdfast.diorama.drawing import Grey, Path, Plane, Points, blob, crop, ramp, tube

Rgb = Sequence[float]
_SHIFT = 4


def tint(rng: np.random.Generator, colour: Rgb, amount: float = 0.08) -> tuple[float, float, float]:
    """Return the colour with small random changes of brightness and of each channel."""
    whole, red, green, blue = rng.random(4).tolist()
    gain = 1 + amount * (2 * whole - 1)
    r, g, b = colour
    return (
        min(r * gain * (1 + amount * (2 * red - 1)), 255.0),
        min(g * gain * (1 + amount * (2 * green - 1)), 255.0),
        min(b * gain * (1 + amount * (2 * blue - 1)), 255.0),
    )


def gradient(side: int, colours: Sequence[Rgb]) -> Image:
    """Paint evenly spaced colours from top to bottom."""
    stops = np.linspace(0, 1, len(colours))
    rows = np.linspace(0, 1, side)
    column = np.stack([np.interp(rows, stops, channel) for channel in zip(*colours, strict=True)], 1)
    return cast(Image, cv2.resize(column.astype(np.uint8)[:, None], (side, side), interpolation=cv2.INTER_NEAREST))


def area(canvas: Image, points: Points | Path, colour: Rgb) -> None:
    """Fill an outline."""
    side = canvas.shape[0]
    fixed = np.rint((np.asarray(points) * side - 0.5) * (1 << _SHIFT)).astype(np.int32)
    cv2.fillPoly(canvas, [fixed], (*colour,), cv2.LINE_AA, _SHIFT)


def rectangle(canvas: Image, left: float, top: float, right: float, bottom: float, colour: Rgb) -> None:
    """Fill an upright rectangle; its edges fall on whole pixels."""
    side = canvas.shape[0]
    x0, y0, x1, y1 = (round(value * side) for value in (left, top, right, bottom))
    canvas[max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)] = np.array(colour).astype(np.uint8)


def disc(canvas: Image, x: float, y: float, radius: float, colour: Rgb) -> None:
    """Fill a circle."""
    scale = canvas.shape[0] * (1 << _SHIFT)
    centre = (round(x * scale) - 8, round(y * scale) - 8)
    cv2.circle(canvas, centre, max(round(radius * scale), 1), (*colour,), -1, cv2.LINE_AA, _SHIFT)


def stroke(canvas: Image, path: Path, widths: Sequence[float], colour: Rgb) -> None:
    """Paint a line of changing width."""
    if len(path) > 2:
        area(canvas, tube(path, widths), colour)
        return
    (x0, y0), (x1, y1) = path  # straight: four corners do
    length = 2 * max(math.hypot(x1 - x0, y1 - y0), 1e-9)
    nx, ny = (y0 - y1) / length, (x1 - x0) / length
    a, b = widths
    corners = [(x0 + nx * a, y0 + ny * a), (x1 + nx * b, y1 + ny * b), (x1 - nx * b, y1 - ny * b)]
    area(canvas, [*corners, (x0 - nx * a, y0 - ny * a)], colour)


def band(
    canvas: Image,
    top: float,
    bottom: float,
    kind: str,
    rng: np.random.Generator,
    wide: float,
    tall: float,
    colours: Sequence[Rgb],
) -> None:
    """Cover rows of the canvas with a noise field through a colour scale."""
    side = canvas.shape[0]
    first, last = round(top * side), round(bottom * side)
    if last > first:
        canvas[first:last] = ramp(crop(kind, rng, (last - first, side), wide, tall), colours)


def skyline(rng: np.random.Generator, height: float, rough: float, count: int = 7) -> Points:
    """Return the outline of hills that fill everything below them."""
    x = np.linspace(-0.1, 1.1, count)
    y = height + rough * (2 * rng.random(count) - 1)
    ridge = np.interp(np.linspace(0, 1, 60), np.linspace(0, 1, count), y)
    ridge = np.convolve(np.pad(ridge, 4, mode="edge"), np.ones(9) / 9, "valid")
    edge = np.stack([np.linspace(x[0], x[-1], 60), ridge], 1)
    return np.concatenate([edge, [(1.2, 1.2), (-0.2, 1.2)]])


def lump(rng: np.random.Generator, x: float, y: float, wide: float, high: float, corners: int = 8) -> Points:
    """Return the outline of a round thing that is not quite an ellipse."""
    angles = np.arange(corners) * (2 * np.pi / corners)
    radius = 0.85 + 0.3 * rng.random(corners)
    return blob(np.stack([x + wide * radius * np.cos(angles), y + high * radius * np.sin(angles)], 1))


def veil(canvas: Image, alpha: Grey, colour: Rgb) -> Image:
    """Return the canvas with a colour over it, as opaque as ``alpha`` (0..255)."""
    weights = cv2.merge((alpha, alpha, alpha))
    flat = np.empty_like(canvas)
    flat[:] = np.array(colour).astype(np.uint8)
    over = cv2.multiply(flat, weights, scale=1 / 255)
    return cast(Image, cv2.add(over, cv2.multiply(canvas, cv2.bitwise_not(weights), scale=1 / 255)))


def clouds(canvas: Image, rng: np.random.Generator, amount: float, colour: Rgb = (255, 255, 255)) -> Image:
    """Paint soft clouds over a sky; ``amount`` of 0 to 1 says how many."""
    field = crop("soft", rng, (canvas.shape[0], canvas.shape[0]), 0.35, 0.6)
    table = np.clip((np.arange(256) - (215 - 140 * amount)) * 2.6, 0, 255).astype(np.uint8)
    return veil(canvas, cast(Grey, cv2.LUT(field, table)), colour)


def waves(side: int, rng: np.random.Generator, count: float, wobble: float) -> Plane:
    """Return wavering horizontal ripples, as a plane in -1..1."""
    field = crop("soft", rng, (side, side), 0.25, 0.25).astype(np.float32) * np.float32(wobble / 40)
    rows = np.linspace(0, count * 2 * np.pi, side, dtype=np.float32)[:, None]
    wave: Plane = np.sin(field + rows)
    return wave


def as_grey(plane: Plane) -> Grey:
    """Return -1..1 as 0..255."""
    return cast(Grey, cv2.convertScaleAbs(plane + np.float32(1), alpha=127.4))
