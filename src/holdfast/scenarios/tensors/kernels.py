"""Triton kernels for images on a GPU, if torch would move the same bytes many times.

Each function does in one pass what a plain one does in several; its caller compares the two first. Images are
NCHW uint8 without gaps if nothing else is said. Import this module if a GPU has Triton.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl

TILE = 512  # pixels of a row that a program holds at most
EXACT: dict[str, Any] = {"enable_fp_fusion": False}  # a product is rounded before it is added, as torch does


_NUMBERS = (
    "rows_in", "columns_in", "rows_out", "columns_out", "half", "bits", "pixels", "first", "second", "third", "values",
    "channels", "before",
)  # fmt: skip


def _kernel(function: Any) -> Any:
    """Return a kernel that is compiled once for all sizes: Triton would do so for each mix of multiples of 16."""
    names = inspect.signature(function).parameters
    constants = {name for name, kind in function.__annotations__.items() if "constexpr" in str(kind)}
    return triton.jit(
        function, do_not_specialize=[name for name in _NUMBERS if name in names and name not in constants]
    )


def _on(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Return a context in which kernels are launched on the GPU of a tensor."""
    context: AbstractContextManager[object] = torch.cuda.device_of(tensor)  # type: ignore[no-untyped-call]
    return context


def _row_tile(width: int) -> int:
    return min(TILE, int(triton.next_power_of_2(width)))


@lru_cache(maxsize=256)
def _weights(weights: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(weights, dtype=torch.int32, device=device)


@triton.jit  # type: ignore[untyped-decorator]
def _reflected(place, length, far: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return where BORDER_REFLECT_101 finds a pixel; far: it may be more than one image away."""
    place = tl.abs(place)
    if far:
        place = place % tl.maximum(2 * (length - 1), 1)
    return length - 1 - tl.abs(length - 1 - place)


@_kernel
def _along(  # type: ignore[no-untyped-def]
    source, target, images, weights, rows_in, columns_in, rows_out, columns_out, half, bits, gain, share, offset,
    taps: tl.constexpr, step: tl.constexpr, vertical: tl.constexpr, far: tl.constexpr, finish: tl.constexpr,
    tile: tl.constexpr,
):  # fmt: skip
    """Write weighted sums of neighbours along an axis; finish: 0 whole sums, 1 shifted right, 2 mixed with images."""
    row = tl.program_id(0).to(tl.int64)
    plane, y = row // rows_out, (row % rows_out).to(tl.int32)
    x = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = x < columns_out
    total = tl.zeros((tile,), tl.int32)
    for tap in range(taps):
        weight = tl.load(weights + tap)
        if vertical:
            place = _reflected(y * step + tap - taps // 2, rows_in, far)
            value = tl.load(source + (plane * rows_in + place) * columns_in + x, mask=inside, other=0)
        else:
            place = _reflected(x * step + tap - taps // 2, columns_in, far)
            value = tl.load(source + (plane * rows_in + y) * columns_in + place, mask=inside, other=0)
        total += value.to(tl.int32) * weight
    here = row * columns_out + x
    if finish > 0:
        total = (total + half) >> bits
    if finish == 2:
        image = tl.load(images + here, mask=inside, other=0).to(tl.float32)
        mixed = total.to(tl.float32) * share + offset + image * gain
        mixed = tl.minimum(tl.maximum(mixed, 0.0), 255.0)
        total = ((mixed + 12582912.0) - 12582912.0).to(tl.int32)  # 1.5 · 2²³: rounds, halves to even
    tl.store(target + here, total.to(target.dtype.element_ty), mask=inside)


def along(
    source: torch.Tensor, weights: tuple[int, ...], axis: int, *, step: int = 1, bits: int | None = None,
    mixed: tuple[torch.Tensor, float, float, float] | None = None, kind: torch.dtype = torch.int32,
) -> torch.Tensor:  # fmt: skip
    """Return weighted sums of neighbours along axis 2 or 3, at every ``step``-th pixel, mirrored at the ends.

    Args:
        source: planes NCHW of whole numbers.
        weights: whole numbers, odd in number.
        axis: 2 for columns, 3 for rows.
        step: distance between the pixels that are kept.
        bits: divide by two to this power, rounded; without it, sums stay whole.
        mixed: images, and what they, the sums and 1 are multiplied by before everything is added and rounded.
        kind: type of the result.
    """
    source = source.contiguous()
    count, channels, rows, columns = source.shape
    rows_out, columns_out = (-(-rows // step), columns) if axis == 2 else (rows, -(-columns // step))
    target = source.new_empty((count, channels, rows_out, columns_out), dtype=kind)
    images, gain, share, offset = mixed or (source, 0.0, 0.0, 0.0)
    images = images.contiguous()
    tile = _row_tile(columns_out)
    finish = 0 if bits is None else 1 if mixed is None else 2
    far = len(weights) // 2 >= source.shape[axis]
    with _on(source):
        _along[count * channels * rows_out, triton.cdiv(columns_out, tile)](
            source, target, images, _weights(weights, source.device), rows, columns, rows_out, columns_out,
            1 << bits - 1 if bits else 0, bits or 0, float(gain), float(share), float(offset), taps=len(weights),
            step=step, vertical=axis == 2, far=far, finish=finish, tile=tile, **EXACT,
        )  # fmt: skip
    return target


@_kernel
def _doubled(  # type: ignore[no-untyped-def]
    source, target, rows_in, columns_in, rows_out, columns_out, tile: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    plane, y = row // rows_out, (row % rows_out).to(tl.int32)
    x = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = x < columns_out
    i, j = y // 2, x // 2
    up, down = tl.where(i > 0, i - 1, tl.minimum(1, rows_in - 1)), tl.minimum(i + 1, rows_in - 1)
    left, right = tl.where(j > 0, j - 1, tl.minimum(1, columns_in - 1)), tl.minimum(j + 1, columns_in - 1)
    odd_row, odd_column = y % 2, x % 2
    start = source + plane * rows_in * columns_in
    total = tl.zeros((tile,), tl.int32)
    for which in tl.static_range(3):
        if which == 0:
            place, weight = up, 1 - odd_row
        elif which == 1:
            place, weight = i, 6 - 2 * odd_row
        else:
            place, weight = down, 1 + 3 * odd_row
        line = start + place * columns_in
        before = tl.load(line + left, mask=inside, other=0).to(tl.int32)
        own = tl.load(line + j, mask=inside, other=0).to(tl.int32)
        after = tl.load(line + right, mask=inside, other=0).to(tl.int32)
        total += weight * (before * (1 - odd_column) + own * (6 - 2 * odd_column) + after * (1 + 3 * odd_column))
    tl.store(target + row * columns_out + x, ((total + 32) >> 6).to(target.dtype.element_ty), mask=inside)


def doubled(source: torch.Tensor, rows: int, columns: int, kind: torch.dtype) -> torch.Tensor:
    """Return ``cv2.pyrUp`` of planes NCHW of whole numbers, cut to a size."""
    count, channels, rows_in, columns_in = source.shape
    target = source.new_empty((count, channels, rows, columns), dtype=kind)
    tile = _row_tile(columns)
    with _on(source):
        _doubled[count * channels * rows, triton.cdiv(columns, tile)](
            source, target, rows_in, columns_in, rows, columns, tile=tile
        )
    return target


@_kernel
def _turned(  # type: ignore[no-untyped-def]
    images, target, shifts, pixels, wrap: tl.constexpr, tile: tl.constexpr
):
    image = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = place < pixels
    start = image * 3 * pixels + place
    red = tl.load(images + start, mask=inside, other=0).to(tl.float32)
    green = tl.load(images + start + pixels, mask=inside, other=0).to(tl.float32)
    blue = tl.load(images + start + 2 * pixels, mask=inside, other=0).to(tl.float32)
    shift = tl.load(shifts + image).to(tl.int32)
    value = tl.maximum(tl.maximum(red, green), blue)
    apart = value - tl.minimum(tl.minimum(red, green), blue)
    of_value = tl.div_rn(tl.full((tile,), 1044480.0, tl.float32), tl.maximum(value, 1.0))
    of_apart = tl.div_rn(tl.full((tile,), 122880.0, tl.float32), tl.maximum(apart, 1.0))
    of_value = (of_value + 12582912.0) - 12582912.0  # rounded, halves to even
    of_apart = (of_apart + 12582912.0) - 12582912.0
    saturation = tl.floor((apart * of_value + 2048) * 0.000244140625)
    sixth = tl.where(
        value == red, green - blue, tl.where(value == green, blue - red + 2 * apart, red - green + 4 * apart)
    )
    hue = tl.floor((sixth * of_apart + 2048) * 0.000244140625).to(tl.int32)
    hue = (tl.where(hue < 0, hue + 180, hue) + shift) % wrap % 180
    sector = tl.div_rn(hue.to(tl.float32), tl.full((tile,), 30.0, tl.float32))
    chroma = tl.div_rn(value * saturation, tl.full((tile,), 255.0, tl.float32))
    for channel in tl.static_range(3):
        round_ = sector + (5 - 2 * channel)
        round_ = tl.where(round_ >= 6, round_ - 6, round_)
        short = tl.minimum(tl.maximum(tl.minimum(round_, 4 - round_), 0.0), 1.0) * chroma
        tl.store(target + start + channel * pixels, (value - short).to(tl.uint8), mask=inside)


def turn_hue(images: torch.Tensor, shifts: torch.Tensor, *, wrap: int) -> torch.Tensor:
    """Return images with every hue turned by the shift of its image, in the arithmetic of OpenCV's 8-bit HSV."""
    images = images.contiguous()
    target, pixels = torch.empty_like(images), images.shape[2] * images.shape[3]
    with _on(images):
        _turned[triton.cdiv(pixels, TILE), len(images)](images, target, shifts, pixels, wrap=wrap, tile=TILE, **EXACT)
    return target


@_kernel
def _composed(  # type: ignore[no-untyped-def]
    images, inside, others, target, pixels, first, second, third, kind: tl.constexpr, tile: tl.constexpr
):
    """Keep images inside masks; outside: 0 other images, 1 a colour, 2 grey, 3 each channel times a number."""
    image = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * tile + tl.arange(0, tile)
    exists = place < pixels
    kept = tl.load(inside + image * pixels + place, mask=exists, other=0) != 0
    start = image * 3 * pixels + place
    if kind == 2:
        red = tl.load(images + start, mask=exists, other=0).to(tl.int32)
        green = tl.load(images + start + pixels, mask=exists, other=0).to(tl.int32)
        blue = tl.load(images + start + 2 * pixels, mask=exists, other=0).to(tl.int32)
        grey = (red * 9798 + green * 19235 + blue * 3735 + 16384) >> 15
    for channel in tl.static_range(3):
        here = start + channel * pixels
        own = tl.load(images + here, mask=exists, other=0)
        number = first if channel == 0 else second if channel == 1 else third
        if kind == 0:
            other = tl.load(others + here, mask=exists, other=0)
        elif kind == 1:
            other = tl.zeros((tile,), tl.uint8) + number.to(tl.uint8)
        elif kind == 2:
            other = grey.to(tl.uint8)
        else:
            other = own * number.to(tl.uint8)
        tl.store(target + here, tl.where(kept, own, other), mask=exists)


OTHERS, COLOUR, GREY, TIMES = range(4)
"""What ``composed`` puts outside the masks."""

_PIXELS = 2048  # that a program of ``_composed`` holds: bytes are read in words if they are many


def composed(
    images: torch.Tensor, inside: torch.Tensor, kind: int, others: torch.Tensor | None = None,
    numbers: Sequence[int] = (0, 0, 0),
) -> torch.Tensor:  # fmt: skip
    """Return images inside masks N1HW, and something else outside.

    Args:
        images: what is kept.
        inside: bool, if it is kept.
        kind: ``OTHERS``, a ``COLOUR``, the ``GREY`` of the image, or each channel ``TIMES`` a number.
        others: images for ``OTHERS``.
        numbers: of the three channels, for ``COLOUR`` and ``TIMES``.
    """
    images, inside = images.contiguous(), inside.contiguous()
    others = images if others is None else others.contiguous()
    target, pixels = torch.empty_like(images), images.shape[2] * images.shape[3]
    with _on(images):
        _composed[triton.cdiv(pixels, _PIXELS), len(images)](
            images, inside.view(torch.uint8), others, target, pixels, *map(int, numbers),
            kind=kind, tile=_PIXELS,
        )  # fmt: skip
    return target


@_kernel
def _resized(  # type: ignore[no-untyped-def]
    source, target, first_rows, row_weights, first_columns, column_weights, rows_in, columns_in, rows_out, columns_out,
    row_taps: tl.constexpr, column_taps: tl.constexpr, rows_first: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    half: tl.constexpr = 2097152
    row = tl.program_id(0).to(tl.int64)
    image, y = row // rows_out, (row % rows_out).to(tl.int32)
    x = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = x < columns_out
    top = tl.load(first_rows + y)
    left = tl.load(first_columns + x, mask=inside, other=0)
    for channel in tl.static_range(3):
        start = source + (image * 3 + channel) * rows_in * columns_in
        total = tl.zeros((tile,), tl.int32) + half
        if rows_first:
            for across in tl.static_range(column_taps):
                weight = tl.load(column_weights + x * column_taps + across, mask=inside, other=0)
                part = tl.zeros((tile,), tl.int32) + half
                for down in tl.static_range(row_taps):
                    place = tl.minimum(top + down, rows_in - 1) * columns_in + tl.minimum(left + across, columns_in - 1)
                    value = tl.load(start + place, mask=inside, other=0).to(tl.int32)
                    part += value * tl.load(row_weights + y * row_taps + down)
                total += tl.minimum(tl.maximum(part >> 22, 0), 255) * weight
        else:
            for down in tl.static_range(row_taps):
                line = start + tl.minimum(top + down, rows_in - 1) * columns_in
                part = tl.zeros((tile,), tl.int32) + half
                for across in tl.static_range(column_taps):
                    weight = tl.load(column_weights + x * column_taps + across, mask=inside, other=0)
                    value = tl.load(line + tl.minimum(left + across, columns_in - 1), mask=inside, other=0)
                    part += value.to(tl.int32) * weight
                total += tl.minimum(tl.maximum(part >> 22, 0), 255) * tl.load(row_weights + y * row_taps + down)
        result = tl.minimum(tl.maximum(total >> 22, 0), 255).to(tl.uint8)
        tl.store(target + (row * columns_out + x) * 3 + channel, result, mask=inside)


def resized(
    source: torch.Tensor, rows: tuple[torch.Tensor, torch.Tensor], columns: tuple[torch.Tensor, torch.Tensor],
    out: torch.Tensor, *, rows_first: bool,
) -> torch.Tensor:  # fmt: skip
    """Resize as Pillow does, bit for bit: sums of whole numbers, rounded to bytes between the two directions.

    Args:
        source: images.
        rows: for each row of the result, the first row it is made of, and the weights of that and the next ones in
            parts of 2²² (int32); one row of numbers each.
        columns: the same for columns.
        out: where the result goes: N3HW uint8 with the channels of a pixel side by side.
        rows_first: whether rows are summed before columns.
    """
    source = source.contiguous()
    count, _, rows_in, columns_in = source.shape
    rows_out, columns_out = out.shape[2:]
    tile = _row_tile(columns_out)
    with _on(source):
        _resized[count * rows_out, triton.cdiv(columns_out, tile)](
            source, out, *rows, *columns, rows_in, columns_in, rows_out, columns_out, row_taps=rows[1].shape[1],
            column_taps=columns[1].shape[1], rows_first=rows_first, tile=tile,
        )  # fmt: skip
    return out


@_kernel
def _normalised(source, target, mean, std, values, tile: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    inside = place < values
    channel = (place % 3).to(tl.int32)
    value = tl.load(source + place, mask=inside, other=0).to(tl.float32)
    value = tl.div_rn(value - tl.load(mean + channel), tl.load(std + channel))
    tl.store(target + place, value.to(target.dtype.element_ty), mask=inside)


def normalised(images: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Return (images − mean) / std, the channels of a pixel side by side, as those of ``images`` are."""
    target = torch.empty_like(images, dtype=kind)
    values = images.numel()
    with _on(images):
        _normalised[(triton.cdiv(values, _PIXELS),)](images, target, mean, std, values, tile=_PIXELS)
    return target


@_kernel
def _pooled(  # type: ignore[no-untyped-def]
    source, target, rows_in, columns_in, rows_out, columns_out, channels,
    size: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    image, y = row // rows_out, (row % rows_out).to(tl.int32)
    value = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = value < columns_out * channels
    x, channel = value // channels, value % channels
    best = tl.full((tile,), float("-inf"), tl.float32)
    for down in tl.static_range(size):
        place_y = x * 0 + (y * stride - padding + down)
        for across in tl.static_range(size):
            place_x = x * stride - padding + across
            here = inside & (place_x >= 0) & (place_x < columns_in) & (place_y >= 0) & (place_y < rows_in)
            at = ((image * rows_in + place_y) * columns_in + place_x) * channels + channel
            seen = tl.load(source + at, mask=here, other=float("-inf")).to(tl.float32)
            best = tl.maximum(best, seen, propagate_nan=tl.PropagateNan.ALL)
    tl.store(target + row * columns_out * channels + value, best.to(target.dtype.element_ty), mask=inside)


def pooled(images: torch.Tensor, size: int, stride: int, padding: int) -> torch.Tensor:
    """Return ``max_pool2d`` of images with the channels of a pixel side by side; torch's also writes where each was."""
    count, channels, rows, columns = images.shape
    rows_out, columns_out = ((side + 2 * padding - size) // stride + 1 for side in (rows, columns))
    target = images.new_empty((count, rows_out, columns_out, channels)).movedim(-1, 1)
    tile = 1024
    with _on(images):
        _pooled[count * rows_out, triton.cdiv(columns_out * channels, tile)](
            images, target, rows, columns, rows_out, columns_out, channels, size=size, stride=stride, padding=padding,
            tile=tile,
        )  # fmt: skip
    return target


@_kernel
def _unshuffled(  # type: ignore[no-untyped-def]
    source, target, rows_in, columns_in, rows_out, columns_out, before,
    channels: tl.constexpr, width: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    image, y = row // rows_out, (row % rows_out).to(tl.int32)
    value = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = value < columns_out * width
    x, which = value // width, value % width
    corner, channel = which // channels, which % channels
    place_y, place_x = 2 * (y - before) + corner // 2, 2 * (x - before) + corner % 2
    here = inside & (which < 4 * channels) & (place_x >= 0) & (place_x < columns_in)
    here = here & (place_y >= 0) & (place_y < rows_in)
    at = ((image * rows_in + place_y) * columns_in + place_x) * channels + channel
    seen = tl.load(source + at, mask=here, other=0.0)
    tl.store(target + row * columns_out * width + value, seen, mask=inside)


def unshuffled(images: torch.Tensor, before: int, rows: int, columns: int, width: int) -> torch.Tensor:
    """Return blocks of 2 × 2 pixels as pixels of so many channels, with zeros around and behind them.

    Args:
        images: numbers NCHW with the channels of a pixel side by side.
        before: blocks of zeros above and to the left.
        rows: of the result; what is below the images is zero.
        columns: of the result.
        width: channels of the result, of which four times those of the images are used.
    """
    count, channels, rows_in, columns_in = images.shape
    target = images.new_empty((count, rows, columns, width)).movedim(-1, 1)
    tile = 1024
    with _on(images):
        _unshuffled[count * rows, triton.cdiv(columns * width, tile)](
            images, target, rows_in, columns_in, rows, columns, before, channels=channels, width=width, tile=tile
        )
    return target
