"""Lizard (slender, seen from above, long tail) and green lizard (stocky, from the side, crest and curled tail)."""

# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from holdfast.diorama.drawing import Part, PartList, Points, Shape, blob, curve, moved, oval, polygon, tube, vary


class Lizard(NamedTuple):
    """``sway`` is how far neck, shoulders, middle, hips and four joints of the tail are off the axis."""

    sway: tuple[float, ...]
    tail: float = 0.56
    girth: float = 0.15
    head: float = 1.0
    stride: float = 0.0  # -1..1: which legs reach forward
    reach: float = 0.2
    frill: float = 0.0
    heading: float = 0.6  # radians from upright


LIZARDS = {
    "basking": Lizard((0, 0.02, 0.03, 0, -0.05, -0.02, 0.07, 0.16)),
    "climbing": Lizard((0, 0, 0, 0, 0.03, 0.07, 0.03, -0.06), tail=0.64, stride=0.8, heading=0.1),
    "frilled": Lizard((0, 0.01, 0.03, 0.02, -0.03, -0.1, -0.1, 0), tail=0.52, girth=0.15, frill=0.21, heading=-0.4),
    "hook-tailed": Lizard((0, -0.02, -0.02, 0.02, 0.09, 0.2, 0.26, 0.16), tail=0.52, stride=-0.5, heading=-0.9),
    "sturdy": Lizard(
        (0, 0.02, 0.02, 0, -0.03, 0, 0.05, 0.04), tail=0.46, girth=0.19, head=1.2, reach=0.19, heading=1.1
    ),
    "winding": Lizard((0.03, 0.05, 0.01, -0.05, -0.06, 0.03, 0.1, 0.04), tail=0.59, stride=0.5, heading=-0.2),
    "turning": Lizard((0, -0.04, -0.07, -0.03, 0.07, 0.17, 0.22, 0.2), tail=0.55, stride=-0.7, heading=0.4),
    "whip-tailed": Lizard((0, 0.02, 0.01, -0.02, -0.07, -0.03, 0.08, 0.06), tail=0.72, girth=0.13, heading=1.0),
    "resting": Lizard((0, 0.03, 0.05, 0.02, -0.06, -0.13, -0.12, -0.02), tail=0.52, girth=0.17, head=1.1, heading=-0.7),
}


def lizard(style: Lizard, p: Sequence[float], bend: float) -> Shape:
    """Draw a lizard from above, head first."""
    sway = np.array(style.sway) * vary(1, p[0], 0.25)
    sway[4:] += bend * np.array([0.01, 0.03, 0.05, 0.08])
    tail = vary(style.tail, p[1], 0.12)
    girth = vary(style.girth, p[2], 0.15)
    y = np.array([0.13, 0.2, 0.36, 0.52, *(0.52 + tail * np.array([0.25, 0.5, 0.75, 1.0]))])
    spine = np.stack([sway, y], 1)
    parts = PartList()
    for end, joint in ((1, 1), (3, -1)):
        for side in (-1, 1):
            parts += _leg(spine[end], side, joint, style, vary(style.reach, p[3], 0.15), bend)
    if style.frill:
        frill = vary(style.frill, p[4], 0.2)
        ring = [
            (math.sin(a) * frill * (1 + 0.12 * (i % 2)), 0.13 + math.cos(a) * frill * 0.75)
            for i, a in enumerate(np.linspace(-2.2, 2.2, 9))
        ]
        parts.add(blob(ring), tone=0.62, accent=0.6)
    widths = girth * np.array([0.62, 0.85, 1.1, 0.82, 0.52, 0.38, 0.24, 0.06])
    parts.add(tube(spine, widths))
    head = vary(style.head, p[5], 0.12)
    h = 0.08 * head
    outline = blob(
        [(0, -0.03), (h * 0.62, 0.02), (h, 0.085), (h * 0.62, 0.14), (-h * 0.62, 0.14), (-h, 0.085), (-h * 0.62, 0.02)]
    )
    parts.add(outline)
    ridge = curve(spine[:6])
    parts.add(tube(ridge[::4], [girth * w for w in np.linspace(0.22, 0.06, len(ridge[::4]))]), 0.68, seam=False)
    for side in (-1, 1):
        parts.add(oval(side * h * 0.72, 0.058, 0.021, 0.025), 0.05)
    return Shape([part._replace(outline=moved(part.outline, 0, 0, style.heading)) for part in parts], from_above=True)


def _leg(root: Points, side: int, joint: int, style: Lizard, reach: float, bend: float) -> list[Part]:
    """Return a leg: thigh out, shin forward (front) or back (hind), a foot of four toes."""
    lean = 0.045 * side * joint * (style.stride + 0.4 * bend)
    knee = root + (side * reach * 0.62, -0.05 * joint + lean)
    foot = root + (side * reach, -0.115 * joint + lean * 2)
    limb = tube([root, knee, foot], [0.07, 0.058, 0.04])
    toes = []
    for toe in range(4):
        angle = (-0.9 + 0.6 * toe) * side
        for radius, turn in ((0.075, angle), (0.026, angle + 0.3 * side)):
            toes.append((radius * math.sin(turn + 0.7 * side), -joint * radius * math.cos(turn + 0.7 * side)))
    return [Part(polygon(np.array(toes) + foot), 0.45), Part(limb, 0.48, seam=False)]


class GreenLizard(NamedTuple):
    """Heights and lengths in units of the body."""

    arch: float = 0.06  # how far the back rises
    girth: float = 0.25
    lift: float = 0.05  # how far the head is raised
    crest: float = 0.07
    spikes: int = 9
    curl: float = 1.35  # turns of the tail
    coil: float = 0.17  # its radius
    dewlap: float = 0.07
    casque: float = 0.03
    leg: float = 0.19


GREEN_LIZARDS = {
    "iguana": GreenLizard(),
    "perched": GreenLizard(arch=0.12, girth=0.28, crest=0.05, spikes=11, curl=1.6, casque=0.09, dewlap=0.04),
    "alert": GreenLizard(arch=0.03, lift=0.15, crest=0.08, curl=1.2, coil=0.2, dewlap=0.09),
    "heavy": GreenLizard(girth=0.3, lift=0.0, crest=0.055, spikes=8, coil=0.15, leg=0.15, dewlap=0.06),
    "spiny": GreenLizard(arch=0.08, girth=0.22, lift=0.08, crest=0.1, spikes=7, curl=1.5, leg=0.21),
    "strolling": GreenLizard(arch=0.05, girth=0.24, lift=0.08, crest=0.065, spikes=10, curl=1.45, coil=0.18, leg=0.22),
    "crouching": GreenLizard(arch=0.09, girth=0.27, lift=0.02, crest=0.075, spikes=8, curl=1.3, coil=0.19, leg=0.16),
    "crowned": GreenLizard(arch=0.1, girth=0.26, lift=0.11, crest=0.06, spikes=10, curl=1.55, coil=0.16, casque=0.07),
}


def green_lizard(style: GreenLizard, p: Sequence[float], bend: float) -> Shape:
    """Draw a green lizard from the side, looking right."""
    girth, arch = vary(style.girth, p[0], 0.12), vary(style.arch, p[1], 0.3)
    leg, lift = vary(style.leg, p[2], 0.12), style.lift + 0.035 * p[3] + 0.03 * bend
    spine = np.array(
        [(-0.3, 0.04), (-0.15, -arch * 0.7), (0.03, -arch), (0.2, -arch * 0.6 - lift * 0.3), (0.32, -0.04 - lift)]
    )
    head = np.array([0.4, -0.09 - lift])
    parts = PartList()
    for x, forward in ((-0.17, -1), (0.17, 1)):  # the far legs
        parts += _side_leg((x + 0.07, 0.02), leg * 0.92, forward, 0.36, -bend)
    parts.add(_coil(style, p, bend, girth))
    top = curve(spine)[3:-2]
    parts.add(_crest(top, girth, vary(style.crest, p[4], 0.25), style.spikes), 0.66, 0.7)
    if style.dewlap:
        d = vary(style.dewlap, p[5], 0.3)
        flap = np.array([(0.07, 0.06), (0.0, 0.09 + d), (-0.09, 0.1 + d * 0.4), (-0.06, 0.02)])
        parts.add(blob(head + flap), 0.64, 0.5)
    parts.add(tube(spine, [girth * w for w in (0.5, 0.9, 1.0, 0.82, 0.6)]))
    parts.add(tube(spine[1:4] + (0, girth * 0.3), [0.03, girth * 0.22, 0.03]), 0.72, seam=False)  # the belly
    parts += _iguana_head(head, style.casque + 0.01 * p[6])
    for x, forward in ((-0.2, -1), (0.14, 1)):
        parts += _side_leg((x, 0.03), leg, forward, 0.5, bend)
    return Shape(parts)


def _coil(style: GreenLizard, p: Sequence[float], bend: float, girth: float) -> Points:
    coil = vary(style.coil, p[7], 0.15)
    turns = style.curl + 0.1 * bend
    angles = np.linspace(0.5 * math.pi, (0.5 + 2 * turns) * math.pi, 12)
    radius = coil * np.linspace(1, 0.16, 12) ** 0.9
    centre = np.array([-0.36, 0.05 + girth * 0.2 - coil])
    spiral = centre + np.stack([-0.08 + radius * np.cos(angles), radius * np.sin(angles)], 1)
    spiral[0] = (-0.24, 0.03)
    return tube(spiral, np.linspace(girth * 0.5, 0.022, 12).tolist())


def _crest(top: Points, girth: float, height: float, spikes: int) -> Points:
    """Return a saw along the back: tips lean backwards, highest in the middle."""
    at = np.linspace(0, len(top) - 1, 2 * spikes + 1)
    line = np.stack([np.interp(at, np.arange(len(top)), top[:, axis]) for axis in (0, 1)], 1)
    bulge = np.sin(np.linspace(0.35, 2.8, len(line)))
    line[:, 1] -= girth * (0.28 + 0.17 * bulge)
    line[1::2] += np.stack([np.full(spikes, -0.022), -height * (0.55 + 0.45 * bulge[1::2])], 1)
    return np.concatenate([line, top[::-1]])


def _iguana_head(head: Points, casque: float) -> list[Part]:
    skull = [
        (-0.1, -0.075 - casque), (-0.02, -0.085 - casque * 0.3), (0.08, -0.055), (0.145, 0.0), (0.13, 0.035),
        (0.03, 0.06), (-0.09, 0.08), (-0.13, 0.0),
    ]  # fmt: skip
    mouth = tube([head + (0.135, 0.012), head + (0.06, 0.022), head + (-0.02, 0.012)], [0.012, 0.012, 0.012])
    return [
        Part(blob(np.array(skull) + head)),
        Part(oval(head[0] - 0.05, head[1] + 0.035, 0.032, 0.032), 0.7, 0.6),
        Part(mouth, 0.14),
        Part(oval(head[0] + 0.028, head[1] - 0.026, 0.034, 0.034), 0.92),
        Part(oval(head[0] + 0.034, head[1] - 0.026, 0.017, 0.02), 0.03),
    ]


def _side_leg(root: tuple[float, float], leg: float, forward: int, tone: float, bend: float) -> list[Part]:
    """Return a leg with a bent knee and a flat foot with long toes."""
    x, y = root
    knee = (x + forward * 0.075, y + leg * 0.45)
    heel = (x + 0.02 + forward * 0.02 + 0.03 * bend, y + leg)
    toes = [
        (heel[0] - 0.03, heel[1] - 0.015), (heel[0] + 0.09, heel[1] - 0.012), (heel[0] + 0.06, heel[1] + 0.01),
        (heel[0] + 0.095, heel[1] + 0.03), (heel[0] - 0.03, heel[1] + 0.022),
    ]  # fmt: skip
    return [Part(polygon(toes), tone - 0.06), Part(tube([root, knee, heel], [0.12, 0.085, 0.05]), tone)]
