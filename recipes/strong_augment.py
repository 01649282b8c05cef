"""Augmentation that hides the background: recolouring, erasing and cutmix of whole batches, float NCHW, RGB, 0..1."""

from __future__ import annotations

import functools
import math

import torch


def recolour(images: torch.Tensor, *, share: float = 0.8) -> torch.Tensor:
    """Change hue and saturation at random in a share of the images; some become grey, some negative."""
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
    """Return orthonormal rows: the grey axis, and two colour differences, which turn about it."""
    root = math.sqrt(0.75)
    rows = torch.tensor([[1, 1, 1], [1, -0.5, -0.5], [0, root, -root]], device=device)
    moved: torch.Tensor = rows / rows.norm(dim=1, keepdim=True)
    return moved


def boxes(images: torch.Tensor, area: torch.Tensor) -> torch.Tensor:
    """Return random boxes, true inside, N1HW, that cover about ``area`` (a share per image) where they fit."""
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
    """Put noise over a random box in a share of the images."""
    area = torch.rand(len(images), device=images.device) * largest
    chosen = torch.rand((len(images), 1, 1, 1), device=images.device) < share
    return torch.where(boxes(images, area) & chosen, torch.rand_like(images), images)


def cutmix(images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Replace a box of every image by that of another one, and mix the targets, (n, classes), by pixels."""
    area = torch.rand(len(images), device=images.device) * 0.5
    box = boxes(images, area)
    partner = torch.randperm(len(images), device=images.device)
    given = box.float().mean(dim=(1, 2, 3))[:, None]
    return torch.where(box, images[partner], images), targets * (1 - given) + targets[partner] * given
