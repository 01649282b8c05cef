"""``kl:NAME-OR-FOLDER[@REVISION]``: diffusers' AutoencoderKL, the autoencoder of Stable Diffusion and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.generate.loading import checked, shown
from holdfast.generate.pretrained import fetch
from holdfast.generate.torch_parts import check_batch, resolve_device, to_unit, weights_sha256

if TYPE_CHECKING:
    import torch


def load(name: Name, *, device: str) -> Kl:
    """Load an AutoencoderKL from safetensors. Option: ``subfolder=vae`` where it is part of a pipeline."""
    return Kl(shown(name), fetch("AutoencoderKL", name, **checked(name, {"subfolder": str})), device=device)


class Kl:
    """A ``LatentGenerator``: the latent is the posterior's mean, scaled to about unit spread as the library does."""

    size = None

    def __init__(self, name: str, module: Any, *, device: str = "auto") -> None:
        self.name = name
        self.device = resolve_device(device)
        self._scale = float(module.config.scaling_factor)
        self._shift = float(module.config.shift_factor or 0.0)
        self.fingerprint = fingerprint(
            {
                "library": "diffusers.AutoencoderKL",
                "weights": weights_sha256([module]),
                "scale": [self._scale, self._shift],
            }
        )
        self.factor = 2 ** (len(module.config.block_out_channels) - 1)
        self.module = module.float().eval().requires_grad_(False).to(self.device)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """RGB NCHW in 0..1 → latent (n, channels, height / factor, width / factor)."""
        check_batch(batch, self.name, factor=self.factor)
        mean: torch.Tensor = self.module.encode(batch.to(self.device) * 2 - 1).latent_dist.mean
        return (mean - self._shift) * self._scale

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        return to_unit(self.module.decode(latent.to(self.device) / self._scale + self._shift).sample)
