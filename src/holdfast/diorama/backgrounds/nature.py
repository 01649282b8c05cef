"""Backgrounds in nature: grass, forest, sand, snow, rock, field, sea, reef, sky, night sky and shore."""

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
    rectangle,
    skyline,
    stroke,
    tint,
    veil,
    waves,
)
from holdfast.diorama.drawing import Points, crop, ramp

# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005


def grass(side: int, rng: np.random.Generator) -> Image:
    """Draw a meadow with blades and flowers, bushes behind it."""
    horizon = rng.uniform(0.16, 0.36)
    canvas = gradient(side, [tint(rng, (140, 196, 236)), (224, 240, 246)])
    for _ in range(5):
        area(
            canvas,
            lump(rng, rng.uniform(-0.05, 1.05), horizon, rng.uniform(0.1, 0.22), rng.uniform(0.06, 0.16)),
            tint(rng, (66, 122, 62), 0.2),
        )
    dark, light = tint(rng, (52, 116, 40)), tint(rng, (150, 196, 78))
    band(canvas, horizon, 1, "rough", rng, 0.9, 0.22, [dark, tint(rng, (92, 158, 52)), light])
    for _ in range(26):
        x, y = rng.random(), horizon + (1.05 - horizon) * rng.random() ** 0.7
        reach = 0.03 + 0.08 * (y - horizon)
        lean = rng.uniform(-0.03, 0.03)
        area(canvas, [(x - 0.008, y), (x + lean, y - reach), (x + 0.008, y)], dark if rng.random() < 0.5 else light)
    petal = ((255, 255, 255), (250, 214, 60), (236, 120, 150), (170, 130, 220))[int(rng.integers(4))]
    for _ in range(int(rng.integers(4, 14))):
        x, y = rng.random(), rng.uniform(horizon + 0.06, 1)
        disc(canvas, x, y, 0.006 + 0.01 * (y - horizon), petal)
    return canvas


def forest(side: int, rng: np.random.Generator) -> Image:
    """Draw trunks in mist, leaves above, moss below."""
    canvas = gradient(side, [tint(rng, (38, 74, 50)), tint(rng, (130, 170, 120)), tint(rng, (84, 104, 60))])
    for depth in range(3):
        mist = (0.62, 0.34, 0.0)[depth]
        bark = [c + (150 - c) * mist for c in tint(rng, (70, 50, 38))]
        for _ in range(4 - depth):
            x, wide = rng.random(), 0.022 + 0.026 * depth
            lean = rng.uniform(-0.05, 0.05)
            stroke(
                canvas,
                [(x, -0.05), (x + lean * 0.3, 0.4), (x + lean, 0.72 + 0.07 * depth)],
                [wide * 0.7, wide, wide * 1.5],
                bark,
            )
        leaf = [c + (150 - c) * mist for c in tint(rng, (44, 96, 42), 0.15)]
        for _ in range(4):
            area(
                canvas,
                lump(rng, rng.random(), rng.uniform(-0.04, 0.1), rng.uniform(0.12, 0.24), rng.uniform(0.07, 0.16), 10),
                leaf,
            )
    ground = rng.uniform(0.66, 0.78)
    floor = skyline(rng, ground, 0.03)
    area(canvas, floor, tint(rng, (62, 84, 40)))
    band(
        canvas, ground + 0.05, 1, "rough", rng, 0.6, 0.3, [(44, 54, 28), tint(rng, (92, 104, 48)),
        tint(rng, (140, 128, 70))],
    )  # fmt: skip
    for _ in range(7):
        x = rng.random()
        stroke(
            canvas,
            [(x, rng.uniform(0.8, 1.05)), (x + rng.uniform(-0.05, 0.05), rng.uniform(0.7, 0.8))],
            [0.03, 0.004],
            tint(rng, (72, 128, 50), 0.2),
        )
    return canvas


def sand(side: int, rng: np.random.Generator) -> Image:
    """Draw dunes with ripples under a hazy sky."""
    horizon = rng.uniform(0.1, 0.34)
    light, dark = tint(rng, (244, 214, 152)), tint(rng, (206, 158, 98))
    canvas = ramp(as_grey(waves(side, rng, rng.uniform(7, 12), 1.1)), [dark, tint(rng, (226, 188, 126)), light])
    sky = gradient(side, [tint(rng, (128, 190, 228)), (240, 236, 214)])
    top = round(horizon * side)
    canvas[:top] = sky[: 2 * top : 2][:top]
    area(
        canvas,
        skyline(rng, horizon, 0.05)[:60].tolist() + [(1.2, horizon + 0.12), (-0.2, horizon + 0.1)],
        tint(rng, (232, 196, 134)),
    )
    for _ in range(int(rng.integers(3, 9))):
        x, y = rng.random(), rng.uniform(horizon + 0.2, 1)
        disc(canvas, x, y, 0.008 + 0.012 * rng.random(), tint(rng, (170, 130, 92), 0.2))
    return canvas


def snow(side: int, rng: np.random.Generator) -> Image:
    """Draw white hills with blue shadows, firs, falling flakes."""
    horizon = rng.uniform(0.34, 0.5)
    canvas = gradient(side, [tint(rng, (150, 178, 210)), tint(rng, (226, 232, 240)), (240, 244, 248)])
    area(canvas, skyline(rng, horizon - 0.05, 0.07), tint(rng, (196, 210, 228)))
    for _ in range(int(rng.integers(3, 8))):
        x = rng.random()
        _fir(canvas, x, horizon + rng.uniform(0.0, 0.08), rng.uniform(0.14, 0.32), tint(rng, (52, 88, 84), 0.15))
    top = round((horizon + 0.04) * side)
    drifts = ramp(
        crop("soft", rng, (side - top, side), 0.3, 0.5),
        [tint(rng, (190, 208, 232), 0.04), (232, 238, 246), (252, 252, 255)],
    )
    canvas[top:] = drifts
    area(
        canvas,
        np.concatenate([skyline(rng, horizon + 0.04, 0.025)[:60], [(1.2, horizon + 0.1), (-0.2, horizon + 0.1)]]),
        (238, 242, 248),
    )
    for _ in range(int(rng.integers(6, 30))):
        disc(canvas, rng.random(), rng.random(), 0.005 + 0.006 * rng.random(), (255, 255, 255))
    return canvas


def _fir(canvas: Image, x: float, y: float, high: float, colour: tuple[float, float, float]) -> None:
    rectangle(canvas, x - high * 0.04, y - high * 0.1, x + high * 0.04, y, (84, 62, 50))
    for tier in range(3):
        base, half = y - high * (0.08 + 0.27 * tier), high * (0.3 - 0.07 * tier)
        area(canvas, [(x - half, base), (x, base - high * 0.42), (x + half, base)], colour)
        area(
            canvas, [(x - half * 0.45, base - high * 0.23), (x, base - high * 0.42),
            (x + half * 0.4, base - high * 0.25), (x, base - high * 0.2)], (244, 248, 252),
        )  # fmt: skip


def rock(side: int, rng: np.random.Generator) -> Image:
    """Draw a cliff face of cracked stone with lichen, ledges below."""
    tone = ((128, 118, 108), (112, 116, 124), (150, 122, 98))[int(rng.integers(3))]
    mid = tint(rng, tone)
    dark, light = [c * 0.5 for c in mid], [min(c * 1.4, 255) for c in mid]
    canvas = ramp(crop("rough", rng, (side, side), rng.uniform(0.4, 0.7), 0.3), [dark, mid, mid, light])
    for _ in range(6):
        outline = _crag(rng, rng.uniform(0, 1), rng.uniform(0.1, 1), rng.uniform(0.1, 0.24), rng.uniform(0.07, 0.16))
        area(canvas, outline + (0.008, 0.015), [c * 0.45 for c in mid])
        area(canvas, outline, tint(rng, mid, 0.06))
        area(canvas, outline * (0.8, 0.35) + (outline.mean(0) * (0.2, 0.65)) - (0, 0.035), tint(rng, light, 0.04))
    for _ in range(5):
        x, y = rng.random(2)
        dx, dy = rng.uniform(-0.2, 0.2), rng.uniform(0.05, 0.25)
        stroke(
            canvas,
            [(x, y), (x + dx * 0.4 + 0.03, y + dy * 0.5), (x + dx, y + dy)],
            [0.012, 0.009, 0.003],
            [c * 0.34 for c in mid],
        )
    for _ in range(int(rng.integers(0, 9))):
        area(canvas, lump(rng, rng.random(), rng.random(), 0.03, 0.02), tint(rng, (150, 160, 92), 0.2))
    return canvas


def _crag(rng: np.random.Generator, x: float, y: float, wide: float, high: float) -> Points:
    angles = np.sort(rng.random(7)) * 2 * np.pi
    return np.stack([x + wide * np.cos(angles), y + high * np.sin(angles)], 1)


def field(side: int, rng: np.random.Generator) -> Image:
    """Draw rows of a crop that run to the horizon."""
    horizon = rng.uniform(0.26, 0.42)
    canvas = clouds(gradient(side, [tint(rng, (112, 172, 226)), (226, 238, 244), (240, 236, 220)]), rng, 0.4)
    area(canvas, skyline(rng, horizon - 0.03, 0.04), tint(rng, (104, 140, 108), 0.12))
    crops = ((222, 186, 74), (148, 178, 66), (176, 140, 196), (206, 160, 84))
    crop_colour, soil = tint(rng, crops[int(rng.integers(4))]), tint(rng, (134, 98, 62))
    band(
        canvas, horizon, 1, "rough", rng, 0.5, 0.5, [[c * 0.75 for c in soil], soil, [min(c * 1.2, 255) for c in soil]]
    )
    vanish = rng.uniform(0.2, 0.8)
    rows = int(rng.integers(9, 14))
    for row in range(rows):
        foot = -0.9 + 2.8 * (row + 0.5) / rows
        half = 0.085 * 9 / rows
        shade = 1 + 0.1 * (row % 2) - 0.05
        colour = [min(c * shade, 255) for c in crop_colour]
        area(
            canvas,
            [(vanish - 0.004, horizon), (vanish + 0.004, horizon), (foot + half, 1.02), (foot - half, 1.02)],
            colour,
        )
        area(
            canvas,
            [(vanish, horizon), (vanish + 0.002, horizon), (foot + half * 0.1, 1.02), (foot - half * 0.5, 1.02)],
            [min(c * 1.16, 255) for c in colour],
        )
    return canvas


def sea(side: int, rng: np.random.Generator) -> Image:
    """Draw waves with foam under a strip of sky."""
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
    """Draw shafts of light, corals and sponges, bubbles."""
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
    """Draw a sky with clouds, blue by day or golden towards evening."""
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
    """Draw stars, a moon, the band of the galaxy, dark hills."""
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
    """Draw surf that runs up a wet beach."""
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
