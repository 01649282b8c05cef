"""``python:MODULE:ATTRIBUTE``: any object with ``encode`` and ``decode``."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.names import Name
from holdfast.generate.loading import checked
from holdfast.generate.torch_parts import check_batch, resolve_device
from holdfast.registry import unknown

if TYPE_CHECKING:
    import torch


def load(name: Name, *, device: str) -> PythonGenerator:
    """An object with ``encode(batch)`` and ``decode(latent)`` or ``decode(latent, original)``, or a factory of one.

    A factory is called without arguments, or with ``device=`` where it takes that. ``factor``, ``size``, ``quantise``
    and ``fingerprint`` are taken over where it has them; without a fingerprint the source of its module is one: set
    one when weights live elsewhere. The working directory is importable.
    """
    checked(name, {})
    device = resolve_device(device)
    target, source = made(name, device=device, wanted=("encode", "decode"))
    return PythonGenerator(f"python:{name.name}", target, identity=source, device=device)


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


def made(name: Name, *, device: str, wanted: tuple[str, ...]) -> tuple[Any, str]:
    """The object of MODULE:ATTRIBUTE, or what it makes when called, and a hash of its module's source."""
    target, source = find(name)
    if not all(hasattr(target, one) for one in wanted) or isinstance(target, type):
        if not callable(target):
            raise UserError(f"{name.scheme}:{name.name} has no {' and '.join(wanted)} and is no factory")
        takes_device = "device" in inspect.signature(target).parameters
        target = target(device=device) if takes_device else target()
    lacking = [one for one in wanted if not callable(getattr(target, one, None))]
    if lacking:
        raise UserError(f"what {name.scheme}:{name.name} makes has no {' and '.join(lacking)}")
    return target, source


def find(name: Name) -> tuple[Any, str]:
    """What MODULE:ATTRIBUTE names, and a hash of the module's source."""
    module_name, _, attribute = name.name.partition(":")
    if not module_name or not attribute:
        raise UserError(f"{name.scheme}: reads {name.scheme}:MODULE:ATTRIBUTE, not {name.scheme}:{name.name}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(f"{name.scheme}:{name.name}: there is no module {error.name!r} here or installed") from error
    except Exception as error:  # the module's own code
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{name.scheme}:{name.name}: importing {module_name} fails: {reason}") from error
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise unknown(f"attribute of {module_name}", attribute, [one for one in dir(module) if one[0] != "_"])
        target = getattr(target, part)
    file = getattr(module, "__file__", None)
    return target, f"{name.name} {bytes_sha256(Path(file).read_bytes()) if file else ''}"
