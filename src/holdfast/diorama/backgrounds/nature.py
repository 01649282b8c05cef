"""Backgrounds in nature: grass, forest, sand, snow, rock, field, sea, reef, sky, night sky and shore."""

from __future__ import annotations

import cv2
import numpy as np

from holdfast.diorama.backgrounds.brush import Painting, gradient, shade
from holdfast.diorama.drawing import Points, crop, ramp

# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005


def grass(paint: Painting, rng: np.random.Generator) -> None:
    """Draw a meadow with blades and flowers, bushes behind it."""
    horizon = rng.uniform(0.16, 0.36)
    paint.gradient(paint.tint((140, 196, 236)), (224, 240, 246))
    for _ in range(5):
        outline = paint.lump(rng.uniform(-0.05, 1.05), horizon, rng.uniform(0.1, 0.22), rng.uniform(0.06, 0.16))
        paint.area(outline, paint.tint((66, 122, 62), 0.2))
    dark, light = paint.tint((52, 116, 40)), paint.tint((150, 196, 78))
    paint.band(horizon, 1, "rough", 0.9, 0.22, [dark, paint.tint((92, 158, 52)), light])
    for _ in range(26):
        x, y = rng.random(), horizon + (1.05 - horizon) * rng.random() ** 0.7
        reach = 0.03 + 0.08 * (y - horizon)
        lean = rng.uniform(-0.03, 0.03)
        paint.area([(x - 0.008, y), (x + lean, y - reach), (x + 0.008, y)], dark if rng.random() < 0.5 else light)
    petal = paint.pick(((255, 255, 255), (250, 214, 60), (236, 120, 150), (170, 130, 220)))
    for _ in range(int(rng.integers(4, 14))):
        x, y = rng.random(), rng.uniform(horizon + 0.06, 1)
        paint.disc(x, y, 0.006 + 0.01 * (y - horizon), petal)


def forest(paint: Painting, rng: np.random.Generator) -> None:
    """Draw trunks in mist, leaves above, moss below."""
    paint.gradient(paint.tint((38, 74, 50)), paint.tint((130, 170, 120)), paint.tint((84, 104, 60)))
    for depth in range(3):
        mist = (0.62, 0.34, 0.0)[depth]
        bark = [c + (150 - c) * mist for c in paint.tint((70, 50, 38))]
        for _ in range(4 - depth):
            x, wide = rng.random(), 0.022 + 0.026 * depth
            lean = rng.uniform(-0.05, 0.05)
            path = [(x, -0.05), (x + lean * 0.3, 0.4), (x + lean, 0.72 + 0.07 * depth)]
            paint.stroke(path, [wide * 0.7, wide, wide * 1.5], bark)
        leaf = [c + (150 - c) * mist for c in paint.tint((44, 96, 42), 0.15)]
        for _ in range(4):
            paint.area(
                paint.lump(rng.random(), rng.uniform(-0.04, 0.1), rng.uniform(0.12, 0.24), rng.uniform(0.07, 0.16), 10),
                leaf,
            )
    ground = rng.uniform(0.66, 0.78)
    floor = paint.skyline(ground, 0.03)
    paint.area(floor, paint.tint((62, 84, 40)))
    paint.band(
        ground + 0.05, 1, "rough", 0.6, 0.3, [(44, 54, 28), paint.tint((92, 104, 48)), paint.tint((140, 128, 70))]
    )
    for _ in range(7):
        x = rng.random()
        path = [(x, rng.uniform(0.8, 1.05)), (x + rng.uniform(-0.05, 0.05), rng.uniform(0.7, 0.8))]
        paint.stroke(path, [0.03, 0.004], paint.tint((72, 128, 50), 0.2))


def sand(paint: Painting, rng: np.random.Generator) -> None:
    """Draw dunes with ripples under a hazy sky."""
    horizon = rng.uniform(0.1, 0.34)
    light, dark = paint.tint((244, 214, 152)), paint.tint((206, 158, 98))
    paint.canvas[:] = ramp(paint.waves(rng.uniform(7, 12), 1.1), [dark, paint.tint((226, 188, 126)), light])
    sky = gradient(paint.side, [paint.tint((128, 190, 228)), (240, 236, 214)])
    top = round(horizon * paint.side)
    paint.canvas[:top] = sky[: 2 * top : 2][:top]
    outline = paint.skyline(horizon, 0.05)[:60].tolist() + [(1.2, horizon + 0.12), (-0.2, horizon + 0.1)]
    paint.area(outline, paint.tint((232, 196, 134)))
    for _ in range(int(rng.integers(3, 9))):
        x, y = rng.random(), rng.uniform(horizon + 0.2, 1)
        paint.disc(x, y, 0.008 + 0.012 * rng.random(), paint.tint((170, 130, 92), 0.2))


def snow(paint: Painting, rng: np.random.Generator) -> None:
    """Draw white hills with blue shadows, firs, falling flakes."""
    horizon = rng.uniform(0.34, 0.5)
    paint.gradient(paint.tint((150, 178, 210)), paint.tint((226, 232, 240)), (240, 244, 248))
    paint.area(paint.skyline(horizon - 0.05, 0.07), paint.tint((196, 210, 228)))
    for _ in range(int(rng.integers(3, 8))):
        x = rng.random()
        _fir(paint, x, horizon + rng.uniform(0.0, 0.08), rng.uniform(0.14, 0.32), paint.tint((52, 88, 84), 0.15))
    top = round((horizon + 0.04) * paint.side)
    drifts = ramp(
        crop("soft", rng, (paint.side - top, paint.side), 0.3, 0.5),
        [paint.tint((190, 208, 232), 0.04), (232, 238, 246), (252, 252, 255)],
    )
    paint.canvas[top:] = drifts
    outline = np.concatenate([paint.skyline(horizon + 0.04, 0.025)[:60], [(1.2, horizon + 0.1), (-0.2, horizon + 0.1)]])
    paint.area(outline, (238, 242, 248))
    for _ in range(int(rng.integers(6, 30))):
        paint.disc(rng.random(), rng.random(), 0.005 + 0.006 * rng.random(), (255, 255, 255))


def _fir(paint: Painting, x: float, y: float, high: float, colour: tuple[float, float, float]) -> None:
    paint.rectangle(x - high * 0.04, y - high * 0.1, x + high * 0.04, y, (84, 62, 50))
    for tier in range(3):
        base, half = y - high * (0.08 + 0.27 * tier), high * (0.3 - 0.07 * tier)
        paint.area([(x - half, base), (x, base - high * 0.42), (x + half, base)], colour)
        left, right = (x - half * 0.45, base - high * 0.23), (x + half * 0.4, base - high * 0.25)
        paint.area([left, (x, base - high * 0.42), right, (x, base - high * 0.2)], (244, 248, 252))


def rock(paint: Painting, rng: np.random.Generator) -> None:
    """Draw a cliff face of cracked stone with lichen, ledges below."""
    tone = paint.pick(((128, 118, 108), (112, 116, 124), (150, 122, 98)))
    mid = paint.tint(tone)
    dark, light = shade(mid, 0.5), shade(mid, 1.4)
    paint.canvas[:] = ramp(
        crop("rough", rng, (paint.side, paint.side), rng.uniform(0.4, 0.7), 0.3), [dark, mid, mid, light]
    )
    for _ in range(6):
        outline = _crag(rng, rng.uniform(0, 1), rng.uniform(0.1, 1), rng.uniform(0.1, 0.24), rng.uniform(0.07, 0.16))
        paint.area(outline + (0.008, 0.015), shade(mid, 0.45))
        paint.area(outline, paint.tint(mid, 0.06))
        paint.area(outline * (0.8, 0.35) + (outline.mean(0) * (0.2, 0.65)) - (0, 0.035), paint.tint(light, 0.04))
    for _ in range(5):
        x, y = rng.random(2)
        dx, dy = rng.uniform(-0.2, 0.2), rng.uniform(0.05, 0.25)
        paint.stroke(
            [(x, y), (x + dx * 0.4 + 0.03, y + dy * 0.5), (x + dx, y + dy)], [0.012, 0.009, 0.003], shade(mid, 0.34)
        )
    for _ in range(int(rng.integers(0, 9))):
        paint.area(paint.lump(rng.random(), rng.random(), 0.03, 0.02), paint.tint((150, 160, 92), 0.2))


def _crag(rng: np.random.Generator, x: float, y: float, wide: float, high: float) -> Points:
    angles = np.sort(rng.random(7)) * 2 * np.pi
    return np.stack([x + wide * np.cos(angles), y + high * np.sin(angles)], 1)


def field(paint: Painting, rng: np.random.Generator) -> None:
    """Draw rows of a crop that run to the horizon."""
    horizon = rng.uniform(0.26, 0.42)
    paint.gradient(paint.tint((112, 172, 226)), (226, 238, 244), (240, 236, 220))
    paint.clouds(0.4)
    paint.area(paint.skyline(horizon - 0.03, 0.04), paint.tint((104, 140, 108), 0.12))
    crops = ((222, 186, 74), (148, 178, 66), (176, 140, 196), (206, 160, 84))
    crop_colour, soil = paint.tint(paint.pick(crops)), paint.tint((134, 98, 62))
    paint.band(horizon, 1, "rough", 0.5, 0.5, [shade(soil, 0.75), soil, shade(soil, 1.2)])
    vanish = rng.uniform(0.2, 0.8)
    rows = int(rng.integers(9, 14))
    for row in range(rows):
        foot = -0.9 + 2.8 * (row + 0.5) / rows
        half = 0.085 * 9 / rows
        colour = shade(crop_colour, 1 + 0.1 * (row % 2) - 0.05)
        row_outline = [(vanish - 0.004, horizon), (vanish + 0.004, horizon), (foot + half, 1.02), (foot - half, 1.02)]
        paint.area(row_outline, colour)
        outline = [(vanish, horizon), (vanish + 0.002, horizon), (foot + half * 0.1, 1.02), (foot - half * 0.5, 1.02)]
        paint.area(outline, shade(colour, 1.16))


def sea(paint: Painting, rng: np.random.Generator) -> None:
    """Draw waves with foam under a strip of sky."""
    horizon = rng.uniform(0.12, 0.34)
    paint.gradient(paint.tint((120, 180, 226)), (228, 238, 242), (240, 240, 236), (240, 240, 236))
    paint.clouds(0.45)
    deep, mid, pale = paint.tint((18, 70, 122)), paint.tint((36, 116, 164)), paint.tint((96, 176, 196))
    paint.band(horizon, 1, "soft", 0.22, 0.95, [deep, mid, mid, pale])
    for row in range(6):
        y = horizon + (1 - horizon) * ((row + 0.6 * rng.random() + 0.3) / 6) ** 1.3
        grow = 0.2 + (y - horizon) * 1.3
        for _ in range(2):
            x = rng.uniform(-0.1, 1)
            w = 0.24 * grow
            path = [(x, y), (x + w * 0.5, y - 0.018 * grow), (x + w, y)]
            paint.stroke(path, [0.003, 0.022 * grow, 0.003], shade(mid, 1.35, 20))
            path = [(x + w * 0.15, y - 0.006), (x + w * 0.5, y - 0.024 * grow), (x + w * 0.85, y - 0.004)]
            paint.stroke(path, [0.002, 0.009 * grow, 0.002], (232, 246, 248))


def reef(paint: Painting, rng: np.random.Generator) -> None:
    """Draw shafts of light, corals and sponges, bubbles."""
    paint.gradient(paint.tint((96, 200, 214)), paint.tint((36, 140, 186)), paint.tint((18, 88, 140)))
    rays = np.zeros((paint.side, paint.side), np.uint8)
    for _ in range(4):
        x, lean = rng.uniform(-0.1, 1), rng.uniform(0.05, 0.3)
        ray = np.array([(x, 0), (x + 0.08, 0), (x + 0.2 + lean, 1), (x + lean, 1)]) * paint.side
        cv2.fillPoly(rays, [np.rint(ray).astype(np.int32)], 46, cv2.LINE_AA)
    paint.veil(rays, (214, 250, 250))
    paint.band(0.9, 1, "rough", 0.6, 0.2, [(150, 150, 128), paint.tint((214, 202, 160)), (240, 232, 200)])
    corals = ((236, 110, 110), (244, 160, 76), (192, 96, 176), (250, 196, 110), (120, 196, 140), (230, 130, 170))
    for index in range(9):
        x, colour = (index + rng.random()) / 9, paint.tint(paint.pick(corals), 0.12)
        high = rng.uniform(0.1, 0.3)
        if rng.random() < 0.45:
            for _ in range(4):
                tip = x + rng.uniform(-0.09, 0.09)
                path = [(x, 1.0), ((x + tip) / 2, 1 - high * 0.5), (tip, 1 - high * rng.uniform(0.7, 1.1))]
                paint.stroke(path, [0.035, 0.026, 0.016], colour)
        else:
            paint.area(paint.lump(x, 1.0, rng.uniform(0.06, 0.12), high * 0.75), shade(colour, 0.8))
            paint.area(paint.lump(x - 0.01, 0.985 - high * 0.1, 0.06, high * 0.55), colour)
    for _ in range(int(rng.integers(5, 14))):
        x, y, radius = rng.random(), rng.random() * 0.9, 0.006 + 0.012 * rng.random()
        paint.disc(x, y, radius, (196, 236, 242))
        paint.disc(x + radius * 0.2, y + radius * 0.2, radius * 0.66, (110, 196, 214))


def sky(paint: Painting, rng: np.random.Generator) -> None:
    """Draw a sky with clouds, blue by day or golden towards evening."""
    if rng.random() < 0.75:
        colours = [paint.tint((52, 128, 210)), paint.tint((124, 186, 236)), paint.tint((206, 230, 246))]
    else:
        colours = [paint.tint((92, 134, 196)), paint.tint((236, 190, 170)), paint.tint((252, 214, 150))]
    paint.gradient(*colours)
    paint.clouds(rng.uniform(0.2, 0.7))
    for _ in range(int(rng.integers(2, 5))):
        x, y, size = rng.random(), rng.random(), rng.uniform(0.06, 0.13)
        for drop, share, colour in ((0.014, 0.72, (214, 226, 240)), (0.0, 0.7, (250, 252, 255))):  # shadow, cloud
            for dx, dy, r in ((0.0, 0.0, 1.0), (-0.95, 0.25, 0.62), (0.95, 0.2, 0.7), (0.3, 0.32, 0.75)):
                paint.disc(x + dx * size, y + dy * size + drop, r * size * share, colour)


def night_sky(paint: Painting, rng: np.random.Generator) -> None:
    """Draw stars, a moon, the band of the galaxy, dark hills."""
    paint.gradient(paint.tint((10, 14, 42), 0.3), paint.tint((28, 36, 86), 0.2), paint.tint((74, 66, 124), 0.2))
    paint.clouds(0.42, paint.tint((96, 84, 150), 0.2))
    for x, y, size in rng.random((46, 3)).tolist():
        paint.disc(x, y, 0.0035 + 0.006 * size**3, (255, 250, 226 + 29 * size))
    x, y, radius = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.3), rng.uniform(0.05, 0.1)
    paint.disc(x, y, radius, (246, 240, 214))
    paint.disc(x + radius * rng.uniform(-0.6, 0.6), y - radius * 0.3, radius * 0.28, (222, 214, 186))
    paint.area(paint.skyline(rng.uniform(0.86, 0.95), 0.05), paint.tint((16, 18, 38), 0.2))


def shore(paint: Painting, rng: np.random.Generator) -> None:
    """Draw surf that runs up a wet beach."""
    horizon, edge = rng.uniform(0.1, 0.24), rng.uniform(0.42, 0.6)
    paint.gradient(paint.tint((132, 190, 230)), (232, 240, 242), (240, 240, 236), (240, 240, 236))
    paint.clouds(0.4)
    paint.band(
        horizon,
        1,
        "soft",
        0.25,
        0.8,
        [paint.tint((36, 120, 152)), paint.tint((80, 172, 184)), paint.tint((150, 212, 208))],
    )
    slope = rng.uniform(-0.14, 0.14)
    x = np.linspace(-0.05, 1.05, 12)
    line = edge + slope * (x - 0.5) + 0.03 * np.sin(x * rng.uniform(6, 12) + rng.random() * 6) + 0.01 * rng.random(12)
    corners = np.array([(1.1, 1.1), (-0.1, 1.1)])
    for drop, colour in (
        (-0.09, (222, 240, 240)),
        (-0.055, paint.tint((140, 204, 204))),
        (-0.02, (250, 252, 252)),
        (0.015, paint.tint((178, 150, 112))),
        (0.09, paint.tint((222, 194, 146))),
    ):
        swell = 0.012 * np.sin(x * 9 + drop * 90)
        paint.area(np.concatenate([np.stack([x, line + drop + swell], 1), corners]), colour)
    top = round((edge + abs(slope) / 2 + 0.16) * paint.side)
    if top < paint.side:
        grains = ramp(paint.waves(6, 1.4), [paint.tint((214, 184, 136), 0.03), (232, 206, 160)])
        paint.canvas[top:] = grains[top:] // 2 + paint.canvas[top:] // 2
    for _ in range(int(rng.integers(3, 10))):
        paint.disc(
            rng.random(), rng.uniform(edge + 0.14, 1), 0.008 + 0.01 * rng.random(), paint.tint((246, 224, 200), 0.15)
        )
