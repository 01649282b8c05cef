"""Corruptions of light, files and sensors: contrast, brightness, JPEG, pixels, elastic deformation and noise."""

from __future__ import annotations

import functools
import io
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from holdfast.core.types import Image, Mask, Rendered
from holdfast.scenarios.corruptions.declaring import corruption, layer, picture_of, values_of


@corruption(
    id="brightness",
    summary="brighter (ImageNet-C)",
    settings=(("added", "to the value of HSV, on a 0..1 scale", 0, 1),),
    table=((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
)
def brightness(image: Image, mask: Mask, *, added: float, **_: Any) -> Image:
    """Add brightness; hue and saturation stay."""
    hsv: Any = cv2.cvtColor(values_of(image), cv2.COLOR_RGB2HSV)
    hsv[..., 2] = np.clip(hsv[..., 2] + added, 0, 1)
    return picture_of(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))


@corruption(
    id="contrast",
    summary="little contrast (ImageNet-C)",
    settings=(("kept", "share of the distance from the image's mean", 0, 1),),
    table=((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
)
def contrast(image: Image, mask: Mask, *, kept: float, **_: Any) -> Image:
    """Move each channel towards its mean."""
    values = values_of(image)
    means = values.mean(axis=(0, 1), dtype=np.float64).astype(np.float32)
    return picture_of((values - means) * np.float32(kept) + means)


@corruption(
    id="saturate",
    summary="pale at 1 and 2, garish from 3 on (ImageNet-C)",
    settings=(("factor", "of the saturation of HSV", 0, 100), ("added", "after it", 0, 1)),
    table=((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
)
def saturate(image: Image, mask: Mask, *, factor: float, added: float, **_: Any) -> Image:
    """Multiply and shift the saturation; grey, which has no hue, turns red, as in OpenCV and scikit-image."""
    hsv: Any = cv2.cvtColor(values_of(image), cv2.COLOR_RGB2HSV)
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + added, 0, 1)
    return picture_of(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))


@corruption(
    id="jpeg_compression",
    summary="JPEG of low quality (ImageNet-C)",
    settings=(("quality", "1 to 95", 1, 95),),
    table=((25,), (18,), (15,), (10,), (7,)),
)
def jpeg_compression(image: Image, mask: Mask, *, quality: int, **_: Any) -> Image:
    """Encode and decode with Pillow, as published."""
    file = io.BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=quality)
    return np.array(Pillow.open(file))


@corruption(
    id="pixelate",
    summary="coarse pixels (ImageNet-C)",
    settings=(("kept", "share of the pixels along each side", 0.001, 1),),
    table=((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
)
def pixelate(image: Image, mask: Mask, *, kept: float, **_: Any) -> Image:
    """Shrink with a box filter and enlarge by whole pixels."""
    height, width = image.shape[:2]
    small = Pillow.fromarray(image).resize(
        (max(1, int(width * kept)), max(1, int(height * kept))), Pillow.Resampling.BOX
    )
    return np.array(small.resize((width, height), Pillow.Resampling.BOX))


@corruption(
    id="elastic_transform",
    summary="stretched and bent (ImageNet-C); the mask goes with it",
    settings=(
        ("alpha", "factor of the smoothed displacements", 0, 10_000),
        ("sigma", "of their smoothing, in pixels of an image of 224", 0.1, 1000),
        ("shear", "farthest way of a corner in the affine part", 0, 1000),
    ),
    table=(
        (244 * 2.0, 244 * 0.7, 244 * 0.1),
        (244 * 2.0, 244 * 0.08, 244 * 0.2),
        (244 * 0.05, 244 * 0.01, 244 * 0.02),
        (244 * 0.07, 244 * 0.01, 244 * 0.02),
        (244 * 0.12, 244 * 0.01, 244 * 0.02),
    ),
)
def elastic_transform(
    image: Image,
    mask: Mask,
    *,
    rng: np.random.Generator,
    scale: float,
    alpha: float,
    sigma: float,
    shear: float,
    **_: Any,
) -> Rendered:
    """Map three randomly moved corners affinely, then displace by smoothed noise (the 244 is theirs)."""
    height, width = image.shape[:2]
    affine = corner_map(height, width, shear * scale, rng)

    def noise(height: int, width: int) -> NDArray[Any]:
        field = rng.uniform(-1, 1, (height, width))
        return cast("NDArray[Any]", alpha * (smoothing(height, sigma) @ field @ smoothing(width, sigma).T))

    x, y = (layer(image, scale, noise) * np.float32(scale) for _axis in "xy")
    rows, columns = np.indices(image.shape[:2], np.float32)
    x += columns
    y += rows

    def bent(values: NDArray[np.float32]) -> NDArray[np.float32]:
        height, width = values.shape[:2]
        moved: Any = cv2.warpAffine(values, affine, (width, height), borderMode=cv2.BORDER_REFLECT_101)
        return cast("NDArray[np.float32]", cv2.remap(moved, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT))

    return Rendered(picture_of(bent(values_of(image))), mask if mask is None else bent(mask.astype(np.float32)) >= 0.5)


def corner_map(height: int, width: int, shear: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the affine map of three corners of a centred square, each moved by up to ``shear`` on both axes."""
    middle, half = np.array([width, height], np.float32) // 2, max(1, min(height, width) // 3)
    corners = (middle + half * np.array([[1, 1], [1, -1], [-1, -1]], np.float32)).astype(np.float32)
    moved = (corners + rng.uniform(-shear, shear, corners.shape)).astype(np.float32)
    return cast("NDArray[np.float64]", cv2.getAffineTransform(corners, moved))


@functools.lru_cache(maxsize=32)
def smoothing(length: int, sigma: float) -> NDArray[np.float64]:
    """Return the matrix of a Gaussian filter along an axis, mirrored at the ends, cut off at three deviations.

    Theirs is up to five times as wide as the image, which as a matrix costs nothing.
    """
    from scipy.ndimage import gaussian_filter1d

    return cast("NDArray[np.float64]", gaussian_filter1d(np.eye(length), sigma, axis=0, mode="reflect", truncate=3))


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
