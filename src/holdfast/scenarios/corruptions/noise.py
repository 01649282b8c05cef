"""Noise that is independent per channel and pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.core.types import Image, Mask
from holdfast.scenarios.corruptions.declaring import corruption, picture_of, values_of


@corruption(
    id="gaussian_noise",
    summary="additive Gaussian noise (ImageNet-C)",
    settings=(("sigma", "standard deviation on a 0..1 scale", 0, 10),),
    table=((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
)
def gaussian_noise(image: Image, mask: Mask, *, rng: np.random.Generator, sigma: float, **_: Any) -> Image:
    """Add the noise of low light, the same everywhere."""
    return picture_of(values_of(image) + np.float32(sigma) * rng.standard_normal(image.shape, np.float32))


@corruption(
    id="shot_noise",
    summary="Poisson noise of few photons (ImageNet-C)",
    settings=(("photons", "mean count of a white pixel", 0.1, 1e6),),
    table=((60.0,), (25.0,), (12.0,), (5.0,), (3.0,)),
)
def shot_noise(image: Image, mask: Mask, *, rng: np.random.Generator, photons: float, **_: Any) -> Image:
    """Draw whole photons: noise that grows with the brightness."""
    return picture_of(rng.poisson(values_of(image) * photons) / np.float64(photons))


@corruption(
    id="impulse_noise",
    summary="salt and pepper (ImageNet-C)",
    settings=(("amount", "share of the values that are hit", 0, 1),),
    table=((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
)
def impulse_noise(image: Image, mask: Mask, *, rng: np.random.Generator, amount: float, **_: Any) -> Image:
    """Set values to 0 or 255, equally often; channels are independent, so the grains have colours."""
    draw = rng.random(image.shape, np.float32)
    return np.where(draw < amount / 2, np.uint8(0), np.where(draw < amount, np.uint8(255), image))


@corruption(
    id="speckle_noise",
    summary="noise in proportion to the brightness (ImageNet-C)",
    settings=(("sigma", "standard deviation as a share of the value", 0, 10),),
    table=((0.15,), (0.2,), (0.35,), (0.45,), (0.6,)),
)
def speckle_noise(image: Image, mask: Mask, *, rng: np.random.Generator, sigma: float, **_: Any) -> Image:
    """Multiply by noise."""
    values = values_of(image)
    return picture_of(values * (1 + np.float32(sigma) * rng.standard_normal(image.shape, np.float32)))
