"""``ddim:NAME-OR-FOLDER[@REVISION]``: a pixel diffusion model as generator, by deterministic inversion.

The latent is the image carried up to a noise level along the model's own flow; ``decode`` walks the same few steps
down again, so that a change of the latent becomes a change the model finds likely. Improved DDPM, ADM and their
relatives, in diffusers' format, or as their authors publish them: ``ddim:FILE.pt``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.lazy import diffusers
from holdfast.core.names import Name
from holdfast.core.networks import quiet, resolve_device, weights_sha256
from holdfast.generators.loading import check_batch, checked_numbers, fetch, has, place, shown, to_unit

STRENGTH, STEPS = 0.3, 4
FLOOR = 0.02
"""Noise an image is taken to carry already, in units of the signal. From no noise at all there is no way back: the
last step would wipe out every grain that the model takes for noise."""
REFINEMENTS = 16
"""Corrections of every step up, each one evaluation of the model; far fewer than a walk makes in ``decode``."""

SCHEDULES = {"linear": "linear", "cosine": "squaredcos_cap_v2"}
OPTIONS = {"strength": float, "steps": int, "class": int, "schedule": str}
_FILE_OPTIONS = {"heads": int, "timesteps": int, "size": int}


def load(name: Name, *, device: str) -> Ddim:
    """Load a UNet2DModel from safetensors, alone or as the part ``unet`` of a pipeline.

    Options: ``strength`` (0.3, of all timesteps, how far up), ``steps`` (4), ``class`` (of a class-conditional model;
    without it, the mean of all classes), ``schedule=linear|cosine`` (in place of the scheduler next to the UNet). A
    file in guided-diffusion's format has ``heads``, ``timesteps`` and ``size`` as well, and a linear schedule unless
    given another.
    """
    file = Path(place(name)[0])
    if file.suffix in (".pt", ".safetensors") and file.is_file():
        return _of_file(name, file, device)
    options = checked_numbers(name, OPTIONS)
    unet = fetch("UNet2DModel", name, subfolder="unet" if has("UNet2DModel", name, "unet") else "")
    return Ddim(shown(name), unet, _scheduler(name, options.pop("schedule", "")), device=device, **renamed(options))


def _of_file(name: Name, file: Path, device: str) -> Ddim:
    """Load ADM's or Improved DDPM's own checkpoint."""
    from holdfast.generators.guided_unet import TIMESTEPS, read

    options = checked_numbers(name, OPTIONS | _FILE_OPTIONS, positive=("timesteps",))
    timesteps, schedule = options.pop("timesteps", TIMESTEPS), options.pop("schedule", "linear")
    if schedule not in SCHEDULES:
        raise UserError(f"ddim: option schedule={schedule} should be {' or '.join(SCHEDULES)}")
    unet = read(file, heads=options.pop("heads", 0), timesteps=timesteps, size=options.pop("size", 0))
    scale = 1000 / timesteps  # the published linear schedule keeps its total noise
    scheduler = diffusers.DDPMScheduler(
        timesteps, beta_start=1e-4 * scale, beta_end=0.02 * scale, beta_schedule=SCHEDULES[schedule]
    )
    return Ddim(shown(name), unet, scheduler, device=device, **renamed(options))


def renamed(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a name as arguments; ``class`` is a reserved word in Python."""
    return {("class_label" if key == "class" else key): value for key, value in options.items()}


class Ddim:
    """A ``LatentGenerator``: the latent is the noised image, as large as the image itself.

    A step down is DDIM's, from the model's own answer at the upper level. A step up solves for the point from which
    that step leads here, by fixed-point iteration, and keeps each image's best answer.
    """

    def __init__(
        self,
        name: str,
        unet: Any,
        scheduler: Any,
        *,
        device: str = "auto",
        strength: float = STRENGTH,
        steps: int = STEPS,
        class_label: int | None = None,
    ) -> None:
        self.name = name
        self.device = resolve_device(device)
        if not 0 < strength <= 1 or steps < 1:
            raise UserError(f"{name}: strength should be above 0 and at most 1, and steps at least 1")
        self.fingerprint = fingerprint(
            {
                "library": getattr(unet, "identity", "diffusers.UNet2DModel"),
                "weights": weights_sha256(unet),
                "noise": bytes_sha256(scheduler.alphas_cumprod.numpy().tobytes()),
                "predicts": str(scheduler.config.prediction_type),
                "strength": strength,
                "steps": steps,
                "class": class_label,
                "inversion": [FLOOR, REFINEMENTS],
            }
        )
        _check_parts(name, unet, scheduler)
        self.factor = 2 ** (len(unet.config.block_out_channels) - 1)
        self.size = int(unet.config.sample_size) if isinstance(unet.config.sample_size, int) else None
        self.module = unet.float().eval().requires_grad_(False).to(self.device)
        self._classes = _conditioned(name, self.module, class_label)
        self._predicts = str(scheduler.config.prediction_type)
        self._times, self._signal, self._noise = levels(scheduler.alphas_cumprod, strength, steps)

    def encode(self, batch: torch.Tensor) -> torch.Tensor:
        """RGB NCHW in 0..1 → latent of the same shape. Gradients do not pass."""
        check_batch(batch, self.name, factor=self.factor, size=self.size)
        with torch.no_grad():
            latent = (batch.to(self.device) * 2 - 1) * self._signal[0]
            for level in range(1, len(self._times)):
                latent = self._up(latent, level)
        return latent

    def decode(self, latent: torch.Tensor, original: torch.Tensor | None = None) -> torch.Tensor:
        """Latent → RGB NCHW in 0..1, ``steps`` evaluations of the model."""
        latent = latent.to(self.device)
        for level in range(len(self._times) - 1, 0, -1):
            latent = self._down(latent, level)
        return to_unit(latent / self._signal[0])

    def _down(self, latent: torch.Tensor, level: int) -> torch.Tensor:
        """Step from a noise level to the one below."""
        clean, noise = self._answer(latent, level)
        return self._signal[level - 1] * clean + self._noise[level - 1] * noise

    def _up(self, latent: torch.Tensor, level: int) -> torch.Tensor:
        """Search, in ``REFINEMENTS`` iterations, for the point of this level that ``_down`` takes to ``latent``."""
        ratio = self._signal[level] / self._signal[level - 1]
        above = best = ratio * latent
        smallest = torch.full((len(latent), 1, 1, 1), float("inf"), device=latent.device)
        for _ in range(REFINEMENTS):
            missed = latent - self._down(above, level)
            error = missed.square().mean((1, 2, 3), keepdim=True)
            best = torch.where(error < smallest, above, best)
            smallest = torch.minimum(error, smallest)
            above = above + ratio * missed
        return best

    def _answer(self, latent: torch.Tensor, level: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the model's estimates of the clean image and of the noise."""
        labels = {} if self._classes is None else {"class_labels": self._classes.expand(len(latent))}
        time = torch.full((len(latent),), self._times[level], device=latent.device)
        answer = self.module(latent, time, **labels).sample[:, :3]  # a learned variance, if any, comes after
        signal, spread = self._signal[level], self._noise[level]
        if self._predicts == "sample":
            return answer, (latent - signal * answer) / spread
        if self._predicts == "v_prediction":
            return signal * latent - spread * answer, signal * answer + spread * latent
        return (latent - spread * answer) / signal, answer


def levels(kept: torch.Tensor, strength: float, steps: int) -> tuple[list[int], list[float], list[float]]:
    """Return timesteps up to ``strength``, evenly spaced in log noise to signal, with the signal and noise of each."""
    kept = kept.double().cpu()
    ratio = ((1 - kept) / kept).sqrt()
    top = min(len(kept) - 1, max(1, round(strength * len(kept)) - 1))
    low = min(float(ratio[top]) / 2, max(FLOOR, float(ratio[0])))
    wanted = torch.logspace(torch.tensor(low).log10().item(), ratio[top].log10().item(), steps + 1, dtype=kept.dtype)
    times = sorted({int((ratio - level).abs().argmin()) for level in wanted})
    if len(times) < 2:
        raise UserError(f"strength={strength} is less than one timestep of this model; raise it")
    return times, [float(kept[at].sqrt()) for at in times], [float((1 - kept[at]).sqrt()) for at in times]


def _scheduler(name: Name, schedule: str) -> Any:
    """Return the noise schedule that was named or that is next to the UNet; raise UserError instead of guessing."""
    if schedule:
        if schedule not in SCHEDULES:
            raise UserError(f"ddim: option schedule={schedule} should be {' or '.join(SCHEDULES)}")
        return diffusers.DDPMScheduler(beta_schedule=SCHEDULES[schedule])
    where, revision, _ = place(name)
    for subfolder in ("scheduler", None):
        try:
            with quiet("diffusers", "transformers"):
                config = diffusers.DDPMScheduler.load_config(where, revision=revision, subfolder=subfolder)
                if "beta_schedule" in config:
                    return diffusers.DDPMScheduler.from_config(config)
        except OSError:
            continue
        except (ValueError, TypeError, NotImplementedError) as error:
            raise UserError(f"{shown(name)} has a scheduler that cannot be used: {first_line(error)}") from error
    raise UserError(f"{shown(name)} has no scheduler of noise next to its UNet; say schedule={' or '.join(SCHEDULES)}")


def _check_parts(name: str, unet: Any, scheduler: Any) -> None:
    if unet.config.in_channels != 3 or unet.config.out_channels not in (3, 6):
        raise UserError(
            f"{name} should take 3 channels and answer with 3, or 6 with a learned variance, not "
            f"{unet.config.in_channels} and {unet.config.out_channels}: it works on something else than RGB pixels"
        )
    if scheduler.config.prediction_type not in ("epsilon", "sample", "v_prediction"):
        raise UserError(f"{name}: unknown prediction type {scheduler.config.prediction_type!r}")


def _conditioned(name: str, unet: Any, class_label: int | None) -> torch.Tensor | None:
    """Return the class to ask for, a tensor of one, or None; class-conditional models get the mean as a new class."""
    table = unet.class_embedding
    if table is None:
        if class_label is not None:
            raise UserError(f"{name} knows no classes; leave out class={class_label}")
        return None
    if not isinstance(table, torch.nn.Embedding):
        raise UserError(f"{name} takes something else than a class number ({unet.config.class_embed_type})")
    count = table.num_embeddings
    if class_label is not None and class_label >= count:
        raise UserError(f"{name} has {count} classes, from 0; there is no class={class_label}")
    weights = torch.cat([table.weight, table.weight.mean(0, keepdim=True)])
    unet.class_embedding = torch.nn.Embedding(count + 1, weights.shape[1], _weight=weights).requires_grad_(False)
    return torch.tensor([count if class_label is None else class_label], device=weights.device)
