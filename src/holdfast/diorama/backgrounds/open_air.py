"""Sea, reef, sky, night sky and shore."""

from __future__ import annotations

import cv2
import numpy as np

from holdfast.core.types import Image
from holdfast.diorama.backgrounds.brush import (
    area,
    as_grey,
    band,
    clouds,
    disc,
    gradient,
    lump,
    skyline,
    stroke,
    tint,
    veil,
    waves,
)
from holdfast.diorama.drawing.fields import ramp


def sea(side: int, rng: np.random.Generator) -> Image:
    """Waves with foam under a strip of sky."""
    horizon = rng.uniform(0.12, 0.34)
    canvas = clouds(
        gradient(side, [tint(rng, (120, 180, 226)), (228, 238, 242), (240, 240, 236), (240, 240, 236)]), rng, 0.45
    )
    deep, mid, pale = tint(rng, (18, 70, 122)), tint(rng, (36, 116, 164)), tint(rng, (96, 176, 196))
    band(canvas, horizon, 1, "soft", rng, 0.22, 0.95, [deep, mid, mid, pale])
    for row in range(6):
        y = horizon + (1 - horizon) * ((row + 0.6 * rng.random() + 0.3) / 6) ** 1.3
        grow = 0.2 + (y - horizon) * 1.3
        for _ in range(2):
            x = rng.uniform(-0.1, 1)
            w = 0.24 * grow
            stroke(
                canvas,
                [(x, y), (x + w * 0.5, y - 0.018 * grow), (x + w, y)],
                [0.003, 0.022 * grow, 0.003],
                [min(c * 1.35 + 20, 255) for c in mid],
            )
            stroke(
                canvas,
                [(x + w * 0.15, y - 0.006), (x + w * 0.5, y - 0.024 * grow), (x + w * 0.85, y - 0.004)],
                [0.002, 0.009 * grow, 0.002],
                (232, 246, 248),
            )
    return canvas


def reef(side: int, rng: np.random.Generator) -> Image:
    """Shafts of light, corals and sponges, bubbles."""
    canvas = gradient(side, [tint(rng, (96, 200, 214)), tint(rng, (36, 140, 186)), tint(rng, (18, 88, 140))])
    rays = np.zeros((side, side), np.uint8)
    for _ in range(4):
        x, lean = rng.uniform(-0.1, 1), rng.uniform(0.05, 0.3)
        points = np.rint(np.array([(x, 0), (x + 0.08, 0), (x + 0.2 + lean, 1), (x + lean, 1)]) * side).astype(np.int32)
        cv2.fillPoly(rays, [points], 46, cv2.LINE_AA)
    canvas = veil(canvas, rays, (214, 250, 250))
    band(canvas, 0.9, 1, "rough", rng, 0.6, 0.2, [(150, 150, 128), tint(rng, (214, 202, 160)), (240, 232, 200)])
    corals = ((236, 110, 110), (244, 160, 76), (192, 96, 176), (250, 196, 110), (120, 196, 140), (230, 130, 170))
    for index in range(9):
        x, colour = (index + rng.random()) / 9, tint(rng, corals[int(rng.integers(6))], 0.12)
        high = rng.uniform(0.1, 0.3)
        if rng.random() < 0.45:
            for _ in range(4):
                tip = x + rng.uniform(-0.09, 0.09)
                stroke(
                    canvas,
                    [(x, 1.0), ((x + tip) / 2, 1 - high * 0.5), (tip, 1 - high * rng.uniform(0.7, 1.1))],
                    [0.035, 0.026, 0.016],
                    colour,
                )
        else:
            area(canvas, lump(rng, x, 1.0, rng.uniform(0.06, 0.12), high * 0.75), [c * 0.8 for c in colour])
            area(canvas, lump(rng, x - 0.01, 0.985 - high * 0.1, 0.06, high * 0.55), colour)
    for _ in range(int(rng.integers(5, 14))):
        x, y, radius = rng.random(), rng.random() * 0.9, 0.006 + 0.012 * rng.random()
        disc(canvas, x, y, radius, (196, 236, 242))
        disc(canvas, x + radius * 0.2, y + radius * 0.2, radius * 0.66, (110, 196, 214))
    return canvas


def sky(side: int, rng: np.random.Generator) -> Image:
    """Blue by day or golden towards evening, with clouds."""
    if rng.random() < 0.75:
        colours = [tint(rng, (52, 128, 210)), tint(rng, (124, 186, 236)), tint(rng, (206, 230, 246))]
    else:
        colours = [tint(rng, (92, 134, 196)), tint(rng, (236, 190, 170)), tint(rng, (252, 214, 150))]
    canvas = clouds(gradient(side, colours), rng, rng.uniform(0.2, 0.7))
    for _ in range(int(rng.integers(2, 5))):
        x, y, size = rng.random(), rng.random(), rng.uniform(0.06, 0.13)
        for dx, dy, r in ((0.0, 0.0, 1.0), (-0.95, 0.25, 0.62), (0.95, 0.2, 0.7), (0.3, 0.32, 0.75)):
            disc(canvas, x + dx * size, y + dy * size + 0.014, r * size * 0.72, (214, 226, 240))
        for dx, dy, r in ((0.0, 0.0, 1.0), (-0.95, 0.25, 0.62), (0.95, 0.2, 0.7), (0.3, 0.32, 0.75)):
            disc(canvas, x + dx * size, y + dy * size, r * size * 0.7, (250, 252, 255))
    return canvas


def night_sky(side: int, rng: np.random.Generator) -> Image:
    """Stars, a moon, the band of the galaxy, dark hills."""
    canvas = gradient(side, [tint(rng, (10, 14, 42), 0.3), tint(rng, (28, 36, 86), 0.2), tint(rng, (74, 66, 124), 0.2)])
    canvas = clouds(canvas, rng, 0.42, tint(rng, (96, 84, 150), 0.2))
    for x, y, size in rng.random((46, 3)).tolist():
        disc(canvas, x, y, 0.0035 + 0.006 * size**3, (255, 250, 226 + 29 * size))
    x, y, radius = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.3), rng.uniform(0.05, 0.1)
    disc(canvas, x, y, radius, (246, 240, 214))
    disc(canvas, x + radius * rng.uniform(-0.6, 0.6), y - radius * 0.3, radius * 0.28, (222, 214, 186))
    area(canvas, skyline(rng, rng.uniform(0.86, 0.95), 0.05), tint(rng, (16, 18, 38), 0.2))
    return canvas


def shore(side: int, rng: np.random.Generator) -> Image:
    """Surf that runs up a wet beach."""
    horizon, edge = rng.uniform(0.1, 0.24), rng.uniform(0.42, 0.6)
    canvas = clouds(
        gradient(side, [tint(rng, (132, 190, 230)), (232, 240, 242), (240, 240, 236), (240, 240, 236)]), rng, 0.4
    )
    band(
        canvas, horizon, 1, "soft", rng, 0.25, 0.8, [tint(rng, (36, 120, 152)), tint(rng, (80, 172, 184)),
        tint(rng, (150, 212, 208))],
    )  # fmt: skip
    slope = rng.uniform(-0.14, 0.14)
    x = np.linspace(-0.05, 1.05, 12)
    line = edge + slope * (x - 0.5) + 0.03 * np.sin(x * rng.uniform(6, 12) + rng.random() * 6) + 0.01 * rng.random(12)
    corners = np.array([(1.1, 1.1), (-0.1, 1.1)])
    for drop, colour in (
        (-0.09, (222, 240, 240)),
        (-0.055, tint(rng, (140, 204, 204))),
        (-0.02, (250, 252, 252)),
        (0.015, tint(rng, (178, 150, 112))),
        (0.09, tint(rng, (222, 194, 146))),
    ):
        swell = 0.012 * np.sin(x * 9 + drop * 90)
        area(canvas, np.concatenate([np.stack([x, line + drop + swell], 1), corners]), colour)
    top = round((edge + abs(slope) / 2 + 0.16) * side)
    if top < side:
        grains = ramp(as_grey(waves(side, rng, 6, 1.4)), [tint(rng, (214, 184, 136), 0.03), (232, 206, 160)])
        canvas[top:] = grains[top:] // 2 + canvas[top:] // 2
    for _ in range(int(rng.integers(3, 10))):
        disc(
            canvas, rng.random(), rng.uniform(edge + 0.14, 1), 0.008 + 0.01 * rng.random(),
            tint(rng, (246, 224, 200), 0.15),
        )  # fmt: skip
    return canvas
