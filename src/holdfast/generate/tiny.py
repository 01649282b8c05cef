"""``tiny:NAME-OR-FOLDER[@REVISION]``: small autoencoders, diffusers' AutoencoderTiny and TAESD's own files.

The latter are a folder with ``encoder.pth`` and ``decoder.pth`` (or ``.safetensors``), state dicts whose keys are
positions in a chain of layers: TAESD and, with a short attention-like branch at the lowest resolution, TAEF2.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError, first_line, raise_machine_trouble
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.generate.loading import checked, place, shown
from holdfast.generate.pretrained import fetch
from holdfast.generate.torch_parts import check_batch, resolve_device, to_unit, weights_sha256

if TYPE_CHECKING:
    import torch

_SUFFIXES = (".safetensors", ".pth", ".pt")


def load(name: Name, *, device: str) -> Tiny:
    """Load an AutoencoderTiny from safetensors, or the two files of a TAESD. Option: ``subfolder=vae``."""
    options = checked(name, {"subfolder": str})
    where, _, local = place(name)
    if local and _part(Path(where), "encoder") and not (Path(where) / "config.json").is_file():
        return Tiny(shown(name), read_chains(Path(where)), device=device)
    return Tiny(shown(name), fetch("AutoencoderTiny", name, **options), device=device)


class Tiny:
    """A ``LatentGenerator``: the latent is the encoder's grid, as it is."""

    size = None

    def __init__(self, name: str, module: Any, *, device: str = "auto") -> None:
        self.name = name
        self.device = resolve_device(device)
        self.fingerprint = fingerprint({"library": "AutoencoderTiny", "weights": weights_sha256([module])})
        self.factor = 2 ** (len(module.config.encoder_block_out_channels) - 1)
        self.module = module.float().eval().requires_grad_(False).to(self.device)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """RGB NCHW in 0..1 → latent (n, channels, height / factor, width / factor)."""
        check_batch(batch, self.name, factor=self.factor)
        latent: torch.Tensor = self.module.encode(batch.to(self.device) * 2 - 1).latents
        return latent

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        return to_unit(self.module.decode(latent.to(self.device)).sample)


def read_chains(folder: Path) -> Any:
    """Load the AutoencoderTiny of a folder with TAESD's two files; reading them runs no code."""
    encoder, decoder = (_read(folder, part) for part in ("encoder", "decoder"))
    try:
        width, latent_channels = encoder["0.weight"].shape[0], decoder["1.weight"].shape[1]
        model = _chain_model(width, latent_channels)
        _add_branches(model.encoder.layers, encoder, 0)
        _add_branches(model.decoder.layers, decoder, 1)
        model.encoder.layers.load_state_dict(encoder)
        model.decoder.layers.load_state_dict({_moved(key): value for key, value in decoder.items()})
    except (KeyError, RuntimeError, ValueError, IndexError) as error:
        raise UserError(f"tiny:{folder.name} holds no TAESD: {first_line(error)}") from error
    return model


def _chain_model(width: int, latent_channels: int) -> Any:
    import diffusers

    return diffusers.AutoencoderTiny(
        encoder_block_out_channels=(width,) * 4,
        decoder_block_out_channels=(width,) * 4,
        latent_channels=latent_channels,
    )


def _moved(key: str) -> str:
    """Rename the decoder's weights: its first step, a tanh, is no layer in diffusers, so every position is one less."""
    position, _, rest = key.partition(".")
    return f"{int(position) - 1}.{rest}"


def _add_branches(layers: torch.nn.Sequential, state: Mapping[str, torch.Tensor], before: int) -> None:
    """Add the 1 × 1 branch, named ``pool``, that TAEF2's blocks at the lowest resolution add to their input."""
    import torch

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


def _read(folder: Path, part: str) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    file = _part(folder, part)
    if file is None:
        raise UserError(f"tiny:{folder.name} lacks {part}{' or '.join(_SUFFIXES)}")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{file.name} holds Python objects besides tensors, which are never unpickled because they can run code"
        ) from error
    except Exception as error:  # damaged pickles raise anything
        raise_machine_trouble(error)
        raise UserError(f"{file.name} is not a file of weights that can be read: {first_line(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UserError(f"{file.name} should hold tensors by name and nothing else")
    return dict(state)
