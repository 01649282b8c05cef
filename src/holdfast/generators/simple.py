"""``pixel:``, ``noise:`` and ``rotate:``, the baselines without weights, and ``python:MODULE:ATTRIBUTE[@WEIGHTS]``."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import torch

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.networks import resolve_device, weights_sha256
from holdfast.generators.loading import check_batch, checked_numbers, read_tensors, shown
from holdfast.registry import find_attribute


class Baseline:
    """What the generators without weights have in common; ``identity`` are the settings that change their images."""

    kind: str
    factor, size = 1, None

    def __init__(self, name: str = "", *, device: str = "auto", **identity: Any) -> None:
        self.name = name or f"{self.kind}:"
        self.device = resolve_device(device)
        self.fingerprint = fingerprint({"generator": self.kind, **identity})


class Pixel(Baseline):
    """A ``LatentGenerator`` whose latent is the image: walks become plain adversarial attacks."""

    kind = "pixel"

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Return a copy of the images."""
        check_batch(batch, self.name)
        return batch.to(self.device).clone()

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Return the pixels, clipped to 0..1."""
        return latent.to(self.device).clamp(0, 1)


class Noise(Baseline):
    """A ``LatentGenerator`` that adds a field to the image; the latent is the field, at first zero."""

    kind = "noise"

    def __init__(self, name: str = "", *, device: str = "auto", scale: float = 1.0) -> None:
        super().__init__(name, device=device, scale=scale)
        self.scale = scale

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Return zeros in the shape of the images."""
        check_batch(batch, self.name)
        return torch.zeros_like(batch, device=self.device)

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Return the original plus the field, clipped to 0..1."""
        return (_given(original, self.name, self.device) + self.scale * latent.to(self.device)).clamp(0, 1)


class Rotate(Baseline):
    """A ``LatentGenerator`` that turns, shifts and zooms the image.

    The latent is (n, 4): half turns, shifts to the right and down in widths and heights, doublings in size; at first
    zero. A walk of 50 steps of 0.001 so reaches 9 degrees, a twentieth of the width and 3.5 % in size.
    """

    kind = "rotate"

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """Return zeros (n, 4)."""
        check_batch(batch, self.name)
        return batch.new_zeros((len(batch), 4)).to(self.device)

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Return the original, moved; beyond its edges it is mirrored."""
        image, latent = _given(original, self.name, self.device), latent.to(self.device)
        height, width = image.shape[-2:]
        turn, right, down, doublings = latent.unbind(1)
        # The grid says where each pixel comes from, in units of half a side: the reverse of the move, shift first.
        shrink = torch.exp2(-doublings)
        cosine, sine = torch.cos(math.pi * turn) * shrink, torch.sin(math.pi * turn) * shrink
        across, along = sine * (height / width), sine * (width / height)
        matrix = torch.stack(
            [
                cosine, across, -2 * (cosine * right + across * down),
                -along, cosine, -2 * (cosine * down - along * right),
            ],
            dim=1,
        ).view(-1, 2, 3)  # fmt: skip
        grid = torch.nn.functional.affine_grid(matrix, list(image.shape), align_corners=False)
        moved = torch.nn.functional.grid_sample(image, grid, padding_mode="reflection", align_corners=False)
        return moved.clamp(0, 1)


def _given(original: torch.Tensor | None, name: str, device: str) -> torch.Tensor:
    if original is None:
        raise UserError(f"{name} changes images and makes none: decode needs the original batch as well")
    return original.to(device)


def load_baseline(name: Name, *, device: str) -> Baseline:
    """Load ``pixel:``, ``rotate:`` or ``noise:`` (option ``scale``, 1: what a unit of the latent adds to a pixel)."""
    if name.name or name.tag:
        raise UserError(f"{name.scheme}: has no weights and so takes no name after the colon, not {name.name!r}")
    kinds: dict[str, Any] = {"pixel": Pixel, "noise": Noise, "rotate": Rotate}
    kind = kinds[name.scheme]
    loaded: Baseline = kind(
        shown(name), device=device, **checked_numbers(name, {"scale": float} if kind is Noise else {})
    )
    return loaded


def load_python(name: Name, *, device: str) -> PythonGenerator:
    """Load an object with ``encode(batch)`` and ``decode(latent[, original])``, or a factory of one.

    A factory is called without arguments, or with ``device=`` if it takes that. ``factor``, ``size``, ``quantise``
    and ``fingerprint`` are taken over if it has them; without a fingerprint the source of its module is one: set
    one when weights live elsewhere. The working directory is importable.
    """
    checked_numbers(name, {})
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
            raise UserError(f"{name.scheme}:{name.name} has no {' and '.join(wanted)} and is not a factory")
        takes_device = "device" in inspect.signature(target).parameters
        target = target(device=device) if takes_device else target()
    lacking = [method for method in wanted if not callable(getattr(target, method, None))]
    if lacking:
        raise UserError(f"what {name.scheme}:{name.name} makes has no {' and '.join(lacking)}")
    return target, f"{source} {_fill(name, target)}" if name.tag else source


def _fill(name: Name, target: Any) -> str:
    """Read the weights of a module from the file behind the @, and return their hash."""
    file = Path(name.tag)
    if not isinstance(target, torch.nn.Module):
        raise UserError(f"{name.scheme}:{name.name} is not a torch.nn.Module, so {file.name} cannot be its weights")
    if not file.is_file():
        raise UserError(f"there is no weight file at {name.tag!r}")
    try:
        target.load_state_dict(read_tensors(file))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{file.name} does not fit {name.scheme}:{name.name}: {reason}") from error
    target.eval().requires_grad_(False)
    return weights_sha256(target)
