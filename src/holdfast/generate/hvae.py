"""``hvae:FOLDER``: a hierarchical VAE in the parametrisation of VDVAE, from ``config.json`` and ``model.safetensors``.

The weights have VDVAE's own names, so that a checkpoint of it, saved as safetensors, is used as it is; ``config.json``
holds its hyper-parameters under their own names (see ``HvaeConfig``).
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.generate.loading import checked, place, shown
from holdfast.generate.torch_parts import check_batch, resolve_device, weights_sha256

if TYPE_CHECKING:
    import torch

    from holdfast.generate.hvae_model import Hvae

CONFIG, WEIGHTS = "config.json", "model.safetensors"
_LARGEST_CONFIG = 1_000_000


def load(name: Name, *, device: str) -> HierarchicalVae:
    """The model of a folder."""
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
        self.fingerprint = fingerprint({"hvae": config, "weights": weights_sha256([module])})
        self.module = module.float().eval().requires_grad_(False).to(self.device)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """RGB NCHW in 0..1 → latent (n, numbers of all groups)."""
        import torch

        check_batch(batch, self.name, size=self.size)
        latents, _, _ = self.module.infer(batch.to(self.device))
        return torch.cat([one.flatten(1) for one in latents], 1)

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        import torch

        shapes = self.module.shapes()
        parts = torch.split(latent.to(self.device), [math.prod(shape) for shape in shapes], 1)
        image = self.module.generate([one.view(-1, *shape) for one, shape in zip(parts, shapes, strict=True)])
        return image.clamp(0, 1)


def save(folder: Path, module: Hvae) -> None:
    """Write what ``read`` reads."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(dataclasses.asdict(module.config), indent=2) + "\n", encoding="utf-8")
    save_file({key: one.contiguous() for key, one in module.state_dict().items()}, folder / WEIGHTS)


def read(folder: Path) -> Hvae:
    """The model of a folder, whole; a missing weight or one too many is a UserError."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from holdfast.generate.hvae_model import Hvae, HvaeConfig

    for part in (CONFIG, WEIGHTS):
        if not (folder / part).is_file():
            raise UserError(f"hvae:{folder.name} lacks {part}")
    try:
        config = HvaeConfig(**_known(folder / CONFIG))
        with torch.device("meta"):  # a configuration costs no memory; the weights bring their own
            module = Hvae(config)
        state = load_file(folder / WEIGHTS)
        module.load_state_dict({key.removeprefix("module."): one for key, one in state.items()}, assign=True)
    except (ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise UserError(f"hvae:{folder.name} cannot be built: {first_line(error)}") from error
    return module


def _known(file: Path) -> dict[str, Any]:
    if file.stat().st_size > _LARGEST_CONFIG:
        raise ValueError(f"{file.name} is too large")
    said = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(said, dict):
        raise ValueError(f"{file.name} should be a JSON object")
    return said
