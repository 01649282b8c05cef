"""``vqgan:NAME-OR-FOLDER[@REVISION]``: diffusers' VQModel, images to a grid of codes and back.

``vqgan:FILE.ckpt`` reads the original checkpoints of taming-transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.generate.loading import checked, place, shown
from holdfast.generate.pretrained import fetch
from holdfast.generate.taming import load_taming
from holdfast.generate.torch_parts import check_batch, resolve_device, to_unit, weights_sha256
from holdfast.registry import unknown

if TYPE_CHECKING:
    import torch

QUANTISERS = ("straight_through", "none")


def load(name: Name, *, device: str) -> VqGan:
    """A VQModel from safetensors, or an original checkpoint.

    Options: ``subfolder=vqvae`` where it is part of a pipeline; ``quantise=straight_through|none``.
    """
    options = checked(name, {"subfolder": str, "quantise": str})
    subfolder, quantise = options.get("subfolder", ""), options.get("quantise", QUANTISERS[0])
    file = Path(place(name)[0])
    module = load_taming(file) if file.is_file() else fetch("VQModel", name, subfolder=subfolder)
    return VqGan(shown(name), module, device=device, quantise=quantise)


class VqGan:
    """A ``LatentGenerator``: the latent is the encoder's grid before quantisation; ``decode`` quantises.

    Gradients pass the quantiser as if it were not there (straight through). With ``quantise="none"`` it is not there.
    """

    size = None

    def __init__(self, name: str, module: Any, *, device: str = "auto", quantise: str = QUANTISERS[0]) -> None:
        if quantise not in QUANTISERS:
            raise unknown("way to quantise", quantise, QUANTISERS)
        self.name = name
        self.device = resolve_device(device)
        self.fingerprint = fingerprint(
            {"library": "diffusers.VQModel", "weights": weights_sha256([module]), "quantise": quantise}
        )
        self.factor = 2 ** (len(module.config.block_out_channels) - 1)
        self.module = module.float().eval().requires_grad_(False).to(self.device)
        self._quantises = quantise != "none"

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """RGB NCHW in 0..1 → latent (n, channels, height / factor, width / factor), not yet quantised."""
        check_batch(batch, self.name, factor=self.factor)
        latent: torch.Tensor = self.module.encode(batch.to(self.device) * 2 - 1).latents
        return latent

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        codes = self.quantise(latent) if self._quantises else latent.to(self.device)
        spatial = codes if self.module.config.norm_type == "spatial" else None
        return to_unit(self.module.decoder(self.module.post_quant_conv(codes), spatial))

    def quantise(self, latent: torch.Tensor) -> torch.Tensor:
        """Latent with the nearest code in every cell; gradients pass straight through."""
        codes: torch.Tensor = self.module.quantize(latent.to(self.device))[0]
        return codes
