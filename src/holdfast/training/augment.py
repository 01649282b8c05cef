"""Augmentation of whole batches on whatever device they are on.

Batches are float NCHW, RGB, 0..1. Random numbers come from torch's global generator, which the loop seeds every epoch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Moves:
    """How far images are moved about: degrees, and shares of their size."""

    rotation: float = 8.0
    zoom: float = 0.1
    shift: float = 0.08
    flip: bool = True


def shuffled(count: int, batch: int, device: torch.device | str) -> Iterator[torch.Tensor]:
    """Indices of one epoch in random order, in batches of one size; what is left over at the end is left out."""
    import torch

    order = torch.randperm(count, device=device)
    for start in range(0, count - batch + 1, batch):
        yield order[start : start + batch]


def move_grid(images: torch.Tensor, moves: Moves) -> torch.Tensor:
    """One random rotation, zoom, shift and flip an image, as the sampling grid of ``move``."""
    import torch
    import torch.nn.functional

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
    """Sample along a grid, mirrored beyond the edges; ``nearest`` for class maps, which must not be mixed."""
    import torch.nn.functional

    mode = "nearest" if nearest else "bilinear"
    return torch.nn.functional.grid_sample(images, grid, mode=mode, padding_mode="reflection", align_corners=False)


def camera(images: torch.Tensor, *, strength: float = 0.1, noise: float = 0.02) -> torch.Tensor:
    """Random brightness, contrast and colour balance, each by up to ``strength``, and Gaussian noise."""
    import torch

    draws = torch.rand((5, len(images), 1, 1, 1), device=images.device) * 2 - 1
    gains = 1 + strength * draws[:3].squeeze(-1).permute(1, 0, 2, 3)
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = (images - mean) * (1 + 2 * strength * draws[3]) + mean * (1 + strength * draws[4])
    return (images * gains + noise * torch.randn_like(images)).clamp(0, 1)


def recolour(images: torch.Tensor, *, share: float = 0.8) -> torch.Tensor:
    """A random turn of hue and change of saturation in a share of the images; some become grey, some negative."""
    import torch

    count, device = len(images), images.device
    angle = (torch.rand(count, device=device) * 2 - 1) * math.pi
    saturation = torch.rand(count, device=device) * 1.6 * (torch.rand(count, device=device) > 0.2)
    cosine, sine = torch.cos(angle) * saturation, torch.sin(angle) * saturation
    to_differences = _grey_and_differences(device)
    turn = torch.zeros((count, 3, 3), device=device)
    turn[:, 0, 0] = 1
    turn[:, 1, 1], turn[:, 1, 2], turn[:, 2, 1], turn[:, 2, 2] = cosine, -sine, sine, cosine
    changed = torch.einsum("nij,njhw->nihw", to_differences.T @ turn @ to_differences, images)
    changed = torch.where(torch.rand((count, 1, 1, 1), device=device) < 0.15, 1 - changed, changed)
    chosen = torch.rand((count, 1, 1, 1), device=device) < share
    return torch.where(chosen, changed, images).clamp(0, 1)


@functools.cache  # a copy to the device in every step would make the host wait for it
def _grey_and_differences(device: torch.device) -> torch.Tensor:
    """Orthonormal rows: the grey axis, which keeps its length, and two colour differences, which turn about it."""
    import torch

    root = math.sqrt(0.75)
    rows = torch.tensor([[1, 1, 1], [1, -0.5, -0.5], [0, root, -root]], device=device)
    moved: torch.Tensor = rows / rows.norm(dim=1, keepdim=True)
    return moved


def boxes(images: torch.Tensor, area: torch.Tensor) -> torch.Tensor:
    """Random boxes, true inside, N1HW, that cover about ``area`` (one share an image) where they fit."""
    import torch

    height, width = images.shape[-2:]
    aspect = torch.exp2(torch.rand_like(area) * 2 - 1)
    half_height, half_width = (area * aspect).sqrt().clamp(0, 1) / 2, (area / aspect).sqrt().clamp(0, 1) / 2
    middle = torch.rand((2, len(area)), device=images.device)
    rows = (torch.arange(height, device=images.device) + 0.5) / height
    columns = (torch.arange(width, device=images.device) + 0.5) / width
    inside_rows = (rows[None] - middle[0, :, None]).abs() <= half_height[:, None]
    inside_columns = (columns[None] - middle[1, :, None]).abs() <= half_width[:, None]
    return (inside_rows[:, :, None] & inside_columns[:, None, :])[:, None]


def erase(images: torch.Tensor, *, share: float = 0.5, largest: float = 0.25) -> torch.Tensor:
    """Noise over a random box in a share of the images."""
    import torch

    area = torch.rand(len(images), device=images.device) * largest
    chosen = torch.rand((len(images), 1, 1, 1), device=images.device) < share
    return torch.where(boxes(images, area) & chosen, torch.rand_like(images), images)


def cutmix(images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A box of every image comes from another one; targets, (n, classes), are mixed by the pixels each gave."""
    import torch

    area = torch.rand(len(images), device=images.device) * 0.5
    box = boxes(images, area)
    partner = torch.randperm(len(images), device=images.device)
    given = box.float().mean(dim=(1, 2, 3))[:, None]
    return torch.where(box, images[partner], images), targets * (1 - given) + targets[partner] * given
