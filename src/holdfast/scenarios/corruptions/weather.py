"""Snow, frost, fog, and drops on a lens."""

from __future__ import annotations

import functools
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.fingerprint import generator
from holdfast.core.types import Image, Mask
from holdfast.scenarios.corruptions.declaring import (
    Values,
    corruption,
    gaussian,
    layer,
    picture_of,
    streak,
    values_of,
    zoomed,
)

WATER = np.array([175, 238, 238], np.float32) / 255
MUD = np.array([63, 42, 20], np.float32) / 255


@corruption(
    id="snow",
    summary="snow falling aslant (ImageNet-C)",
    settings=(
        ("mean", "of the noise that flakes are cut from", -10, 10),
        ("sigma", "of that noise", 0, 10),
        ("zoom", "size of the flakes", 1, 100),
        ("threshold", "noise below it is no flake", -10, 10),
        ("radius", "of the streaks, in pixels of an image of 224", 1, 200),
        ("streak_sigma", "of the half Gaussian along a streak", 0.1, 200),
        ("kept", "share of the image that is not whitened", 0, 1),
    ),
    table=(
        (0.1, 0.3, 3.0, 0.5, 10.0, 4.0, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12.0, 4.0, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12.0, 8.0, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12.0, 8.0, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12.0, 12.0, 0.55),
    ),
)
def snow(
    image: Image,
    mask: Mask,
    *,
    rng: np.random.Generator,
    scale: float,
    mean: float,
    sigma: float,
    zoom: float,
    threshold: float,
    radius: float,
    streak_sigma: float,
    kept: float,
    **_: Any,
) -> Image:
    """Whiten the image, and add flakes and the same flakes rotated by 180°."""
    angle = rng.uniform(-135, -45)

    def flakes(height: int, width: int) -> NDArray[Any]:
        noise = zoomed(rng.normal(mean, sigma, (height, width)).astype(np.float32), zoom)
        noise[noise < threshold] = 0
        return streak(picture_of(noise), radius, streak_sigma, angle) / np.float32(255)

    fallen = layer(image, scale, flakes)[..., None]
    values = values_of(image)
    grey: Any = cv2.cvtColor(values, cv2.COLOR_RGB2GRAY)
    whitened = kept * values + (1 - kept) * np.maximum(values, grey[..., None] * 1.5 + 0.5)
    return picture_of(whitened + fallen + fallen[::-1, ::-1])


@corruption(
    id="frost",
    summary="ice on the lens (ImageNet-C, with drawn frost)",
    settings=(("kept", "weight of the image", 0, 1), ("ice", "weight of the frost", 0, 1)),
    table=((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
)
def frost(
    image: Image, mask: Mask, *, rng: np.random.Generator, scale: float, kept: float, ice: float, **_: Any
) -> Image:
    """Add a piece of one of five drawn frost textures (the release uses photographs)."""
    height, width = image.shape[:2]
    piece = frost_piece(height, width, scale, rng)
    return picture_of(kept * values_of(image) + ice * values_of(piece))


def frost_piece(height: int, width: int, scale: float, rng: np.random.Generator) -> Image:
    """Return a random piece of a frost texture, of this size."""
    texture = frost_texture(int(rng.integers(TEXTURES)))
    rows, columns = max(2, round(height / scale)), max(2, round(width / scale))
    lacking_rows, lacking_columns = (max(0, side + 1 - len(texture)) for side in (rows, columns))
    if lacking_rows or lacking_columns:
        texture = np.pad(texture, ((0, lacking_rows), (0, lacking_columns), (0, 0)), mode="symmetric")
    top, left = rng.integers(texture.shape[0] - rows), rng.integers(texture.shape[1] - columns)
    piece: Any = texture[top : top + rows, left : left + columns]
    if piece.shape[:2] != (height, width):
        method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        piece = cv2.resize(piece, (width, height), interpolation=method)
    return cast(Image, piece)


@corruption(
    id="fog",
    summary="clouds of fog (ImageNet-C)",
    settings=(
        ("density", "how much fog is added, on a 0..1 scale of the image", 0, 100),
        ("decay", "how much rougher clouds are held back from octave to octave", 1.01, 10),
    ),
    table=((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
)
def fog(
    image: Image, mask: Mask, *, rng: np.random.Generator, scale: float, density: float, decay: float, **_: Any
) -> Image:
    """Add plasma clouds, then darken everything until its brightest value is as before."""

    def clouds(height: int, width: int) -> NDArray[Any]:
        # The clouds have no seam, so that an image wider than they are continues with their beginning.
        tiles = (-(-height // CLOUD_SIDE), -(-width // CLOUD_SIDE))
        return np.tile(plasma(CLOUD_SIDE, decay, rng), tiles)[:height, :width]

    values = values_of(image)
    brightest = float(values.max())
    foggy = values + np.float32(density) * layer(image, scale, clouds)[..., None]
    return picture_of(foggy * np.float32(brightest / (brightest + density) if brightest else 0.0))


@corruption(
    id="spatter",
    summary="water drops at 1 to 3, mud at 4 and 5 (ImageNet-C)",
    settings=(
        ("mean", "of the noise that drops are cut from", -10, 10),
        ("sigma", "of that noise", 0, 10),
        ("smoothing", "of that noise, in pixels of an image of 224", 0.1, 100),
        ("threshold", "noise below it is no drop", -10, 10),
        ("strength", "of the water; of the mud, the softness of its edges", 0, 100),
        ("mud", "0: water, 1: mud", 0, 1),
    ),
    table=(
        (0.65, 0.3, 4.0, 0.69, 0.6, 0),
        (0.65, 0.3, 3.0, 0.68, 0.6, 0),
        (0.65, 0.3, 2.0, 0.68, 0.5, 0),
        (0.65, 0.3, 1.0, 0.65, 1.5, 1),
        (0.67, 0.4, 1.0, 0.65, 1.5, 1),
    ),
)
def spatter(
    image: Image,
    mask: Mask,
    *,
    rng: np.random.Generator,
    scale: float,
    mean: float,
    sigma: float,
    smoothing: float,
    threshold: float,
    strength: float,
    mud: int,
    **_: Any,
) -> Image:
    """Put drops where smoothed noise is high: brightened with pale turquoise, or covered with brown."""

    def drops(height: int, width: int) -> Values:
        noise = gaussian(rng.normal(mean, sigma, (height, width)).astype(np.float32), smoothing)
        noise[noise < threshold] = 0
        return _mud(noise, threshold, strength) if mud else _water(noise) * np.float32(strength)

    covered = layer(image, scale, drops)[..., None]
    values = values_of(image)
    return picture_of(values * (1 - covered) + covered * MUD if mud else values + covered * WATER)


def _water(liquid: Values) -> Values:
    """Return how bright the drops are, 0..1: lit from one side by their distance to the nearest edge."""
    drawn = picture_of(liquid)
    distance: Any = cv2.distanceTransform(255 - cv2.Canny(drawn, 50, 150), cv2.DIST_L2, 5)
    depth: Any = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    slope = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
    lit: Any = cv2.blur(cv2.filter2D(depth, cv2.CV_8U, slope), (3, 3))
    bright = drawn.astype(np.float32) * lit.astype(np.float32)
    return cast(Values, bright / max(float(bright.max()), 1.0))


def _mud(liquid: Values, threshold: float, softness: float) -> Values:
    """Return how far mud covers each pixel, 0..1."""
    share = gaussian((liquid > threshold).astype(np.float32), softness)
    return np.where(share < 0.8, np.float32(0), share)


CLOUD_SIDE = 256


def plasma(side: int, decay: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return clouds by midpoint displacement, (side, side), exactly 0..1, periodic at the edges.

    The middle of each square of known points is their mean and a random displacement, then the middles of the sides are
    the means of the four known points around them, likewise; then squares of half the size. Displacements become
    ``decay``² times smaller from one size to the next: the published code multiplies by the amplitude twice.
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


# ImageNet-C takes frost from five photographs of others. These textures are drawn: feathers of ice on clouds of haze,
# in the mean colours and contrasts of those photographs (two of which are the same), so that they cover as much.
FROST_SIDE = 512
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
    """Return a texture, the same in every process: (FROST_SIDE, FROST_SIDE, 3); callers must not write to it."""
    colour, deviation, feathers = _LOOKS[index]
    rng = generator("frost", index)
    ice = np.zeros((FROST_SIDE, FROST_SIDE), np.uint8)
    for _ in range(feathers):
        _feather(ice, rng)
    fine: Any = cv2.GaussianBlur(rng.standard_normal((FROST_SIDE, FROST_SIDE)), (0, 0), 0.8)
    feathered: Any = cv2.GaussianBlur(ice.astype(np.float64), (0, 0), 0.7)
    haze = plasma(FROST_SIDE, 1.5, rng)
    relief = _standard(0.6 * _standard(feathered) + 0.4 * _standard(haze) + 0.25 * _standard(fine))
    texture = np.clip(np.array(colour) + deviation * relief[..., None], 0, 255).astype(np.uint8)
    texture.flags.writeable = False
    return texture


def _feather(ice: NDArray[np.uint8], rng: np.random.Generator) -> None:
    """Draw a needle with shorter ones at 60° on both sides, brighter towards its root."""
    start, angle = rng.uniform(0, FROST_SIDE, 2), rng.uniform(0, 2 * np.pi)
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
    # Coordinates in sixteenths of a pixel, so that thin lines do not be in steps.
    first, last = (tuple(int(16 * value) for value in point) for point in (start, end))
    cv2.line(ice, first, last, (brightness,), 1, cv2.LINE_AA, 4)


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values with mean 0 and standard deviation 1."""
    standard: NDArray[np.float64] = (values - values.mean()) / values.std()
    return standard
