"""Shared by the nineteen corruptions: their declaration, and how they take images of any size.

They are those of ImageNet-C (Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions
and Perturbations", 2019), whose parameters are stated for images that were shrunk to 256 pixels on the shorter side
and cropped to 224. So a larger image is first shrunk to 256 (``size``): a model does that anyway, and noise on the
pixels of a large image would be averaged away. Images of 224 to 256 take the published parameters as they are. On
smaller ones, and on larger ones that are to keep their size (``?size=0``), lengths in pixels go with the shorter side,
and layers of snow, fog, frost and the like are made at the published scale and resized; noise stays a pixel's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.protocols import Context
from holdfast.core.types import Image, Mask, Rendered
from holdfast.scenarios.base.definition import Parameter, Scenario, scenario

Values = NDArray[np.float32]
"""HWC or HW, 0..1."""

GROUP = "corruptions"
MIDDLE = 3
"""The severity of a corruption where none is named."""

CROPPED, SHRUNK = 224, 256
"""Shorter sides of the published parameters: of ImageNet-C's images, and before their crop."""

LONGEST = 1024
"""Layers are made on a grid that is at most this long, for thin images too."""

SIZE = Parameter(
    "size",
    SHRUNK,
    "images with a longer shorter side are first shrunk to this one (0: never; lengths then grow with the image)",
    minimum=0,
    maximum=100_000,
)


def corruption(
    *, id: str, summary: str, settings: Sequence[tuple[str, str, float, float]], table: Sequence[Sequence[float]]
) -> Callable[[Callable[..., Image | Rendered]], Scenario]:
    """Register ``(image, mask, *, rng, scale, **settings)`` as a scenario of five severities.

    ``settings`` has name, meaning, smallest and largest value of each number of the published ``table``, which has a
    row a severity; the third row is the default.
    """
    names = [setting[0] for setting in settings]
    parameters = [
        Parameter(name, default, help, low, high)
        for (name, help, low, high), default in zip(settings, table[MIDDLE - 1], strict=True)
    ]

    def register(function: Callable[..., Image | Rendered]) -> Scenario:
        @functools.wraps(function)
        def corrupted(
            image: Image, mask: Mask, *, rng: np.random.Generator, context: Context, size: int, **values: Any
        ) -> Rendered:
            image, mask = shrunk(image, mask, size)
            result = function(image, mask, rng=rng, scale=scale_of(*image.shape[:2]), **values)
            return result if isinstance(result, Rendered) else Rendered(result, mask)

        declare = scenario(
            id=id,
            summary=summary,
            family="corruption",
            group=GROUP,
            composites=False,
            needs_mask=False,
            parameters=(*parameters, SIZE),
            severities={row: dict(zip(names, values, strict=True)) for row, values in enumerate(table, start=1)},
        )
        return declare(corrupted)

    return register


def shrunk(image: Image, mask: Mask, size: int) -> tuple[Image, Mask]:
    """Return image and mask (or None) with a shorter side of at most ``size``."""
    height, width = image.shape[:2]
    if size == 0 or min(height, width) <= size:
        return image, mask
    factor = size / min(height, width)
    target = (round(width * factor), round(height * factor))
    small = cast(Image, cv2.resize(image, target, interpolation=cv2.INTER_AREA))
    # A pixel is foreground where at least half of it was.
    share: Any = None if mask is None else cv2.resize(mask.astype(np.float32), target, interpolation=cv2.INTER_AREA)
    return small, mask if mask is None else share >= 0.5


def scale_of(height: int, width: int) -> float:
    """Return the factor on the published lengths for an image of this size."""
    shorter, longer = sorted((height, width))
    scale = shorter / CROPPED if shorter < CROPPED else max(1.0, shorter / SHRUNK)
    return max(scale, longer / LONGEST)


def layer(image: Image, scale: float, make: Callable[[int, int], NDArray[Any]]) -> Values:
    """Return ``make(height, width)`` at the published scale, resized to the image; HW."""
    height, width = image.shape[:2]
    if scale == 1:
        return make(height, width).astype(np.float32, copy=False)
    small = make(max(2, round(height / scale)), max(2, round(width / scale))).astype(np.float32, copy=False)
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return cast(Values, cv2.resize(small, (width, height), interpolation=method))


def values_of(image: Image) -> Values:
    """Return the image as HWC, 0..1."""
    return image.astype(np.float32) / np.float32(255)


def picture_of(values: NDArray[Any]) -> Image:
    """Return values of 0..1 as 0..255, clipped, and cut off rather than rounded, as published."""
    # The small addition keeps what rounding of floats took from a whole number.
    return cast(Image, (np.clip(values, 0, 1) * np.float32(255) + np.float32(1e-3)).astype(np.uint8))


def gaussian(values: Values, sigma: float) -> Values:
    """Return the values blurred, with repeated edges, cut off at four standard deviations as in scikit-image."""
    width = 2 * int(4 * sigma + 0.5) + 1
    if width == 1:
        return values
    return cast(Values, cv2.GaussianBlur(values, (width, width), sigma, borderType=cv2.BORDER_REPLICATE))


def streak(values: NDArray[Any], radius: float, sigma: float, angle: float) -> NDArray[Any]:
    """Return ImageMagick's motion blur: half a Gaussian of 2·radius + 1 pixels along an angle, edges repeated."""
    kernel, anchor = streak_kernel(radius, sigma, angle)
    return cast("NDArray[Any]", cv2.filter2D(values, -1, kernel, anchor=anchor, borderType=cv2.BORDER_REPLICATE))


def streak_kernel(radius: float, sigma: float, angle: float) -> tuple[Values, tuple[int, int]]:
    """Return the kernel of ``streak`` and its anchor (x, y)."""
    steps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-(steps**2) / (2 * max(sigma, 1e-3) ** 2))
    x = np.ceil(steps * np.cos(np.deg2rad(angle)) - 0.5).astype(int)
    y = np.ceil(steps * np.sin(np.deg2rad(angle)) - 0.5).astype(int)
    kernel = np.zeros((int(np.ptp(y)) + 1, int(np.ptp(x)) + 1), np.float32)
    np.add.at(kernel, (y - y.min(), x - x.min()), (weights / weights.sum()).astype(np.float32))
    return kernel, (int(-x.min()), int(-y.min()))


def zoomed(values: Values, factor: float) -> Values:
    """Return the middle enlarged ``factor`` times, at the same size; bilinear, aligned corners as in SciPy's zoom."""
    height, width = values.shape[:2]
    rows, columns = zoom_axis(height, factor), zoom_axis(width, factor)
    matrix = np.array([[columns[0], 0, columns[1]], [0, rows[0], rows[1]]], np.float64)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cast(Values, cv2.warpAffine(values, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE))


def zoom_axis(length: int, factor: float) -> tuple[float, float]:
    """Return step and start, in pixels of the input, of the enlarged middle along one axis."""
    kept = int(np.ceil(length / factor))
    scaled = round(kept * factor)
    step = (kept - 1) / (scaled - 1) if scaled > 1 else 1.0
    return step, (length - kept) // 2 + (scaled - length) // 2 * step
