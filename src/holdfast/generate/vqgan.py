"""``vqgan:NAME-OR-FOLDER[@REVISION]``: diffusers' VQModel, images to a grid of codes and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.generate.loading import OFFLINE, checked, first_line, place, shown
from holdfast.generate.torch_parts import quiet, resolve_device, weights_sha256

if TYPE_CHECKING:
    import torch


def load(name: Name, *, device: str) -> VqGan:
    """A VQModel from safetensors. Option: ``subfolder=vqvae`` where it is part of a pipeline."""
    options = checked(name, {"subfolder": str})
    return VqGan(shown(name), _fetch(name, options.get("subfolder", "")), device=device)


class VqGan:
    """A ``LatentGenerator``: the latent is the encoder's grid before quantisation; ``decode`` quantises.

    Gradients pass the quantiser as if it were not there (straight through).
    """

    def __init__(self, name: str, module: Any, *, device: str = "auto") -> None:
        self.name = name
        self.device = resolve_device(device)
        self.fingerprint = fingerprint({"library": "diffusers.VQModel", "weights": weights_sha256([module])})
        self.factor = 2 ** (len(module.config.block_out_channels) - 1)
        self.module = module.float().eval().requires_grad_(False).to(self.device)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """RGB NCHW in 0..1 → latent (n, channels, height / factor, width / factor), not yet quantised."""
        if batch.ndim != 4 or batch.shape[1] != 3 or any(side % self.factor for side in batch.shape[-2:]):
            raise UserError(
                f"{self.name} takes RGB batches (n, 3, height, width) with sides divisible by {self.factor}, "
                f"not {tuple(batch.shape)}"
            )
        latent: torch.Tensor = self.module.encode(batch.to(self.device) * 2 - 1).latents
        return latent

    def decode(self, latent: torch.Tensor) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        image: torch.Tensor = self.module.decode(latent.to(self.device)).sample
        return (image / 2 + 0.5).clamp(0, 1)


def _fetch(name: Name, subfolder: str) -> Any:
    import diffusers

    where, revision, local = place(name)
    inside = {"subfolder": subfolder} if subfolder else {}
    try:
        with quiet():
            model, report = diffusers.VQModel.from_pretrained(
                where, revision=revision, use_safetensors=True, output_loading_info=True, **inside
            )
    except OSError as error:
        if local:
            raise UserError(f"vqgan:{Path(where).name} cannot be loaded: {first_line(error)}") from error
        raise UserError(OFFLINE.format(name=f"vqgan:{where}", reason=first_line(error))) from error
    except (ValueError, RuntimeError, TypeError) as error:
        raise UserError(f"vqgan:{Path(where).name} is no VQModel that can be loaded: {first_line(error)}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise UserError(f"vqgan:{Path(where).name} lacks weights: {', '.join(missing[:3])}")
    return model
