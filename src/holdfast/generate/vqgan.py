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
        self._codes = Codes(self.module.quantize.embedding.weight)

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
        cells = latent.to(self.device).permute(0, 2, 3, 1)
        codes = self._codes.nearest(cells.detach().reshape(-1, cells.shape[-1])).view(cells.shape)
        return (cells + (codes - cells).detach()).permute(0, 3, 1, 2).contiguous()


class Codes:
    """A code book that is asked for nearest codes, always in float32; of several as near, the first in the book.

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
        """The code (n, dimensions) at the least Euclidean distance from each cell (n, dimensions)."""
        import torch

        if self._tree is not None and bool(cells.isfinite().all()):
            apart, found = self._tree.query(cells.float().numpy(), k=2)
            places, tied = torch.from_numpy(found[:, 0]), torch.from_numpy(apart[:, 0] == apart[:, 1])
            if tied.any():  # the tree takes any of them
                places[tied] = self._first(cells[tied])
            return self.book[places]
        return self.book[self._first(cells)]

    def _first(self, cells: torch.Tensor) -> torch.Tensor:
        """Where the nearest codes stand, by all distances."""
        import torch

        with torch.autocast(cells.device.type, enabled=False):
            book = self.book.float()
            lengths, turned = (book * book).sum(1), book.T.contiguous()
            several = max(1, _DISTANCES // len(book))
            found = [
                torch.addmm(lengths, some, turned, alpha=-2).argmin(1) for some in torch.split(cells.float(), several)
            ]
            return torch.cat(found)


_DIMENSIONS = 8  # of latents, above which a tree gains little
_DISTANCES = 2**30  # held at a time
