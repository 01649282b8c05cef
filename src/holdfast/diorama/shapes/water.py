"""Crayfish, whale and anemone fish."""

# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from holdfast.diorama.drawing import Part, PartList, Points, Shape, blob, moved, oval, polygon, tube, vary


class Crayfish(NamedTuple):
    """``spread`` and ``open`` of the claws, ``curl`` of the tail to one side."""

    claw: float = 0.2
    spread: float = 0.24
    open: float = 0.5
    girth: float = 0.115
    tail: float = 0.34
    curl: float = 0.0
    uneven: float = 0.0  # how much larger the right claw is
    fan: float = 1.0
    heading: float = 0.2


CRAYFISH = {
    "resting": Crayfish(),
    "threatening": Crayfish(spread=0.3, open=0.8, claw=0.21, heading=-0.1),
    "curled": Crayfish(curl=0.14, spread=0.2, heading=0.8),
    "one-armed": Crayfish(uneven=0.3, claw=0.19, heading=-0.6, curl=-0.08),
    "slender": Crayfish(girth=0.095, tail=0.4, claw=0.18, spread=0.19, open=0.35, heading=0.5),
    "big-clawed": Crayfish(claw=0.25, spread=0.26, girth=0.12, tail=0.3, heading=-0.4),
    "crawling": Crayfish(claw=0.21, spread=0.25, open=0.6, tail=0.36, curl=-0.1, uneven=-0.12, heading=-0.8),
    "fan-tailed": Crayfish(fan=1.3, claw=0.2, spread=0.22, tail=0.33, curl=0.05, heading=0.35),
    "reaching": Crayfish(claw=0.22, spread=0.22, open=0.45, girth=0.105, tail=0.37, uneven=0.15, heading=0.0),
}


def crayfish(style: Crayfish, p: Sequence[float], bend: float) -> Shape:
    """Draw a crayfish from above, claws first."""
    girth, claw = vary(style.girth, p[0], 0.12), vary(style.claw, p[1], 0.15)
    spread, tail = vary(style.spread, p[2], 0.15), vary(style.tail, p[3], 0.12)
    curl = style.curl + 0.05 * bend
    parts = PartList()
    for side in (-1, 1):
        feeler = [(side * 0.03, -0.2), (side * (0.09 + 0.03 * p[5]), -0.4), (side * (0.2 + 0.08 * p[6]), -0.56)]
        parts.add(tube(feeler, [0.018, 0.013, 0.007]), 0.4)
        for leg in range(4):
            y, splay = -0.1 + 0.065 * leg, (-0.1, -0.03, 0.05, 0.13)[leg] + 0.02 * bend * side
            root, knee = (side * girth * 0.6, y), (side * (girth + 0.1), y + splay * 0.4 - 0.02)
            parts.add(tube([root, knee, (side * (girth + 0.155), y + splay + 0.03)], [0.04, 0.032, 0.012]), 0.42)
    parts += _tail(girth, tail, curl, vary(style.fan, p[4], 0.15))
    for side in (-1, 1):
        size = claw * (1 + style.uneven * side)
        parts += _claw(side, spread, size, style.open + 0.3 * bend * side, girth)
    shell = [
        (0, -0.27), (girth * 0.5, -0.2), (girth, -0.08), (girth * 0.98, 0.06), (girth * 0.7, 0.15),
        (-girth * 0.7, 0.15), (-girth * 0.98, 0.06), (-girth, -0.08), (-girth * 0.5, -0.2),
    ]  # fmt: skip
    parts.add(blob(shell))
    parts.add(tube([(-girth * 0.72, -0.005), (0, 0.04), (girth * 0.72, -0.005)], [0.016] * 3), 0.28)
    for side in (-1, 1):
        parts.add(oval(side * girth * 0.58, -0.195, 0.023, 0.023), 0.04)
    return Shape([part._replace(outline=moved(part.outline, 0, 0, style.heading)) for part in parts], from_above=True)


def _claw(side: int, spread: float, size: float, gape: float, girth: float) -> list[Part]:
    elbow, wrist = (side * (spread + 0.02), -0.24), (side * spread * 0.92, -0.35)
    arm = tube([(side * girth * 0.6, -0.15), elbow, wrist], [0.05, 0.06, 0.055])
    g = 0.08 + 0.13 * max(gape, 0)
    hand = [
        (0, 0.08), (0.26, -0.1), (0.36, -0.42), (0.2 + g, -0.8), (0.1 + g, -1.02), (0.02 + g * 0.5, -0.7),
        (0.03, -0.5), (-0.05 - g * 0.5, -0.64), (-0.16 - g, -0.86), (-0.24 - g, -0.6), (-0.26, -0.2),
    ]  # fmt: skip
    outline = moved(blob(np.array(hand) * (side, 1)), wrist[0], wrist[1], side * -0.16, size)
    return [Part(arm, 0.47), Part(outline)]


def _tail(girth: float, tail: float, curl: float, fan: float) -> list[Part]:
    parts = PartList()
    end = np.array([curl * 1.5, 0.12 + tail])
    for petal in (-2, 2, -1, 1, 0):
        turn = petal * 0.5 - curl * 1.5
        centre = end + np.array([-math.sin(-turn), math.cos(turn)]) * 0.06 * fan
        parts.add(oval(centre[0], centre[1], 0.042 * fan, 0.078 * fan, -turn), 0.56 if petal % 2 else 0.46, 0.3)
    for ring in range(5, -1, -1):
        share = ring / 5
        x, y = curl * 1.5 * share**1.6, 0.13 + tail * 0.94 * share
        outline = oval(x, y, girth * (0.88 - 0.3 * share), tail * 0.125, -curl * 1.6 * share)
        parts.add(outline, 0.5 if ring % 2 else 0.44)
    return parts


class Whale(NamedTuple):
    """``widths`` of the body from the snout to the stock of the tail; ``arch`` bends it, tail up."""

    widths: tuple[float, ...] = (0.16, 0.27, 0.3, 0.24, 0.12, 0.06)
    arch: float = 0.06
    rise: float = 0.17  # of the tail
    fluke: float = 0.2
    flipper: float = 0.17
    fin: float = 0.05
    jaw: float = 0.5  # how low the mouth sits
    grooves: int = 3


WHALES = {
    "blue": Whale(widths=(0.11, 0.2, 0.24, 0.19, 0.1, 0.05), fin=0.04, rise=0.12),
    "sperm": Whale(widths=(0.25, 0.28, 0.29, 0.22, 0.12, 0.06), flipper=0.12, fin=0.03, jaw=0.8, grooves=0),
    "humpback": Whale(arch=0.1, flipper=0.27, rise=0.2, fluke=0.22),
    "calf": Whale(widths=(0.22, 0.33, 0.35, 0.27, 0.14, 0.07), arch=0.04, fluke=0.21, flipper=0.16, grooves=2),
    "diving": Whale(arch=0.16, rise=0.27, fluke=0.23, flipper=0.19, grooves=2),
    "minke": Whale(widths=(0.09, 0.23, 0.27, 0.2, 0.1, 0.05), fin=0.09, flipper=0.15, rise=0.1),
    "right": Whale(widths=(0.21, 0.31, 0.33, 0.26, 0.13, 0.06), fin=0.0, flipper=0.19, jaw=0.65, rise=0.15),
    "breaching": Whale(widths=(0.13, 0.25, 0.28, 0.22, 0.12, 0.06), arch=0.13, rise=0.24, fluke=0.2, flipper=0.22),
    "gliding": Whale(
        widths=(0.15, 0.24, 0.26, 0.21, 0.11, 0.055), arch=0.07, rise=0.16, fluke=0.24, flipper=0.2, fin=0.06
    ),
}


def whale(style: Whale, p: Sequence[float], bend: float) -> Shape:
    """Draw a whale from the side, looking right."""
    w = np.array(style.widths) * vary(1, p[0], 0.12)
    w[0] *= 1 + 0.12 * p[1]
    arch, rise = style.arch + 0.03 * p[2], style.rise + 0.04 * p[3] + 0.05 * bend
    x = np.array([0.42, 0.26, 0.06, -0.14, -0.32, -0.46])
    spine = np.stack([x, np.array([0.02, -0.01, 0.0, 0.01, -rise * 0.25, -rise])], 1)
    spine[:, 1] -= arch * (1 - ((x - 0.02) / 0.45) ** 2) - arch
    fluke = vary(style.fluke, p[4], 0.15)
    heading = math.atan2(spine[-1, 1] - spine[-2, 1], spine[-1, 0] - spine[-2, 0])
    parts = PartList()
    flipper = vary(style.flipper, p[5], 0.15)
    parts.add(tube([(0.24, 0.1), (0.16, 0.12 + flipper * 0.6), (0.06, 0.12 + flipper * 0.8)], [0.07, 0.06, 0.02]), 0.34)
    parts += _flukes(spine[-1], heading, fluke)
    if style.fin:
        at, top = spine[3] + (0.0, 0.0), w[3] / 2
        parts.add(polygon([at + (0.05, -top + 0.03), at + (-0.05, -top - style.fin), at + (-0.07, -top + 0.03)]), 0.42)
    parts.add(tube(spine, w.tolist()))
    parts += _whale_face(spine, w, style)
    paddle = [(0.2, 0.08), (0.12 + 0.03 * bend, 0.1 + flipper * 0.72), (0.0, 0.08 + flipper)]
    parts.add(tube(paddle, [0.085, 0.075, 0.02]), 0.42)
    return Shape(parts)


def _flukes(end: Points, heading: float, size: float) -> list[Part]:
    """Return two lobes behind the stock, seen aslant: the near one larger."""
    near = [(-0.12, 0.0), (0.2, 0.2), (0.62, 0.72), (0.95, 0.92), (0.78, 0.4), (0.5, 0.0)]
    far = [(-0.12, 0.0), (0.2, -0.22), (0.5, -0.72), (0.75, -0.98), (0.72, -0.45), (0.5, 0.0)]
    return [Part(moved(blob(lobe), end[0], end[1], heading, size), tone) for lobe, tone in ((far, 0.4), (near, 0.48))]


def _whale_face(spine: Points, w: Points, style: Whale) -> list[Part]:
    low = (style.jaw - 0.2) * 0.5
    belly = [
        spine[0] + (0.04, w[0] * 0.33),
        spine[1] + (0, w[1] * 0.33),
        spine[2] + (0, w[2] * 0.36),
        spine[3] + (0, w[3] * 0.38),
    ]
    parts = PartList([Part(tube(belly, [w[0] * 0.25, w[1] * 0.3, w[2] * 0.24, 0.02]), 0.8, seam=False)])
    for groove in range(style.grooves):
        y = 0.27 + 0.09 * groove
        line = [spine[0] + (0.03, w[0] * y), spine[1] + (0, w[1] * y), spine[2] + (0.02, w[2] * (y + 0.02))]
        parts.add(tube(line, [0.009] * 3), 0.48, seam=False)
    mouth = [
        spine[0] + (w[0] * 0.42, w[0] * low), spine[0] + (-0.05, w[0] * low + 0.012), spine[1] + (-0.03, w[1] * 0.16),
    ]  # fmt: skip
    parts.add(tube(mouth, [0.014, 0.014, 0.01]), 0.12)
    eye = spine[1] + (-0.02, w[1] * 0.02)
    parts.add(oval(eye[0], eye[1], 0.024, 0.02), 0.9)
    parts.add(oval(eye[0] + 0.003, eye[1], 0.014, 0.014), 0.03)
    return parts


class Fish(NamedTuple):
    """``depth`` of the body; where its white bands are (1 is the snout) and how wide they are."""

    depth: float = 0.25
    bands: tuple[float, ...] = (0.42, -0.12, -0.72)
    width: float = 0.085
    dorsal: float = 0.1
    tail: float = 0.2
    fork: float = 0.0
    fins: float = 0.15


FISH = {
    "percula": Fish(),
    "maroon": Fish(depth=0.28, width=0.06, dorsal=0.12, tail=0.18),
    "tomato": Fish(depth=0.3, bands=(0.42, -0.62), width=0.09, dorsal=0.11, tail=0.19),
    "slim": Fish(depth=0.21, dorsal=0.08, tail=0.22, fork=0.05, fins=0.13),
    "long-finned": Fish(depth=0.24, bands=(0.44, -0.05), dorsal=0.14, tail=0.24, fork=0.03, fins=0.2),
    "broad-banded": Fish(depth=0.26, bands=(0.4, -0.2, -0.76), width=0.12, dorsal=0.1),
    "clark": Fish(depth=0.27, bands=(0.42, -0.16, -0.74), width=0.1, dorsal=0.11, tail=0.2, fork=0.04),
    "saddle": Fish(depth=0.255, bands=(0.44, -0.2), width=0.105, dorsal=0.09, tail=0.21, fins=0.17),
    "ocellaris": Fish(depth=0.235, bands=(0.4, -0.08, -0.7), width=0.075, dorsal=0.115, tail=0.19, fins=0.16),
}


def anemone_fish(style: Fish, p: Sequence[float], bend: float) -> Shape:
    """Draw an anemone fish from the side, looking right."""
    a, b = 0.36, vary(style.depth, p[0], 0.1)
    tail, fins = vary(style.tail, p[1], 0.15), vary(style.fins, p[2], 0.15)
    dorsal, wag = vary(style.dorsal, p[3], 0.2), 0.05 * bend
    end = -a + 0.02
    fork = style.fork
    fan = [
        (end + 0.05, -0.07), (end - tail * 0.5, -0.15 + wag), (end - tail, -0.15 + wag),
        (end - tail * 1.06 + fork, wag), (end - tail, 0.15 + wag), (end - tail * 0.5, 0.15 + wag), (end + 0.05, 0.07),
    ]  # fmt: skip
    back = [
        (0.16, -b * 0.8), (0.08, -b - dorsal), (-0.05, -b - dorsal * 0.72), (-0.16, -b * 0.8 - dorsal * 0.95),
        (-0.28, -b * 0.42 - dorsal * 0.5), (-0.24, -b * 0.3),
    ]  # fmt: skip
    anal = [(-0.06, b * 0.85), (-0.12, b * 0.9 + fins * 0.6), (-0.25, b * 0.62 + fins * 0.5), (-0.26, b * 0.4)]
    pelvic = [(0.16, b * 0.8), (0.12, b * 0.85 + fins), (0.03, b * 0.92 + fins * 0.72), (0.05, b * 0.8)]
    parts = PartList([Part(blob(fin), 0.46, 0.25) for fin in (fan, back, anal, pelvic)])
    edge = [(end - tail * 0.95, -0.13 + wag), (end - tail * 1.02 + fork, wag), (end - tail * 0.95, 0.13 + wag)]
    parts.add(tube(edge, [0.02] * 3), 0.16, seam=False)
    body = [
        (a + 0.03, 0.015), (a * 0.72, -b * 0.7), (a * 0.2, -b), (-a * 0.45, -b * 0.82), (-a - 0.02, -b * 0.26),
        (-a - 0.02, b * 0.26), (-a * 0.45, b * 0.82), (a * 0.2, b), (a * 0.72, b * 0.72),
    ]  # fmt: skip
    parts.add(blob(body))
    for band in style.bands:
        parts += _band(a, b, band, vary(style.width, p[4], 0.2), 0.02 * p[5])
    flap = [(0.1, 0.03), (0.0, -0.05), (-0.075, 0.0 + wag), (-0.07, 0.09 + wag), (0.02, 0.11)]
    parts.add(blob(flap), 0.56, 0.25)
    parts.add(oval(a * 0.74, -b * 0.2, 0.042, 0.042), 0.93)
    parts.add(oval(a * 0.755, -b * 0.2, 0.025, 0.027), 0.02)
    parts.add(tube([(a + 0.02, 0.045), (a - 0.03, 0.07), (a - 0.06, 0.068)], [0.012] * 3), 0.1)
    return Shape(parts)


def _band(a: float, b: float, at: float, width: float, lean: float) -> list[Part]:
    """Return a white band with dark edges from the back to the belly, bowed towards the nose or the tail."""
    bow = -0.035 if at > 0 else 0.05 * (at > -0.5)
    return [
        Part(_strip(a, b, at * a, width + 0.035, bow, lean), 0.12, seam=False),
        Part(_strip(a, b, at * a, width, bow, lean), 0.95, seam=False),
    ]


def _strip(a: float, b: float, x: float, width: float, bow: float, lean: float) -> Points:
    """Return a strip as high as the body is at each of its sides."""
    share = np.linspace(-1, 1, 9)
    sides = []
    for edge in (x - width / 2, x + width / 2):
        height = float(np.interp(edge / a, (-1, -0.45, 0.2, 0.72, 1), (0.26, 0.82, 1, 0.7, 0.1))) * b
        sides.append(np.stack([edge + bow * (1 - share**2) + lean * share, share * height * 0.985], 1))
    return np.concatenate([sides[0], sides[1][::-1]])
