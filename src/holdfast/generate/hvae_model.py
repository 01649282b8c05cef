"""A hierarchical VAE in the parametrisation, and with the weights' names, of VDVAE (Child, 2021).

This file imports torch; nothing imports it before a model is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch  # noqa: TID253 (see above: these are modules)
import torch.nn.functional as functional  # noqa: TID253
from torch import nn  # noqa: TID253


@dataclass(frozen=True, slots=True)
class HvaeConfig:
    """What VDVAE calls its hyper-parameters.

    Attributes:
        image_size: side of the images.
        width: channels everywhere.
        zdim: channels of each group of latents.
        enc_blocks: ``32x2,32d2,16x2,…``: at a resolution so many blocks; ``d2`` halves it.
        dec_blocks: ``1x1,4m1,4x2,…``: top-down; ``4m1`` begins resolution 4 with what 1 ended in.
        bottleneck_multiple: inner width of a block, of ``width``.
        no_bias_above: up to this resolution a learned constant begins the way down.
        num_mixtures: logistics that the answer mixes for each pixel.
        shift, scale: pixels of 0..255 enter as (pixel + shift) · scale.
    """

    image_size: int
    width: int
    zdim: int
    enc_blocks: str
    dec_blocks: str
    bottleneck_multiple: float = 0.25
    no_bias_above: int = 64
    num_mixtures: int = 10
    shift: float = -127.5
    scale: float = 1 / 127.5


def parse_blocks(text: str) -> list[tuple[int, str, int]]:
    """``32x2,32d2,4m1`` → (resolution, kind, number): a block each for ``x``."""
    blocks = []
    for part in text.split(","):
        kind = next((one for one in "xdm" if one in part), "x")
        resolution, _, number = part.partition(kind)
        count = int(number or 1)
        if not 0 < int(resolution) <= 4096 or not 0 < count <= 4096:
            raise ValueError(f"{part!r} is no block")
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


class Encoder(nn.Module):
    """Bottom-up: the last activations at every resolution."""

    def __init__(self, config: HvaeConfig) -> None:
        super().__init__()
        width, inner = config.width, int(config.width * config.bottleneck_multiple)
        self.in_conv = nn.Conv2d(3, width, 3, padding=1)
        self.enc_blocks = nn.ModuleList(
            Block(width, inner, width, resolution=at, residual=True, shrink=number if kind == "d" else 1)
            for at, kind, number in parse_blocks(config.enc_blocks)
        )

    def forward(self, image: torch.Tensor) -> dict[int, torch.Tensor]:
        """By resolution."""
        hidden = self.in_conv(image)
        seen = {hidden.shape[-1]: hidden}
        for block in self.enc_blocks:
            hidden = block(hidden)
            seen[hidden.shape[-1]] = hidden
        return seen


class DecBlock(nn.Module):
    """One group of latents: its prior, its posterior, and what they do to the way down."""

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
        """What the way down brings to this block; ``like`` gives number of images and type."""
        shape = (len(like), self.resnet.c1.in_channels, self.base, self.base)
        hidden = states[self.base].expand(shape) if self.base in states else like.new_zeros(shape)
        if self.mixin:
            hidden = hidden + functional.interpolate(states[self.mixin], scale_factor=self.base // self.mixin)
        return hidden

    def believe(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The prior's mean and log spread, and what it adds to the way down."""
        mean, spread, more = self.prior(hidden).split([self.zdim, self.zdim, hidden.shape[1]], dim=1)
        return mean, spread, more

    def end(self, hidden: torch.Tensor, more: torch.Tensor, latent: torch.Tensor) -> torch.Tensor:
        """The way down after this block."""
        answer: torch.Tensor = self.resnet(hidden + more + self.z_proj(latent))
        return answer


class MixtureNet(nn.Module):
    """What a mixture of discretised logistics would say of each pixel; we ask for its mean."""

    def __init__(self, config: HvaeConfig) -> None:
        super().__init__()
        self.mixtures = config.num_mixtures
        self.out_conv = nn.Conv2d(config.width, 10 * config.num_mixtures, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """RGB NCHW, about -1..1."""
        answer = self.out_conv(hidden)
        weights = answer[:, : self.mixtures].softmax(1)
        rest = answer[:, self.mixtures :].unflatten(1, (3, 3 * self.mixtures))
        means, pulls = rest[:, :, : self.mixtures], torch.tanh(rest[:, :, 2 * self.mixtures :])
        mean, pull = (weights[:, None] * means).sum(2), (weights[:, None] * pulls).sum(2)
        red = mean[:, 0].clamp(-1, 1)  # green leans on red, blue on both
        green = (mean[:, 1] + pull[:, 0] * red).clamp(-1, 1)
        blue = (mean[:, 2] + pull[:, 1] * red + pull[:, 2] * green).clamp(-1, 1)
        return torch.stack([red, green, blue], 1)


class Decoder(nn.Module):
    """Top-down."""

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
        """The constants that begin the way down, by resolution."""
        return {one.shape[-1]: one for one in self.bias_xs}

    def finish(self, states: dict[int, torch.Tensor]) -> torch.Tensor:
        """RGB NCHW, about -1..1."""
        image: torch.Tensor = self.out_net(states[self._side] * self.gain + self.bias)
        return image


class Hvae(nn.Module):
    """Encoder and decoder. Images are RGB NCHW in 0..1; latents a list, top group first."""

    def __init__(self, config: HvaeConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def infer(
        self, image: torch.Tensor, *, sample: bool = False
    ) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        """Latents, the image they make, and the divergence from the prior, nats an image.

        Args:
            image: RGB NCHW in 0..1.
            sample: draw from the posteriors, as training does; else take their means.
        """
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
        """The image, RGB NCHW in 0..1, of a latent a group."""
        states = self.decoder.states()
        for block, latent in zip(self._blocks(), latents, strict=True):
            hidden = block.begin(states, latent)
            states[block.base] = block.end(hidden, block.believe(hidden)[2], latent)
        return self.decoder.finish(states) / 2 + 0.5

    def shapes(self) -> list[tuple[int, int, int]]:
        """Of the latent of each group."""
        return [(block.zdim, block.base, block.base) for block in self._blocks()]

    def _blocks(self) -> Any:
        return self.decoder.dec_blocks
