"""OpenCV's and Pillow's filters of planes NCHW, repeated with tensors for the corruptions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import torch
from holdfast.scenarios.corruptions import declaring
from holdfast.scenarios.tensors.arithmetic import area_weights, mirrored_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

FARTHEST = 20
"""Pixels from the edge of a drop beyond which its depth stays the same."""


def values_of(images: Tensor) -> Tensor:
    """Return bytes as 0..1."""
    return images.float().div_(255)


def picture_of(values: Tensor) -> Tensor:
    """Return values of 0..1 as bytes, clipped and cut off (``declaring.picture_of``)."""
    return values.clamp(0, 1).mul_(255).add_(1e-3).to(torch.uint8)


@lru_cache(maxsize=256)
def edge_places(length: int, target: int, device: torch.device, start: int = 0) -> Tensor:
    """Return the places start .. start + target - 1, with those beyond the image moved to its edge."""
    return torch.arange(start, start + target, device=device).clamp(0, length - 1)


def filtered(values: Tensor, kernels: NDArray[np.float32], anchor: tuple[int, int], *, mirrors: bool = False) -> Tensor:
    """Return ``cv2.filter2D`` of planes NCHW, by Fourier transforms.

    Args:
        values: the planes.
        kernels: one per image or one for all, as N × height × width.
        anchor: row and column of each kernel's origin.
        mirrors: whether pixels beyond the edge are mirrored (OpenCV's default); else the edge is repeated.
    """
    (height, width), (tall, broad) = values.shape[2:], kernels.shape[1:]
    sides = ((2, height, anchor[0], tall), (3, width, anchor[1], broad))
    wide = values
    for axis, length, before, reach in sides:
        if mirrors:
            places = mirrored_places(length, reach, values.device).narrow(0, reach - before, length + reach - 1)
        else:
            places = edge_places(length, length + reach - 1, values.device, -before)
        wide = wide.index_select(axis, places)
    shape = tuple(wide.shape[2:])
    weights = torch.from_numpy(kernels).to(values.device)[:, None]
    spectrum = torch.fft.rfft2(wide) * torch.fft.rfft2(weights, shape).conj()
    result: Tensor = torch.fft.irfft2(spectrum, shape)
    return result[..., :height, :width]


def gaussian(values: Tensor, sigma: float) -> Tensor:
    """Return ``declaring.gaussian`` of planes NCHW."""
    width = 2 * int(4 * sigma + 0.5) + 1
    if width == 1:
        return values
    line: NDArray[Any] = cv2.getGaussianKernel(width, sigma)
    return filtered(values, (line @ line.T).astype(np.float32)[None], (width // 2, width // 2))


def streaks(images: Tensor, radius: float, sigma: float, angles: Sequence[float]) -> Tensor:
    """Return images of bytes blurred along angles (``declaring.streak``)."""
    reach = 2 * int(np.ceil(radius))
    kernels = np.zeros((len(angles), 2 * reach + 1, 2 * reach + 1), np.float32)
    for kernel, angle in zip(kernels, angles, strict=True):
        small, (x, y) = declaring.streak_kernel(radius, sigma, angle)
        kernel[reach - y : reach - y + len(small), reach - x : reach - x + len(small[0])] = small
    return filtered(images.float(), kernels, (reach, reach)).round_().clamp_(0, 255).to(torch.uint8)


def zoomed(values: Tensor, factor: float) -> Tensor:
    """Return the middle enlarged (``declaring.zoomed``): a product with a matrix along each axis."""
    rows, columns = (_zoom_matrix(side, factor, values.device) for side in values.shape[-2:])
    return rows @ values @ columns.T


@lru_cache(maxsize=256)
def _zoom_matrix(length: int, factor: float, device: torch.device) -> Tensor:
    step, start = declaring.zoom_axis(length, factor)
    place = np.arange(length) * step + start
    first = np.floor(place).astype(int)
    matrix = np.zeros((length, length), np.float32)
    for neighbour, weight in ((first, 1 - (place - first)), (first + 1, place - first)):
        np.add.at(matrix, (np.arange(length), np.clip(neighbour, 0, length - 1)), weight)
    return torch.from_numpy(matrix).to(device)


def layer(images: Tensor, scale: float, make: Callable[[int, int], Tensor]) -> Tensor:
    """Return ``make(height, width)``, N × height × width, at the published scale, resized to the images: N1HW."""
    height, width = images.shape[2:]
    if scale == 1:
        return make(height, width)[:, None]
    small = make(max(2, round(height / scale)), max(2, round(width / scale)))[:, None]
    if scale < 1:
        rows, columns = (
            area_weights(*sides, images.device) for sides in zip(small.shape[2:], (height, width), strict=True)
        )
        return rows @ small @ columns.T
    return torch.nn.functional.interpolate(small, (height, width), mode="bilinear", align_corners=False)


def sampled(values: Tensor, x: Tensor, y: Tensor, *, mirrors: bool) -> Tensor:
    """Return values at places N × height × width, bilinear; the edge's pixels count once or twice."""
    places = []
    for place, length in ((x, values.shape[3]), (y, values.shape[2])):
        places.append(2 * place / max(1, length - 1) - 1 if mirrors else (2 * place + 1) / length - 1)
    return torch.nn.functional.grid_sample(
        values, torch.stack(places, 3), mode="bilinear", padding_mode="reflection", align_corners=mirrors
    )


def boxed(images: Tensor, height: int, width: int) -> Tensor:
    """Return Pillow's resizing with a box, which rounds to bytes after the width and after the height."""
    columns, rows = (
        _box(side, to, images.device) for side, to in ((images.shape[3], width), (images.shape[2], height))
    )
    narrow = (images.float() @ columns.T).add_(0.5).floor_()
    return (rows @ narrow).add_(0.5).floor_().to(torch.uint8)


@lru_cache(maxsize=64)
def _box(source: int, target: int, device: torch.device) -> Tensor:
    """Return the matrix target × source of Pillow's box: whole pixels, equally weighted."""
    step = source / target
    centre = (np.arange(target)[:, None] + 0.5) * step
    offset = (np.arange(source) - centre + 0.5) / max(step, 1.0)
    inside = ((offset > -0.5) & (offset <= 0.5)).astype(np.float64)
    return torch.from_numpy((inside / inside.sum(1, keepdims=True)).astype(np.float32)).to(device)


def mean_of_nine(values: Tensor) -> Tensor:
    """Return ``cv2.blur`` of 3 × 3 pixels; in double precision, since callers cut off what is behind the point."""
    from torch.nn.functional import avg_pool2d, pad

    return (avg_pool2d(pad(values.double(), (1, 1, 1, 1), mode="reflect"), 3, 1, divisor_override=1) * (1 / 9)).float()


def canny_edges(drawn: Tensor, low: int, high: int) -> Tensor:
    """Return the edges of ``cv2.Canny``, N1HW bool; weak edges follow strong ones for 16 pixels at most."""
    from torch.nn.functional import max_pool2d, pad

    wide = pad(drawn.float(), (1, 1, 1, 1), mode="replicate")
    height, width = drawn.shape[2:]

    def part(values: Tensor, down: int, across: int) -> Tensor:
        return values[:, :, 1 + down : 1 + down + height, 1 + across : 1 + across + width]

    smooth = [part(wide, -1, by) + 2 * part(wide, 0, by) + part(wide, 1, by) for by in (-1, 1)]
    level = [part(wide, by, -1) + 2 * part(wide, by, 0) + part(wide, by, 1) for by in (-1, 1)]
    right, down = smooth[1] - smooth[0], level[1] - level[0]
    steep = right.abs() + down.abs()
    around = pad(steep, (1, 1, 1, 1))
    flat, upright = down.abs() < 0.41421356 * right.abs(), down.abs() > 2.41421356 * right.abs()
    along = (steep > part(around, 0, -1)) & (steep >= part(around, 0, 1))
    across = (steep > part(around, -1, 0)) & (steep >= part(around, 1, 0))
    falling = (steep > part(around, -1, -1)) & (steep > part(around, 1, 1))
    rising = (steep > part(around, -1, 1)) & (steep > part(around, 1, -1))
    slanted = torch.where((right < 0) != (down < 0), rising, falling)
    weak = (steep > low) & torch.where(flat, along, torch.where(upright, across, slanted))
    edges = weak & (steep > high)
    for _ in range(16):
        edges = weak & (max_pool2d(edges.float(), 3, 1, 1) > 0)
    return edges


def edge_distances(edges: Tensor) -> Tensor:
    """Return ``cv2.distanceTransform`` (DIST_L2, 5 × 5) to the nearest edge, at most ``FARTHEST``."""
    from torch.nn.functional import pad

    height, width = edges.shape[2:]
    steps = [
        (0, 1, 1.0),
        (1, 0, 1.0),
        (1, 1, 1.4),
        (1, -1, 1.4),
        (1, 2, 2.1969),
        (2, 1, 2.1969),
        (1, -2, 2.1969),
        (2, -1, 2.1969),
    ]
    distance = torch.where(edges, 0.0, float(FARTHEST))
    for _ in range(FARTHEST):
        wide = pad(distance, (2, 2, 2, 2), value=float(FARTHEST))
        for down, across, length in steps:
            for sign in (1, -1):
                top, left = 2 + sign * down, 2 + sign * across
                distance = torch.minimum(distance, wide[:, :, top : top + height, left : left + width] + length)
    return distance


def equalised(values: Tensor) -> Tensor:
    """Return ``cv2.equalizeHist`` of whole numbers N1HW."""
    levels = values.long().flatten(1)
    counts = torch.zeros((len(values), 256), device=values.device).scatter_add_(
        1, levels, torch.ones_like(values).flatten(1)
    )
    first = (counts > 0).int().argmax(1, keepdim=True)
    lowest, total = counts.gather(1, first), levels.shape[1]
    table = ((counts.cumsum(1) - lowest) * (255 / (total - lowest).clamp(min=1))).round_().clamp_(0, 255)
    table = torch.where(lowest == total, first.float(), table)
    return table.gather(1, levels).view(values.shape)
