"""Plasma clouds: noise of every size, coarse noise stronger than fine noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIDE = 256


def plasma(side: int, decay: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return clouds by midpoint displacement, (side, side), exactly 0..1, periodic at the edges.

    The middle of each square of known points is their mean and a random displacement, then the middles of the sides are
    the means of the four known points around them, likewise; then squares of half the size. Displacements become
    ``decay``² times smaller from one size to the next: the published code multiplies by the amplitude twice.

    Args:
        side: a power of two.
        decay: at least 1.
        rng: the only randomness.
    """
    known = np.zeros((1, 1))
    amplitude = 1.0
    while len(known) < side:
        size = len(known)
        right, below = np.roll(known, -1, axis=1), np.roll(known, -1, axis=0)
        corners = known + right + below + np.roll(below, -1, axis=1)
        middle = corners / 4 + amplitude * rng.uniform(-1, 1, (size, size))
        across = (known + right + middle + np.roll(middle, 1, axis=0)) / 4 + amplitude * rng.uniform(
            -1, 1, (size, size)
        )
        down = (known + below + middle + np.roll(middle, 1, axis=1)) / 4 + amplitude * rng.uniform(-1, 1, (size, size))
        finer = np.empty((2 * size, 2 * size))
        finer[::2, ::2], finer[1::2, 1::2] = known, middle
        finer[::2, 1::2], finer[1::2, ::2] = across, down
        known, amplitude = finer, amplitude / decay**2
    known = known - known.min()
    clouds: NDArray[np.float64] = known / known.max()
    return clouds
