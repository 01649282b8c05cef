"""OpenCV's arithmetic on bytes, repeated with tensors.

Images are NCHW uint8 RGB in and out. In between are whole numbers in float32, which is exact up to 2²⁴: OpenCV's
fixed-point sums stay below that, and a GPU adds floats faster than integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import torch
from holdfast.scenarios.blur import pyramid

if TYPE_CHECKING:
    from torch import Tensor

BINOMIAL = (1, 4, 6, 4, 1)


def on_device(numbers: Sequence[int], device: torch.device) -> Tensor:
    """Return whole numbers as int64 on the device, copied without waiting for it."""
    held = torch.tensor(numbers, dtype=torch.int64)
    return held.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else held.to(device)


def luma(images: Tensor) -> Tensor:
    """Return ``cv2.COLOR_RGB2GRAY``, bit for bit: N1HW."""
    red, green, blue = (images[:, channel : channel + 1].int() for channel in range(3))
    return ((red * 9798 + green * 19235 + blue * 3735 + (1 << 14)) >> 15).to(torch.uint8)


def over(images: Tensor, inside: Tensor, others: Tensor) -> Tensor:
    """Return the images inside masks N1HW, and the others outside."""
    return images.where(inside, others)


def over_grey(images: Tensor, inside: Tensor) -> Tensor:
    """Return the images, grey outside masks."""
    return over(images, inside, luma(images))


def over_colour(images: Tensor, inside: Tensor, *, colour: tuple[int, int, int]) -> Tensor:
    """Return the images with one colour outside masks."""
    return over(images, inside, on_device(colour, images.device).to(images.dtype).view(1, 3, 1, 1))


def over_times(images: Tensor, inside: Tensor, *, factors: tuple[int, int, int]) -> Tensor:
    """Return the images with each channel multiplied by 0 or 1 outside masks."""
    return over(images, inside, images * on_device(factors, images.device).to(images.dtype).view(1, 3, 1, 1))


def turn_hue(images: Tensor, shifts: Tensor, wrap: int) -> Tensor:
    """Turn every hue h of OpenCV's 8-bit HSV into (h + shift) % wrap % 180.

    OpenCV rounds down on the way back to RGB, but for the last pixels of a row, which it rounds: one of 255 more there.
    ``shifts`` has a value for each image; ``wrap`` is 180, or 256 as the released code has it.
    """
    red, green, blue = (images[:, channel].float() for channel in range(3))
    value = images.amax(1).float()
    difference = value - images.amin(1)
    # 255 and 180 / 6 in steps of 2⁻¹², divided as OpenCV's tables are; 0 / 0 never counts, for the difference is 0.
    saturation = _down(difference * (1044480 / value.clamp(min=1)).round() + 2048, 12)
    sixth = torch.where(
        value == red,
        green - blue,
        torch.where(value == green, blue - red + 2 * difference, red - green + 4 * difference),
    )
    hue = _down(sixth * (122880 / difference.clamp(min=1)).round() + 2048, 12)
    if wrap == 180:  # a whole turn takes negative hues with it
        hue = hue.add_(shifts.view(-1, 1, 1)).remainder_(180)
    else:
        hue = (torch.where(hue < 0, hue + 180, hue) + shifts.view(-1, 1, 1)) % wrap % 180
    chroma = (value * saturation).div_(255)
    sector = hue.div_(30)
    result = torch.empty_like(images)
    for channel, offset in enumerate((5, 3, 1)):  # how far each falls short of the value goes round with the hue
        turned = (sector + offset).remainder_(6)
        short = torch.minimum(turned, 4 - turned, out=turned).clamp_(0, 1).mul_(chroma)
        result[:, channel] = torch.sub(value, short, out=short)  # bytes round down
    return result


def brighten(
    images: Tensor, *, kernel: tuple[int, ...], image_weight: float, blur_weight: float, offset: float
) -> Tensor:
    """Return ``cv2.addWeighted`` of images and of their blur: rounded (halves to even) and clipped to 0..255."""
    base = convolve(images, kernel).float().mul_(blur_weight).add_(offset)
    return base.add_(images.float(), alpha=image_weight).round_().clamp_(0, 255).to(torch.uint8)


def descent(sigma: float, radius: int, height: int, width: int) -> dict[str, Any]:
    """Return how ``descend`` blurs images of a size: levels of the pyramid, and the kernel on the lowest.

    As ``scenarios.blur.gaussian_blur``: plain if it has a radius or a small σ, else down a pyramid and up again.
    """
    if radius:
        return {"levels": 0, "kernel": gaussian_kernel(2 * radius + 1, sigma)}
    levels, sigma = pyramid(sigma, height, width)
    return {"levels": levels, "kernel": gaussian_kernel(round(6 * sigma + 1) | 1, sigma)}


def descend(images: Tensor, *, levels: int, kernel: tuple[int, ...]) -> Tensor:
    """Return the images blurred by a kernel after this many halvings."""
    work, sizes = images.float(), []
    for _ in range(levels):
        sizes.append((work.shape[2], work.shape[3]))
        work = _down(_along(_along(work, BINOMIAL, 2, step=2), BINOMIAL, 3, step=2).add_(128), 8)
    work = _convolved(work, kernel)
    for height, width in reversed(sizes):
        work = _down(_doubled(_doubled(work, 2, height), 3, width).add_(32), 6)
    return work.to(torch.uint8)


def convolve(images: Tensor, kernel: tuple[int, ...]) -> Tensor:
    """Return ``cv2.GaussianBlur`` on bytes, bit for bit, by a kernel of ``gaussian_kernel`` along both axes."""
    return _convolved(images.float(), kernel).to(torch.uint8)


@lru_cache(maxsize=64)
def gaussian_kernel(size: int, sigma: float) -> tuple[int, ...]:
    """Return OpenCV's own weights of a blur of bytes, in 256ths that sum to 256 (σ 0: OpenCV's for this size).

    They are read off a white line that OpenCV has blurred: how it spreads its rounding errors is not promised
    anywhere. A weight up to 128 comes out as it is; only the one in the middle can be larger, and it is the rest.
    """
    line = np.zeros((1, 2 * size + 1), np.uint8)
    line[:, size] = 255
    spread = cv2.GaussianBlur(line, (size, size), sigma)[0, size - size // 2 : size + size // 2 + 1]
    weights = [int(weight) for weight in spread]
    weights[size // 2] = 256 - (sum(weights) - weights[size // 2])
    return tuple(weights)


def resize_linear(images: Tensor, height: int, width: int) -> Tensor:
    """Return ``cv2.resize`` with INTER_LINEAR in its steps of 2⁻¹¹."""
    if tuple(images.shape[2:]) == (height, width):
        return images
    left, right, from_left, from_right = _linear(images.shape[3], width, images.device)
    upper, lower, from_upper, from_lower = _linear(images.shape[2], height, images.device)
    work = images.int()
    rows = (work.index_select(3, left) * from_left + work.index_select(3, right) * from_right) >> 4
    above = (rows.index_select(2, upper) * from_upper[:, None]) >> 16
    below = (rows.index_select(2, lower) * from_lower[:, None]) >> 16
    return ((above + below + 2) >> 2).to(torch.uint8)


def resize_area(images: Tensor, height: int, width: int) -> Tensor:
    """Return ``cv2.resize`` with INTER_AREA to a smaller size: every pixel is the mean of what it covers."""
    rows = area_weights(images.shape[2], height, images.device)
    columns = area_weights(images.shape[3], width, images.device)
    return (rows @ (images.float() @ columns.T)).round_().clamp_(0, 255).to(torch.uint8)


# --- the parts ----------------------------------------------------------------------------------------------------


def _down(values: Tensor, bits: int) -> Tensor:
    """Shift whole numbers in floats right, in place."""
    return values.mul_(2.0**-bits).floor_()


def _convolved(values: Tensor, kernel: tuple[int, ...]) -> Tensor:
    return _down(_along(_along(values, kernel, 3), kernel, 2).add_(1 << 15), 16)


def _along(values: Tensor, kernel: tuple[int, ...], axis: int, *, step: int = 1) -> Tensor:
    """Return the weighted sum of neighbours along an axis, at every ``step``-th pixel, mirrored at the ends."""
    radius, length = len(kernel) // 2, values.shape[axis]
    wide = values.index_select(axis, mirrored_places(length, radius, values.device))
    total: Tensor | None = None
    for offset, weight in enumerate(kernel):
        if weight == 0:
            continue
        part = wide.narrow(axis, offset, length)
        if step > 1:
            part = part[:, :, ::step] if axis == 2 else part[:, :, :, ::step]
        total = part * weight if total is None else total.add_(part, alpha=weight)
    assert total is not None, "a kernel sums to 256 or 16"
    return total


def _doubled(values: Tensor, axis: int, length: int) -> Tensor:
    """Return ``pyrUp`` along an axis, times 8: mirrored at the start, repeated at the end, as in OpenCV."""
    last = values.shape[axis] - 1
    before = _places((min(1, last), *range(last)), values.device)
    after = _places((*range(1, last + 1), last), values.device)
    before, after = values.index_select(axis, before), values.index_select(axis, after)
    even, odd = (values * 6).add_(before).add_(after), (values + after).mul_(4)
    return torch.stack([even, odd], axis + 1).flatten(axis, axis + 1).narrow(axis, 0, length)


@lru_cache(maxsize=256)
def _places(places: tuple[int, ...], device: torch.device) -> Tensor:
    """Return cached index tensors: a copy to the device would make the host wait."""
    return torch.tensor(places, device=device)


@lru_cache(maxsize=256)
def mirrored_places(length: int, radius: int, device: torch.device) -> Tensor:
    """Return where BORDER_REFLECT_101 finds the pixels -radius .. length + radius - 1, cached."""
    period = max(1, 2 * (length - 1))
    turned = np.arange(-radius, length + radius) % period
    return _places(tuple(np.minimum(turned, period - turned).tolist() if length > 1 else [0] * len(turned)), device)


@lru_cache(maxsize=256)
def _linear(source: int, target: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return each target pixel's two neighbours and their weights, which sum to 2048."""
    place = ((np.arange(target) + 0.5) * (source / target) - 0.5).astype(np.float32)
    first = np.floor(place).astype(np.int64)
    share = np.where((first < 0) | (first >= source - 1), np.float32(0), place - first.astype(np.float32))
    first = np.clip(first, 0, source - 1)
    weights = [np.rint(part * 2048).astype(np.int32) for part in (1 - share, share)]
    parts = (first, np.minimum(first + 1, source - 1), *weights)
    left, right, from_left, from_right = (torch.from_numpy(part).to(device) for part in parts)
    return left, right, from_left, from_right


@lru_cache(maxsize=64)
def area_weights(source: int, target: int, device: torch.device) -> Tensor:
    """Return a matrix target × source: the share of each source pixel in each target pixel."""
    edges = np.arange(target + 1) * (source / target)
    cells = np.arange(source)
    overlap: NDArray[np.float64] = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
    overlap = np.clip(overlap, 0, None)
    return torch.from_numpy((overlap / overlap.sum(1, keepdims=True)).astype(np.float32)).to(device)
