"""Airship, car wheel and cash machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from holdfast.diorama.drawing import Part, PartList, Points, Shape, blob, box, oval, polygon, tube, vary


class Airship(NamedTuple):
    """``girth`` of the hull, where it is thickest (-1 the tail … 1 the nose), what hangs below."""

    girth: float = 0.17
    full: float = 0.15
    fin: float = 0.14
    cabin: float = 0.2
    cabin_at: float = 0.06
    ribs: int = 2
    engines: int = 0
    stripe: bool = False


AIRSHIPS = {
    "blimp": Airship(girth=0.19, cabin=0.18, stripe=True),
    "zeppelin": Airship(girth=0.13, full=0.05, cabin=0.14, cabin_at=0.2, ribs=3, engines=2, fin=0.12),
    "teardrop": Airship(girth=0.2, full=0.3, cabin=0.15, ribs=2, fin=0.15),
    "freighter": Airship(girth=0.18, full=0.0, cabin=0.34, cabin_at=0.0, ribs=3, engines=1),
    "racer": Airship(girth=0.145, full=0.25, cabin=0.16, cabin_at=0.1, ribs=1, fin=0.16, stripe=True),
    "cruiser": Airship(girth=0.16, full=0.1, cabin=0.24, cabin_at=0.08, ribs=2, engines=1, stripe=True),
    "scout": Airship(girth=0.175, full=0.2, cabin=0.17, cabin_at=0.03, ribs=3, fin=0.13),
    "patrol": Airship(girth=0.15, full=0.12, cabin=0.2, cabin_at=0.15, ribs=2, engines=2, fin=0.15),
}


def airship(style: Airship, p: Sequence[float], bend: float) -> Shape:
    """Draw an airship from the side, nose to the right."""
    b, full = vary(style.girth, p[0], 0.12), style.full + 0.08 * p[1]
    fin, a = vary(style.fin, p[2], 0.15), 0.47
    parts = PartList()
    root = -a * 0.62
    for side in (-1, 1):
        flap = [
            (root + 0.06, side * b * 0.62),
            (-a - 0.015, side * (b * 0.62 + fin)),
            (-a - 0.06, side * (b * 0.5 + fin)),
            (-a - 0.02, side * b * 0.12),
        ]
        parts.add(polygon(flap), 0.44, 0.8)
    parts += _cabin(style, p, b)
    hull = [
        (a, 0.0), (a * 0.8, -b * 0.6), (a * full, -b), (-a * 0.55, -b * 0.72), (-a, -b * 0.12), (-a, b * 0.12),
        (-a * 0.55, b * 0.72), (a * full, b), (a * 0.8, b * 0.6),
    ]  # fmt: skip
    parts.add(blob(hull))
    for rib in range(style.ribs):
        y = b * (-0.72 + 1.44 * (rib + 1) / (style.ribs + 1))
        parts.add(tube([(-a * 0.8, y * 0.5), (a * full, y), (a * 0.82, y * 0.52)], [0.01] * 3), 0.36, seam=False)
    if style.stripe:
        stripe = tube([(-a * 0.72, 0.02), (a * full, 0.03), (a * 0.93, 0.01)], [0.03, 0.06, 0.03])
        parts.add(stripe, 0.55, 1.0, seam=False)
    cap = [(a * 0.86, -b * 0.5), (a * 1.0, 0.0), (a * 0.86, b * 0.5), (a * 0.9, 0.0)]
    parts.add(blob(cap), 0.36, 0.8)
    side_fin = [(root, -0.03), (-a - 0.05, 0.02 + 0.02 * bend), (-a - 0.05, 0.07 + 0.02 * bend), (root + 0.03, 0.04)]
    parts.add(polygon(side_fin), 0.38, 0.8)
    return Shape(parts)


def _cabin(style: Airship, p: Sequence[float], b: float) -> list[Part]:
    wide, x, top = vary(style.cabin, p[3], 0.15), style.cabin_at + 0.03 * p[4], b * 0.88
    left, right = x - wide / 2, x + wide / 2
    hull = [(left, top - 0.02), (right, top - 0.02), (right - 0.015, top + 0.11), (left + 0.03, top + 0.11)]
    parts = PartList([Part(blob(hull), 0.36, 0.6)])
    panes = max(2, round(wide / 0.055))
    for pane in range(panes):
        left = x - wide / 2 + 0.025 + (wide - 0.05) * pane / panes
        parts.add(box(left, top + 0.028, left + (wide - 0.05) / panes * 0.66, top + 0.07), 0.92, seam=False)
    for engine in range(style.engines):
        at = x - wide / 2 - 0.1 - 0.15 * engine
        parts.add(tube([(at, top * 0.7), (at, top * 0.92 + 0.04)], [0.014, 0.014]), 0.3)
        parts.add(oval(at, top * 0.92 + 0.045, 0.045, 0.022), 0.32, 0.6)
    return parts


class Wheel(NamedTuple):
    """``spokes`` of a kind, in a rim of some radius (the tyre's is 0.5)."""

    spokes: int = 5
    wide: float = 0.11  # of a spoke at the hub
    taper: float = 0.7  # at the rim, of that
    rim: float = 0.33
    fork: float = 0.0  # spokes split towards the rim by so many radians
    twist: float = 0.0
    disc: bool = False  # a steel disc with holes in place of spokes
    hub: float = 0.085


WHEELS = {
    "five-spoke": Wheel(),
    "wire": Wheel(spokes=14, wide=0.026, taper=0.8, rim=0.35, hub=0.1),
    "steel": Wheel(spokes=8, disc=True, rim=0.31, hub=0.12),
    "split": Wheel(spokes=6, wide=0.045, fork=0.3, rim=0.35),
    "ten-spoke": Wheel(spokes=10, wide=0.05, taper=0.9, rim=0.36),
    "turbine": Wheel(spokes=7, wide=0.08, twist=0.5, rim=0.34),
    "six-spoke": Wheel(spokes=6, wide=0.09, taper=0.85, rim=0.34),
    "swirl": Wheel(spokes=9, wide=0.055, twist=0.35, rim=0.35, hub=0.095),
    "cross": Wheel(spokes=8, wide=0.04, fork=0.22, rim=0.34, hub=0.09),
}


def car_wheel(style: Wheel, p: Sequence[float], bend: float) -> Shape:
    """Draw a wheel seen a little from the side: the tread shows."""
    squeeze = 0.86 + 0.1 * p[0]
    rim, hub = vary(style.rim, p[1], 0.07), vary(style.hub, p[2], 0.15)
    depth = 0.035 + 0.2 * (0.96 - squeeze)
    spin = 0.6 * bend + p[3]
    parts = PartList([Part(_round(0.5, squeeze, -depth), 0.2), Part(_round(0.5, squeeze), 0.37)])
    for tread in range(-3, 4):  # grooves on the tread's side
        y = 0.12 * tread
        x = -squeeze * math.sqrt(max(0.25 - y * y, 0.0))
        parts.add(tube([(x - depth, y), (x - 0.004, y)], [0.02, 0.02]), 0.03, seam=False)
    parts.add(_round(0.44, squeeze), 0.32)
    parts.add(_round(rim + 0.035, squeeze), 0.8)
    if style.disc:
        parts.add(_round(rim, squeeze), 0.62, 0.4)
        for hole in range(style.spokes):
            angle = spin + 2 * math.pi * hole / style.spokes
            at = np.array([math.cos(angle), math.sin(angle)]) * rim * 0.68
            parts.add(oval(at[0] * squeeze, at[1], 0.042, 0.05, angle + 1.57), 0.05)
    else:
        parts.add(_round(rim, squeeze), 0.08)
        parts.add(_round(rim * 0.55, squeeze), 0.2, seam=False)
        parts += [spoke for index in range(style.spokes) for spoke in _spoke(style, p, index, rim, hub, spin, squeeze)]
    parts.add(_round(hub, squeeze), 0.78)
    for nut in range(5):
        angle = spin + 2 * math.pi * (nut + 0.5) / 5
        parts.add(oval(math.cos(angle) * hub * 0.68 * squeeze, math.sin(angle) * hub * 0.68, 0.014, 0.014), 0.15)
    parts.add(_round(hub * 0.4, squeeze), 0.5, 1.0)
    return Shape(parts)


def _round(radius: float, squeeze: float, x: float = 0.0) -> Points:
    return oval(x, 0, radius * squeeze, radius)


def _spoke(
    style: Wheel, p: Sequence[float], index: int, rim: float, hub: float, spin: float, squeeze: float
) -> list[Part]:
    angle = spin + 2 * math.pi * index / style.spokes
    wide = vary(style.wide, p[4], 0.2)
    parts = PartList()
    for side in (-1, 1) if style.fork else (0,):
        end = angle + style.twist + side * style.fork / 2
        turn = (angle + end) / 2 - style.twist * 0.2
        path = np.array(
            [(math.cos(t) * r, math.sin(t) * r) for t, r in ((angle, hub * 0.7), (turn, rim * 0.6), (end, rim * 1.02))]
        )
        outline = tube(path, [wide, wide * (1 + style.taper) / 2, wide * style.taper])
        parts.add(outline * (squeeze, 1), 0.68)
    return parts


class Cash(NamedTuple):
    """Width to height, the side seen, the head's form."""

    wide: float = 0.52
    side: float = 0.1
    dome: float = 0.0  # how far the top is rounded
    hood: float = 0.04
    screen: float = 0.3
    ledge: float = 0.05
    keys_left: bool = False


CASH = {
    "lobby": Cash(),
    "slim": Cash(wide=0.44, side=0.08, screen=0.26),
    "broad": Cash(wide=0.64, side=0.06, screen=0.34, keys_left=True),
    "domed": Cash(wide=0.52, dome=0.09, hood=0.0, side=0.08),
    "deep": Cash(wide=0.5, side=0.17, hood=0.06, screen=0.28),
    "kiosk": Cash(wide=0.48, dome=0.06, hood=0.02, side=0.11, screen=0.32),
    "drive-up": Cash(wide=0.57, side=0.13, hood=0.07, screen=0.27, keys_left=True),
    "counter": Cash(wide=0.54, side=0.05, dome=0.03, hood=0.03, screen=0.33),
}


def cash_machine(style: Cash, p: Sequence[float], bend: float) -> Shape:
    """Draw a cash machine, upright, seen from the front and a little from the left."""
    half, side = vary(style.wide, p[0], 0.1) / 2, vary(style.side, p[1], 0.3)
    top, edge = -0.5, -0.44 + 0.01 * bend
    parts = PartList(
        [Part(polygon([(-half, top + 0.02), (-half - side, edge), (-half - side, 0.46), (-half, 0.5)]), 0.3)]
    )
    parts.add(box(-half, top, half, 0.5, 0.02))
    if style.dome:
        peak = top - style.dome
        dome = [(-half, top + 0.03), (-half * 0.5, peak), (half * 0.5, peak), (half, top + 0.03)]
        parts.add(blob(dome), seam=False)
    parts.add(box(-half - style.hood, top - 0.02, half + style.hood, top + 0.13, 0.02), 0.6, 1.0)
    for left, right in ((-0.62, -0.3), (-0.2, 0.12), (0.22, 0.6)):
        parts.add(box(left * half, top + 0.035, right * half, top + 0.085), 0.96, seam=False)
    low = top + 0.19 + vary(style.screen, p[2], 0.1) * 0.78
    parts += _screen(half, top, low)
    shelf, ledge = low + 0.13, style.ledge
    board = [(-half, low + 0.05), (half, low + 0.05), (half + ledge, shelf), (-half - ledge * 0.4, shelf)]
    parts.add(polygon(board), 0.7)
    parts += _keys(-1 if style.keys_left else 1, half, low + 0.15)
    parts.add(box(-half * 0.72, 0.3, half * 0.72, 0.35, 0.012), 0.05)
    end = 0.385 + 0.02 * p[3]
    note = [(-half * 0.5, 0.325), (half * 0.5, 0.325), (half * 0.55, end), (-half * 0.55, end)]
    parts.add(polygon(note), 0.9, 0.5)
    parts.add(box(-half - 0.01, 0.455, half + 0.01, 0.5), 0.2)
    return Shape(parts)


def _screen(half: float, top: float, low: float) -> list[Part]:
    """Return a dark frame, a bright pane, three lines of text."""
    parts = PartList([Part(box(-half * 0.78, top + 0.17, half * 0.78, low + 0.02, 0.015), 0.1)])
    parts.add(box(-half * 0.68, top + 0.195, half * 0.68, low - 0.005), 0.86, 0.6)
    for line, right in enumerate((0.3, 0.05, 0.3)):
        y = top + 0.235 + (low - top - 0.25) * line / 3
        parts.add(box(-half * 0.52, y, half * right, y + 0.022), 0.3, 0.6, seam=False)
    return parts


def _keys(side: int, half: float, top: float) -> list[Part]:
    """Return a pad of nine keys on one side, the slot for the card on the other."""
    left = half * (0.02 if side > 0 else -0.74)
    pad = half * 0.72
    bottom = top + 0.15
    parts = PartList([Part(box(left, top, left + pad, bottom, 0.01), 0.16)])
    for row in range(3):
        for column in range(3):
            x, y = left + pad * (0.09 + 0.3 * column), top + 0.014 + 0.045 * row
            parts.add(box(x, y, x + pad * 0.22, y + 0.031), 0.88, seam=False)
    x = half * (-0.66 if side > 0 else 0.12)
    parts.add(box(x, top + 0.03, x + half * 0.5, top + 0.06), 0.04)
    parts.add(box(x + half * 0.1, top + 0.09, x + half * 0.4, top + 0.115), 0.7, 1.0)
    return parts
