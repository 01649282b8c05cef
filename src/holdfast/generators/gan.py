"""``gan:MODULE:ATTRIBUTE[@FILE]``: any pair of mapping and synthesis, such as StyleGAN-XL's, inverted by optimisation.

ATTRIBUTE is an object, or a factory of one, with ``mapping(z)`` → w, (n, layers, width) or (n, width), and
``synthesis(w)`` → RGB NCHW in -1..1; ``z_dim`` says how wide z is. A model of classes has ``c_dim`` and
``mapping(z, c)``, as StyleGAN's do. ``img_resolution`` is the side of its images. FILE holds the weights of a module,
as tensors: StyleGAN's own pickles are never opened here.
"""

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
from holdfast.generators.loading import check_batch, checked_numbers, noise
from holdfast.generators.simple import load_object

STEPS, RATE = 200, 0.1
_DRAWS = 512  # of z, for the mean and spread of w


def load(name: Name, *, device: str) -> Gan:
    """Load a GAN. Options: ``steps`` (200) and ``rate`` (0.1) of the inversion, ``class`` (default: their mean)."""
    options = checked_numbers(name, {"steps": int, "rate": float, "class": int})
    device = resolve_device(device)
    pair, source = load_object(name, device=device, wanted=("mapping", "synthesis"))
    chosen = {("class_label" if key == "class" else key): value for key, value in options.items()}
    shown = "&".join(f"{key}={value}" for key, value in sorted(options.items()))
    called = f"gan:{name.name}" + (f"@{Path(name.tag).name}" if name.tag else "")
    return Gan(called + (f"?{shown}" if shown else ""), pair, identity=source, device=device, **chosen)


class Gan:
    """A ``LatentGenerator`` over w+, in units of the spread of w about its mean; ``encode`` follows Adam from there."""

    factor = 1

    def __init__(
        self,
        name: str,
        pair: Any,
        *,
        identity: str = "",
        device: str = "auto",
        steps: int = STEPS,
        rate: float = RATE,
        class_label: int | None = None,
    ) -> None:
        self.name = name
        self.device = resolve_device(device)
        self.size = int(pair.img_resolution) if getattr(pair, "img_resolution", None) else None
        if isinstance(pair, torch.nn.Module):
            identity = weights_sha256(pair)
            pair = pair.float().eval().requires_grad_(False).to(self.device)
        known = str(getattr(pair, "fingerprint", "") or identity)
        self.fingerprint = fingerprint({"gan": known, "steps": steps, "rate": rate, "class": class_label})
        self.pair, self._steps, self._rate = pair, steps, rate
        constant = "noise_mode" in inspect.signature(getattr(pair.synthesis, "forward", pair.synthesis)).parameters
        self._fixed: dict[str, Any] = {"noise_mode": "const"} if constant else {}
        self._mean, self._spread = self._statistics(class_label)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """RGB NCHW in 0..1 → latent (n, layers, width) or (n, width): each image's best of all steps."""
        check_batch(batch, self.name, size=self.size)
        with torch.inference_mode(False), torch.enable_grad():
            wanted = batch.detach().to(self.device).clone()
            latent = self._mean.new_zeros((len(wanted), *self._mean.shape)).requires_grad_()
            best, smallest = latent.detach().clone(), torch.full((len(wanted),), math.inf, device=self.device)
            optimiser = torch.optim.Adam([latent], lr=self._rate)
            for step in range(self._steps + 1):
                errors = _errors(self._image(latent), wanted)
                better = errors.detach() < smallest
                best[better] = latent.detach()[better]
                smallest = torch.where(better, errors.detach(), smallest)
                if step == self._steps:
                    break
                optimiser.param_groups[0]["lr"] = self._rate * (1 + math.cos(math.pi * step / self._steps)) / 2
                optimiser.zero_grad()
                torch.autograd.backward(errors.sum())
                optimiser.step()
        return best

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1."""
        return self._image(latent.to(self.device)).clamp(0, 1)

    def _image(self, latent: torch.Tensor) -> torch.Tensor:
        image: torch.Tensor = self.pair.synthesis(self._mean + self._spread * latent, **self._fixed)
        return image / 2 + 0.5  # not yet clipped, so that inversion can come back from beyond white

    def _statistics(self, class_label: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean of w per layer, and its spread as one number."""
        width, classes = getattr(self.pair, "z_dim", None), int(getattr(self.pair, "c_dim", 0) or 0)
        if not isinstance(width, int):
            raise UserError(f"{self.name} should say in z_dim how wide its z is")
        if class_label is not None and class_label >= classes:
            raise UserError(f"{self.name} has {classes} classes; there is no class={class_label}")
        with torch.no_grad():
            draws = noise(range(_DRAWS), (width,)).to(self.device)
            asked = torch.arange(_DRAWS) % max(classes, 1) if class_label is None else torch.tensor([class_label])
            class_codes = (
                torch.nn.functional.one_hot(asked.expand(_DRAWS), classes).float().to(self.device) if classes else None
            )
            w = self.pair.mapping(draws, class_codes) if classes else self.pair.mapping(draws)
        mean = w.mean(0)
        return mean, (w - mean).square().mean().sqrt().clamp(min=1e-6)


def _errors(image: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the squared error per image over three resolutions: the coarse ones pull shapes into place first."""
    if image.shape != wanted.shape:
        raise UserError(f"the synthesis makes images {tuple(image.shape[1:])}, not {tuple(wanted.shape[1:])}")
    total = torch.zeros(len(wanted), device=wanted.device)
    for _ in range(3):
        total = total + (image - wanted).square().mean((1, 2, 3))
        if min(wanted.shape[-2:]) < 4:
            break
        image, wanted = (torch.nn.functional.avg_pool2d(side, 2) for side in (image, wanted))
    return total
