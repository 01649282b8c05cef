"""``hvae:FOLDER``: a hierarchical VAE in the parametrisation of VDVAE, from ``config.json`` and ``model.safetensors``.

The weights have VDVAE's own names, so that a checkpoint of it, saved as safetensors, is used as it is; ``config.json``
holds its hyper-parameters under their own names (see ``HvaeConfig``).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name, checked
from holdfast.core.networks import resolve_device, weights_sha256
from holdfast.core.weights import read_weights
from holdfast.generators.loading import check_batch, place, shown

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_LARGEST_CONFIG = 1_000_000


def load(name: Name, *, device: str) -> HierarchicalVae:
    """Load the model of a folder."""
    checked(name, {})
    where, _, local = place(name)
    if not local or not Path(where).is_dir():
        raise UserError(f"hvae: reads a folder with {CONFIG} and {WEIGHTS}, and {where!r} is none")
    return HierarchicalVae(shown(name), read(Path(where)), device=device)


class HierarchicalVae:
    """A ``LatentGenerator``: the latent is the means of all groups of posteriors, top first, as one vector."""

    factor = 1

    def __init__(self, name: str, module: Hvae, *, device: str = "auto") -> None:
        self.name = name
        self.device = resolve_device(device)
        self.size = module.config.image_size
        config = dataclasses.asdict(module.config)
        self.fingerprint = fingerprint({"hvae": config, "weights": weights_sha256(module)})
        self.module = module.float().eval().requires_grad_(False).to(self.device)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the latent (n, numbers of all groups) of RGB NCHW in 0..1."""
        check_batch(batch, self.name, size=self.size)
        latents, _, _ = self.module.infer(batch.to(self.device))
        return torch.cat([latent.flatten(1) for latent in latents], 1)

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Return RGB NCHW in 0..1 of a latent."""
        shapes = self.module.shapes()
        parts = torch.split(latent.to(self.device), [math.prod(shape) for shape in shapes], 1)
        image = self.module.generate([part.view(-1, *shape) for part, shape in zip(parts, shapes, strict=True)])
        return image.clamp(0, 1)


def read(folder: Path) -> Hvae:
    """Read the model of a folder; a missing weight or one too many is a UserError."""
    for part in (CONFIG, WEIGHTS):
        if not (folder / part).is_file():
            raise UserError(f"hvae:{folder.name} lacks {part}")
    try:
        config = HvaeConfig(**_known(folder / CONFIG))
        with torch.device("meta"):  # a configuration costs no memory; the weights bring their own
            module = Hvae(config)
        state, _ = read_weights(folder / WEIGHTS)
        module.load_state_dict({key.removeprefix("module."): tensor for key, tensor in state.items()}, assign=True)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise UserError(f"hvae:{folder.name} cannot be built: {first_line(error)}") from error
    return module


def _known(file: Path) -> dict[str, Any]:
    if file.stat().st_size > _LARGEST_CONFIG:
        raise ValueError(f"{file.name} is too large")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{file.name} is nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"{file.name} should be a JSON object")
    return values


@dataclass(frozen=True, slots=True)
class HvaeConfig:
    """Hyper-parameters by the names of VDVAE; pixels of 0..255 enter as (pixel + shift) · scale."""

    image_size: int  # side of the images
    width: int  # channels everywhere
    zdim: int  # channels of each group of latents
    enc_blocks: str  # ``32x2,32d2,16x2,…``: at a resolution so many blocks; ``d2`` halves it
    dec_blocks: str  # ``1x1,4m1,4x2,…``: top-down; ``4m1`` begins resolution 4 with what 1 ended in
    bottleneck_multiple: float = 0.25  # inner width of a block, of ``width``
    no_bias_above: int = 64  # up to this resolution a learned constant begins the way down
    num_mixtures: int = 10  # logistics that the answer mixes for each pixel
    shift: float = -127.5
    scale: float = 1 / 127.5


def parse_blocks(text: str) -> list[tuple[int, str, int]]:
    """Read ``32x2,32d2,4m1`` as (resolution, kind, number); ``x`` repeats a block."""
    blocks = []
    for part in text.split(","):
        kind = next((letter for letter in "xdm" if letter in part), "x")
        resolution, _, number = part.partition(kind)
        count = int(number or 1)
        if not 0 < int(resolution) <= 4096 or not 0 < count <= 4096:
            raise ValueError(f"{part!r} is not a block")
        blocks += [(int(resolution), kind, 0)] * count if kind == "x" else [(int(resolution), kind, count)]
    return blocks


class Block(nn.Module):
    """Four convolutions with GELU before each; at a resolution of 1 or 2 all are 1 × 1."""

    def __init__(
        self, before: int, inner: int, after: int, *, resolution: int, residual: bool, shrink: int = 1
    ) -> None:
        super().__init__()
        kernel = 3 if resolution > 2 else 1
        self.c1 = nn.Conv2d(before, inner, 1)
        self.c2 = nn.Conv2d(inner, inner, kernel, padding=kernel // 2)
        self.c3 = nn.Conv2d(inner, inner, kernel, padding=kernel // 2)
        self.c4 = nn.Conv2d(inner, after, 1)
        self._residual, self._shrink = residual, shrink

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """NCHW → NCHW."""
        answer = hidden
        for layer in (self.c1, self.c2, self.c3, self.c4):
            answer = layer(functional.gelu(answer))
        answer = hidden + answer if self._residual else answer
        return functional.avg_pool2d(answer, self._shrink) if self._shrink > 1 else answer


class BottomUp(nn.Module):
    """The bottom-up network: returns the last activations at every resolution."""

    def __init__(self, config: HvaeConfig) -> None:
        super().__init__()
        width, inner = config.width, int(config.width * config.bottleneck_multiple)
        self.in_conv = nn.Conv2d(3, width, 3, padding=1)
        self.enc_blocks = nn.ModuleList(
            Block(width, inner, width, resolution=at, residual=True, shrink=number if kind == "d" else 1)
            for at, kind, number in parse_blocks(config.enc_blocks)
        )

    def forward(self, image: torch.Tensor) -> dict[int, torch.Tensor]:
        """Return the activations by resolution."""
        hidden = self.in_conv(image)
        seen = {hidden.shape[-1]: hidden}
        for block in self.enc_blocks:
            hidden = block(hidden)
            seen[hidden.shape[-1]] = hidden
        return seen


class DecBlock(nn.Module):
    """One group of latents: prior, posterior, and what they add to the top-down activations."""

    def __init__(self, config: HvaeConfig, resolution: int, mixin: int, blocks: int) -> None:
        super().__init__()
        width, inner, self.zdim = config.width, int(config.width * config.bottleneck_multiple), config.zdim
        self.base, self.mixin = resolution, mixin
        self.enc = Block(2 * width, inner, 2 * self.zdim, resolution=resolution, residual=False)
        self.prior = Block(width, inner, 2 * self.zdim + width, resolution=resolution, residual=False)
        self.z_proj = nn.Conv2d(self.zdim, width, 1)
        self.resnet = Block(width, inner, width, resolution=resolution, residual=True)
        with torch.no_grad():  # as VDVAE begins: the prior says nothing, many blocks add up to about one
            self.prior.c4.weight.zero_()
            self.z_proj.weight.mul_(blocks**-0.5)
            self.resnet.c4.weight.mul_(blocks**-0.5)

    def begin(self, states: dict[int, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """Return the top-down activations that reach this block; ``like`` gives number of images and type."""
        shape = (len(like), self.resnet.c1.in_channels, self.base, self.base)
        hidden = states[self.base].expand(shape) if self.base in states else like.new_zeros(shape)
        if self.mixin:
            hidden = hidden + functional.interpolate(states[self.mixin], scale_factor=self.base // self.mixin)
        return hidden

    def believe(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the prior's mean and log spread, and what it adds to the top-down activations."""
        mean, spread, more = self.prior(hidden).split([self.zdim, self.zdim, hidden.shape[1]], dim=1)
        return mean, spread, more

    def end(self, hidden: torch.Tensor, more: torch.Tensor, latent: torch.Tensor) -> torch.Tensor:
        """Return the top-down activations after this block."""
        answer: torch.Tensor = self.resnet(hidden + more + self.z_proj(latent))
        return answer


class MixtureNet(nn.Module):
    """The mixture of discretised logistics per pixel, of which the mean is used."""

    def __init__(self, config: HvaeConfig) -> None:
        super().__init__()
        self.mixtures = config.num_mixtures
        self.out_conv = nn.Conv2d(config.width, 10 * config.num_mixtures, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return RGB NCHW, about -1..1."""
        answer = self.out_conv(hidden)
        weights = answer[:, : self.mixtures].softmax(1)
        rest = answer[:, self.mixtures :].unflatten(1, (3, 3 * self.mixtures))
        means, pulls = rest[:, :, : self.mixtures], torch.tanh(rest[:, :, 2 * self.mixtures :])
        mean, pull = (weights[:, None] * means).sum(2), (weights[:, None] * pulls).sum(2)
        red = mean[:, 0].clamp(-1, 1)  # green is predicted from red, blue from both
        green = (mean[:, 1] + pull[:, 0] * red).clamp(-1, 1)
        blue = (mean[:, 2] + pull[:, 1] * red + pull[:, 2] * green).clamp(-1, 1)
        return torch.stack([red, green, blue], 1)


class TopDown(nn.Module):
    """The top-down network."""

    def __init__(self, config: HvaeConfig) -> None:
        super().__init__()
        parsed = parse_blocks(config.dec_blocks)
        self.dec_blocks = nn.ModuleList(
            DecBlock(config, at, number if kind == "m" else 0, len(parsed)) for at, kind, number in parsed
        )
        begun = sorted({at for at, _, _ in parsed if at <= config.no_bias_above})
        self.bias_xs = nn.ParameterList(nn.Parameter(torch.zeros(1, config.width, at, at)) for at in begun)
        self.out_net = MixtureNet(config)
        self.gain = nn.Parameter(torch.ones(1, config.width, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, config.width, 1, 1))
        self._side = config.image_size

    def states(self) -> dict[int, torch.Tensor]:
        """Return the constants that start the top-down activations, by resolution."""
        return {bias.shape[-1]: bias for bias in self.bias_xs}

    def finish(self, states: dict[int, torch.Tensor]) -> torch.Tensor:
        """Return RGB NCHW, about -1..1."""
        image: torch.Tensor = self.out_net(states[self._side] * self.gain + self.bias)
        return image


class Hvae(nn.Module):
    """Encoder and decoder. Images are RGB NCHW in 0..1; latents a list, top group first."""

    def __init__(self, config: HvaeConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = BottomUp(config)
        self.decoder = TopDown(config)

    def infer(
        self, image: torch.Tensor, *, sample: bool = False
    ) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        """Return latents of RGB NCHW in 0..1 (means, or drawn), the image they make, and divergence in nats."""
        seen = self.encoder((image * 255 + self.config.shift) * self.config.scale)
        states, latents = self.decoder.states(), []
        divergence = image.new_zeros(len(image))
        for block in self._blocks():
            hidden = block.begin(states, image)
            mean, spread = block.enc(torch.cat([hidden, seen[block.base]], 1)).chunk(2, 1)
            prior_mean, prior_spread, more = block.believe(hidden)
            latent = mean + spread.exp() * torch.randn_like(mean) if sample else mean
            apart = (mean - prior_mean).square() + (2 * spread).exp()
            nats = prior_spread - spread - 0.5 + 0.5 * apart * (-2 * prior_spread).exp()
            divergence = divergence + nats.sum((1, 2, 3))
            latents.append(latent)
            states[block.base] = block.end(hidden, more, latent)
        return latents, self.decoder.finish(states) / 2 + 0.5, divergence

    def generate(self, latents: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the image, RGB NCHW in 0..1, of one latent per group."""
        states = self.decoder.states()
        for block, latent in zip(self._blocks(), latents, strict=True):
            hidden = block.begin(states, latent)
            states[block.base] = block.end(hidden, block.believe(hidden)[2], latent)
        return self.decoder.finish(states) / 2 + 0.5

    def _blocks(self) -> Any:
        return self.decoder.dec_blocks

    def shapes(self) -> list[tuple[int, int, int]]:
        """Return the shape of the latent of each group."""
        return [(block.zdim, block.base, block.base) for block in self._blocks()]
