"""Augmentation of whole batches on whatever device they are on.

Batches are float NCHW, RGB, 0..1. Random numbers come from torch's global generator, which the loop seeds every epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.core.lazy import torch


@dataclass(frozen=True, slots=True)
class Moves:
    """How far images are moved: degrees, and shares of their size."""

    rotation: float = 8.0
    zoom: float = 0.1
    shift: float = 0.08
    flip: bool = True


def shuffled(count: int, batch: int, device: torch.device | str) -> Iterator[torch.Tensor]:
    """Yield the indices of one epoch in random order, in full batches only."""
    order = torch.randperm(count, device=device)
    for start in range(0, count - batch + 1, batch):
        yield order[start : start + batch]


def move_grid(images: torch.Tensor, moves: Moves) -> torch.Tensor:
    """Return a random rotation, zoom, shift and flip per image, as the sampling grid of ``move``."""
    count = len(images)
    uniform = torch.rand((5, count), device=images.device) * 2 - 1
    angle = uniform[0] * math.radians(moves.rotation)
    size = torch.exp2(uniform[1] * math.log2(1 + moves.zoom))
    mirror = torch.sign(uniform[2]) if moves.flip else torch.ones_like(angle)
    cosine, sine = torch.cos(angle) * size, torch.sin(angle) * size
    # A shift of one is half an image in the grid's units.
    shift = uniform[3:] * 2 * moves.shift
    theta = torch.stack([cosine * mirror, -sine, shift[0], sine * mirror, cosine, shift[1]], 1).view(-1, 2, 3)
    return torch.nn.functional.affine_grid(theta, list(images.shape), align_corners=False)


def move(images: torch.Tensor, grid: torch.Tensor, *, nearest: bool = False) -> torch.Tensor:
    """Sample images along a grid, mirrored beyond the edges; ``nearest`` for class maps, which must not be mixed."""
    mode = "nearest" if nearest else "bilinear"
    return torch.nn.functional.grid_sample(images, grid, mode=mode, padding_mode="reflection", align_corners=False)


def camera(images: torch.Tensor, *, strength: float = 0.1, noise: float = 0.02) -> torch.Tensor:
    """Change brightness, contrast and colour balance at random, by up to ``strength``, and add Gaussian noise."""
    draws = torch.rand((5, len(images), 1, 1, 1), device=images.device) * 2 - 1
    gains = 1 + strength * draws[:3].squeeze(-1).permute(1, 0, 2, 3)
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = (images - mean) * (1 + 2 * strength * draws[3]) + mean * (1 + strength * draws[4])
    return (images * gains + noise * torch.randn_like(images)).clamp(0, 1)


LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue are (ITU-R BT.601)


def grey(images: torch.Tensor) -> torch.Tensor:
    """Return the brightness in all three channels."""
    weights = torch.tensor(LUMA, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True).expand_as(images)


def stylised(images: torch.Tensor) -> torch.Tensor:
    """Give each image the texture and the colours of another one of the batch; outlines stay."""
    # The amplitudes of the spectrum, which carry texture and colour, move from a third of the way to all of it to the
    # other's; the phases, which carry where things are, stay. Mean and spread of every channel are the other's.
    partner = torch.roll(images, 1, 0)
    own, other = torch.fft.rfft2(images.float()), torch.fft.rfft2(partner.float())
    share = torch.rand((len(images), 1, 1, 1), device=images.device) * 2 / 3 + 1 / 3
    mixed: torch.Tensor = torch.fft.irfft2(
        torch.polar(torch.lerp(own.abs(), other.abs(), share), own.angle()), s=images.shape[-2:]
    )
    mean, spread = mixed.mean((2, 3), keepdim=True), mixed.std((2, 3), keepdim=True).clamp(min=1e-4)
    wanted, wide = partner.mean((2, 3), keepdim=True), partner.std((2, 3), keepdim=True)
    return ((mixed - mean) / spread * wide + wanted).clamp(0, 1)


def mixed_chains(images: torch.Tensor, *, chains: int = 3, longest: int = 3) -> torch.Tensor:
    """Return AugMix's mixture of the image and of chains of one to ``longest`` random operations, randomly weighted."""
    count, device = len(images), images.device
    weights = torch.empty((chains, count, 1, 1, 1), device=device).exponential_()
    weights = weights / weights.sum(0)
    mixture = torch.zeros_like(images)
    for weight in weights:
        chain = images
        length = torch.randint(1, longest + 1, (count, 1, 1, 1), device=device)
        for place in range(longest):
            chain = torch.where(length > place, _one_operation(chain), chain)
        mixture = mixture + weight * chain
    kept = torch.rand((count, 1, 1, 1), device=device)
    return kept * images + (1 - kept) * mixture


def _one_operation(images: torch.Tensor) -> torch.Tensor:
    """Apply a random operation per image: a warp, stretched contrast, fewer levels, or inverted bright parts."""
    count, device = len(images), images.device
    strength = torch.rand((count, 1, 1, 1), device=device) * 0.9 + 0.1
    lowest, highest = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    levels = torch.exp2(8 - torch.round(4 * strength)) - 1
    changed = torch.stack(
        [
            move(images, _warp_grid(images, strength[:, 0, 0, 0])),
            (images - lowest) / (highest - lowest).clamp(min=1e-3),
            torch.round(images * levels) / levels,
            torch.where(images > 1 - 0.8 * strength, 1 - images, images),
        ]
    )
    return changed[torch.randint(4, (count,), device=device), torch.arange(count, device=device)]


def _warp_grid(images: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    """Return a grid that rotates by up to 30 degrees, shears by up to 0.3 or shifts by up to a third, one per image."""
    count, device = len(images), images.device
    draws = (torch.rand((5, count), device=device) * 2 - 1) * strength
    only = torch.nn.functional.one_hot(torch.randint(5, (count,), device=device), 5).T * draws
    angle, shear_x, shear_y, shift_x, shift_y = only * torch.tensor(
        [math.pi / 6, 0.3, 0.3, 2 / 3, 2 / 3], device=device
    ).view(5, 1)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    theta = torch.stack([cosine, shear_x - sine, shift_x, shear_y + sine, cosine, shift_y], 1).view(-1, 2, 3)
    return torch.nn.functional.affine_grid(theta, list(images.shape), align_corners=False)


def through_perturbed_network(
    images: torch.Tensor, *, strongest: float = 0.5, copies: int = 4, layers: int = 3
) -> torch.Tensor:
    """Pass images through a network that copies them, with disturbed weights."""
    # Every kernel begins as a copy of its channel and gets Gaussian noise, every hidden channel a random gain that is
    # sometimes nothing or negative, and the units between the layers bend more or less, all up to ``strongest``. Some
    # images share one network.
    functional = torch.nn.functional
    count, _, height, width = images.shape
    groups, hidden, device = math.gcd(count, 16), 3 * copies, images.device
    state = (images - 0.5).reshape(count // groups, groups * 3, height, width)
    strength = torch.rand((groups, 1, 1, 1, 1), device=device) * strongest
    bend = torch.rand((1, groups, 1, 1, 1), device=device) * 2 * strongest
    spread = torch.eye(3, device=device).repeat(copies, 1)
    plain = [spread, *[torch.eye(hidden, device=device)] * (layers - 1), spread.T / copies]
    for place, matrix in enumerate(plain):
        kernel = torch.zeros((groups, *matrix.shape, 3, 3), device=device)
        kernel[..., 1, 1] = matrix
        kernel = (
            kernel
            + strength * torch.randn_like(kernel) * matrix.square().sum(1).mean().sqrt() / matrix.shape[1] ** 0.5 / 3
        )
        if place < layers:
            gain = 1 + 2 * strength * torch.randn((groups, hidden, 1, 1, 1), device=device)
            kernel = kernel * gain * (torch.rand_like(gain) > 0.2 * strength)
        state = functional.conv2d(
            functional.pad(state, (1, 1, 1, 1), mode="reflect"), kernel.flatten(0, 1), groups=groups
        )
        if place < layers:
            grouped = state.view(count // groups, groups, -1, height, width)
            state = (grouped + bend * (torch.tanh(2 * grouped) / 2 - grouped)).flatten(1, 2)
    return (state.reshape(count, 3, height, width) + 0.5).clamp(0, 1)
