"""Street, wall, room, stage and market; and those of the ood split only: moon, volcano, kitchen and library."""

from __future__ import annotations

from typing import cast

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
)
from holdfast.diorama.drawing import Grey, crop, ramp

_PAINTS = ((196, 108, 84), (214, 176, 120), (120, 150, 168), (176, 158, 148), (152, 170, 132), (222, 206, 182))


def street(side: int, rng: np.random.Generator) -> Image:
    """Draw house fronts with windows, a kerb, asphalt with lane marks."""
    kerb = rng.uniform(0.46, 0.6)
    canvas = gradient(side, [tint(rng, (150, 186, 216)), (222, 230, 234)])
    left = -0.05
    while left < 1:
        wide, top = rng.uniform(0.2, 0.36), rng.uniform(-0.1, 0.14)
        colour = tint(rng, _PAINTS[int(rng.integers(6))], 0.12)
        rectangle(canvas, left, top, left + wide, kerb - 0.05, colour)
        rectangle(canvas, left, top, left + 0.012, kerb - 0.05, [c * 0.7 for c in colour])
        pane = (70, 88, 104) if rng.random() < 0.7 else (240, 214, 140)
        columns = 2 if wide < 0.28 else 3
        for row in range(3):
            y = top + 0.06 + 0.15 * row
            if y + 0.09 > kerb - 0.07:
                break
            for column in range(columns):
                x = left + wide * (column + 0.28) / columns
                rectangle(
                    canvas, x - 0.008, y - 0.008, x + wide * 0.44 / columns + 0.008, y + 0.098,
                    [min(c * 1.2, 255) for c in colour],
                )  # fmt: skip
                rectangle(canvas, x, y, x + wide * 0.44 / columns, y + 0.09, pane)
        left += wide
    rectangle(canvas, 0, kerb - 0.05, 1, kerb, tint(rng, (176, 174, 168)))
    rectangle(canvas, 0, kerb, 1, kerb + 0.02, tint(rng, (124, 122, 120)))
    road = tint(rng, (84, 86, 92))
    band(canvas, kerb + 0.02, 1, "rough", rng, 0.8, 0.4, [[c * 0.82 for c in road], road, [c * 1.16 for c in road]])
    vanish = rng.uniform(0.2, 0.8)
    y = kerb + 0.09
    while y < 1.05:
        high = 0.05 + (y - kerb) * 0.22
        centre, half = 0.5 + (vanish - 0.5) * (1 - y), 0.012 + 0.03 * (y - kerb)
        area(
            canvas,
            [(centre - half, y), (centre + half, y), (centre + half * 1.5, y + high), (centre - half * 1.5, y + high)],
            (228, 222, 200),
        )
        y += high * 2
    return canvas


def wall(side: int, rng: np.random.Generator) -> Image:
    """Draw bricks or tiles, each of its own shade, a pavement below."""
    rows, columns = int(rng.integers(9, 13)), int(rng.integers(4, 7))
    base = tint(rng, ((172, 92, 70), (196, 178, 150), (150, 152, 156), (190, 124, 84))[int(rng.integers(4))])
    shades = (base + rng.normal(0, 13, (rows, 2 * columns + 1, 1)) * (1, 0.9, 0.8)).clip(0, 255).astype(np.uint8)
    halves = np.repeat(shades, 2, axis=1)
    halves[1::2] = np.roll(halves[1::2], 1, axis=1)
    canvas = cast(Image, cv2.resize(halves[:, : 2 * columns], (side, side), interpolation=cv2.INTER_NEAREST))
    mortar = tint(rng, (206, 198, 184) if rng.random() < 0.6 else (96, 84, 78))
    thick = 0.012
    for row in range(rows + 1):
        y = row / rows
        rectangle(canvas, 0, y - thick / 2, 1, y + thick / 2, mortar)
        for column in range(columns + 1):
            x = (column + 0.5 * (row % 2)) / columns
            rectangle(canvas, x - thick / 2, y, x + thick / 2, y + 1 / rows, mortar)
    stains = crop("soft", rng, (side, side), 0.5, 0.5)
    canvas = veil(canvas, cast(Grey, cv2.convertScaleAbs(stains, alpha=0.3)), [c * 0.55 for c in base])
    floor = rng.uniform(0.82, 0.93)
    rectangle(canvas, 0, floor, 1, floor + 0.02, (92, 88, 86))
    band(
        canvas, floor + 0.02, 1, "rough", rng, 0.7, 0.2, [(124, 120, 116), tint(rng, (164, 160, 154)), (188, 184, 178)]
    )
    return canvas


def room(side: int, rng: np.random.Generator) -> Image:
    """Draw wallpaper, a window or a picture, floorboards and a rug."""
    floor = rng.uniform(0.62, 0.76)
    paper = tint(
        rng, ((196, 214, 204), (230, 208, 180), (186, 200, 222), (226, 190, 190), (214, 214, 196))[int(rng.integers(5))]
    )
    canvas = gradient(side, [[min(c * 1.03, 255) for c in paper], [c * 0.93 for c in paper]])
    stripes = int(rng.integers(0, 12))
    for stripe in range(stripes):
        x = (stripe + 0.25) / stripes
        rectangle(canvas, x, 0, x + 0.4 / stripes, floor, [c * 0.94 for c in paper])
    x, y, wide = rng.uniform(-0.05, 0.66), rng.uniform(0.04, 0.14), rng.uniform(0.26, 0.36)
    frame = (246, 244, 238) if rng.random() < 0.6 else (122, 84, 54)
    rectangle(canvas, x - 0.025, y - 0.025, x + wide + 0.025, y + wide + 0.025, frame)
    rectangle(canvas, x, y, x + wide, y + wide, tint(rng, (158, 204, 232)))
    area(
        canvas, [(x, y + wide), (x, y + wide * 0.7), (x + wide * 0.4, y + wide * 0.5), (x + wide, y + wide * 0.75),
        (x + wide, y + wide)], tint(rng, (120, 164, 100)),
    )  # fmt: skip
    rectangle(canvas, x + wide / 2 - 0.01, y, x + wide / 2 + 0.01, y + wide, frame)
    rectangle(canvas, x, y + wide / 2 - 0.01, x + wide, y + wide / 2 + 0.01, frame)
    rectangle(canvas, 0, floor - 0.035, 1, floor, (244, 240, 232))
    board = tint(rng, (176, 126, 80), 0.14)
    band(
        canvas, floor, 1, "soft", rng, 0.15, 0.8, [[c * 0.86 for c in board], board, [min(c * 1.1, 255) for c in board]]
    )
    for line in range(-4, 14):
        top, foot = line / 9, 0.5 + (line / 9 - 0.5) * 1.9
        stroke(canvas, [(top, floor), (foot, 1.02)], [0.004, 0.01], [c * 0.62 for c in board])
    if rng.random() < 0.6:
        rug = tint(rng, _PAINTS[int(rng.integers(6))], 0.2)
        centre = rng.uniform(0.3, 0.7)
        area(canvas, lump(rng, centre, floor + 0.18, 0.4, 0.09, 12), rug)
        area(canvas, lump(rng, centre, floor + 0.18, 0.32, 0.062, 12), [min(c * 1.16, 255) for c in rug])
    return canvas


def stage(side: int, rng: np.random.Generator) -> Image:
    """Draw a curtain in folds, a cone of light, dark boards."""
    floor = rng.uniform(0.68, 0.8)
    cloth = tint(rng, ((164, 28, 36), (40, 52, 128), (110, 30, 92), (24, 96, 82))[int(rng.integers(4))])
    folds = int(rng.integers(7, 12))
    columns = np.linspace(0, folds * 2 * np.pi, side, dtype=np.float32)[None] + rng.random() * 6
    wave = np.sin(columns + 0.8 * np.sin(columns * 0.37)) + np.zeros((side, 1), np.float32)
    canvas = ramp(
        as_grey(wave.astype(np.float32)), [[c * 0.32 for c in cloth], cloth, [min(c * 1.25 + 14, 255) for c in cloth]]
    )
    for swag in range(5):
        x = (swag + 0.5) / 5
        area(canvas, lump(rng, x, 0.0, 0.13, 0.12, 10), [c * 0.78 for c in cloth])
        stroke(canvas, [(x - 0.12, 0.05), (x, 0.125), (x + 0.12, 0.05)], [0.014, 0.018, 0.014], (222, 182, 84))
    board = tint(rng, (128, 84, 52), 0.15)
    band(canvas, floor, 1, "soft", rng, 0.12, 0.8, [[c * 0.7 for c in board], board, [c * 1.15 for c in board]])
    for line in range(-4, 14):
        top, foot = line / 9, 0.5 + (line / 9 - 0.5) * 1.8
        stroke(canvas, [(top, floor), (foot, 1.02)], [0.004, 0.009], [c * 0.5 for c in board])
    glow = np.zeros((side, side), np.uint8)
    x, aim = rng.uniform(0.1, 0.9), rng.uniform(0.35, 0.65)
    beam = np.rint(np.array([(x - 0.03, 0), (x + 0.03, 0), (aim + 0.36, 0.92), (aim - 0.36, 0.92)]) * side).astype(
        np.int32
    )
    cv2.fillPoly(glow, [beam], 50, cv2.LINE_AA)
    cv2.ellipse(
        glow, (round(aim * side), round(0.91 * side)), (round(0.37 * side), round(0.08 * side)), 0, 0, 360, 96, -1,
        cv2.LINE_AA,
    )  # fmt: skip
    soft = 2 * (side // 48) + 1
    canvas = (canvas * np.float32(0.74)).astype(np.uint8)
    return veil(canvas, cast(Grey, cv2.blur(glow, (soft, soft))), (255, 240, 204))


def market(side: int, rng: np.random.Generator) -> Image:
    """Draw a striped awning over crates of fruit."""
    canvas = gradient(side, [tint(rng, (112, 92, 84), 0.2), tint(rng, (170, 142, 116), 0.15), tint(rng, (126, 96, 72))])
    stripe = tint(rng, ((206, 60, 56), (52, 132, 92), (60, 110, 176), (236, 156, 52))[int(rng.integers(4))])
    count = int(rng.integers(7, 11))
    edge = rng.uniform(0.15, 0.26)
    fruits = ((226, 60, 48), (246, 160, 40), (140, 184, 62), (246, 208, 66), (130, 62, 124), (236, 110, 110))
    shelf = rng.uniform(0.5, 0.62)
    for row in range(3):
        y = shelf + 0.15 * row
        left = -0.1 * rng.random()
        while left < 1:
            wide, fruit = rng.uniform(0.24, 0.34), fruits[int(rng.integers(6))]
            rectangle(canvas, left, y, left + wide - 0.012, y + 0.15, (66, 46, 34))
            for place in range(6):
                x = left + wide * (0.1 + 0.155 * place)
                disc(canvas, x, y + 0.028 + 0.016 * (place % 2), 0.036, tint(rng, fruit, 0.14))
            rectangle(canvas, left, y + 0.068, left + wide - 0.012, y + 0.15, tint(rng, (178, 130, 82), 0.12))
            rectangle(canvas, left, y + 0.102, left + wide - 0.012, y + 0.112, (112, 76, 46))
            left += wide
    for post in (rng.uniform(0.02, 0.12), rng.uniform(0.88, 0.98)):
        rectangle(canvas, post - 0.014, 0, post + 0.014, shelf, (92, 66, 48))
    for index in range(count):
        colour = stripe if index % 2 else (246, 240, 228)
        left, right = index / count, (index + 1) / count
        area(canvas, [(left, 0), (right, 0), (right, edge), (left, edge)], colour)
        disc(canvas, (left + right) / 2, edge, 0.5 / count, [c * 0.93 for c in colour])
    return canvas


# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005


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
