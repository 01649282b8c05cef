"""Cello and ice cream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.diorama.drawing import Part, PartList, Shape, blob, box, oval, polygon, tube, vary


class Cello(NamedTuple):
    """Half widths of the upper bout, the waist and the lower bout; the lengths of body and neck."""

    upper: float = 0.16
    waist: float = 0.105
    lower: float = 0.205
    body: float = 0.55
    neck: float = 0.33
    pin: float = 0.1
    points: float = 1.0  # how sharp the corners of the waist are
    bow: float = 0.0  # radians the bow leans, 0 for no bow


CELLI = {
    "classic": Cello(),
    "slim": Cello(upper=0.14, waist=0.09, lower=0.175, body=0.54, neck=0.36),
    "broad": Cello(upper=0.18, waist=0.12, lower=0.23, body=0.54, neck=0.3),
    "bowed": Cello(bow=1.15, neck=0.32),
    "student": Cello(upper=0.15, waist=0.11, lower=0.19, body=0.5, neck=0.34, pin=0.14, points=0.6),
    "baroque": Cello(upper=0.165, waist=0.1, lower=0.215, body=0.56, neck=0.28, pin=0.02),
    "concert": Cello(upper=0.155, waist=0.1, lower=0.2, body=0.56, neck=0.34, pin=0.12, bow=-1.2),
    "old": Cello(upper=0.17, waist=0.115, lower=0.21, body=0.53, neck=0.31, pin=0.05, points=0.8),
}


def cello(style: Cello, p: Sequence[float], bend: float) -> Shape:
    """Draw a cello from the front, upright."""
    body, neck = vary(style.body, p[3], 0.06), vary(style.neck, p[4], 0.1)
    waist = vary(style.waist, p[1], 0.08)
    top = -0.02
    end = top + body
    outline = _bouts(vary(style.upper, p[0], 0.08), waist, vary(style.lower, p[2], 0.08), body, style.points)
    parts = PartList([Part(tube([(0, end - 0.03), (0, end + style.pin)], [0.02, 0.01]), 0.2)])
    parts.add(blob(outline), 0.36)
    middle = top + body / 2
    parts.add(blob([(x * 0.9, middle + (y - middle) * 0.945) for x, y in outline]), 0.56, seam=False)
    for side in (-1, 1):
        x, y = side * waist * 0.66, top + body * 0.48
        hole = [(-0.012, -0.075), (0.006, -0.05), (0, 0), (-0.002, 0.05), (0.02, 0.075)]
        path = [(x + side * dx, y + dy) for dx, dy in hole]
        parts.add(tube(path, [0.022, 0.014, 0.016, 0.014, 0.024]), 0.04, seam=False)
    foot, head = top + body * 0.3, top - neck
    parts.add(polygon([(-0.024, foot), (0.024, foot), (0.017, head), (-0.017, head)]), 0.08)
    parts += _scroll(head, bend)
    bridge = top + body * 0.52
    low, high = bridge - 0.016, bridge + 0.018
    parts.add(polygon([(-0.036, low), (0.036, low), (0.05, high), (-0.05, high)]), 0.85)
    tail = bridge + 0.1
    parts.add(polygon([(-0.034, tail), (0.034, tail), (0.016, end - 0.02), (-0.016, end - 0.02)]), 0.07)
    for x in (-0.016, -0.0055, 0.0055, 0.016):
        above, below = x * 0.7, x * 1.4
        line = [(above - 0.002, head), (above + 0.002, head), (below + 0.003, tail), (below - 0.003, tail)]
        parts.add(polygon(line), 0.9, seam=False)
    if style.bow:
        parts += _bow(style.bow + 0.1 * bend + 0.08 * p[5], bridge - 0.07)
    return Shape(parts)


def _bouts(u: float, w: float, low: float, body: float, points: float) -> list[tuple[float, float]]:
    """Return the outline of the body: the upper bout, the waist between its corners, the lower bout."""
    sharp = 0.028 * points
    right = [
        (0.04, 0.0), (u * 0.72, 0.01 / body), (u, 0.14), (u * 0.9, 0.28), (w + sharp + 0.012, 0.35), (w, 0.45),
        (w + sharp + 0.02, 0.57), (low * 0.95, 0.67), (low, 0.82), (low * 0.62, 1 - 0.01 / body), (0.0, 1.0),
    ]  # fmt: skip
    right = [(x, -0.02 + y * body) for x, y in right]
    return right + [(-x, y) for x, y in right[-2::-1]]


def _scroll(top: float, bend: float) -> list[Part]:
    parts = PartList()
    for peg, (side, drop) in enumerate(((-1, 0.0), (1, 0.018), (-1, -0.035), (1, -0.02))):
        y = top - 0.01 + drop
        parts.add(tube([(0, y), (side * 0.075, y - 0.008 - 0.004 * bend)], [0.016, 0.026 - 0.002 * peg]), 0.16)
    parts.add(tube([(0, top + 0.03), (0, top - 0.05), (0.0, top - 0.085)], [0.036, 0.034, 0.03]), 0.44)
    parts.add(oval(0, top - 0.1, 0.036, 0.034), 0.46)
    parts.add(oval(0, top - 0.1, 0.016, 0.015), 0.16)
    return parts


def _bow(lean: float, y: float) -> list[Part]:
    dx, dy = math.sin(lean) * 0.42, -math.cos(lean) * 0.42
    stick = tube([(-dx, y - dy), (0.012, y - 0.02), (dx, y + dy)], [0.02, 0.018, 0.014])
    hair = polygon([(-dx, y - dy + 0.022), (dx, y + dy + 0.02), (dx, y + dy + 0.032), (-dx, y - dy + 0.034)])
    return [Part(hair, 0.92, seam=False), Part(stick, 0.3, 0.6)]


class IceCream(NamedTuple):
    """``scoops`` from the bottom up as (x, y, radius), or a ``swirl`` of so many turns; what sticks in it."""

    scoops: tuple[tuple[float, float, float], ...] = ()
    swirl: int = 0
    cone: float = 0.5
    wide: float = 0.17
    flake: bool = False
    cherry: bool = False
    sprinkles: int = 0
    cup: bool = False  # a flat-bottomed wafer in place of the pointed cone


ICE_CREAMS = {
    "single": IceCream(((0, -0.13, 0.2),), cone=0.48),
    "double": IceCream(((0, -0.1, 0.185), (0.01, -0.32, 0.165)), cone=0.46, sprinkles=8),
    "triple": IceCream(((-0.1, -0.1, 0.145), (0.1, -0.1, 0.145), (0, -0.26, 0.15)), cone=0.46, wide=0.2, cherry=True),
    "swirl": IceCream(swirl=4, cone=0.42),
    "flake": IceCream(((0, -0.13, 0.2),), cone=0.44, flake=True, sprinkles=6),
    "wafer": IceCream(swirl=3, cone=0.36, wide=0.165, cup=True),
    "sundae": IceCream(((0, -0.12, 0.195), (-0.01, -0.31, 0.15)), cone=0.42, cherry=True, flake=True),
    "twin": IceCream(((-0.095, -0.11, 0.155), (0.1, -0.12, 0.155)), cone=0.48, wide=0.2, sprinkles=8),
    "whipped": IceCream(swirl=5, cone=0.44, wide=0.16, cherry=True),
}


def ice_cream(style: IceCream, p: Sequence[float], bend: float) -> Shape:
    """Draw an ice cream, upright."""
    cone, wide = vary(style.cone, p[0], 0.1), vary(style.wide, p[1], 0.08)
    grow, tilt = vary(1, p[2], 0.08), 0.02 * bend
    parts = PartList()
    if style.flake:
        parts.add(tube([(0.05, -0.18), (0.17 + tilt, -0.5 * grow - 0.02)], [0.06, 0.06]), 0.24, 1.0)
    parts += _cone(cone, wide, style.cup, p[3])
    if style.swirl:
        parts += _swirl(style.swirl, wide * grow, tilt)
        top = -0.075 - 0.095 * style.swirl
    else:
        top = min(y - radius * grow for _, y, radius in style.scoops)
        for index, (x, y, radius) in enumerate(style.scoops):
            accent = 0.35 * index
            parts += _scoop(x + tilt * len(style.scoops) * index, y, radius * grow, accent, p)
        parts += [_sprinkle(style.scoops[index % len(style.scoops)], index, p[4]) for index in range(style.sprinkles)]
    if style.cherry:
        parts.add(tube([(0.01, top - 0.03), (0.05, top - 0.11)], [0.012, 0.012]), 0.2)
        parts.add(oval(0.01 + tilt, top - 0.015, 0.05, 0.048), 0.4, 1.0)
        parts.add(oval(-0.008 + tilt, top - 0.032, 0.013, 0.011), 0.97, seam=False)
    return Shape(parts)


def _swirl(turns: int, wide: float, tilt: float) -> list[Part]:
    """Return soft ice from the machine: rings that grow smaller, and a tip."""
    parts = PartList()
    for turn in range(turns):
        share = turn / turns
        half, y = wide * 1.16 * (1 - share * 0.72), -0.035 - 0.095 * turn
        lean = 0.025 * (-1) ** turn + tilt * share
        ring = [(-half * 0.8 + lean, y + 0.02), (lean, y + 0.035), (half * 0.8 + lean, y - 0.03)]
        parts.add(tube(ring, [0.09, 0.125, 0.09]))
    y = -0.035 - 0.095 * turns
    tip = [(-0.06, y + 0.06), (-0.02, y), (0.03 + tilt, y - 0.075), (0.03, y), (0.06, y + 0.05), (0, y + 0.08)]
    return [*parts, Part(blob(tip), seam=False)]


def _sprinkle(scoop: tuple[float, float, float], index: int, turned: float) -> Part:
    x, y, radius = scoop
    turn, around = index * 1.3 + turned, index * 2.4
    x, y = x + 0.66 * radius * math.cos(around), y + 0.5 * radius * math.sin(around) - 0.03
    ends = [(x, y), (x + 0.035 * math.cos(turn), y + 0.035 * math.sin(turn))]
    return Part(tube(ends, [0.018] * 2), (0.95, 0.2)[index % 2], 1.0, seam=False)


def _scoop(x: float, y: float, radius: float, accent: float, p: Sequence[float]) -> list[Part]:
    """Return a ball whose lower edge is ragged."""
    ball = oval(x, y, radius, radius * 0.97)
    rim = [(x - radius * 0.98, y + radius * 0.3)]
    for drop in range(6):
        angle = drop / 5
        rim.append((x + radius * (-0.98 + 1.96 * angle), y + radius * (0.62 + 0.2 * math.sin(drop * 2.2 + 3 * p[5]))))
    rim += [(x + radius * 0.98, y + radius * 0.3), (x, y + radius * 0.2)]
    return [Part(ball, 0.54, accent), Part(blob(rim), 0.56, accent, seam=False)]


def _cone(length: float, wide: float, cup: bool, lattice: float) -> list[Part]:
    """Return a waffle: always the second colour, crossed by darker lines."""
    if cup:
        foot = [(-wide * 0.72, 0.08), (wide * 0.72, 0.08), (wide * 0.52, length), (-wide * 0.52, length)]
        parts = PartList([Part(polygon(foot), 0.5, 1.0)])
        for x in (-0.4 * wide, 0.0, 0.4 * wide):
            parts.add(tube([(x, 0.1), (x * 0.8, length - 0.02)], [0.012, 0.012]), 0.32, 1.0, seam=False)
        parts.add(box(-wide, -0.03, wide, 0.1, 0.025), 0.58, 1.0)
        return parts
    parts = PartList([Part(polygon([(-wide, 0.0), (wide, 0.0), (0.016, length), (-0.016, length)]), 0.5, 1.0)])
    count = 4
    for line in range(1, count + 1):
        share = line / (count + 0.6) + 0.02 * lattice
        for side in (-1, 1):
            start = (side * wide * (1 - share * 0.9), length * share * 0.9)
            stop = (-side * wide * max(1 - share - 0.42, 0.02), length * min(share + 0.42, 0.97))
            parts.add(tube([start, stop], [0.012, 0.012]), 0.3, 1.0, seam=False)
    return parts
