"""The UNet of ADM and Improved DDPM, read from the state dict that their authors publish (guided-diffusion's names).

The file holds tensors only; which blocks there are, and how wide, follows from their names and shapes. What does not
follow (heads of attention, number of timesteps) is an option of ``ddim:FILE.pt``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from holdfast.core.errors import UserError, first_line
from holdfast.generators.loading import read_tensors

HEAD_CHANNELS = 64  # channels of a head in the published ADMs
HEADS = 4  # heads in the published Improved DDPMs
TIMESTEPS = 1000
_GROUPS = 32


def read(file: Path, *, heads: int = 0, timesteps: int = TIMESTEPS, size: int = 0) -> GuidedUnet:
    """Return the network of a ``.pt`` or ``.safetensors`` file; nothing but tensors is unpickled.

    ``heads`` of attention, 0: 64 channels a head if blocks of residuals change the resolution (ADM), else 4 heads.
    ``timesteps`` are those of training; the network counts them from 0 to 1000. A ``size`` of 0 leaves the side of its
    images open.
    """
    state = {key.replace("label_emb.", "class_embedding."): value for key, value in read_tensors(file).items()}
    try:
        with torch.device("meta"):
            shapes = {key: tuple(value.shape) for key, value in state.items()}
            module = GuidedUnet(shapes, heads=heads, timesteps=timesteps, size=size)
        module.load_state_dict(state, assign=True)
    except (KeyError, ValueError, RuntimeError, IndexError) as error:
        raise UserError(
            f"{file.name} is not a UNet in guided-diffusion's format (ADM, Improved DDPM): {first_line(error)}"
        ) from error
    return module


class GuidedUnet(nn.Module):
    """The UNet of guided-diffusion; called as diffusers' UNet2DModel is."""

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], *, heads: int = 0, timesteps: int = TIMESTEPS, size: int = 0
    ) -> None:
        super().__init__()
        width, channels = shapes["input_blocks.0.0.weight"][:2]
        count = 1 + max(int(re.match(r"input_blocks\.(\d+)\.", key)[1]) for key in shapes if key.startswith("input_"))  # type: ignore[index]
        ups = sorted(
            int(key.split(".")[1]) for key in shapes
            if re.fullmatch(r"output_blocks\.\d+\.[12]\.(conv\.weight|in_layers\.0\.weight)", key)
        )  # fmt: skip
        per_level = ups[0] + 1 if ups else count
        residual = not any(key.endswith(".op.weight") for key in shapes) and bool(ups)
        self._residual_updown, self._heads, self._scale = residual, heads, 1000 / timesteps
        self.identity = f"guided-diffusion, {heads} heads, {timesteps} timesteps"
        time = shapes["time_embed.0.weight"][0]
        self.time_embed = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.class_embedding = (
            nn.Embedding(shapes["class_embedding.weight"][0], time) if "class_embedding.weight" in shapes else None
        )
        self.input_blocks = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(channels, width, 3, padding=1))]
            + [self._block(shapes, f"input_blocks.{place}", down=not place % per_level) for place in range(1, count)]
        )
        self.middle_block = self._block(shapes, "middle_block")
        self.output_blocks = nn.ModuleList(
            self._block(shapes, f"output_blocks.{place}", up=place in ups) for place in range(count)
        )
        outputs, inner = shapes["out.2.weight"][:2]
        self.out = nn.Sequential(nn.GroupNorm(_GROUPS, inner), nn.SiLU(), nn.Conv2d(inner, outputs, 3, padding=1))
        self.config = SimpleNamespace(
            in_channels=channels, out_channels=outputs, block_out_channels=(width,) * (count // per_level),
            sample_size=size or None, class_embed_type=None,
        )  # fmt: skip
        self._width = width

    def _block(
        self, shapes: Mapping[str, tuple[int, ...]], name: str, *, down: bool = False, up: bool = False
    ) -> nn.ModuleList:
        places = sorted({int(key[len(name) + 1 :].split(".")[0]) for key in shapes if key.startswith(f"{name}.")})
        parts: list[nn.Module] = []
        for place in places:
            prefix = f"{name}.{place}"
            if f"{prefix}.op.weight" in shapes:
                parts.append(_Resampled(shapes[f"{prefix}.op.weight"][0], "op", stride=2))
            elif f"{prefix}.conv.weight" in shapes:
                parts.append(_Resampled(shapes[f"{prefix}.conv.weight"][0], "conv", stride=1))
            elif f"{prefix}.qkv.weight" in shapes:
                width = shapes[f"{prefix}.qkv.weight"][1]
                chosen = self._heads or (width // HEAD_CHANNELS if self._residual_updown else HEADS)
                parts.append(_Attention(width, max(1, chosen)))
            else:
                last = place == places[-1]
                change = "down" if down and self._residual_updown else "up" if up and last and place else ""
                parts.append(_Residual(shapes, prefix, change))
        return nn.ModuleList(parts)

    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, class_labels: torch.Tensor | None = None
    ) -> SimpleNamespace:
        """Return the answer as ``sample``."""
        half = self._width // 2
        rates = torch.exp(-math.log(10000) * torch.arange(half, device=sample.device) / half)
        angles = timestep.float()[:, None] * self._scale * rates[None]
        embedding = torch.cat([angles.cos(), angles.sin()], 1)
        embedding = self.time_embed(functional.pad(embedding, (0, self._width % 2)))
        if class_labels is not None and self.class_embedding is not None:
            embedding = embedding + self.class_embedding(class_labels)
        kept, hidden = [], sample
        for block in self.input_blocks:
            hidden = _run(block, hidden, embedding)
            kept.append(hidden)
        hidden = _run(self.middle_block, hidden, embedding)
        for block in self.output_blocks:
            hidden = _run(block, torch.cat([hidden, kept.pop()], 1), embedding)
        return SimpleNamespace(sample=self.out(hidden))


def _run(block: Any, hidden: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
    for part in block:
        hidden = part(hidden, embedding) if isinstance(part, _Residual) else part(hidden)
    return hidden


class _Resampled(nn.Module):
    """A convolution of stride 2 (``op``), or nearest neighbours twice as large and a convolution (``conv``)."""

    def __init__(self, width: int, name: str, *, stride: int) -> None:
        super().__init__()
        self._name = name
        self.add_module(name, nn.Conv2d(width, width, 3, stride=stride, padding=1))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self._name == "conv":
            hidden = functional.interpolate(hidden, scale_factor=2, mode="nearest")
        resampled: torch.Tensor = getattr(self, self._name)(hidden)
        return resampled


class _Residual(nn.Module):
    """A block of two convolutions that takes the time's embedding, and may halve or double the resolution."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], prefix: str, change: str) -> None:
        super().__init__()
        outside, inside = shapes[f"{prefix}.in_layers.2.weight"][:2]
        embedded, time = shapes[f"{prefix}.emb_layers.1.weight"]
        self._scales, self._change = embedded == 2 * outside, change
        self.in_layers = nn.Sequential(
            nn.GroupNorm(_GROUPS, inside), nn.SiLU(), nn.Conv2d(inside, outside, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(time, embedded))
        self.out_layers = nn.Sequential(
            nn.GroupNorm(_GROUPS, outside), nn.SiLU(), nn.Identity(), nn.Conv2d(outside, outside, 3, padding=1)
        )
        skip = shapes.get(f"{prefix}.skip_connection.weight")
        side = skip[-1] if skip else 1
        self.skip_connection = nn.Conv2d(inside, outside, side, padding=side // 2) if skip else nn.Identity()

    def forward(self, hidden: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        inner = self.in_layers[1](self.in_layers[0](hidden))
        if self._change:
            inner, hidden = self._resampled(inner), self._resampled(hidden)
        inner = self.in_layers[2](inner)
        extra = self.emb_layers(embedding)[:, :, None, None]
        if self._scales:
            scale, shift = extra.chunk(2, 1)
            inner = self.out_layers[0](inner) * (1 + scale) + shift
            for layer in self.out_layers[1:]:
                inner = layer(inner)
        else:
            inner = self.out_layers(inner + extra)
        whole: torch.Tensor = self.skip_connection(hidden) + inner
        return whole

    def _resampled(self, hidden: torch.Tensor) -> torch.Tensor:
        if self._change == "down":
            return functional.avg_pool2d(hidden, 2)
        return functional.interpolate(hidden, scale_factor=2, mode="nearest")


class _Attention(nn.Module):
    """Attention between all places; queries, keys and values of each head are side by side."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"{width} channels cannot be divided among {heads} heads; say heads=")
        self._heads = heads
        self.norm = nn.GroupNorm(_GROUPS, width)
        self.qkv, self.proj_out = nn.Conv1d(width, 3 * width, 1), nn.Conv1d(width, width, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        count, width, height, breadth = hidden.shape
        flat = hidden.reshape(count, width, -1)
        together = self.qkv(self.norm(flat)).reshape(count * self._heads, 3 * width // self._heads, -1)
        query, key, value = (part.transpose(1, 2) for part in together.chunk(3, 1))
        seen = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        whole: torch.Tensor = flat + self.proj_out(seen.reshape(count, width, -1))
        return whole.reshape(count, width, height, breadth)
