"""Blur of lens, glass and movement."""

from __future__ import annotations

from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Image, Mask
from holdfast.scenarios.corruptions.declaring import corruption, gaussian, picture_of, streak, values_of, zoomed

_FINER = 9  # points along each side of a pixel by which its covered share is measured; odd, so that one is its middle


@corruption(
    id="gaussian_blur",
    summary="Gaussian blur of the whole image (ImageNet-C)",
    settings=(("sigma", "standard deviation in pixels of an image of 224", 0, 100),),
    table=((1.0,), (2.0,), (3.0,), (4.0,), (6.0,)),
)
def gaussian_blur(image: Image, mask: Mask, *, scale: float, sigma: float, **_: Any) -> Image:
    """Blur with a Gaussian; edges are repeated beyond the image."""
    return picture_of(gaussian(values_of(image), sigma * scale))


@corruption(
    id="defocus_blur",
    summary="a lens out of focus (ImageNet-C)",
    settings=(
        ("radius", "of the disc, in pixels of an image of 224", 0, 100),
        ("softness", "standard deviation of the disc's edge", 0.01, 10),
    ),
    table=((3.0, 0.1), (4.0, 0.5), (6.0, 0.5), (8.0, 0.5), (10.0, 0.5)),
)
def defocus_blur(image: Image, mask: Mask, *, scale: float, radius: float, softness: float, **_: Any) -> Image:
    """Blur each point to a disc."""
    return picture_of(cv2.filter2D(values_of(image), -1, defocus_kernel(radius, softness, scale)))


def defocus_kernel(radius: float, softness: float, scale: float) -> NDArray[np.float32]:
    """Return the disc to which a point blurs, for images of this scale."""
    return disc(radius, softness) if scale == 1 else _covered(radius * scale, softness * scale)


def disc(radius: float, softness: float) -> NDArray[np.float32]:
    """Return a disc with a sum of 1 whose edge is blurred over 3 × 3 pixels, 5 × 5 from a radius of 8 on."""
    reach = max(8, int(np.ceil(radius)))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    return _softened((x**2 + y**2 <= radius**2).astype(np.float32), radius, softness)


def _covered(radius: float, softness: float) -> NDArray[np.float32]:
    """Return a disc of any radius; a pixel has the share that the disc covers, so that 0.9 pixels blur, too."""
    reach = max(8, int(np.ceil(radius)) + 1)
    fine = (np.arange((2 * reach + 1) * _FINER) + 0.5) / _FINER - reach - 0.5
    inside = fine[:, None] ** 2 + fine**2 <= radius**2
    side = 2 * reach + 1
    share = inside.reshape(side, _FINER, side, _FINER).mean(axis=(1, 3)).astype(np.float32)
    return _softened(share, radius, softness)


def _softened(share: NDArray[np.float32], radius: float, softness: float) -> NDArray[np.float32]:
    width = 3 if radius <= 8 else 5
    return cast("NDArray[np.float32]", cv2.GaussianBlur(share / share.sum(), (width, width), softness))


@corruption(
    id="glass_blur",
    summary="through frosted glass: pixels strewn about (ImageNet-C)",
    settings=(
        ("sigma", "of the blur before and after, in pixels of an image of 224", 0, 100),
        ("reach", "how far a pixel may come from", 1, 100),
        ("rounds", "how often", 1, 20),
    ),
    table=((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
def glass_blur(
    image: Image, mask: Mask, *, rng: np.random.Generator, scale: float, sigma: float, reach: int, rounds: int, **_: Any
) -> Image:
    """Blur, swap pixels with neighbours, and blur again."""
    strewn = picture_of(gaussian(values_of(image), sigma * scale))
    reach = max(1, round(reach * scale))
    height, width = image.shape[:2]
    for _round in range(rounds):
        strewn = strewn.reshape(-1, 3)[sources(height, width, reach, rng)].reshape(image.shape)
    return picture_of(gaussian(values_of(strewn), sigma * scale))


def sources(height: int, width: int, reach: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return for every pixel in reading order the place whose value it gets.

    The published loop goes backwards over the image and means to swap each pixel with a neighbour at -reach to
    reach - 1. What it assigns are views of one array, so it copies the neighbour instead; and a neighbour that had its
    turn hands on what it got. Following those hand-overs, two at a time, gives the same places without the loop.
    """
    places = np.arange(height * width).reshape(height, width)
    rows, columns = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    inner = places[rows, columns]
    if inner.size == 0:  # too small for anything to be strewn
        return places.ravel()
    turned = np.zeros(places.size, np.bool_)
    turned[inner] = True
    source = places.ravel().copy()
    dy, dx = rng.integers(-reach, reach, (2, *inner.shape))
    source[inner] = inner + dy * width + dx
    handed = turned & turned[source] & (source > np.arange(places.size))
    while handed.any():
        chain = np.flatnonzero(handed)
        through = source[chain]
        source[chain], handed[chain] = source[through], handed[through]
    return source


@corruption(
    id="motion_blur",
    summary="a camera moved while it looked (ImageNet-C)",
    settings=(
        ("radius", "the streak has 2·radius + 1 pixels, of an image of 224", 1, 200),
        ("sigma", "of the half Gaussian along it", 0.1, 200),
    ),
    table=((10.0, 3.0), (15.0, 5.0), (15.0, 8.0), (15.0, 12.0), (20.0, 15.0)),
)
def motion_blur(
    image: Image, mask: Mask, *, rng: np.random.Generator, scale: float, radius: float, sigma: float, **_: Any
) -> Image:
    """Blur along a random angle from -45° to 45°."""
    return cast(Image, streak(image, radius * scale, sigma * scale, rng.uniform(-45, 45)))


@corruption(
    id="zoom_blur",
    summary="a camera nearing fast (ImageNet-C)",
    settings=(
        ("end", "enlargements go from 1 up to this", 1.001, 5),
        ("step", "from one enlargement to the next", 0.001, 1),
    ),
    table=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
)
def zoom_blur(image: Image, mask: Mask, *, end: float, step: float, **_: Any) -> Image:
    """Return the mean of the image and its enlargements."""
    values = values_of(image)
    factors = np.arange(1, end, step)
    total = values.copy()
    for factor in factors:
        total += zoomed(values, float(factor))
    return picture_of(total / np.float32(len(factors) + 1))
