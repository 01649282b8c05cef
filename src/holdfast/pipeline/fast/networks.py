"""A model's network as the fast pass uses it: bytes in, probabilities out, in batches of one size."""

from __future__ import annotations

import copy
import importlib
import logging
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import PIL
import PIL.Image
from numpy.typing import NDArray

from holdfast.core.lazy import torch
from holdfast.core.networks import fuse
from holdfast.core.types import Image
from holdfast.models import proof
from holdfast.models.torch_classifier import MAX_ASPECT, Geometry, TorchClassifier, picture

# Images are resized and cropped as a model's preprocessing does: with Pillow, or on a GPU as weighted sums of rows and
# of columns, of which a crop leaves some out. A kernel of our own adds the few pixels that have a weight; where they
# are many, or the run is short, two products with matrices do it.
FIXED = 2.0**22  # Pillow's weights are multiples of one divided by this
ALIGNED = 8  # matrices begin and end at multiples of this many pixels: tensor cores read those fastest


def see(
    images: torch.Tensor, geometry: Geometry, *, crops_centre: bool, out: torch.Tensor | None = None,
    kernels: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return images as a model with this geometry gets them, before mean and deviation."""
    # ``images``: NCHW uint8, on any device. ``geometry``: resizing and crop. ``crops_centre``: whether extreme shapes
    # are cut to their middle first (``torch_classifier.picture``). Returns NCHW uint8 of ``geometry.crop``: what Pillow
    # makes; by matrices some values are off by one, rarely by two. The channels of a pixel are side by side.
    if out is None:
        out = blank(images.shape[0], geometry, images.device)
    if images.device.type == "cpu":
        return by_pillow(images, geometry, crops_centre, out)
    height, width = images.shape[2:]
    taps = _taps(height, width, geometry, crops_centre, images.device) if kernels else None
    if taps is not None and _resizes(geometry, crops_centre, images.device, height, width):
        return by_taps(images, taps, out)
    return by_matrices(images, geometry, crops_centre, out, torch.float16)


def by_pillow(images: torch.Tensor, geometry: Geometry, crops_centre: bool, out: torch.Tensor) -> torch.Tensor:
    """Do what ``see`` does with Pillow, for images in this machine's memory."""
    resample = PIL.Image.Resampling[geometry.interpolation.upper()]
    for image, place in zip(images, out, strict=True):
        whole = picture(image.permute(1, 2, 0).numpy(), crops_centre=crops_centre)
        height, width = resized(whole.height, whole.width, geometry)
        small = torch.from_numpy(np.asarray(whole.resize((width, height), resample)).copy()).permute(2, 0, 1)
        (down, top, rows), (across, left, columns) = map(cropped, (height, width), geometry.crop)
        kept = small[:, top : top + rows, left : left + columns]
        place.zero_()[:, down : down + rows, across : across + columns] = kept
    return out


def by_matrices(
    images: torch.Tensor, geometry: Geometry, crops_centre: bool, out: torch.Tensor, number: torch.dtype
) -> torch.Tensor:
    """Do what ``see`` does with products: float16 is fast, float64 repeats Pillow's sums bit for bit."""
    (top, rows), (left, columns), half, height_first = _matrices(
        images.shape[2], images.shape[3], geometry, crops_centre, images.device, number
    )
    count, height, width = images.shape[0] * 3, rows.shape[1], columns.shape[0]
    part = images[:, :, top : top + height, left : left + width].to(number).reshape(count * height, width)
    # Pillow rounds to bytes between the two directions; triangles never overshoot.
    overshoots = geometry.interpolation in ("bicubic", "lanczos")
    taller = rows.expand(count, -1, -1)
    if height_first:
        short = torch.bmm(taller, part.view(count, height, width)).add_(0.5).floor_()
        short = short.clamp_(0, 255) if overshoots else short
        small = torch.addmm(half, short.view(-1, width), columns)
    else:
        narrow = torch.addmm(half, part, columns).floor_()
        narrow = narrow.clamp_(0, 255) if overshoots else narrow
        small = torch.baddbmm(half.expand(count, 1, -1), taller, narrow.view(count, height, -1))
    small = small.clamp_(0, 255) if overshoots else small
    return out.copy_(small.view(images.shape[0], 3, *geometry.crop))  # which rounds down


Taps: TypeAlias = "tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor], bool]"
"""First pixels and weights of rows, the same of columns, and whether rows come first: see ``kernels.resized``."""

MOST_TAPS = 8  # pixels of a row that a kernel adds; with more of them, products are faster


def by_taps(images: torch.Tensor, taps: Taps, out: torch.Tensor) -> torch.Tensor:
    """Do what ``see`` does in one pass over the pixels, bit for bit as Pillow."""
    from holdfast.scenarios.tensors import kernels

    rows, columns, rows_first = taps
    return kernels.resized(images, rows, columns, out, rows_first=rows_first)


@lru_cache(maxsize=256)
def _taps(height: int, width: int, geometry: Geometry, crops_centre: bool, device: torch.device) -> Taps | None:
    """Return the pixels that have a weight, or None if there are too many."""
    vertical, horizontal, rows_first = axes(height, width, geometry, crops_centre=crops_centre)
    parts = []
    for weights in (vertical, horizontal):
        used = weights != 0
        first = np.where(used.any(1), used.argmax(1), 0)
        count = int((used.shape[1] - used[:, ::-1].argmax(1) - first)[used.any(1)].max(initial=1))
        if count > MOST_TAPS:
            return None
        places = np.minimum(first[:, None] + np.arange(count), used.shape[1] - 1)
        inside = first[:, None] + np.arange(count) < used.shape[1]
        kept = np.where(inside, np.take_along_axis(weights, places, 1), 0)
        numbers = (first, np.rint(kept * FIXED))
        start, of_pixel = (torch.from_numpy(number.astype(np.int32)).to(device) for number in numbers)
        parts.append((start, of_pixel))
    return parts[0], parts[1], rows_first


_PROVED: dict[Any, bool] = {}


def _resizes(geometry: Geometry, crops_centre: bool, device: torch.device, height: int, width: int) -> bool:
    """Return whether the kernel makes, of an image of the first size that comes, exactly what float64 makes."""
    key = geometry, crops_centre, device
    if key not in _PROVED:
        image = torch.randint(0, 256, (1, 3, height, width), dtype=torch.uint8, device=device)
        exact, mine = blank(1, geometry, device), blank(1, geometry, device)
        try:
            taps = _taps(height, width, geometry, crops_centre, device)
            assert taps is not None, "asked before"
            same = torch.equal(
                by_taps(image, taps, mine), by_matrices(image, geometry, crops_centre, exact, torch.float64)
            )
        except Exception as error:  # a compiler fails in many ways, and products need none
            LOG.debug("images are resized by products: %s", error)
            same = False
        _PROVED[key] = same
    return _PROVED[key]


def blank(count: int, geometry: Geometry, device: Any) -> torch.Tensor:
    """Return uninitialised memory for images: N3HW uint8, the channels of a pixel side by side."""
    shape = (count, 3, *geometry.crop)
    return torch.empty(shape, dtype=torch.uint8, device=device, memory_format=torch.channels_last)


@lru_cache(maxsize=32)  # images are gathered by size; matrices for many large sizes would fill a GPU
def _matrices(
    height: int, width: int, geometry: Geometry, crops_centre: bool, device: torch.device, number: torch.dtype
) -> tuple[tuple[int, torch.Tensor], tuple[int, torch.Tensor], torch.Tensor, bool]:
    """Return the first needed row and the matrix for rows, the same for columns (transposed), halves, and the order."""
    vertical, horizontal, height_first = axes(height, width, geometry, crops_centre=crops_centre)
    first_row, rows = _needed(vertical)
    first_column, columns = _needed(horizontal)
    matrices = [torch.from_numpy(np.ascontiguousarray(weights)).to(device, number) for weights in (rows, columns.T)]
    half = torch.full((columns.shape[0],), 0.5, device=device, dtype=number)
    return (first_row, matrices[0]), (first_column, matrices[1]), half, height_first


def axes(
    height: int, width: int, geometry: Geometry, *, crops_centre: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], bool]:
    """Return the weights (seen height × height) and (seen width × width), and whether Pillow begins with the height."""
    # Pixels outside an image count as 0.
    kept_height, kept_width = height, width
    if crops_centre and max(height, width) > MAX_ASPECT * min(height, width):
        kept = MAX_ASPECT * min(height, width)
        kept_height, kept_width = min(height, kept), min(width, kept)
    size = resized(kept_height, kept_width, geometry)
    matrices = []
    for whole, kept, target, crop in zip((height, width), (kept_height, kept_width), size, geometry.crop, strict=True):
        weights = np.zeros((target, whole))
        start = (whole - kept) // 2
        weights[:, start : start + kept] = resizing(kept, target, geometry.interpolation)
        seen = np.zeros((crop, whole))
        to, first, count = cropped(target, crop)
        seen[to : to + count] = weights[first : first + count]
        matrices.append(seen)
    shrinks = kept_height - size[0]
    height_first = PILLOW >= 13 and shrinks > 0 and shrinks > 2 * (kept_width - size[1])
    return matrices[0], matrices[1], height_first


PILLOW = int(PIL.__version__.split(".")[0])
"""From version 13 on, Pillow begins with the height if that saves work; five thousand sizes showed the rule."""


def resized(height: int, width: int, geometry: Geometry) -> tuple[int, int]:
    """Return height and width before the crop."""
    if not isinstance(geometry.resize, int):
        return geometry.resize
    short, long = sorted((height, width))
    longer = int(geometry.resize * long / short)
    return (longer, geometry.resize) if height > width else (geometry.resize, longer)


def cropped(size: int, crop: int) -> tuple[int, int, int]:
    """Return, along one side: where the kept part begins in the crop and in the image, and its length."""
    # A smaller image is padded, as torchvision's CenterCrop does.
    if crop > size:
        return (crop - size) // 2, 0, size
    return 0, round((size - crop) / 2.0), crop


def resizing(source: int, target: int, interpolation: str) -> NDArray[np.float64]:
    """Return Pillow's weights of ``source`` pixels in each of ``target`` pixels; rows sum to 1, except for rounding."""
    weights = np.zeros((target, source))
    scale = source / target
    if interpolation == "nearest":
        places = np.add.accumulate([scale / 2, *[scale] * (target - 1)])  # with Pillow's own rounding errors
        weights[np.arange(target), np.minimum(places.astype(int), source - 1)] = 1
        return weights
    reach, filter_ = _FILTERS[interpolation]
    stretch = max(scale, 1.0)
    for place in range(target):
        centre = (place + 0.5) * scale
        low = max(0, int(centre - reach * stretch + 0.5))
        high = min(source, int(centre + reach * stretch + 0.5))
        near = np.array([filter_((x - centre + 0.5) / stretch) for x in range(low, high)])
        weights[place, low:high] = near / near.sum()
    return np.rint(weights * FIXED) / FIXED


def _triangle(x: float) -> float:
    return max(0.0, 1.0 - abs(x))


def _cubic(x: float) -> float:
    x, a = abs(x), -0.5
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _lanczos(x: float) -> float:
    if x == 0:
        return 1.0
    turned = math.pi * x
    return 3 * math.sin(turned) * math.sin(turned / 3) / turned**2 if -3 <= x < 3 else 0.0


_FILTERS: Mapping[str, tuple[float, Callable[[float], float]]] = {
    "bilinear": (1.0, _triangle),
    "bicubic": (2.0, _cubic),
    "lanczos": (3.0, _lanczos),
}

KNOWN = frozenset({*_FILTERS, "nearest"})  # interpolations that this module makes


def _needed(weights: NDArray[np.float64]) -> tuple[int, NDArray[np.float64]]:
    """Return the first pixel that has any weight, rounded down, and the matrix from there to the last, rounded up."""
    used = np.flatnonzero(weights.any(axis=0))
    first = int(used[0]) // ALIGNED * ALIGNED
    last = min(weights.shape[1], -(-(int(used[-1]) + 1) // ALIGNED) * ALIGNED)
    return first, weights[:, first:last]


LOG = logging.getLogger(__name__)

SAME = 0.1  # fused layers round elsewhere in bfloat16: a ResNet-50's probabilities were off by 0.01 at most
GPU_BATCH = 512  # images per batch on a GPU: larger batches gain nothing on an H200


@dataclass
class Network:
    """A network with its batch size; ``call`` is what computes, compiled or not."""

    module: Any
    geometry: Geometry
    crops_centre: bool
    batch: int
    device: str
    call: Any
    kernels: bool = False  # whether kernels of our own may be used
    ready: bool = False

    @property
    def view(self) -> tuple[Geometry, bool]:
        """Return what an image is resized by: equal for networks that see the same."""
        return self.geometry, self.crops_centre

    def see(self, images: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return images as the network gets them; see ``see``."""
        return see(images, self.geometry, crops_centre=self.crops_centre, out=out, kernels=self.kernels)

    def blank(self, count: int) -> torch.Tensor:
        """Return a black batch to be filled: N3HW uint8, the channels of a pixel side by side."""
        return blank(count, self.geometry, self.device).zero_()

    def probabilities(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the probabilities for a batch as ``blank`` makes it: (n, outputs) float32."""
        with torch.no_grad():
            answer: torch.Tensor = self.call(batch)
        return answer


def batch_size(device: str, asked: int) -> int:
    """Return images per batch: what was asked for, on a GPU at least what fills it."""
    return max(asked, GPU_BATCH) if device.startswith("cuda") else asked


def build(classifier: TorchClassifier, asked: int, *, kernels: bool = False) -> Network:
    """Return the network of a classifier, tried on a few images; raise whatever it raises."""
    preprocessing, device = classifier.preprocessing, classifier.device
    geometry = preprocessing.geometry
    if geometry is None or geometry.interpolation not in KNOWN:
        raise ValueError("its preprocessing is more than resizing, cropping and normalising")
    number = torch.bfloat16 if device.startswith("cuda") else torch.float32
    seeing = partial(_seeing, mean=preprocessing.mean, std=preprocessing.std, number=number, device=device)
    module = seeing(copy.deepcopy(classifier.module))
    network = Network(module, geometry, preprocessing.crops_centre, batch_size(device, asked), device, module, kernels)
    count = 8 if device.startswith("cuda") else 2  # cuDNN prepares kernels for each number of images
    answer = network.probabilities(network.blank(count))
    if tuple(answer.shape) != (count, len(classifier.labels)):
        raise ValueError(f"it answers with shape {tuple(answer.shape)}")
    if device.startswith("cuda"):
        try:
            ours = importlib.import_module("holdfast.scenarios.tensors.kernels") if kernels else None
            network.call = seeing(fuse(copy.deepcopy(classifier.module).eval(), kernels=ours), kernels=kernels)
            pictures = network.blank(count).random_(256)
            apart = float((network.probabilities(pictures) - module(pictures)).abs().max())
            if not apart < SAME:
                raise ValueError(f"its answers are off by {apart:.3f}")
        except Exception as error:  # control flow that depends on values, layers that cuDNN does not take
            LOG.debug("%s is not fused: %s", classifier.name, error)
            network.call = module
    return network


def prove(network: Network, classifier: TorchClassifier, images: Sequence[Image]) -> list[str]:
    """Return how a network's answers to images agree with the classifier's own; see ``models.proof``."""
    if not images:
        return []

    def direct(image: Image) -> NDArray[np.float32]:
        pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None].to(network.device)
        seen = network.see(pixels)
        return np.asarray(network.probabilities(seen)[0].float().cpu())

    within = proof.CLOSE_CALL if network.device.startswith("cuda") else proof.FLAT_CLOSE
    proof.check_flat(classifier, np.stack([*map(direct, proof.flat_images(classifier))]), within)
    return [proof.compared(classifier, classifier.predict(images), np.stack([*map(direct, images)])).sentence]


def _with_own_code(function: Any) -> Any:
    """Return the function with code of its own."""
    return types.FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip


def _seeing(
    network: Any, mean: Sequence[float], std: Sequence[float], number: torch.dtype, device: str, kernels: bool = False
) -> torch.nn.Module:
    class Seeing(torch.nn.Module):
        """Turns bytes NCHW into probabilities."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network.to(number, memory_format=torch.channels_last)
            self.mean: torch.Tensor
            self.std: torch.Tensor
            self.register_buffer("mean", 255 * torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
            self.register_buffer("std", 255 * torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if kernels:
                from holdfast.scenarios.tensors.kernels import normalised

                images = images.contiguous(memory_format=torch.channels_last)
                seen = normalised(images, self.mean, self.std, number)
            else:
                seen = ((images.float() - self.mean) / self.std).to(number)
            logits: torch.Tensor = self.network(seen)
            return logits.float().softmax(1)

    # Otherwise all networks of a run would share the compiled code: torch.compile keeps few versions of each.
    Seeing.forward = _with_own_code(Seeing.forward)  # type: ignore[method-assign]
    return Seeing().to(device).eval().requires_grad_(False)
