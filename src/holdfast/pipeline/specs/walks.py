"""The spec of ``holdfast perturb``; what the published protocol leaves open is named here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.core.errors import UserError
from holdfast.core.options import Spec, option, part
from holdfast.pipeline.specs.data import DataSpec, batch_size, device, labels, models, retry_errors

SPACES = ("dataset", "all")
LOSSES = ("cross_entropy", "margin")


@dataclass(frozen=True)
class WalkOptions(Spec):
    """How far, which way and how fast images walk."""

    PANEL = "Walks"

    steps: int = option(50, help="Largest number of steps of a walk.", least=1)
    step_size: float = option(
        0.001, help="How far a step moves every dimension of the latent (sign) or their root mean square (normalised); "
        "raw gradients and Adam's steps are multiplied by it.",
    )  # fmt: skip
    gradient: str = option("sign", help="Form of a step.", choices=("sign", "normalised", "raw", "adam"))
    loss: str = option("cross_entropy", help="Loss that the walk climbs.", choices=LOSSES)
    first: str = option("step", help="First image that the oracle judges: after a step, or the plain reconstruction.",
                        choices=("step", "reconstruction"))  # fmt: skip
    start: str = option("clean", help="Start at the image, or at an image that one FGSM step has changed.",
                        choices=("clean", "fgsm"))  # fmt: skip
    fgsm_epsilon: float = option(0.003, help="Length of that FGSM step, 0 to 1.")
    direction: str = option("loss", help="Climb the loss, or walk in one random direction per image.",
                            choices=("loss", "random"))  # fmt: skip
    stop_when_fooled: bool = option(False, help="End at the first accepted image with a wrong answer.")
    black_box: int = option(0, help="Probes per step, for models without gradients; 0 uses gradients.", least=0)
    probe_size: float = option(
        0.05, help="Spread of these probes in the latent; a small one drowns in the rounding of images."
    )  # fmt: skip
    precision: str = option("float32", help="Precision of generator, model and oracle; latents are always float32.",
                            choices=("float32", "bfloat16"))  # fmt: skip
    compile: bool = option(False, help="Compile the step: for many images on a GPU.")
    batch_size: int = batch_size(16, "Number of images that walk at a time.")
    deterministic: bool = option(False, help="Walk one image at a time, so that results are exact to the last bit.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("step_size", "probe_size", "fgsm_epsilon"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{name.replace('_', ' ')} is a number above 0, not {value}")


@dataclass(frozen=True)
class PerturbSpec(DataSpec):
    """What ``holdfast perturb`` does."""

    models: tuple[str, ...] = models("Names of the models under test")
    generator: str = option("", help="Generator that makes images from latents (holdfast ls generators).")
    oracle: str = option("", help="Oracle that says how far a walk may go (holdfast ls oracles).")
    labels: str | None = labels()
    space: str = option("dataset", choices=SPACES,
                        help="Loss, oracle and accuracy among the dataset's classes, or over all outputs.")  # fmt: skip
    loss_space: str = option("", help="Another space for the loss.", choices=SPACES)
    oracle_space: str = option("", help="Another space for the oracle.", choices=SPACES)
    size: int = option(
        0, help="Width and height of images; 0: the generator's own, or the first image's short side, 256 at most.",
        least=0, unit="pixels",
    )  # fmt: skip
    sparse: str | None = option(None, help="Move only what this mask allows (holdfast sparse).", is_path=True)
    random_walk: bool = option(True, help="Walk as far in a random direction, too.")
    keep_images: bool = option(False, help="Keep perturbed images, with a manifest.")
    keep_latents: bool = option(False, help="Keep both ends of walks, for holdfast sparse.")
    pictures: int = option(4, help="Keep first and last image of so many photos, for the report.", least=0)
    frames: int = option(0, help="Keep every image of the first so many walks per model.", least=0)
    device: str = device()
    retry_errors: bool = retry_errors()
    walk: WalkOptions = part(WalkOptions)  # noqa: RUF009
