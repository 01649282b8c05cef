"""Street, wall, room, stage and market; and those of the ood split only: moon, volcano, kitchen and library."""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np

from holdfast.diorama.backgrounds.brush import Painting, as_grey, shade
from holdfast.diorama.drawing import Grey, crop, ramp

_PAINTS = ((196, 108, 84), (214, 176, 120), (120, 150, 168), (176, 158, 148), (152, 170, 132), (222, 206, 182))


def street(paint: Painting, rng: np.random.Generator) -> None:
    """Draw house fronts with windows, a kerb, asphalt with lane marks."""
    kerb = rng.uniform(0.46, 0.6)
    paint.gradient(paint.tint((150, 186, 216)), (222, 230, 234))
    left = -0.05
    while left < 1:
        wide, top = rng.uniform(0.2, 0.36), rng.uniform(-0.1, 0.14)
        colour = paint.tint(paint.pick(_PAINTS), 0.12)
        paint.rectangle(left, top, left + wide, kerb - 0.05, colour)
        paint.rectangle(left, top, left + 0.012, kerb - 0.05, shade(colour, 0.7))
        pane = (70, 88, 104) if rng.random() < 0.7 else (240, 214, 140)
        columns = 2 if wide < 0.28 else 3
        for row in range(3):
            y = top + 0.06 + 0.15 * row
            if y + 0.09 > kerb - 0.07:
                break
            for column in range(columns):
                x = left + wide * (column + 0.28) / columns
                paint.rectangle(x - 0.008, y - 0.008, x + wide * 0.44 / columns + 0.008, y + 0.098, shade(colour, 1.2))
                paint.rectangle(x, y, x + wide * 0.44 / columns, y + 0.09, pane)
        left += wide
    paint.rectangle(0, kerb - 0.05, 1, kerb, paint.tint((176, 174, 168)))
    paint.rectangle(0, kerb, 1, kerb + 0.02, paint.tint((124, 122, 120)))
    road = paint.tint((84, 86, 92))
    paint.band(kerb + 0.02, 1, "rough", 0.8, 0.4, [shade(road, 0.82), road, shade(road, 1.16)])
    vanish = rng.uniform(0.2, 0.8)
    y = kerb + 0.09
    while y < 1.05:
        high = 0.05 + (y - kerb) * 0.22
        centre, half = 0.5 + (vanish - 0.5) * (1 - y), 0.012 + 0.03 * (y - kerb)
        paint.area(
            [(centre - half, y), (centre + half, y), (centre + half * 1.5, y + high), (centre - half * 1.5, y + high)],
            (228, 222, 200),
        )
        y += high * 2


def wall(paint: Painting, rng: np.random.Generator) -> None:
    """Draw bricks or tiles, each of its own shade, a pavement below."""
    rows, columns = int(rng.integers(9, 13)), int(rng.integers(4, 7))
    base = paint.tint(paint.pick(((172, 92, 70), (196, 178, 150), (150, 152, 156), (190, 124, 84))))
    shades = (base + rng.normal(0, 13, (rows, 2 * columns + 1, 1)) * (1, 0.9, 0.8)).clip(0, 255).astype(np.uint8)
    halves = np.repeat(shades, 2, axis=1)
    halves[1::2] = np.roll(halves[1::2], 1, axis=1)
    size = (paint.side, paint.side)
    paint.canvas[:] = cv2.resize(halves[:, : 2 * columns], size, interpolation=cv2.INTER_NEAREST)
    mortar = paint.tint((206, 198, 184) if rng.random() < 0.6 else (96, 84, 78))
    thick = 0.012
    for row in range(rows + 1):
        y = row / rows
        paint.rectangle(0, y - thick / 2, 1, y + thick / 2, mortar)
        for column in range(columns + 1):
            x = (column + 0.5 * (row % 2)) / columns
            paint.rectangle(x - thick / 2, y, x + thick / 2, y + 1 / rows, mortar)
    stains = crop("soft", rng, size, 0.5, 0.5)
    paint.veil(cast(Grey, cv2.convertScaleAbs(stains, alpha=0.3)), shade(base, 0.55))
    floor = rng.uniform(0.82, 0.93)
    paint.rectangle(0, floor, 1, floor + 0.02, (92, 88, 86))
    paint.band(floor + 0.02, 1, "rough", 0.7, 0.2, [(124, 120, 116), paint.tint((164, 160, 154)), (188, 184, 178)])


def room(paint: Painting, rng: np.random.Generator) -> None:
    """Draw wallpaper, a window or an image, floorboards and a rug."""
    floor = rng.uniform(0.62, 0.76)
    papers = ((196, 214, 204), (230, 208, 180), (186, 200, 222), (226, 190, 190), (214, 214, 196))
    paper = paint.tint(paint.pick(papers))
    paint.gradient(shade(paper, 1.03), shade(paper, 0.93))
    stripes = int(rng.integers(0, 12))
    for stripe in range(stripes):
        x = (stripe + 0.25) / stripes
        paint.rectangle(x, 0, x + 0.4 / stripes, floor, shade(paper, 0.94))
    x, y, wide = rng.uniform(-0.05, 0.66), rng.uniform(0.04, 0.14), rng.uniform(0.26, 0.36)
    frame = (246, 244, 238) if rng.random() < 0.6 else (122, 84, 54)
    paint.rectangle(x - 0.025, y - 0.025, x + wide + 0.025, y + wide + 0.025, frame)
    paint.rectangle(x, y, x + wide, y + wide, paint.tint((158, 204, 232)))
    hills = ((0.0, 1.0), (0.0, 0.7), (0.4, 0.5), (1.0, 0.75), (1.0, 1.0))
    paint.area([(x + wide * dx, y + wide * dy) for dx, dy in hills], paint.tint((120, 164, 100)))
    paint.rectangle(x + wide / 2 - 0.01, y, x + wide / 2 + 0.01, y + wide, frame)
    paint.rectangle(x, y + wide / 2 - 0.01, x + wide, y + wide / 2 + 0.01, frame)
    paint.rectangle(0, floor - 0.035, 1, floor, (244, 240, 232))
    board = paint.tint((176, 126, 80), 0.14)
    paint.band(floor, 1, "soft", 0.15, 0.8, [shade(board, 0.86), board, shade(board, 1.1)])
    for line in range(-4, 14):
        top, foot = line / 9, 0.5 + (line / 9 - 0.5) * 1.9
        paint.stroke([(top, floor), (foot, 1.02)], [0.004, 0.01], shade(board, 0.62))
    if rng.random() < 0.6:
        rug = paint.tint(paint.pick(_PAINTS), 0.2)
        centre = rng.uniform(0.3, 0.7)
        paint.area(paint.lump(centre, floor + 0.18, 0.4, 0.09, 12), rug)
        paint.area(paint.lump(centre, floor + 0.18, 0.32, 0.062, 12), shade(rug, 1.16))


def stage(paint: Painting, rng: np.random.Generator) -> None:
    """Draw a curtain in folds, a cone of light, dark boards."""
    floor = rng.uniform(0.68, 0.8)
    cloth = paint.tint(paint.pick(((164, 28, 36), (40, 52, 128), (110, 30, 92), (24, 96, 82))))
    folds = int(rng.integers(7, 12))
    columns = np.linspace(0, folds * 2 * np.pi, paint.side, dtype=np.float32)[None] + rng.random() * 6
    wave = np.sin(columns + 0.8 * np.sin(columns * 0.37)) + np.zeros((paint.side, 1), np.float32)
    paint.canvas[:] = ramp(as_grey(wave.astype(np.float32)), [shade(cloth, 0.32), cloth, shade(cloth, 1.25, 14)])
    for swag in range(5):
        x = (swag + 0.5) / 5
        paint.area(paint.lump(x, 0.0, 0.13, 0.12, 10), shade(cloth, 0.78))
        paint.stroke([(x - 0.12, 0.05), (x, 0.125), (x + 0.12, 0.05)], [0.014, 0.018, 0.014], (222, 182, 84))
    board = paint.tint((128, 84, 52), 0.15)
    paint.band(floor, 1, "soft", 0.12, 0.8, [shade(board, 0.7), board, shade(board, 1.15)])
    for line in range(-4, 14):
        top, foot = line / 9, 0.5 + (line / 9 - 0.5) * 1.8
        paint.stroke([(top, floor), (foot, 1.02)], [0.004, 0.009], shade(board, 0.5))
    glow = np.zeros((paint.side, paint.side), np.uint8)
    x, aim = rng.uniform(0.1, 0.9), rng.uniform(0.35, 0.65)
    beam = np.array([(x - 0.03, 0), (x + 0.03, 0), (aim + 0.36, 0.92), (aim - 0.36, 0.92)]) * paint.side
    cv2.fillPoly(glow, [np.rint(beam).astype(np.int32)], 50, cv2.LINE_AA)
    centre, axes = (
        (round(aim * paint.side), round(0.91 * paint.side)),
        (round(0.37 * paint.side), round(0.08 * paint.side)),
    )
    cv2.ellipse(glow, centre, axes, 0, 0, 360, 96, -1, cv2.LINE_AA)
    soft = 2 * (paint.side // 48) + 1
    paint.canvas[:] = paint.canvas * np.float32(0.74)
    paint.veil(cast(Grey, cv2.blur(glow, (soft, soft))), (255, 240, 204))


def market(paint: Painting, rng: np.random.Generator) -> None:
    """Draw a striped awning over crates of fruit."""
    paint.gradient(paint.tint((112, 92, 84), 0.2), paint.tint((170, 142, 116), 0.15), paint.tint((126, 96, 72)))
    stripe = paint.tint(paint.pick(((206, 60, 56), (52, 132, 92), (60, 110, 176), (236, 156, 52))))
    count = int(rng.integers(7, 11))
    edge = rng.uniform(0.15, 0.26)
    fruits = ((226, 60, 48), (246, 160, 40), (140, 184, 62), (246, 208, 66), (130, 62, 124), (236, 110, 110))
    shelf = rng.uniform(0.5, 0.62)
    for row in range(3):
        y = shelf + 0.15 * row
        left = -0.1 * rng.random()
        while left < 1:
            wide, fruit = rng.uniform(0.24, 0.34), paint.pick(fruits)
            paint.rectangle(left, y, left + wide - 0.012, y + 0.15, (66, 46, 34))
            for place in range(6):
                x = left + wide * (0.1 + 0.155 * place)
                paint.disc(x, y + 0.028 + 0.016 * (place % 2), 0.036, paint.tint(fruit, 0.14))
            paint.rectangle(left, y + 0.068, left + wide - 0.012, y + 0.15, paint.tint((178, 130, 82), 0.12))
            paint.rectangle(left, y + 0.102, left + wide - 0.012, y + 0.112, (112, 76, 46))
            left += wide
    for post in (rng.uniform(0.02, 0.12), rng.uniform(0.88, 0.98)):
        paint.rectangle(post - 0.014, 0, post + 0.014, shelf, (92, 66, 48))
    for index in range(count):
        colour = stripe if index % 2 else (246, 240, 228)
        left, right = index / count, (index + 1) / count
        paint.area([(left, 0), (right, 0), (right, edge), (left, edge)], colour)
        paint.disc((left + right) / 2, edge, 0.5 / count, shade(colour, 0.93))


# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005


def moon(paint: Painting, rng: np.random.Generator) -> None:
    """Draw grey dust with craters under a black sky, the earth in it."""
    horizon = rng.uniform(0.28, 0.45)
    paint.gradient((6, 6, 12), (18, 18, 28))
    for x, y, size in rng.random((30, 3)).tolist():
        paint.disc(x, y * horizon, 0.003 + 0.005 * size**3, (240, 240, 255))
    x, y, radius = rng.uniform(0.12, 0.88), rng.uniform(0.1, 0.2), rng.uniform(0.06, 0.1)
    paint.disc(x, y, radius, (58, 116, 190))
    paint.disc(x - radius * 0.2, y + radius * 0.1, radius * 0.5, (96, 158, 104))
    paint.disc(x + radius * 0.3, y - radius * 0.35, radius * 0.4, (226, 238, 246))
    paint.area(paint.skyline(horizon, 0.03), paint.tint((132, 130, 130)))
    paint.band(horizon + 0.06, 1, "rough", 0.6, 0.3, [(104, 102, 104), paint.tint((150, 148, 148)), (186, 184, 182)])
    for _ in range(8):
        x, y = rng.random(), rng.uniform(horizon + 0.1, 1)
        wide = 0.03 + 0.16 * (y - horizon) * rng.random()
        ring = np.array([(np.cos(t) * wide, np.sin(t) * wide * 0.36) for t in np.linspace(0, 2 * np.pi, 20)])
        paint.area(ring * 1.18 + (x, y), (196, 194, 192))
        paint.area(ring + (x, y + wide * 0.05), (96, 94, 98))


def volcano(paint: Painting, rng: np.random.Generator) -> None:
    """Draw a glowing cone, smoke, rivers of lava on black ground."""
    paint.gradient(paint.tint((46, 26, 48), 0.2), paint.tint((150, 56, 44)), paint.tint((244, 138, 62)))
    paint.clouds(0.5, (58, 44, 50))
    x, horizon, high = rng.uniform(0.25, 0.75), rng.uniform(0.5, 0.6), rng.uniform(0.3, 0.42)
    paint.area(
        [(x - 0.5, horizon + 0.04), (x - 0.09, horizon - high), (x + 0.09, horizon - high), (x + 0.5, horizon + 0.04)],
        paint.tint((58, 38, 42)),
    )
    for lean in (-0.14, 0.02, 0.18):
        path = [(x + lean * 0.2, horizon - high), (x + lean * 0.6, horizon - high * 0.5), (x + lean, horizon)]
        paint.stroke(path, [0.024, 0.02, 0.034], (252, 120, 30))
    paint.band(horizon, 1, "pebbles", 0.4, 0.6, [(252, 130, 36), (120, 40, 26), (44, 34, 38), (62, 52, 54)])
    for _ in range(16):
        paint.disc(rng.random(), rng.random() * 0.6, 0.004 + 0.005 * rng.random(), (255, 190, 80))


def kitchen(paint: Painting, rng: np.random.Generator) -> None:
    """Draw tiles, a shelf with pans and jars, a counter."""
    tile = paint.tint(paint.pick(((232, 236, 234), (176, 210, 214), (240, 224, 186))))
    paint.gradient(tile, shade(tile, 0.93))
    count = int(rng.integers(7, 11))
    for line in range(count + 1):
        at = line / count
        paint.rectangle(at - 0.005, 0, at + 0.005, 1, shade(tile, 0.8))
        paint.rectangle(0, at - 0.005, 1, at + 0.005, shade(tile, 0.8))
    shelf = rng.uniform(0.24, 0.32)
    for item in range(6):
        x, wide, high = (item + 0.5 + 0.3 * rng.random()) / 6.3, rng.uniform(0.04, 0.065), rng.uniform(0.08, 0.16)
        colour = paint.tint(paint.pick(((206, 84, 60), (64, 116, 140), (230, 190, 90), (120, 150, 96), (92, 92, 100))))
        paint.rectangle(x - wide, shelf - high, x + wide, shelf, colour)
        paint.rectangle(x - wide * 0.8, shelf - high - 0.022, x + wide * 0.8, shelf - high, shade(colour, 0.6))
    paint.rectangle(0, shelf, 1, shelf + 0.028, (150, 106, 66))
    counter = rng.uniform(0.7, 0.8)
    paint.rectangle(0, counter, 1, counter + 0.045, paint.tint((206, 200, 194)))
    front = paint.tint(paint.pick(((92, 124, 132), (236, 232, 222), (164, 118, 76))))
    paint.rectangle(0, counter + 0.045, 1, 1, front)
    for door in range(4):
        paint.rectangle(door / 3.6, counter + 0.06, door / 3.6 + 0.008, 1, shade(front, 0.7))
        paint.disc(door / 3.6 + 0.04, counter + 0.12, 0.012, (210, 206, 198))


def library(paint: Painting, rng: np.random.Generator) -> None:
    """Draw shelves of books of all colours."""
    wood = paint.tint((104, 66, 42), 0.15)
    paint.gradient(shade(wood, 0.55), shade(wood, 0.45))
    shelves = 4
    pitch = 0.86 / shelves
    spines = ((150, 44, 40), (40, 78, 112), (54, 98, 66), (204, 160, 78), (112, 62, 104), (226, 214, 190), (70, 60, 60))
    for shelf in range(shelves):
        base = (shelf + 1) * pitch
        left = 0.02 * rng.random()
        while left < 1:
            wide, high = rng.uniform(0.028, 0.06), pitch * rng.uniform(0.62, 0.86)
            colour = paint.tint(paint.pick(spines), 0.15)
            paint.rectangle(left, base - high, left + wide - 0.006, base, colour)
            paint.rectangle(left, base - high * 0.78, left + wide - 0.006, base - high * 0.7, shade(colour, 1.5, 20))
            left += wide
        paint.rectangle(0, base, 1, base + 0.026, wood)
    for post in (0.0, rng.uniform(0.35, 0.65), 0.985):
        paint.rectangle(post - 0.015, 0, post + 0.02, 0.89, shade(wood, 1.1))
    carpet = paint.tint((132, 46, 48), 0.2)
    paint.band(0.89, 1, "rough", 0.7, 0.2, [shade(carpet, 0.8), carpet, shade(carpet, 1.15)])
