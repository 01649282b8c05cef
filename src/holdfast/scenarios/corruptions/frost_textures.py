"""Drawn frost, instead of the photographs that ImageNet-C uses.

Five textures of feathers of ice on clouds of haze, in the mean colours and contrasts of the five photographs that the
published code draws from (two of which are the same picture), so that they cover as much of a picture.
"""

from __future__ import annotations

import functools
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.seeds import generator
from holdfast.core.types import Image
from holdfast.scenarios.corruptions.plasma import plasma

SIDE = 512
_LOOKS = (
    ((78, 149, 166), 20, 260),
    ((201, 205, 214), 22, 520),
    ((201, 205, 214), 22, 420),
    ((138, 153, 165), 29, 640),
    ((112, 123, 135), 43, 760),
)
"""Mean colour, standard deviation of the brightness, and number of feathers of each texture."""

TEXTURES = len(_LOOKS)


@functools.lru_cache(maxsize=TEXTURES)
def frost_texture(index: int) -> Image:
    """Return one of the TEXTURES, the same in every process, (SIDE, SIDE, 3); callers must not write to it."""
    colour, deviation, feathers = _LOOKS[index]
    rng = generator("frost", index)
    ice = np.zeros((SIDE, SIDE), np.uint8)
    for _ in range(feathers):
        _feather(ice, rng)
    fine: Any = cv2.GaussianBlur(rng.standard_normal((SIDE, SIDE)), (0, 0), 0.8)
    feathered: Any = cv2.GaussianBlur(ice.astype(np.float64), (0, 0), 0.7)
    haze = plasma(SIDE, 1.5, rng)
    relief = _standard(0.6 * _standard(feathered) + 0.4 * _standard(haze) + 0.25 * _standard(fine))
    texture = np.clip(np.array(colour) + deviation * relief[..., None], 0, 255).astype(np.uint8)
    texture.flags.writeable = False
    return texture


def _feather(ice: NDArray[np.uint8], rng: np.random.Generator) -> None:
    """Draw a needle with shorter ones at 60° on both sides, brighter towards its root."""
    start, angle = rng.uniform(0, SIDE, 2), rng.uniform(0, 2 * np.pi)
    length, brightness = rng.uniform(15, 90), rng.uniform(60, 255)
    _needle(ice, start, angle, length, brightness)
    for share in np.arange(0.15, 0.95, 4 / length):
        root = start + share * length * np.array([np.cos(angle), np.sin(angle)])
        for side in (-np.pi / 3, np.pi / 3):
            _needle(
                ice, root, angle + side, 0.3 * (1 - share) * length * rng.uniform(0.5, 1), brightness * (1 - share / 2)
            )


def _needle(ice: NDArray[np.uint8], start: NDArray[np.float64], angle: float, length: float, brightness: float) -> None:
    end = start + length * np.array([np.cos(angle), np.sin(angle)])
    # Coordinates in sixteenths of a pixel, so that thin lines do not stand in steps.
    first, last = (tuple(int(16 * value) for value in point) for point in (start, end))
    cv2.line(ice, first, last, (brightness,), 1, cv2.LINE_AA, 4)


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values with mean 0 and standard deviation 1."""
    standard: NDArray[np.float64] = (values - values.mean()) / values.std()
    return standard
