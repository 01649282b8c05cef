"""Snow, frost, fog and drops for batches of pictures: ``scenarios.corruptions.weather`` with tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.lazy import torch
from holdfast.scenarios.corruptions import weather
from holdfast.scenarios.tensors.filters import (
    canny_edges,
    edge_distances,
    equalised,
    filtered,
    gaussian,
    layer,
    mean_of_nine,
    picture_of,
    streaks,
    values_of,
    zoomed,
)

if TYPE_CHECKING:
    from torch import Tensor

    from holdfast.scenarios.tensors.corruptions import Draws

LUMA = (0.299, 0.587, 0.114)


def snow(
    images: Tensor, draws: Draws, scale: float, *, mean: float, sigma: float, zoom: float, threshold: float,
    radius: float, streak_sigma: float, kept: float,
) -> Tensor:  # fmt: skip
    """Return pictures with falling snow."""
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


def frost(images: Tensor, draws: Draws, scale: float, *, kept: float, ice: float) -> Tensor:
    """Return pictures behind ice."""
    height, width = images.shape[2:]
    pieces = np.stack(draws.scalars(lambda rng: weather.frost_piece(height, width, scale, rng)))
    frozen = torch.from_numpy(pieces).to(images.device).permute(0, 3, 1, 2)
    return picture_of(kept * values_of(images) + ice * values_of(frozen))


def fog(images: Tensor, draws: Draws, scale: float, *, density: float, decay: float) -> Tensor:
    """Return pictures in fog."""
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


def spatter(
    images: Tensor, draws: Draws, scale: float, *, mean: float, sigma: float, smoothing: float, threshold: float,
    strength: float, mud: int,
) -> Tensor:  # fmt: skip
    """Return pictures behind drops of water or mud."""

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
