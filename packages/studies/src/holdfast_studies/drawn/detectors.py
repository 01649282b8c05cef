"""Train the small detectors of drawn scenes: those that Holdfast carries, and those of the study of detectors."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import torch
from holdfast.diorama import CLASSES, Split
from holdfast.diorama.render import render_several
from holdfast.diorama.scene import draw_several
from holdfast.diorama.source import SceneObjects
from holdfast.models.detectors.heat_map import STRIDE, build
from holdfast_studies.drawn.classifiers import drawn_once

CHANNELS = (24, 40, 80, 128, 160)
SIDE, MOST, CHUNK = 128, 5, 250
IGNORED = -1  # label of objects that are neither right nor wrong: crowds and those that are almost hidden


@dataclass(frozen=True)
class DetectorAmount:
    """How much is drawn and trained."""

    train: int = 40_000
    test: int = 2_000
    epochs: int = 40
    batch: int = 128
    rate: float = 2e-3


def draw(task: tuple[Split, float, int, int]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return images (n, side, side, 3) and objects (n, MOST, 5): x1, y1, x2, y2, label; -2 if there is none."""
    split, rho, start, stop = task
    images = np.empty((stop - start, SIDE, SIDE, 3), np.uint8)
    objects = np.full((stop - start, MOST, 5), -2, np.float32)
    for row, index in enumerate(range(start, stop)):
        seed = index if split != "train" else 20_000_000 + index
        scene = draw_several(seed, split=split, context=rho, count=1 + index % MOST)
        images[row] = render_several(scene, SIDE).image
        for place, each in enumerate(SceneObjects(scene, SIDE).load(SIDE, SIDE)):
            label = IGNORED if each.crowd or each.problem else CLASSES.index(each.label)
            objects[row, place] = (*each.box, label)
    return images, objects


def scenes(split: Split, rho: float, count: int, work: Path) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return drawn scenes, from the folder where they are there already."""
    tasks = [(split, rho, start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    images, objects = drawn_once(work / f"{split}-{rho}-{count}", ("images", "objects"), draw, tasks)
    return images, objects


def varied(images: torch.Tensor, objects: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch NCHW in 0..1 and its objects, mirrored, zoomed, shifted, relit and with noise at random."""
    from torch.nn import functional

    count = len(images)
    batch = images.permute(0, 3, 1, 2).float() / 255
    objects = objects.clone()
    present = objects[..., 4:] > -2
    mirrored = torch.rand(count, device=batch.device) < 0.5
    batch = torch.where(mirrored[:, None, None, None], batch.flip(3), batch)
    turned = torch.stack([SIDE - objects[..., 2], SIDE - objects[..., 0]], 2)
    objects[..., 0::2][..., :2] = torch.where(mirrored[:, None, None], turned, objects[..., [0, 2]])
    zoom = torch.exp(torch.empty(count, device=batch.device).uniform_(-0.3, 0.2))
    shift = torch.empty(count, 2, device=batch.device).uniform_(-0.12, 0.12)
    turn = torch.zeros(count, 2, 3, device=batch.device)
    turn[:, 0, 0] = turn[:, 1, 1] = 1 / zoom
    turn[:, :, 2] = -shift / zoom[:, None]
    grid = functional.affine_grid(turn, list(batch.shape), align_corners=False)
    batch = functional.grid_sample(batch, grid, padding_mode="reflection", align_corners=False)
    middle = SIDE / 2
    moved = (objects[..., :4] - middle) * zoom[:, None, None] + middle + (shift * middle).repeat(1, 2)[:, None]
    whole = (moved[..., 2:] - moved[..., :2]).prod(2)
    moved = moved.clamp(0, SIDE)
    seen = (moved[..., 2:] - moved[..., :2]).prod(2) / whole.clamp(min=1)
    label = torch.where((seen < 0.5) & present[..., 0] & (seen > 0), torch.full_like(seen, IGNORED), objects[..., 4])
    label = torch.where(seen <= 0, torch.full_like(seen, -2), label)
    objects = torch.cat([moved, label[..., None]], 2)
    light = torch.empty(count, 3, 1, 1, device=batch.device).uniform_(0.85, 1.15)
    light = light * torch.empty(count, 1, 1, 1, device=batch.device).uniform_(0.75, 1.25)
    noise = torch.randn_like(batch) * torch.rand(count, 1, 1, 1, device=batch.device) * 0.04
    return (batch * light + noise).clamp(0, 1), objects


def targets(objects: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return heat (n, classes, h, w), its weight (n, 1, h, w), boxes (n, h, w, 4) in cells, and where they count."""
    count, cells, device = len(objects), SIDE // STRIDE, objects.device
    heat = torch.zeros(count, len(CLASSES), cells, cells, device=device)
    weight = torch.ones(count, 1, cells, cells, device=device)
    boxes = torch.zeros(count, cells, cells, 4, device=device)
    counts = torch.zeros(count, cells, cells, device=device)
    y, x = torch.meshgrid(*(torch.arange(cells, device=device) + 0.5,) * 2, indexing="ij")
    rows = torch.arange(count, device=device)
    for place in range(objects.shape[1]):
        box, label = objects[:, place, :4] / STRIDE, objects[:, place, 4]
        middle, sides = (box[:, :2] + box[:, 2:]) / 2, (box[:, 2:] - box[:, :2]).clamp(min=0.25)
        inside = (
            (x >= box[:, 0, None, None]) & (x <= box[:, 2, None, None])
            & (y >= box[:, 1, None, None]) & (y <= box[:, 3, None, None])
        )  # fmt: skip
        weight[:, 0][inside & (label == IGNORED)[:, None, None]] = 0
        width = (sides / 6).clamp(min=0.45)[:, :, None, None]
        cell = middle.long().clamp(0, cells - 1)
        apart_x = (x - 0.5 - cell[:, 0, None, None]) / width[:, 0]
        apart_y = (y - 0.5 - cell[:, 1, None, None]) / width[:, 1]
        bump = torch.exp(-(apart_x**2 + apart_y**2) / 2)
        is_object = label >= 0
        known = rows[is_object], label[is_object].long()
        heat[known] = torch.maximum(heat[known], bump[is_object])
        near = (bump > 0.5) & is_object[:, None, None]
        boxes[near] = box[:, None, None].expand(-1, cells, cells, -1)[near]
        counts = torch.where(near, bump, counts)
    weight = torch.where(heat.amax(1, keepdim=True) == 1, torch.ones_like(weight), weight)
    return heat, weight, boxes, counts


def loss_of(scores: torch.Tensor, objects: torch.Tensor) -> torch.Tensor:
    """Return the penalty-reduced focal loss of the heat, and one minus generalised IoU of the boxes near centres."""
    from torchvision.ops import generalized_box_iou_loss

    heat, weight, boxes, counts = targets(objects)
    classes = len(CLASSES)
    logits, edges = scores[:, :classes].float(), scores[:, classes:].float().clamp(-4, 5).exp()
    chance = logits.sigmoid().clamp(1e-4, 1 - 1e-4)
    right = heat == 1
    focal = torch.where(right, -((1 - chance) ** 2) * chance.log(), -((1 - heat) ** 4) * chance**2 * (1 - chance).log())
    number = right.sum().clamp(min=1)
    cells = edges.shape[2]
    y, x = torch.meshgrid(*(torch.arange(cells, device=edges.device) + 0.5,) * 2, indexing="ij")
    own = torch.stack([x - edges[:, 0], y - edges[:, 1], x + edges[:, 2], y + edges[:, 3]], 3)
    near = counts > 0
    apart: torch.Tensor = generalized_box_iou_loss(own[near], boxes[near])
    return (focal * weight).sum() / number + 2 * (apart * counts[near]).sum() / counts[near].sum().clamp(min=1)


def train(
    rho: float, amount: DetectorAmount, work: Path, device: str, *, seed: int = 0, say: Callable[[str], None] = print
) -> tuple[torch.nn.Module, float]:
    """Return a trained network and the seconds that it took."""
    pictures, truths = scenes("train", rho, amount.train, work)
    images, objects = torch.from_numpy(pictures).to(device), torch.from_numpy(truths).to(device)
    torch.manual_seed(seed)
    model = build(CHANNELS, len(CLASSES)).to(device).to(memory_format=torch.channels_last)
    steps = amount.epochs * (amount.train // amount.batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=amount.rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, amount.rate, total_steps=steps, pct_start=0.15)
    average, keep = deepcopy(model).requires_grad_(False), 0.998 if steps > 2_000 else 0.9
    began, done = time.monotonic(), 0
    for epoch in range(amount.epochs):
        model.train()
        total = torch.zeros((), device=device)
        order = torch.randperm(len(images), device=device)
        for start in range(0, len(order) - amount.batch + 1, amount.batch):
            index = order[start : start + amount.batch]
            batch, truth = varied(images[index], objects[index])
            with torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=device.startswith("cuda")):
                scores = model(batch.contiguous(memory_format=torch.channels_last))
            loss = loss_of(scores, truth)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
            schedule.step()
            done += 1
            weight = max(1 - keep, 1 / (done + 1))
            for mean, now in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
                mean.lerp_(now, weight) if mean.is_floating_point() else mean.copy_(now)
            total += loss.detach()
        say(f"rho {rho} epoch {epoch + 1}/{amount.epochs}: loss {total.item() / (len(order) // amount.batch):.3f}, "
              f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return average.eval(), time.monotonic() - began
