"""A small detector that marks the centres of objects on a map, and the two of them that Holdfast carries.

``embedded:boxes_rho0`` and ``embedded:boxes_rho95`` were trained on drawn scenes of several objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name, checked
from holdfast.core.networks import resolve_device, weights_sha256
from holdfast.core.types import Image, LabelSpace
from holdfast.models import checkpoint, local_dir
from holdfast.models.detectors.batched import (
    Answer,
    BatchedDetector,
    PlacedImage,
    letterboxed,
    letterboxed_tensors,
    without_doubles,
)
from holdfast.models.options import display_name
from holdfast.models.torch_classifier import exact

STRIDE = 4
"""Pixels of the input per cell of the map."""

PEAKS = 100
"""Centres that are read from a map."""


def build(channels: Sequence[int], classes: int) -> torch.nn.Module:
    """Return an untrained network: images NCHW in 0..1 to a map (n, classes + 4, h/4, w/4).

    The first planes are logits of "the centre of such an object is here", the last four the logarithms of the
    distances, in cells, from the cell's middle to the left, upper, right and lower edge of its box. ``channels`` are
    those at strides 2, 4, 8, 16 and 32; features of the coarse levels are added to the finer ones, so that every cell
    sees the whole image.
    """
    from torch import nn

    def block(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)
        )

    class Residual(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first = block(width, width)
            self.second = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return torch.relu(features + self.second(self.first(features)))

    class HeatMapNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = list(channels)
            self.stem = block(3, widths[0], 2)
            self.stages = nn.ModuleList(
                nn.Sequential(block(low, high, 2), Residual(high), Residual(high)) for low, high in pairwise(widths)
            )
            self.sides = nn.ModuleList(nn.Conv2d(width, widths[1], 1) for width in widths[1:])
            self.joined = nn.ModuleList(block(widths[1], widths[1]) for _ in widths[2:])
            self.head = nn.Sequential(block(widths[1], 64), block(64, 64))
            self.centres, self.edges = nn.Conv2d(64, classes, 1), nn.Conv2d(64, 4, 1)
            nn.init.constant_(self.centres.bias, -4.6)  # type: ignore[arg-type]  # a centre is rare
            nn.init.constant_(self.edges.bias, 1.0)  # type: ignore[arg-type]

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            features = self.stem((batch - 0.5) / 0.25)
            levels = []
            for stage in self.stages:
                features = stage(features)
                levels.append(features)
            merged = self.sides[-1](levels[-1])
            for place in range(len(levels) - 2, -1, -1):
                larger = nn.functional.interpolate(merged, scale_factor=2.0, mode="nearest")
                merged = self.joined[place](self.sides[place](levels[place]) + larger)
            merged = self.head(merged)
            return torch.cat([self.centres(merged), self.edges(merged)], 1)

    return HeatMapNetwork()


def read_map(scores: torch.Tensor, classes: int) -> list[Answer]:
    """Return the boxes of maps (n, classes + 4, h, w), in pixels of the input: peaks among their neighbours."""
    heat, edges = scores[:, :classes].sigmoid(), scores[:, classes:].clamp(-4, 5).exp()
    peaks = heat * (torch.nn.functional.max_pool2d(heat, 3, 1, 1) == heat)
    across = heat.shape[3]
    best, places = peaks.flatten(1).topk(min(PEAKS, peaks[0].numel()))
    cells = places % (heat.shape[2] * across)
    labels = places // (heat.shape[2] * across)
    x, y = (cells % across).float() + 0.5, (cells // across).float() + 0.5
    sides = edges.flatten(2).gather(2, cells[:, None].expand(-1, 4, -1))
    boxes = torch.stack([x - sides[:, 0], y - sides[:, 1], x + sides[:, 2], y + sides[:, 3]], 2) * STRIDE
    answers = zip(boxes.cpu().numpy(), best.cpu().numpy(), labels.cpu().numpy(), strict=True)
    return [without_doubles(answer, overlap=0.5) for answer in answers]


class HeatMapDetector(BatchedDetector):
    """A ``Detector`` around such a network; images are fitted into a square on grey."""

    takes_tensors = True

    def __init__(self, name: str, module: torch.nn.Module, labels: LabelSpace, side: int, device: str) -> None:
        self.name, self.labels, self._side = name, labels, side
        self.device, self.batch_size = resolve_device(device), 32
        self.fingerprint = fingerprint({"weights": weights_sha256(module), "side": side, "labels": labels})
        self._module = module.float().eval().requires_grad_(False).to(self.device)

    def prepare(self, image: Image) -> tuple[Any, PlacedImage]:
        """Return the image in its square, HWC uint8."""
        return letterboxed(image, (self._side, self._side), centred=True)

    def ask(self, batch: list[Any]) -> list[Answer]:
        """Return the boxes of a batch."""
        with torch.inference_mode(), exact():
            tensor = torch.from_numpy(np.stack(batch)).to(self.device).permute(0, 3, 1, 2).float() / 255
            return read_map(self._module(tensor), len(self.labels))

    def ask_tensors(self, pictures: Any) -> tuple[list[Answer], PlacedImage]:
        """Return the boxes of images NCHW uint8, and where they are in their squares."""
        placed, frame = letterboxed_tensors(pictures, (self._side, self._side), centred=True)
        return read_map(self._module(placed.float() / 255).float(), len(self.labels)), frame


def load_embedded(name: Name, *, device: str) -> HeatMapDetector:
    """Load a detector of ``assets/detectors``; takes no options."""
    return _assembled(display_name(name, name.name), *local_dir.read_asset("detectors", name), device)


def load(name: Name, *, device: str) -> HeatMapDetector:
    """Load ``local-dir:FOLDER?task=detect``: a folder as ``study detectors`` and recipes/detectors.py write it."""
    options = checked(name, {"task": str, "name": str})
    folder = Path(name.name)
    try:
        config = dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        facts = config.pop("holdfast")
        weights = checkpoint.read_state(folder / "model.safetensors")[0]
        return _assembled(str(options.get("name") or name.name), config, facts, weights, device)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} is not a folder of a small detector: {type(error).__name__}: {error}") from None


def _assembled(
    shown: str, config: Mapping[str, Any], facts: Mapping[str, Any], weights: Mapping[str, Any], device: str
) -> HeatMapDetector:
    labels = LabelSpace(tuple(facts["label_names"]), tuple(facts["wnids"]))
    module = build(config["channels"], len(labels))
    checkpoint.fill(module, dict(weights), "heat_map", shown)
    return HeatMapDetector(shown, module, labels, int(facts["input_size"][0]), device)
