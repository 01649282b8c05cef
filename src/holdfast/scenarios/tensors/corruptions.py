"""The nineteen corruptions of ImageNet-C for batches of images on any device.

They follow ``scenarios.corruptions`` step by step. Scalars (angles, offsets) are drawn by the same generators as there,
so corruptions without a random field make the same images within rounding. Random fields (noise, clouds,
displacements) come from the device's own generator: other numbers of the same distribution, for each image its own.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from holdfast.core.fingerprint import generator, seed_from
from holdfast.core.lazy import torch
from holdfast.scenarios.base.condition import Condition
from holdfast.scenarios.corruptions import blurs, declaring, digital, weather
from holdfast.scenarios.tensors.arithmetic import resize_area
from holdfast.scenarios.tensors.filters import (
    boxed,
    canny_edges,
    edge_distances,
    edge_places,
    equalised,
    filtered,
    gaussian,
    layer,
    mean_of_nine,
    picture_of,
    sampled,
    streaks,
    values_of,
    zoomed,
)

if TYPE_CHECKING:
    from torch import Tensor

HANDED_ON = 7
"""Doublings that follow pixels through frosted glass: 128 hand-overs, each half as likely as the one before."""

LUMA = (0.299, 0.587, 0.114)


class Draws:
    """Random numbers for a batch: fields from the device, scalars from the host, by each image's own key."""

    def __init__(self, condition: Condition, sample_ids: Sequence[str], seed: int, device: torch.device) -> None:
        self._device = device
        keys = (condition.scenario, condition.variant, condition.parameters_json)
        self._keys = [(seed, sample_id, *keys) for sample_id in sample_ids]
        self._generators = [torch.Generator(device).manual_seed(seed_from(*key) >> 1) for key in self._keys]

    def scalars(self, draw: Callable[[np.random.Generator], Any]) -> list[Any]:
        """Return one draw per image, from the generator that ``scenarios.render`` uses."""
        return [draw(generator(*key)) for key in self._keys]

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers: N of ``shape``; a third side (channels) comes first."""
        return self._filled(shape, lambda field, drawing: field.normal_(generator=drawing))

    def uniform(self, *shape: int) -> Tensor:
        """Return numbers from 0 to 1, shaped likewise."""
        return self._filled(shape, lambda field, drawing: field.uniform_(generator=drawing))

    def poisson(self, rates: Tensor) -> Tensor:
        """Return counts with these means, NCHW."""
        return torch.stack(
            [torch.poisson(rate, generator=drawing) for rate, drawing in zip(rates, self._generators, strict=True)]
        )

    def _filled(self, shape: Sequence[int], fill: Callable[[Tensor, Any], Tensor]) -> Tensor:
        fields = torch.empty((len(self._keys), *shape[2:], *shape[:2]), device=self._device)
        for field, drawing in zip(fields, self._generators, strict=True):
            fill(field, drawing)
        return fields


def corrupt(condition: Condition, images: Tensor, draws: Draws) -> Tensor:
    """Return the images under a corruption, NCHW uint8; larger ones are first shrunk as its ``size`` says."""
    settings = dict(condition.parameters)
    size = int(settings.pop("size"))
    height, width = images.shape[2:]
    if size and min(height, width) > size:
        factor = size / min(height, width)
        images = resize_area(images, round(height * factor), round(width * factor))
    scale = declaring.scale_of(*images.shape[2:])
    result: Tensor = MAKERS[condition.scenario](images, draws, scale, **settings)
    return result


def _gaussian_noise(images: Tensor, draws: Draws, scale: float, *, sigma: float) -> Tensor:
    return picture_of(values_of(images) + sigma * draws.normal(*images.shape[2:], 3))


def _shot_noise(images: Tensor, draws: Draws, scale: float, *, photons: float) -> Tensor:
    return picture_of(draws.poisson(values_of(images) * photons) / photons)


def _impulse_noise(images: Tensor, draws: Draws, scale: float, *, amount: float) -> Tensor:
    draw = draws.uniform(*images.shape[2:], 3)
    return images.masked_fill(draw < amount, 255).masked_fill_(draw < amount / 2, 0)


def _speckle_noise(images: Tensor, draws: Draws, scale: float, *, sigma: float) -> Tensor:
    return picture_of(values_of(images) * (1 + sigma * draws.normal(*images.shape[2:], 3)))


def _brightness(images: Tensor, draws: Draws, scale: float, *, added: float) -> Tensor:
    values = values_of(images)
    value = values.amax(1, keepdim=True)
    brighter = (value + added).clamp(max=1)
    return picture_of(torch.where(value > 0, values * (brighter / value.clamp(min=1e-6)), brighter))


def _contrast(images: Tensor, draws: Draws, scale: float, *, kept: float) -> Tensor:
    values = values_of(images)
    means = values.double().mean((2, 3), keepdim=True).float()
    return picture_of((values - means) * kept + means)


def _saturate(images: Tensor, draws: Draws, scale: float, *, factor: float, added: float) -> Tensor:
    values = values_of(images)
    value, least = values.amax(1, keepdim=True), values.amin(1, keepdim=True)
    chroma = value - least
    saturation = (chroma / value.clamp(min=1e-6) * factor + added).clamp(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0], device=images.device).view(1, 3, 1, 1)  # which grey turns to
    share = torch.where(chroma > 0, (value - values) / chroma.clamp(min=1e-6), red)
    return picture_of(value * (1 - saturation * share))


def _pixelate(images: Tensor, draws: Draws, scale: float, *, kept: float) -> Tensor:
    height, width = images.shape[2:]
    small = boxed(images, max(1, int(height * kept)), max(1, int(width * kept)))
    return boxed(small, height, width)


def _jpeg_compression(images: Tensor, draws: Draws, scale: float, *, quality: int) -> Tensor:
    """Do what encoding and decoding do to the pixels: colours at half size, cosines of 8 × 8 pixels in steps."""
    height, width = images.shape[2:]
    rows, columns = (
        edge_places(height, -(-height // 16) * 16, images.device),
        edge_places(width, -(-width // 16) * 16, images.device),
    )
    wide = images.index_select(2, rows).index_select(3, columns).float()
    to_colours = torch.tensor(_YCC, device=images.device)
    planes = torch.einsum("ij,njhw->nihw", to_colours, wide)
    light, colours = (planes[:, :1]).round(), (planes[:, 1:] + 128).round()
    pairs = colours[..., ::2] + colours[..., 1::2]
    halved = pairs[:, :, ::2] + pairs[:, :, 1::2]
    bias = torch.tensor([1.0, 2.0], device=images.device).repeat(
        halved.shape[3] // 2
    )  # libjpeg rounds up and down in turn
    halved = ((halved + bias) / 4).floor_()
    steps = _jpeg_steps(int(quality))
    light = _quantised(light, steps[0])
    colours = _doubled_colours(_quantised(halved, steps[1])[..., : -(-height // 2), : -(-width // 2)])
    planes = torch.cat([light[..., :height, :width], colours[..., :height, :width] - 128], 1)
    return torch.einsum("ij,njhw->nihw", torch.linalg.inv(to_colours), planes).round_().clamp_(0, 255).to(torch.uint8)


_YCC = (LUMA, (-0.168735892, -0.331264108, 0.5), (0.5, -0.418687589, -0.081312411))


@lru_cache(maxsize=16)
def _jpeg_steps(quality: int) -> list[NDArray[np.float32]]:
    """Return Pillow's steps of light and of colours for a quality, 8 × 8 each."""
    file = io.BytesIO()
    Pillow.new("RGB", (8, 8)).save(file, "JPEG", quality=quality)
    tables: Any = Pillow.open(file)
    return [np.reshape(tables.quantization[number], (8, 8)).astype(np.float32) for number in (0, 1)]


def _quantised(planes: Tensor, steps: NDArray[np.float32]) -> Tensor:
    """Return planes after the cosine transform of 8 × 8 pixels, rounding to steps, and back."""
    step = torch.from_numpy(steps).to(planes.device)[:, None, :]
    number = np.arange(8)
    waves = np.cos((2 * number + 1) * number[:, None] * np.pi / 16) / 2
    waves[0] = np.sqrt(1 / 8)
    wave = torch.from_numpy(waves).to(planes.device, torch.float32)
    count, colours, height, width = planes.shape
    blocks = (planes - 128).reshape(count, colours, height // 8, 8, width // 8, 8)
    steps_of = torch.einsum("ui,ncaibj,vj->ncaubv", wave, blocks, wave).div_(step)
    rounded = steps_of.abs().add_(0.5001).floor_().copysign_(steps_of).mul_(step)
    back = torch.einsum("ui,ncaubv,vj->ncaibj", wave, rounded, wave)
    return back.add_(128).round_().clamp_(0, 255).flatten(4, 5).flatten(2, 3)


def _doubled_colours(planes: Tensor) -> Tensor:
    """Return planes at twice the size by libjpeg's triangle: three parts of the near neighbour, one of the far."""
    height, width = planes.shape[2:]
    above, below = (planes.index_select(2, edge_places(height, height, planes.device, by)) for by in (-1, 1))
    rows = torch.stack([3 * planes + above, 3 * planes + below], 3).flatten(2, 3)
    left, right = (rows.index_select(3, edge_places(width, width, planes.device, by)) for by in (-1, 1))
    return torch.stack([(3 * rows + left + 8) / 16, (3 * rows + right + 7) / 16], 4).flatten(3, 4).floor_()


def _gaussian_blur(images: Tensor, draws: Draws, scale: float, *, sigma: float) -> Tensor:
    return picture_of(gaussian(values_of(images), sigma * scale))


def _defocus_blur(images: Tensor, draws: Draws, scale: float, *, radius: float, softness: float) -> Tensor:
    kernel = blurs.defocus_kernel(radius, softness, scale)
    middle = len(kernel) // 2
    return picture_of(filtered(values_of(images), kernel[None], (middle, middle), mirrors=True))


def _glass_blur(images: Tensor, draws: Draws, scale: float, *, sigma: float, reach: int, rounds: int) -> Tensor:
    strewn = picture_of(gaussian(values_of(images), sigma * scale))
    reach = max(1, round(reach * scale))
    for _ in range(rounds):
        places = _sources((int(images.shape[2]), int(images.shape[3])), reach, draws, images.device)
        strewn = strewn.flatten(2).gather(2, places[:, None].expand(-1, 3, -1)).view(images.shape)
    return picture_of(gaussian(values_of(strewn), sigma * scale))


def _sources(size: tuple[int, int], reach: int, draws: Draws, device: torch.device) -> Tensor:
    """Return for every pixel the place whose value it gets (``blurs.sources``), N × pixels."""
    height, width = size
    rows, columns = (slice(reach + 1, side - reach + 1) for side in size)
    own = torch.arange(height * width, device=device)
    inner = own.view(height, width)[rows, columns]
    if inner.numel() == 0:
        return own[None]
    turned = torch.zeros(height * width, dtype=torch.bool, device=device)
    turned[inner.flatten()] = True
    down, across = (
        (draws.uniform(*inner.shape) * (2 * reach)).long().clamp_(max=2 * reach - 1) - reach for _ in range(2)
    )
    source = own.expand(len(down), -1).clone()
    source[:, inner.flatten()] = (inner + down * width + across).flatten(1)
    handed = turned & turned[source] & (source > own)
    for _ in range(HANDED_ON):
        through = source
        source = torch.where(handed, source.gather(1, through), source)
        handed = handed & handed.gather(1, through)
    return source


def _motion_blur(images: Tensor, draws: Draws, scale: float, *, radius: float, sigma: float) -> Tensor:
    angles = draws.scalars(lambda rng: rng.uniform(-45, 45))
    return streaks(images, radius * scale, sigma * scale, angles)


def _zoom_blur(images: Tensor, draws: Draws, scale: float, *, end: float, step: float) -> Tensor:
    values = values_of(images)
    factors = np.arange(1, end, step)
    total = values.clone()
    for factor in factors:
        total += zoomed(values, float(factor))
    return picture_of(total / (len(factors) + 1))


def _elastic_transform(
    images: Tensor, draws: Draws, scale: float, *, alpha: float, sigma: float, shear: float
) -> Tensor:
    height, width = (int(side) for side in images.shape[2:])
    maps = draws.scalars(lambda rng: cv2.invertAffineTransform(digital.corner_map(height, width, shear * scale, rng)))
    inverse = torch.tensor(np.stack(maps), dtype=torch.float32, device=images.device)

    def displacements(rows: int, columns: int) -> Tensor:
        smooth = [
            torch.from_numpy(digital.smoothing(side, sigma)).to(images.device, torch.float32)
            for side in (rows, columns)
        ]
        return alpha * (smooth[0] @ (draws.uniform(rows, columns) * 2 - 1) @ smooth[1].T)

    across, down = (layer(images, scale, displacements)[:, 0] * scale for _ in range(2))
    y, x = torch.meshgrid(
        *(torch.arange(side, device=images.device).float() for side in (height, width)), indexing="ij"
    )
    place = torch.stack([x, y, torch.ones_like(x)])
    moved = torch.einsum("nij,jhw->nihw", inverse, place)
    affine = sampled(values_of(images), moved[:, 0], moved[:, 1], mirrors=True)
    return picture_of(sampled(affine, x + across, y + down, mirrors=False))


def _snow(
    images: Tensor, draws: Draws, scale: float, *, mean: float, sigma: float, zoom: float, threshold: float,
    radius: float, streak_sigma: float, kept: float,
) -> Tensor:  # fmt: skip
    angles = draws.scalars(lambda rng: rng.uniform(-135, -45))

    def flakes(height: int, width: int) -> Tensor:
        noise = zoomed(mean + sigma * draws.normal(height, width), zoom)
        flake = picture_of(noise.masked_fill(noise < threshold, 0))
        return streaks(flake[:, None], radius, streak_sigma, angles)[:, 0].float() / 255

    fallen = layer(images, scale, flakes)
    values = values_of(images)
    grey = torch.einsum("j,njhw->nhw", torch.tensor(LUMA, device=images.device), values)[:, None]
    whitened = kept * values + (1 - kept) * torch.maximum(values, grey * 1.5 + 0.5)
    return picture_of(whitened + fallen + fallen.flip(2, 3))


def _frost(images: Tensor, draws: Draws, scale: float, *, kept: float, ice: float) -> Tensor:
    height, width = images.shape[2:]
    pieces = np.stack(draws.scalars(lambda rng: weather.frost_piece(height, width, scale, rng)))
    frozen = torch.from_numpy(pieces).to(images.device).permute(0, 3, 1, 2)
    return picture_of(kept * values_of(images) + ice * values_of(frozen))


def _fog(images: Tensor, draws: Draws, scale: float, *, density: float, decay: float) -> Tensor:
    side = weather.CLOUD_SIDE

    def clouds(height: int, width: int) -> Tensor:
        numbers = draws.uniform(1, side**2 - 1)[:, 0] * 2 - 1
        cloud = _plasma(numbers, side, decay)
        return cloud.repeat(1, -(-height // side), -(-width // side))[:, :height, :width]

    values = values_of(images)
    brightest = values.amax((1, 2, 3), keepdim=True)
    darker = torch.where(brightest > 0, brightest / (brightest + density), 0)
    return picture_of((values + density * layer(images, scale, clouds)) * darker)


def _plasma(numbers: Tensor, side: int, decay: float) -> Tensor:
    """Return clouds, N × side × side from 0 to 1 (``weather.plasma``), of side² - 1 numbers each."""
    known = torch.zeros((len(numbers), 1, 1), device=numbers.device)
    amplitude, used = 1.0, 0
    while known.shape[1] < side:
        size = known.shape[1]
        moves = numbers[:, used : used + 3 * size**2].reshape(-1, 3, size, size) * amplitude
        right, below = known.roll(-1, 2), known.roll(-1, 1)
        middle = (known + right + below + below.roll(-1, 2)) / 4 + moves[:, 0]
        across = (known + right + middle + middle.roll(1, 1)) / 4 + moves[:, 1]
        down = (known + below + middle + middle.roll(1, 2)) / 4 + moves[:, 2]
        rows = [torch.stack(pair, 3).flatten(2) for pair in ((known, across), (down, middle))]
        known = torch.stack(rows, 2).flatten(1, 2)
        amplitude, used = amplitude / decay**2, used + 3 * size**2
    known = known - known.amin((1, 2), keepdim=True)
    return known / known.amax((1, 2), keepdim=True)


def _spatter(
    images: Tensor, draws: Draws, scale: float, *, mean: float, sigma: float, smoothing: float, threshold: float,
    strength: float, mud: int,
) -> Tensor:  # fmt: skip
    def drops(height: int, width: int) -> Tensor:
        noise = gaussian((mean + sigma * draws.normal(height, width))[:, None], smoothing)
        liquid = noise.masked_fill(noise < threshold, 0)
        if not mud:
            return _water(liquid)[:, 0] * strength
        share = gaussian((liquid > threshold).float(), strength)
        return share.masked_fill(share < 0.8, 0)[:, 0]

    covered = layer(images, scale, drops)
    colour = torch.from_numpy(weather.MUD if mud else weather.WATER).to(images.device).view(1, 3, 1, 1)
    values = values_of(images)
    return picture_of(values * (1 - covered) + covered * colour if mud else values + covered * colour)


def _water(liquid: Tensor) -> Tensor:
    """Return how bright drops are, N1HW from 0 to 1 (``weather._water``)."""
    drawn = picture_of(liquid)
    depth = equalised(mean_of_nine(edge_distances(canny_edges(drawn, 50, 150))).floor_())
    slope = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
    lit = filtered(depth, slope[None], (1, 1), mirrors=True).round_().clamp_(0, 255)
    bright = drawn.float() * mean_of_nine(lit).round_()
    return bright / torch.clamp(bright.amax((1, 2, 3), keepdim=True), min=1)


MAKERS: Mapping[str, Callable[..., Tensor]] = {
    make.__name__[1:]: make
    for make in (
        _gaussian_noise, _shot_noise, _impulse_noise, _speckle_noise, _gaussian_blur, _defocus_blur, _glass_blur,
        _motion_blur, _zoom_blur, _snow, _frost, _fog, _spatter, _brightness, _contrast, _saturate, _jpeg_compression,
        _pixelate, _elastic_transform,
    )
}  # fmt: skip
"""Corruptions by the ids of their scenarios."""
