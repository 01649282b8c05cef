"""What a transform does to an image, measured: it is shown known images, and its mean and deviation follow from them.

Reading attributes (``transform.mean``) fails for functions, lambdas, nested chains and ``nn.Sequential``; a measurement
does not depend on how the transform is written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from holdfast.core.errors import UserError

Transform = Callable[[PIL.Image.Image], Any]

SIZE = (320, 240)  # width and height of the images that are shown
_COLOURS = (
    (0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (128, 128, 128), (64, 128, 192), (200, 30, 90),
)  # fmt: skip
_LEVELS = 3 / 255  # how far rounding in resizing takes a value
_SAME = 0.004  # of the largest factor: rounding to bytes inside the transform
_ALL = 0.985  # share of an image that counts as all of it: ramps of bytes are not measured more exactly
_REPEATS = 8  # a flip with probability one half escapes this many repetitions once in 128 times


@dataclass(frozen=True)
class Colours:
    """How pixels in 0..1 become the values that a network is given, per channel: (pixel − mean) / std."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels: str = "rgb"  # bgr: the transform returns blue first; mean and std are of red, green and blue
    unclear: str = ""  # why there is no such mean and std; empty if there is


def check_repeats(name: str, transform: Transform) -> None:
    """Raise a UserError for a transform that does not return the same for the same image."""
    shown = [_values(transform, _pattern(0, 1, 2)) for _ in range(_REPEATS)]
    if any(each.shape != shown[0].shape or not np.array_equal(each, shown[0], equal_nan=True) for each in shown):
        raise UserError(
            f"transform= of {name} returns something else for the same image when called again, so no result could be "
            "repeated: give the transform of the evaluation, without random augmentation"
        )


def colours_of(transform: Transform, stated: Colours | None = None) -> Colours:
    """Return mean, deviation and order of channels of a transform from a PIL image to a CHW tensor.

    ``stated``: what its settings say, returned as it is if the measurement confirms it.
    """
    flat = [_middle(_values(transform, PIL.Image.new("RGB", SIZE, colour))) for colour in _COLOURS]
    if any(len(each) != 3 for each in flat):
        return _unclear(f"it makes an image of {len(flat[0])} channel(s) of three")
    given = np.c_[np.array(_COLOURS) / 255, np.ones(len(_COLOURS))]
    answers = np.array(flat)
    if not np.isfinite(answers).all():
        return _unclear("it makes numbers that are not finite of an image of one colour")
    factors: NDArray[np.float64] = np.linalg.lstsq(given, answers, rcond=None)[0].astype(np.float64)
    most = np.abs(factors[:3]).max()
    if most < 1e-9 or np.abs(given @ factors - answers).max() > _SAME * most:
        return _unclear("its values are not on a straight line with those of the pixels")
    order = next((order for order in ("rgb", "bgr") if _is_diagonal(factors[:3], order, most)), "")
    if not order:
        return _unclear("it mixes the channels")
    step = 1 if order == "rgb" else -1
    black, white = answers[0][::step], answers[1][::step]
    scale = white - black
    colours = Colours(tuple((-black / scale).tolist()), tuple((1 / scale).tolist()), order)
    if stated is not None and stated.channels == order and _alike(stated, colours):
        colours = stated
    return colours if _is_pixelwise(transform, colours) else _unclear("what it makes of a pixel depends on the others")


def size_after(transform: Transform, height: int, width: int) -> tuple[int, int]:
    """Return height and width of what a transform makes of an image of this size."""
    output = _values(transform, PIL.Image.new("RGB", (width, height)))
    return int(output.shape[1]), int(output.shape[2])


def kept_of(transform: Transform, colours: Colours, size: int) -> tuple[int, int] | None:
    """Return height and width of the middle that a transform keeps of a square image, or None if it keeps all of it.

    Also None for what is not the middle of the image: then a network can only be shown all of it.
    """
    ramp = np.rint(np.linspace(0, 255, size)).astype(np.uint8)
    across, down = np.broadcast_to(ramp, (size, size)), np.broadcast_to(ramp[:, None], (size, size))
    shown = PIL.Image.fromarray(np.stack([across, down, np.full_like(across, 128)], axis=2))
    values = _values(transform, shown)
    values = values if colours.channels == "rgb" else values[::-1]
    pixels = [(values[channel] * colours.std[channel] + colours.mean[channel]) * (size - 1) for channel in (0, 1)]
    window = [_window(line, size) for line in (pixels[1].mean(axis=1), pixels[0].mean(axis=0))]
    if any(part is None for part in window):
        return None
    height, width = (round(part) for part in window if part is not None)
    return None if (height, width) == (size, size) else (height, width)


def _window(places: NDArray[np.float64], size: int) -> float | None:
    """Return how many of ``size`` pixels are kept, from the place that each pixel of the result came from."""
    count = len(places)
    inner = np.arange(count)[count // 10 : count - count // 10]
    step, first = np.polyfit(inner, places[inner], 1)
    kept, left = step * count, first + 0.5 - step / 2
    wrong = max(np.abs(first + step * inner - places[inner]).max(), abs(left - (size - kept) / 2))
    if wrong > max(2.0, size / 64):
        return None
    return float(size) if kept > _ALL * size else float(kept)


def _alike(stated: Colours, measured: Colours) -> bool:
    return all(
        np.allclose(getattr(stated, key), getattr(measured, key), rtol=1e-4, atol=1e-4) for key in ("mean", "std")
    )


def _unclear(why: str) -> Colours:
    return Colours((0.0,) * 3, (1.0,) * 3, unclear=why)


def _values(transform: Transform, image: PIL.Image.Image) -> NDArray[np.float64]:
    output = transform(image)
    return np.asarray(output.detach().cpu() if hasattr(output, "detach") else output, np.float64)


def _middle(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values of the pixel in the middle, which no padding reaches."""
    return values[:, values.shape[1] // 2, values.shape[2] // 2]


def _is_diagonal(factors: NDArray[np.float64], order: str, most: float) -> bool:
    own = factors if order == "rgb" else factors[::-1]
    diagonal = np.diag(own)
    return bool(np.abs(own - np.diag(diagonal)).max() <= _SAME * most and np.abs(diagonal).min() > _SAME * most)


@functools.cache
def _planes() -> tuple[NDArray[np.uint8], ...]:
    """Return three smooth patterns of values that neither sharpening nor halving takes out of 0..255."""
    rng, planes = np.random.default_rng(0), []
    for _ in range(3):
        coarse = PIL.Image.fromarray(rng.integers(70, 186, (6, 8)).astype(np.uint8))
        planes.append(np.asarray(coarse.resize(SIZE, PIL.Image.Resampling.BILINEAR)))
    return tuple(planes)


def _pattern(*places: int, contrast: float = 1.0) -> PIL.Image.Image:
    """Return an image whose channels are these patterns."""
    stacked = np.stack([_planes()[place] for place in places], axis=2).astype(np.float64)
    return PIL.Image.fromarray(np.rint(128 + contrast * (stacked - 128)).astype(np.uint8))


def _is_pixelwise(transform: Transform, colours: Colours) -> bool:
    """Return whether mean and deviation hold on images of more than one colour, too."""

    def pixels(image: PIL.Image.Image) -> NDArray[np.float64]:
        values = _values(transform, image)
        values = values if colours.channels == "rgb" else values[::-1]
        mean, std = (np.array(each)[:, None, None] for each in (colours.mean, colours.std))
        return np.asarray(values * std + mean)

    coloured, grey = pixels(_pattern(0, 1, 2)), pixels(_pattern(0, 0, 0))
    pale = pixels(_pattern(0, 0, 0, contrast=0.5))
    inside = (np.abs(grey - 0.5) < 0.4).all(axis=0)  # padding is of any value
    if not inside.any():
        return False
    gaps = [
        np.ptp(grey, axis=0),
        np.abs(coloured[0] - grey[0]),
        np.abs(pale - 128 / 255 - (grey - 128 / 255) / 2).max(0),
    ]
    return bool(max(gap[inside].max() for gap in gaps) <= _LEVELS)
