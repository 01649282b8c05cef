"""Dog (hanging ears, blunt muzzle, thin raised tail) and fox (pointed ears and muzzle, brush with a white tip)."""

# Points are arrays: + adds them, it does not join them.
# ruff: noqa: RUF005

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from holdfast.diorama.drawing import Part, PartList, Points, Shape, blob, moved, oval, polygon, tube, vary


class Beast(NamedTuple):
    """Lengths in units of a body; ``sits`` on its haunches or is upright."""

    length: float = 0.46
    depth: float = 0.2
    leg: float = 0.3
    neck: float = 0.2
    lean: float = 0.55  # how far forward the neck goes, of its length
    head: float = 0.105
    muzzle: float = 0.13
    ear: float = 0.15
    tail: float = 0.3
    raise_tail: float = 0.7  # -1 hangs … 1 is up
    stride: float = 0.3
    sits: bool = False


DOGS = {
    "retriever": Beast(),
    "dachshund": Beast(length=0.62, depth=0.18, leg=0.15, neck=0.16, muzzle=0.15, ear=0.17, tail=0.26, raise_tail=0.4),
    "terrier": Beast(length=0.36, depth=0.19, leg=0.26, neck=0.18, head=0.12, muzzle=0.12, ear=0.12, tail=0.2,
        raise_tail=1),
    "puppy": Beast(length=0.3, depth=0.2, leg=0.2, neck=0.19, head=0.13, muzzle=0.1, ear=0.18, tail=0.2,
        raise_tail=0.5, sits=True),
    "sitting": Beast(length=0.36, depth=0.19, leg=0.3, neck=0.22, muzzle=0.13, ear=0.16, tail=0.26,
        raise_tail=0.3, sits=True),
    "mastiff": Beast(length=0.48, depth=0.25, leg=0.28, neck=0.19, head=0.13, muzzle=0.12, ear=0.13, tail=0.26,
        raise_tail=0.2),
    "hound": Beast(length=0.44, depth=0.185, leg=0.34, neck=0.23, muzzle=0.15, ear=0.19, tail=0.32,
        raise_tail=0.9, stride=0.7),
    "spaniel": Beast(length=0.42, depth=0.2, leg=0.23, neck=0.18, head=0.115, muzzle=0.115, ear=0.2, tail=0.2,
        raise_tail=0.6),
    "begging": Beast(length=0.34, depth=0.2, leg=0.28, neck=0.2, head=0.12, muzzle=0.12, ear=0.17, tail=0.24,
        raise_tail=0.5, sits=True),
}  # fmt: skip
FOXES = {
    "standing": Beast(length=0.39, depth=0.180, leg=0.27, neck=0.15, head=0.116, muzzle=0.15, ear=0.14, tail=0.36,
        raise_tail=-0.35),
    "trotting": Beast(length=0.41, depth=0.174, leg=0.26, neck=0.15, lean=0.8, head=0.116, muzzle=0.16, ear=0.13,
        tail=0.38, raise_tail=0.05, stride=0.9),
    "sitting": Beast(length=0.30, depth=0.174, leg=0.27, neck=0.16, head=0.122, muzzle=0.15, ear=0.15, tail=0.36,
        raise_tail=-0.2, sits=True),
    "arctic": Beast(length=0.36, depth=0.209, leg=0.2, neck=0.13, head=0.122, muzzle=0.13, ear=0.115, tail=0.36,
        raise_tail=-0.1),
    "fennec": Beast(length=0.32, depth=0.162, leg=0.24, neck=0.15, head=0.116, muzzle=0.13, ear=0.2, tail=0.38,
        raise_tail=-0.3),
    "listening": Beast(length=0.28, depth=0.174, leg=0.25, neck=0.17, head=0.122, muzzle=0.14, ear=0.17, tail=0.4,
        raise_tail=0.3, sits=True),
    "stalking": Beast(length=0.43, depth=0.174, leg=0.22, neck=0.14, lean=0.95, head=0.116, muzzle=0.16, ear=0.13,
        tail=0.38, raise_tail=0.2, stride=0.6),
    "watching": Beast(length=0.38, depth=0.180, leg=0.29, neck=0.18, lean=0.4, head=0.122, muzzle=0.145,
        ear=0.155, tail=0.4, raise_tail=-0.5, stride=0.1),
    "waiting": Beast(length=0.32, depth=0.180, leg=0.26, neck=0.15, head=0.122, muzzle=0.15, ear=0.14, tail=0.38,
        raise_tail=0.05, sits=True),
}  # fmt: skip


def draw_beast(style: Beast, p: Sequence[float], bend: float, *, fox: bool) -> Shape:
    """Draw a dog or a fox from the side, looking right."""
    length, depth = vary(style.length, p[0], 0.12), vary(style.depth, p[1], 0.12)
    leg, head_size = vary(style.leg, p[2], 0.12), vary(style.head, p[3], 0.1)
    neck = vary(style.neck, p[4], 0.12)
    if style.sits:
        hip, shoulder = np.array([-length * 0.32, 0.02]), np.array([length * 0.2, -length * 0.62])
        ground = 0.02 + depth * 0.62
    else:
        hip, shoulder = np.array([-length / 2, 0.0]), np.array([length / 2, -0.01])
        ground = leg
    lean = style.lean + 0.15 * bend
    head = shoulder + np.array([neck * lean, -neck * (1.25 - 0.75 * lean) - head_size * 0.4])
    tail = vary(style.tail, p[5], 0.15)
    parts = PartList(_tail(hip, tail, style.raise_tail + 0.25 * bend, fox, style.sits))
    thick = 0.06 if fox else 0.072
    if style.sits:
        parts += _sitting_body(hip, shoulder, depth, ground, thick, fox, bend)
    else:
        parts += _standing_body(hip, shoulder, depth, ground, thick, fox, style.stride + 0.3 * p[6])
    throat = shoulder + (0.02, depth * 0.1)
    middle = (throat + head) / 2 + (-0.01, 0.0)
    wide = 0.95 if fox else 0.85
    parts.add(tube([throat, middle, head], [depth * wide, depth * 0.66, head_size * 1.3]), seam=style.sits)
    if fox:
        chest = [throat + (0.05, -0.06), throat + (depth * 0.52, 0.0), throat + (0.05, 0.11), throat + (0.0, 0.02)]
        parts.add(blob(chest), 0.9, seam=False)
    elif p[7] > 0:
        parts.add(tube([middle + (-depth * 0.3, -0.01), middle + (depth * 0.28, 0.035)], [0.035, 0.035]), 0.6, 1.0)
    face = _fox_head if fox else _dog_head
    parts += [
        part._replace(outline=moved(part.outline, head[0], head[1], 0.12 + 0.2 * bend, head_size / 0.1))
        for part in face(vary(style.muzzle, p[6], 0.1), vary(style.ear, p[7], 0.15), bend)
    ]
    return Shape(parts)


def _standing_body(
    hip: Points, shoulder: Points, depth: float, ground: float, thick: float, fox: bool, stride: float
) -> list[Part]:
    parts = PartList()
    foot_tone = 0.2 if fox else 0.46
    for near in (False, True):
        sign = 1 if near else -1
        for root, back in ((hip + (0.035, 0.02), True), (shoulder + (-0.03, 0.03), False)):
            step = sign * (0.09 * stride + 0.028) * (-1 if back else 1)
            start = root + (0.0, 0.0 if near else -0.01)
            foot = np.array([start[0] + step, ground - 0.02])
            knee = (start + foot) / 2 + ((-0.045 if back else 0.018), 0.0)
            widths = [depth * 0.72 if back else depth * 0.55, thick * 1.1, thick * 0.75]
            tone = 0.5 if near else 0.36
            parts.add(tube([start, knee, foot], widths), tone)
            if fox:
                parts.add(tube([knee * 0.45 + foot * 0.55, foot], [thick * 0.85, thick * 0.78]), foot_tone, seam=False)
            parts.add(oval(foot[0] + 0.022, foot[1] + 0.002, 0.046, 0.024), foot_tone if near else foot_tone - 0.08)
        if not near:
            middle = (hip + shoulder) / 2 + (0.0, -0.005 if fox else 0.0)
            waist = 0.72 if fox else 0.84
            parts.add(tube([hip, middle, shoulder], [depth * 0.82, depth * waist, depth]))
            if fox:
                belly = [hip + (0.1, depth * 0.28), shoulder + (0.0, depth * 0.36)]
                parts.add(tube(belly, [0.03, 0.06]), 0.86, seam=False)
    return parts


def _sitting_body(
    hip: Points, shoulder: Points, depth: float, ground: float, thick: float, fox: bool, bend: float
) -> list[Part]:
    middle = (hip + shoulder) / 2 + (-0.03, -0.02)
    parts = PartList()
    tip = 0.2 if fox else 0.46
    for near in (False, True):
        shift = -0.015 if near else 0.055
        start = shoulder + (shift * 0.4 + 0.01, 0.05)
        foot = np.array([shoulder[0] + 0.05 + shift + 0.015 * bend, ground - 0.02])
        knee = (start + foot) / 2 + (0.012, 0.0)
        if near:
            parts.add(tube([hip, middle, shoulder], [depth * 1.15, depth * 1.1, depth * 0.95]))
        parts.add(tube([start, knee, foot], [depth * 0.5, thick * 1.1, thick * 0.8]), 0.5 if near else 0.36)
        if fox:
            parts.add(tube([knee * 0.4 + foot * 0.6, foot], [thick * 0.85, thick * 0.8]), tip, seam=False)
        parts.add(oval(foot[0] + 0.022, foot[1], 0.045, 0.024), tip if near else tip - 0.08)
    parts.add(oval(hip[0] + 0.05, hip[1] + depth * 0.1, depth * 0.62, depth * 0.52, -0.5))
    parts.add(oval(hip[0] + 0.14, ground - 0.012, 0.075, 0.03), tip + 0.02)
    return parts


def _tail(hip: Points, length: float, up: float, fox: bool, sits: bool) -> list[Part]:
    if fox:
        root = hip + (-0.02, 0.0 if not sits else 0.05)
        reach = np.array([-length * 0.9, -length * 0.62 * up + 0.03])
        if sits:
            reach = np.array([-length * 0.85, -length * 0.5 * max(up, -0.1) + 0.0])
        sag = np.array([0.0, 0.05])
        path = [root, root + reach * 0.35 + sag, root + reach * 0.7 + sag * 0.8, root + reach]
        brush = tube(path, [0.06, 0.15, 0.18, 0.03])
        tip = tube(
            [root + reach * 0.68 + sag * 0.8, root + reach * 0.85 + sag * 0.45, root + reach], [0.165, 0.14, 0.03]
        )
        return [Part(brush, 0.5), Part(tip, 0.93, seam=False)]
    root = hip + (-0.03, -0.03)
    if sits:
        path = [root + (0.0, 0.1), root + (-length * 0.5, 0.1), root + (-length, 0.06 - length * 0.6 * up)]
    else:
        path = [root, root + (-length * 0.45, -length * 0.25 * up), root + (-length * 0.6, -length * 0.95 * up)]
    return [Part(tube(path, [0.06, 0.046, 0.024]), 0.5)]


def _dog_head(muzzle: float, ear: float, bend: float) -> list[Part]:
    """Return the parts of a head about the origin, for a skull of radius 0.1."""
    snout = np.array([0.06 + muzzle, 0.045])
    swing = 0.02 * bend
    flap = [
        (-0.055, -0.085), (0.0, -0.06), (0.005, ear * 0.45), (-0.035 + swing, ear * 0.85), (-0.09 + swing, ear * 0.6),
        (-0.095, -0.02),
    ]  # fmt: skip
    return [
        Part(oval(0, 0, 0.108, 0.1)),
        Part(tube([(0.03, 0.025), (0.09, 0.035), snout - (0.02, 0.0)], [0.14, 0.115, 0.098]), seam=False),
        Part(tube([snout + (-0.09, 0.035), snout + (-0.02, 0.03)], [0.045, 0.05]), 0.66, seam=False),
        Part(oval(snout[0] + 0.012, snout[1] - 0.028, 0.03, 0.025), 0.04),
        Part(tube([snout + (0.01, 0.022), snout + (-0.05, 0.034), snout + (-0.09, 0.026)], [0.011, 0.011, 0.011]), 0.1),
        Part(blob(flap), 0.33),
        Part(oval(0.055, -0.022, 0.02, 0.022), 0.04),
        Part(oval(0.061, -0.028, 0.007, 0.007), 0.97),
    ]


def _fox_head(muzzle: float, ear: float, bend: float) -> list[Part]:
    """Return the parts of a head about the origin, for a skull of radius 0.1."""
    nose = np.array([0.085 + muzzle, 0.052])
    prick = 0.02 * bend
    far = [(0.02, -0.06), (0.05 + prick, -0.07 - ear), (0.075, -0.03)]
    near = [(-0.09, -0.035), (-0.05 + prick, -0.085 - ear), (0.035, -0.06)]
    inner = [(-0.058, -0.05), (-0.044 + prick, -0.06 - ear * 0.72), (0.01, -0.062)]
    return [
        Part(polygon(far), 0.3), Part(blob([(-0.1, 0.0), (-0.03, -0.088), (0.06, -0.05), (0.12, 0.0),
        (nose[0] - 0.01, nose[1] - 0.02), (nose[0] - 0.01, nose[1] + 0.02), (0.07, 0.085), (-0.06, 0.1)])),
        Part(blob([(0.0, 0.05), (0.07, 0.035), (nose[0] - 0.03, nose[1] + 0.004), (nose[0] - 0.04, nose[1] + 0.02),
        (0.05, 0.09), (-0.06, 0.11), (-0.08, 0.07)]), 0.93, seam=False), Part(polygon(near), 0.5),
        Part(polygon(inner), 0.2), Part(oval(nose[0], nose[1], 0.022, 0.02), 0.03),
        Part(oval(0.055, -0.008, 0.02, 0.016, 0.3), 0.03),
    ]  # fmt: skip
