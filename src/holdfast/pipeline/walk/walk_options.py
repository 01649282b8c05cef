"""What can be chosen of a walk; the published protocol's unstated parts are named here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.core.errors import UserError
from holdfast.pipeline.walk.walk_model import LOSSES
from holdfast.registry import unknown

CHOICES: dict[str, tuple[str, ...]] = {
    "gradient": ("sign", "normalised", "raw", "adam"),
    "loss": LOSSES,
    "first": ("step", "reconstruction"),
    "start": ("clean", "fgsm"),
    "direction": ("loss", "random"),
    "precision": ("float32", "bfloat16"),
}


@dataclass(frozen=True)
class WalkOptions:
    """How far, which way and how fast.

    Attributes:
        steps: the budget.
        step_size: how far a step moves every dimension of the latent (``sign``), or their root mean square
            (``normalised``); what ``raw`` gradients and Adam's steps are multiplied with.
        gradient: form of the step.
        loss: what the walk climbs.
        first: the first image that the oracle decides on, the one after a step or the plain reconstruction.
        start: ``fgsm`` encodes an image that one step of the gradient's sign in pixels has changed.
        fgsm_epsilon: the length of that step, 0..1.
        direction: up the loss, or one random direction an image with steps of the same length.
        stop_when_fooled: end at the first accepted image that the model gets wrong.
        black_box: probes a step that estimate the gradient from scores alone; 0 follows gradients.
        probe_size: the spread of these probes in the latent; too small a one drowns in the rounding of images.
        precision: of generator, model and oracle; latents and steps are float32 always.
        compile: compile the step; worth it on a GPU, for many images.
        batch_size: images that walk at a time.
        deterministic: one image at a time, so that nothing but the image itself decides its last bits.
    """

    steps: int = 50
    step_size: float = 0.001
    gradient: str = "sign"
    loss: str = "cross_entropy"
    first: str = "step"
    start: str = "clean"
    fgsm_epsilon: float = 0.003
    direction: str = "loss"
    stop_when_fooled: bool = False
    black_box: int = 0
    probe_size: float = 0.05
    precision: str = "float32"
    compile: bool = False
    batch_size: int = 16
    deterministic: bool = False

    def __post_init__(self) -> None:
        for option, known in CHOICES.items():
            if getattr(self, option) not in known:
                raise unknown(f"choice of {option.replace('_', ' ')}", str(getattr(self, option)), known)
        for option, least in (("steps", 1), ("batch_size", 1), ("black_box", 0)):
            if getattr(self, option) < least:
                raise UserError(f"{option.replace('_', ' ')} is {least} or more, not {getattr(self, option)}")
        for option in ("step_size", "probe_size", "fgsm_epsilon"):
            value = getattr(self, option)
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{option.replace('_', ' ')} is a number above 0, not {value}")
