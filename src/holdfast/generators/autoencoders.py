"""Autoencoders of diffusers as latent generators, by name or folder.

``vqgan:NAME-OR-FOLDER[@REVISION]`` is a VQModel, images to a grid of codes and back; ``vqgan:FILE.ckpt`` reads the
original checkpoints of taming-transformers. ``kl:`` is an AutoencoderKL. ``tiny:`` is an AutoencoderTiny, or TAESD's
own files: a folder with ``encoder.pth`` and ``decoder.pth`` (or ``.safetensors``), state dicts whose keys are positions
in a chain of layers: TAESD and, with a short attention-like branch at the lowest resolution, TAEF2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import diffusers
from holdfast.core.names import Name, checked, unknown
from holdfast.core.networks import resolve_device, weights_sha256
from holdfast.core.weights import read_weights
from holdfast.generators.loading import check_batch, fetch, place, read_tensors, shown, to_unit

QUANTISERS = ("straight_through", "none")


def load_vqgan(name: Name, *, device: str) -> VqGan:
    """Load a VQModel or an original checkpoint; options ``subfolder`` and ``quantise=straight_through|none``."""
    options = checked(name, {"subfolder": str, "quantise": str})
    subfolder, quantise = options.get("subfolder", ""), options.get("quantise", QUANTISERS[0])
    file = Path(place(name)[0])
    module = load_taming(file) if file.is_file() else fetch("VQModel", name, subfolder=subfolder)
    return VqGan(shown(name), module, device=device, quantise=quantise)


class Autoencoder:
    """What the ``LatentGenerator`` of every autoencoder has: a module of diffusers, and a grid of cells as latent."""

    size = None

    def __init__(self, name: str, module: Any, device: str, channels: Sequence[int], **identity: Any) -> None:
        self.name = name
        self.device = resolve_device(device)
        self.fingerprint = fingerprint({**identity, "weights": weights_sha256(module)})
        self.factor = 2 ** (len(channels) - 1)
        self.module = module.float().eval().requires_grad_(False).to(self.device)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """RGB NCHW in 0..1 → latent (n, channels, height / factor, width / factor), not yet quantised."""
        check_batch(batch, self.name, factor=self.factor)
        return self._latent(self.module.encode(batch.to(self.device) * 2 - 1))

    def _latent(self, answer: Any) -> torch.Tensor:
        latent: torch.Tensor = answer.latents
        return latent


class VqGan(Autoencoder):
    """A ``LatentGenerator``: the encoder's grid, which ``decode`` quantises (gradients pass straight through)."""

    def __init__(self, name: str, module: Any, *, device: str = "auto", quantise: str = QUANTISERS[0]) -> None:
        if quantise not in QUANTISERS:
            raise unknown("way to quantise", quantise, QUANTISERS)
        channels = module.config.block_out_channels
        super().__init__(name, module, device, channels, library="diffusers.VQModel", quantise=quantise)
        self._quantises = quantise != "none"
        self._codes = Codes(self.module.quantize.embedding.weight)

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        codes = self.quantise(latent) if self._quantises else latent.to(self.device)
        spatial = codes if self.module.config.norm_type == "spatial" else None
        return to_unit(self.module.decoder(self.module.post_quant_conv(codes), spatial))

    def quantise(self, latent: torch.Tensor) -> torch.Tensor:
        """Return the latent with the nearest code in every cell; gradients pass straight through."""
        cells = latent.to(self.device).permute(0, 2, 3, 1)
        codes = self._codes.nearest(cells.detach().reshape(-1, cells.shape[-1])).view(cells.shape)
        return (cells + (codes - cells).detach()).permute(0, 3, 1, 2).contiguous()


class Codes:
    """A code book that finds nearest codes, always in float32; of equally near codes, the first in the book.

    On a CPU a tree finds codes of few dimensions 70 times as fast as the distances to all of them are computed; else
    |cell − code|² less |cell|², which is the same for all codes, is one matrix product.
    """

    def __init__(self, book: torch.Tensor) -> None:
        self.book = book.detach()
        self._tree: Any = None
        if book.device.type == "cpu" and book.shape[1] <= _DIMENSIONS and bool(book.isfinite().all()):
            from scipy.spatial import cKDTree

            self._tree = cKDTree(self.book.float().numpy())

    def nearest(self, cells: torch.Tensor) -> torch.Tensor:
        """Return the code (n, dimensions) at the least Euclidean distance from each cell (n, dimensions)."""
        if self._tree is not None and bool(cells.isfinite().all()):
            apart, nearest = self._tree.query(cells.float().numpy(), k=2)
            places, tied = torch.from_numpy(nearest[:, 0]), torch.from_numpy(apart[:, 0] == apart[:, 1])
            if tied.any():  # the tree takes any of them
                places[tied] = self._first(cells[tied])
            return self.book[places]
        return self.book[self._first(cells)]

    def _first(self, cells: torch.Tensor) -> torch.Tensor:
        """Return the indices of the nearest codes, by all distances."""
        with torch.autocast(cells.device.type, enabled=False):
            book = self.book.float()
            lengths, turned = (book * book).sum(1), book.T.contiguous()
            several = max(1, _DISTANCES // len(book))
            places = [
                torch.addmm(lengths, some, turned, alpha=-2).argmin(1) for some in torch.split(cells.float(), several)
            ]
            return torch.cat(places)


_DIMENSIONS = 8  # of latents, above which a tree gains little
_DISTANCES = 2**30  # held at a time


_PARTS = ("encoder.", "decoder.", "quantize.", "quant_conv.", "post_quant_conv.")
_GROUPS = 32
_ATTENTION = {"norm": "group_norm", "q": "to_q", "k": "to_k", "v": "to_v", "proj_out": "to_out.0"}
_RENAMED = (
    (r"\.mid\.block_([12])\.", lambda match: f".mid_block.resnets.{int(match[1]) - 1}."),
    (r"\.mid\.attn_1\.", lambda match: ".mid_block.attentions.0."),
    (r"\.(down|up)\.(\d+)\.block\.", r".\1_blocks.\2.resnets."),
    (r"\.(down|up)\.(\d+)\.attn\.", r".\1_blocks.\2.attentions."),
    (r"\.(down|up)\.(\d+)\.(down|up)sample\.", r".\1_blocks.\2.\3samplers.0."),
    (r"\.nin_shortcut\.", ".conv_shortcut."),
    (r"coder\.norm_out\.", "coder.conv_norm_out."),
)


def load_taming(file: Path) -> Any:
    """Load the VQModel of a checkpoint file; its size and depth follow from the shapes of its weights."""
    state = {key: value for key, value in read_weights(file)[0].items() if key.startswith(_PARTS)}
    if "quantize.embedding.weight" not in state or "encoder.conv_in.weight" not in state:
        raise UserError(
            f"{file.name} is not a VQGAN of taming-transformers: expected its names of an encoder and a codebook"
        )
    try:
        model = _build(state)
        model.load_state_dict(renamed(state, len(model.config.block_out_channels)))
    except (RuntimeError, KeyError, ValueError, IndexError) as error:
        raise UserError(f"{file.name} is not a VQGAN that can be used here: {first_line(error)}") from error
    return model


def renamed(state: Mapping[str, torch.Tensor], depth: int) -> dict[str, torch.Tensor]:
    """Return diffusers' names of taming's weights; ``depth`` is the number of resolutions."""
    weights = {}
    for old, weight in state.items():
        key = old
        for pattern, new in _RENAMED:
            key = re.sub(pattern, new, key)
        # taming counts the decoder's blocks from the finest, diffusers in the order in which they run
        key = re.sub(r"\.up_blocks\.(\d+)\.", lambda match: f".up_blocks.{depth - 1 - int(match[1])}.", key)
        if ".attentions." in key:
            head, part, kind = re.fullmatch(r"(.*\.attentions\.\d+)\.(\w+)\.(\w+)", key).groups()  # type: ignore[union-attr]
            key = f"{head}.{_ATTENTION[part]}.{kind}"
            weight = weight.flatten(1) if weight.ndim == 4 else weight  # a 1 × 1 convolution is a linear layer
        weights[key] = weight
    return weights


def _build(state: Mapping[str, torch.Tensor]) -> Any:
    depth = 1 + max(int(match[1]) for key in state if (match := re.match(r"encoder\.down\.(\d+)\.block\.", key)))
    layers = 1 + max(int(match[1]) for key in state if (match := re.match(r"encoder\.down\.0\.block\.(\d+)\.", key)))

    def kinds(part: str, plain: str) -> tuple[str, ...]:
        levels = range(depth) if part == "encoder.down" else reversed(range(depth))
        return tuple(f"Attn{plain}" if f"{part}.{level}.attn.0.q.weight" in state else plain for level in levels)

    codes, code_channels = state["quantize.embedding.weight"].shape
    return diffusers.VQModel(
        down_block_types=kinds("encoder.down", "DownEncoderBlock2D"),
        up_block_types=kinds("decoder.up", "UpDecoderBlock2D"),
        block_out_channels=tuple(
            state[f"encoder.down.{level}.block.0.conv1.weight"].shape[0] for level in range(depth)
        ),
        layers_per_block=layers,
        latent_channels=state["encoder.conv_out.weight"].shape[0],
        num_vq_embeddings=codes,
        vq_embed_dim=code_channels,
        norm_num_groups=_GROUPS,
    )


_SUFFIXES = (".safetensors", ".pth", ".pt")


def load_tiny(name: Name, *, device: str) -> Tiny:
    """Load an AutoencoderTiny from safetensors, or the two files of a TAESD. Option: ``subfolder=vae``."""
    options = checked(name, {"subfolder": str})
    where, _, local = place(name)
    if local and _part(Path(where), "encoder") and not (Path(where) / "config.json").is_file():
        return Tiny(shown(name), read_chains(Path(where)), device=device)
    return Tiny(shown(name), fetch("AutoencoderTiny", name, **options), device=device)


class Tiny(Autoencoder):
    """A ``LatentGenerator``: the latent is the encoder's grid, as it is."""

    def __init__(self, name: str, module: Any, *, device: str = "auto") -> None:
        super().__init__(name, module, device, module.config.encoder_block_out_channels, library="AutoencoderTiny")

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        return to_unit(self.module.decode(latent.to(self.device)).sample)


def read_chains(folder: Path) -> Any:
    """Load the AutoencoderTiny of a folder with TAESD's two files; reading them runs no code."""
    encoder, decoder = (_read_chain(folder, part) for part in ("encoder", "decoder"))
    try:
        width, latent_channels = encoder["0.weight"].shape[0], decoder["1.weight"].shape[1]
        model = diffusers.AutoencoderTiny(
            encoder_block_out_channels=(width,) * 4,
            decoder_block_out_channels=(width,) * 4,
            latent_channels=latent_channels,
        )
        _add_branches(model.encoder.layers, encoder, 0)
        _add_branches(model.decoder.layers, decoder, 1)
        model.encoder.layers.load_state_dict(encoder)
        model.decoder.layers.load_state_dict({_moved(key): value for key, value in decoder.items()})
    except (KeyError, RuntimeError, ValueError, IndexError) as error:
        raise UserError(f"tiny:{folder.name} holds no TAESD: {first_line(error)}") from error
    return model


def _moved(key: str) -> str:
    """Rename the decoder's weights: diffusers does not count the first step, a tanh, so every position is one less."""
    position, _, rest = key.partition(".")
    return f"{int(position) - 1}.{rest}"


def _add_branches(layers: torch.nn.Sequential, state: Mapping[str, torch.Tensor], before: int) -> None:
    """Add the 1 × 1 branch, named ``pool``, that TAEF2's blocks at the lowest resolution add to their input."""

    class WithBranch(torch.nn.Module):
        def __init__(self, block: Any, channels: int, inner: int) -> None:
            super().__init__()
            self.conv, self.fuse = block.conv, block.fuse
            self.pool = torch.nn.Sequential(
                torch.nn.Conv2d(channels, inner, 1, bias=False),
                torch.nn.GroupNorm(4, inner),
                torch.nn.ReLU(),
                torch.nn.Conv2d(inner, channels, 1, bias=False),
            )

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            hidden = hidden + self.pool(hidden)
            mixed: torch.Tensor = self.fuse(self.conv(hidden) + hidden)
            return mixed

    for key, weight in state.items():
        position, _, rest = key.partition(".")
        if rest == "pool.0.weight":
            layers[int(position) - before] = WithBranch(layers[int(position) - before], *weight.shape[1::-1])


def _part(folder: Path, part: str) -> Path | None:
    return next((file for suffix in _SUFFIXES if (file := folder / f"{part}{suffix}").is_file()), None)


def _read_chain(folder: Path, part: str) -> dict[str, torch.Tensor]:
    file = _part(folder, part)
    if file is None:
        raise UserError(f"tiny:{folder.name} lacks {part}{' or '.join(_SUFFIXES)}")
    return read_tensors(file)


def load_kl(name: Name, *, device: str) -> Kl:
    """Load an AutoencoderKL from safetensors. Option: ``subfolder=vae`` if it is part of a pipeline."""
    return Kl(shown(name), fetch("AutoencoderKL", name, **checked(name, {"subfolder": str})), device=device)


class Kl(Autoencoder):
    """A ``LatentGenerator``: the latent is the posterior's mean, scaled to about unit spread as the library does."""

    def __init__(self, name: str, module: Any, *, device: str = "auto") -> None:
        self._scale = float(module.config.scaling_factor)
        self._shift = float(module.config.shift_factor or 0.0)
        identity = {"library": "diffusers.AutoencoderKL", "scale": [self._scale, self._shift]}
        super().__init__(name, module, device, module.config.block_out_channels, **identity)

    def _latent(self, answer: Any) -> torch.Tensor:
        mean: torch.Tensor = answer.latent_dist.mean
        return (mean - self._shift) * self._scale

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        return to_unit(self.module.decode(latent.to(self.device) / self._scale + self._shift).sample)
