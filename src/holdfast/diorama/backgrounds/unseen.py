"""Backgrounds of the ood split only: moon, volcano, kitchen and library."""

# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005

from __future__ import annotations

import numpy as np

from holdfast.core.types import Image
from holdfast.diorama.backgrounds.brush import area, band, clouds, disc, gradient, rectangle, skyline, stroke, tint


def moon(side: int, rng: np.random.Generator) -> Image:
    """Draw grey dust with craters under a black sky, the earth in it."""
    horizon = rng.uniform(0.28, 0.45)
    canvas = gradient(side, [(6, 6, 12), (18, 18, 28)])
    for x, y, size in rng.random((30, 3)).tolist():
        disc(canvas, x, y * horizon, 0.003 + 0.005 * size**3, (240, 240, 255))
    x, y, radius = rng.uniform(0.12, 0.88), rng.uniform(0.1, 0.2), rng.uniform(0.06, 0.1)
    disc(canvas, x, y, radius, (58, 116, 190))
    disc(canvas, x - radius * 0.2, y + radius * 0.1, radius * 0.5, (96, 158, 104))
    disc(canvas, x + radius * 0.3, y - radius * 0.35, radius * 0.4, (226, 238, 246))
    area(canvas, skyline(rng, horizon, 0.03), tint(rng, (132, 130, 130)))
    band(
        canvas, horizon + 0.06, 1, "rough", rng, 0.6, 0.3, [(104, 102, 104), tint(rng, (150, 148, 148)),
        (186, 184, 182)],
    )  # fmt: skip
    for _ in range(8):
        x, y = rng.random(), rng.uniform(horizon + 0.1, 1)
        wide = 0.03 + 0.16 * (y - horizon) * rng.random()
        ring = np.array([(np.cos(t) * wide, np.sin(t) * wide * 0.36) for t in np.linspace(0, 2 * np.pi, 20)])
        area(canvas, ring * 1.18 + (x, y), (196, 194, 192))
        area(canvas, ring + (x, y + wide * 0.05), (96, 94, 98))
    return canvas


def volcano(side: int, rng: np.random.Generator) -> Image:
    """Draw a glowing cone, smoke, rivers of lava on black ground."""
    canvas = clouds(
        gradient(side, [tint(rng, (46, 26, 48), 0.2), tint(rng, (150, 56, 44)), tint(rng, (244, 138, 62))]),
        rng,
        0.5,
        (58, 44, 50),
    )
    x, horizon, high = rng.uniform(0.25, 0.75), rng.uniform(0.5, 0.6), rng.uniform(0.3, 0.42)
    area(
        canvas,
        [(x - 0.5, horizon + 0.04), (x - 0.09, horizon - high), (x + 0.09, horizon - high), (x + 0.5, horizon + 0.04)],
        tint(rng, (58, 38, 42)),
    )
    for lean in (-0.14, 0.02, 0.18):
        stroke(
            canvas,
            [(x + lean * 0.2, horizon - high), (x + lean * 0.6, horizon - high * 0.5), (x + lean, horizon)],
            [0.024, 0.02, 0.034],
            (252, 120, 30),
        )
    band(canvas, horizon, 1, "pebbles", rng, 0.4, 0.6, [(252, 130, 36), (120, 40, 26), (44, 34, 38), (62, 52, 54)])
    for _ in range(16):
        disc(canvas, rng.random(), rng.random() * 0.6, 0.004 + 0.005 * rng.random(), (255, 190, 80))
    return canvas


def kitchen(side: int, rng: np.random.Generator) -> Image:
    """Draw tiles, a shelf with pans and jars, a counter."""
    tile = tint(rng, ((232, 236, 234), (176, 210, 214), (240, 224, 186))[int(rng.integers(3))])
    canvas = gradient(side, [tile, [c * 0.93 for c in tile]])
    count = int(rng.integers(7, 11))
    for line in range(count + 1):
        at = line / count
        rectangle(canvas, at - 0.005, 0, at + 0.005, 1, [c * 0.8 for c in tile])
        rectangle(canvas, 0, at - 0.005, 1, at + 0.005, [c * 0.8 for c in tile])
    shelf = rng.uniform(0.24, 0.32)
    for item in range(6):
        x, wide, high = (item + 0.5 + 0.3 * rng.random()) / 6.3, rng.uniform(0.04, 0.065), rng.uniform(0.08, 0.16)
        colour = tint(
            rng, ((206, 84, 60), (64, 116, 140), (230, 190, 90), (120, 150, 96), (92, 92, 100))[int(rng.integers(5))]
        )
        rectangle(canvas, x - wide, shelf - high, x + wide, shelf, colour)
        rectangle(canvas, x - wide * 0.8, shelf - high - 0.022, x + wide * 0.8, shelf - high, [c * 0.6 for c in colour])
    rectangle(canvas, 0, shelf, 1, shelf + 0.028, (150, 106, 66))
    counter = rng.uniform(0.7, 0.8)
    rectangle(canvas, 0, counter, 1, counter + 0.045, tint(rng, (206, 200, 194)))
    front = tint(rng, ((92, 124, 132), (236, 232, 222), (164, 118, 76))[int(rng.integers(3))])
    rectangle(canvas, 0, counter + 0.045, 1, 1, front)
    for door in range(4):
        rectangle(canvas, door / 3.6, counter + 0.06, door / 3.6 + 0.008, 1, [c * 0.7 for c in front])
        disc(canvas, door / 3.6 + 0.04, counter + 0.12, 0.012, (210, 206, 198))
    return canvas


def library(side: int, rng: np.random.Generator) -> Image:
    """Draw shelves of books of all colours."""
    wood = tint(rng, (104, 66, 42), 0.15)
    canvas = gradient(side, [[c * 0.55 for c in wood], [c * 0.45 for c in wood]])
    shelves = 4
    pitch = 0.86 / shelves
    spines = ((150, 44, 40), (40, 78, 112), (54, 98, 66), (204, 160, 78), (112, 62, 104), (226, 214, 190), (70, 60, 60))
    for shelf in range(shelves):
        base = (shelf + 1) * pitch
        left = 0.02 * rng.random()
        while left < 1:
            wide, high = rng.uniform(0.028, 0.06), pitch * rng.uniform(0.62, 0.86)
            colour = tint(rng, spines[int(rng.integers(7))], 0.15)
            rectangle(canvas, left, base - high, left + wide - 0.006, base, colour)
            rectangle(
                canvas, left, base - high * 0.78, left + wide - 0.006, base - high * 0.7,
                [min(c * 1.5 + 20, 255) for c in colour],
            )  # fmt: skip
            left += wide
        rectangle(canvas, 0, base, 1, base + 0.026, wood)
    for post in (0.0, rng.uniform(0.35, 0.65), 0.985):
        rectangle(canvas, post - 0.015, 0, post + 0.02, 0.89, [c * 1.1 for c in wood])
    carpet = tint(rng, (132, 46, 48), 0.2)
    band(canvas, 0.89, 1, "rough", rng, 0.7, 0.2, [[c * 0.8 for c in carpet], carpet, [c * 1.15 for c in carpet]])
    return canvas
