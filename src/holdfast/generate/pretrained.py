"""Load one model of diffusers by name or folder, complete and from safetensors, and ``kl:`` autoencoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.remote import mind_the_hub
from holdfast.generate.loading import OFFLINE, checked, place, shown
from holdfast.generate.torch_parts import check_batch, quiet, resolve_device, to_unit, weights_sha256

if TYPE_CHECKING:
    import torch


def fetch(kind: str, name: Name, *, subfolder: str = "") -> Any:
    """Load the model ``diffusers.KIND`` of a name; every weight must exist, code in the repository is never run."""
    where, revision, local = place(name)
    return _load(kind, where, f"{name.scheme}:", revision=revision, local=local, subfolder=subfolder)


def of_folder(kind: str, folder: Path) -> Any:
    """Load the model ``diffusers.KIND`` of a folder that exists."""
    return _load(kind, str(folder), "", revision="main", local=True, subfolder="")


def has(kind: str, name: Name, subfolder: str) -> bool:
    """Return whether a name's folder has this part, or a hub's repository its configuration."""
    import diffusers

    where, revision, local = place(name)
    if local:
        return (Path(where) / subfolder / "config.json").is_file()
    try:
        with quiet():
            getattr(diffusers, kind).load_config(where, revision=revision, subfolder=subfolder)
    except OSError:
        return False
    return True


def _load(kind: str, where: str, scheme: str, *, revision: str, local: bool, subfolder: str) -> Any:
    import diffusers
    from safetensors import SafetensorError

    shown = f"{scheme}{Path(where).name if local else where}"
    _check_kind(kind, Path(where) / subfolder, shown)
    inside = {"subfolder": subfolder} if subfolder else {}
    if not local:
        mind_the_hub()
    try:
        with quiet():
            model, report = getattr(diffusers, kind).from_pretrained(
                where, revision=revision, use_safetensors=True, output_loading_info=True, **inside
            )
    except OSError as error:
        if local:
            raise UserError(f"{shown} cannot be loaded: {first_line(error)}") from error
        raise UserError(OFFLINE.format(name=shown, reason=first_line(error))) from error
    except (ValueError, RuntimeError, TypeError, KeyError, SafetensorError) as error:
        raise UserError(f"{shown} is no {kind} that can be loaded: {first_line(error)}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise UserError(f"{shown} lacks weights: {', '.join(missing[:3])}")
    return model


def _check_kind(kind: str, folder: Path, shown: str) -> None:
    """Raise UserError for a folder of another kind, from which the library would build a mostly random model."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return  # the library says it better
    held = config.get("_class_name", kind) if isinstance(config, dict) else kind
    if held != kind:
        raise UserError(f"{shown} holds a {held}, which is no {kind}; choose the scheme of its kind")


def load_kl(name: Name, *, device: str) -> Kl:
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
