"""``python:MODULE:ATTRIBUTE[@FILE]``: any object with ``encode`` and ``decode``; weights may come from a file."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.generate.loading import checked
from holdfast.generate.torch_parts import check_batch, read_tensors, resolve_device, weights_sha256
from holdfast.registry import find_attribute

if TYPE_CHECKING:
    import torch


def load(name: Name, *, device: str) -> PythonGenerator:
    """Load an object with ``encode(batch)`` and ``decode(latent[, original])``, or a factory of one.

    A factory is called without arguments, or with ``device=`` where it takes that. ``factor``, ``size``, ``quantise``
    and ``fingerprint`` are taken over where it has them; without a fingerprint the source of its module is one: set
    one when weights live elsewhere. The working directory is importable.
    """
    checked(name, {})
    device = resolve_device(device)
    target, source = load_object(name, device=device, wanted=("encode", "decode"))
    if name.tag:
        target.to(device)
    shown = f"python:{name.name}" + (f"@{Path(name.tag).name}" if name.tag else "")
    return PythonGenerator(shown, target, identity=source, device=device)


class PythonGenerator:
    """A ``LatentGenerator`` around an object of the user's."""

    def __init__(self, name: str, target: Any, *, identity: str, device: str) -> None:
        self.name = name
        self.device = device
        self.fingerprint = fingerprint({"code": str(getattr(target, "fingerprint", "") or identity)})
        self.factor = int(getattr(target, "factor", 1))
        self.size = getattr(target, "size", None)
        self._target = target
        self._wants_original = len(inspect.signature(target.decode).parameters) > 1
        if hasattr(target, "quantise"):
            self.quantise = target.quantise

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """RGB NCHW in 0..1 → latent, first axis the images."""
        check_batch(batch, self.name, factor=self.factor, size=self.size)
        latent: torch.Tensor = self._target.encode(batch.to(self.device))
        return latent

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        more = (original,) if self._wants_original else ()
        image: torch.Tensor = self._target.decode(latent.to(self.device), *more)
        return image


def load_object(name: Name, *, device: str, wanted: tuple[str, ...]) -> tuple[Any, str]:
    """Return the object of MODULE:ATTRIBUTE, or what it makes when called, and a hash of its module's source.

    With ``@FILE`` the object is a ``torch.nn.Module``, and every weight of it is read from that file: the code is what
    was typed, and the file brings nothing but tensors.
    """
    target, source = find_attribute(name)
    if not all(hasattr(target, method) for method in wanted) or isinstance(target, type):
        if not callable(target):
            raise UserError(f"{name.scheme}:{name.name} has no {' and '.join(wanted)} and is no factory")
        takes_device = "device" in inspect.signature(target).parameters
        target = target(device=device) if takes_device else target()
    lacking = [method for method in wanted if not callable(getattr(target, method, None))]
    if lacking:
        raise UserError(f"what {name.scheme}:{name.name} makes has no {' and '.join(lacking)}")
    return target, f"{source} {_fill(name, target)}" if name.tag else source


def _fill(name: Name, target: Any) -> str:
    """Read the weights of a module from the file behind the @, and return their hash."""
    import torch

    file = Path(name.tag)
    if not isinstance(target, torch.nn.Module):
        raise UserError(f"{name.scheme}:{name.name} is no torch.nn.Module, so {file.name} cannot be its weights")
    if not file.is_file():
        raise UserError(f"there is no weight file at {name.tag!r}")
    try:
        target.load_state_dict(read_tensors(file))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{file.name} does not fit {name.scheme}:{name.name}: {reason}") from error
    target.eval().requires_grad_(False)
    return weights_sha256([target])
