"""The canvas that backgrounds are painted on, and its tools. Coordinates are shares of the image's side, y down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar, cast

import cv2
import numpy as np

from holdfast.core.types import Image
from holdfast.diorama.drawing import Grey, Path, Plane, Points, blob, crop, ramp, tube

Rgb = Sequence[float]
T = TypeVar("T")
_SHIFT = 4


def shade(colour: Rgb, factor: float, added: float = 0.0) -> tuple[float, ...]:
    """Return a colour that is darker (factor below 1) or lighter, at most white."""
    return tuple(min(c * factor + added, 255) for c in colour)


def gradient(side: int, colours: Sequence[Rgb]) -> Image:
    """Return evenly spaced colours from top to bottom."""
    stops = np.linspace(0, 1, len(colours))
    rows = np.linspace(0, 1, side)
    column = np.stack([np.interp(rows, stops, channel) for channel in zip(*colours, strict=True)], 1)
    return cast(Image, cv2.resize(column.astype(np.uint8)[:, None], (side, side), interpolation=cv2.INTER_NEAREST))


class Painting:
    """A square canvas, and tools that draw on it with the random numbers of its scene."""

    def __init__(self, canvas: Image, rng: np.random.Generator) -> None:
        self.canvas, self.rng, self.side = canvas, rng, canvas.shape[0]

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def tint(self, colour: Rgb, amount: float = 0.08) -> tuple[float, float, float]:
        """Return the colour with small random changes of brightness and of each channel."""
        whole, *channels = self.rng.random(4).tolist()
        gain = 1 + amount * (2 * whole - 1)
        r, g, b = (min(c * gain * (1 + amount * (2 * own - 1)), 255.0) for c, own in zip(colour, channels, strict=True))
        return r, g, b

    def area(self, points: Points | Path, colour: Rgb) -> None:
        """Fill an outline."""
        fixed = np.rint((np.asarray(points) * self.side - 0.5) * (1 << _SHIFT)).astype(np.int32)
        cv2.fillPoly(self.canvas, [fixed], (*colour,), cv2.LINE_AA, _SHIFT)

    def rectangle(self, left: float, top: float, right: float, bottom: float, colour: Rgb) -> None:
        """Fill an upright rectangle; its edges fall on whole pixels."""
        x0, y0, x1, y1 = (max(round(value * self.side), 0) for value in (left, top, right, bottom))
        self.canvas[y0:y1, x0:x1] = np.array(colour).astype(np.uint8)

    def disc(self, x: float, y: float, radius: float, colour: Rgb) -> None:
        """Fill a circle."""
        scale = self.side * (1 << _SHIFT)
        centre = (round(x * scale) - 8, round(y * scale) - 8)
        cv2.circle(self.canvas, centre, max(round(radius * scale), 1), (*colour,), -1, cv2.LINE_AA, _SHIFT)

    def stroke(self, path: Path, widths: Sequence[float], colour: Rgb) -> None:
        """Paint a line of changing width."""
        if len(path) > 2:
            self.area(tube(path, widths), colour)
            return
        (x0, y0), (x1, y1) = path  # straight: four corners do
        length = 2 * max(math.hypot(x1 - x0, y1 - y0), 1e-9)
        nx, ny = (y0 - y1) / length, (x1 - x0) / length
        a, b = widths
        corners = [(x0 + nx * a, y0 + ny * a), (x1 + nx * b, y1 + ny * b), (x1 - nx * b, y1 - ny * b)]
        self.area([*corners, (x0 - nx * a, y0 - ny * a)], colour)

    def band(self, top: float, bottom: float, kind: str, wide: float, tall: float, colours: Sequence[Rgb]) -> None:
        """Cover rows of the canvas with a noise field through a colour scale."""
        first, last = round(top * self.side), round(bottom * self.side)
        if last > first:
            self.canvas[first:last] = ramp(crop(kind, self.rng, (last - first, self.side), wide, tall), colours)

    def lump(self, x: float, y: float, wide: float, high: float, corners: int = 8) -> Points:
        """Return the outline of a round thing that is not quite an ellipse."""
        angles = np.arange(corners) * (2 * np.pi / corners)
        radius = 0.85 + 0.3 * self.rng.random(corners)
        return blob(np.stack([x + wide * radius * np.cos(angles), y + high * radius * np.sin(angles)], 1))

    def skyline(self, height: float, rough: float) -> Points:
        """Return the outline of hills that fill everything below them."""
        y = height + rough * (2 * self.rng.random(7) - 1)
        ridge = np.interp(np.linspace(0, 1, 60), np.linspace(0, 1, 7), y)
        ridge = np.convolve(np.pad(ridge, 4, mode="edge"), np.ones(9) / 9, "valid")
        edge = np.stack([np.linspace(-0.1, 1.1, 60), ridge], 1)
        return np.concatenate([edge, [(1.2, 1.2), (-0.2, 1.2)]])

    def gradient(self, *colours: Rgb) -> None:
        """Cover the canvas with evenly spaced colours from top to bottom."""
        self.canvas[:] = gradient(self.side, colours)

    def veil(self, alpha: Grey, colour: Rgb) -> None:
        """Lay a colour over the canvas, as opaque as ``alpha`` (0..255)."""
        weights = cv2.merge((alpha, alpha, alpha))
        flat = np.empty_like(self.canvas)
        flat[:] = np.array(colour).astype(np.uint8)
        over = cv2.multiply(flat, weights, scale=1 / 255)
        self.canvas[:] = cv2.add(over, cv2.multiply(self.canvas, cv2.bitwise_not(weights), scale=1 / 255))

    def clouds(self, amount: float, colour: Rgb = (255, 255, 255)) -> None:
        """Paint soft clouds over a sky; ``amount`` of 0 to 1 says how many."""
        field = crop("soft", self.rng, (self.side, self.side), 0.35, 0.6)
        table = np.clip((np.arange(256) - (215 - 140 * amount)) * 2.6, 0, 255).astype(np.uint8)
        self.veil(cast(Grey, cv2.LUT(field, table)), colour)

    def waves(self, count: float, wobble: float) -> Grey:
        """Return wavering horizontal ripples, 0..255."""
        field = crop("soft", self.rng, (self.side, self.side), 0.25, 0.25).astype(np.float32) * np.float32(wobble / 40)
        rows = np.linspace(0, count * 2 * np.pi, self.side, dtype=np.float32)[:, None]
        return as_grey(np.sin(field + rows))


def as_grey(plane: Plane) -> Grey:
    """Return -1..1 as 0..255."""
    return cast(Grey, cv2.convertScaleAbs(plane + np.float32(1), alpha=127.4))
