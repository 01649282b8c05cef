"""How classifiers are trained and fine-tuned, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.errors import UserError
from holdfast.registry import unknown

CROP_SHARE = 0.875
"""Share of the shorter side that a crop keeps: 224 of 256 pixels."""


@dataclass(frozen=True)
class Recipe:
    """A way of training.

    Attributes:
        optimiser: ``adam`` or ``adamw``.
        rate: the full learning rate, from scratch.
        rate_pretrained: the same for weights that know something already.
        decay: of the weights; norms and biases are not decayed.
        epochs: passes over the training images.
        batch_size: images a step.
        size: pixels of the square that images are resized to.
        cycle: the rate goes up and down along a cosine, or stays.
        augment: images are mirrored, turned, zoomed and shifted a little, anew in every epoch.
        smoothing: of the labels, 0..1.
        average: share of all steps over which weights are averaged for use; 0 takes them as they are.
        clip: largest norm of the gradients; 0 leaves them.
        mixed: bfloat16 on a GPU for the layers that bear it.
        crop: pictures keep their proportions and are cropped, at random in training and from the middle in the test,
            instead of being squeezed.
    """

    optimiser: str
    rate: float
    rate_pretrained: float
    decay: float
    epochs: int
    batch_size: int
    size: int = 224
    cycle: bool = False
    augment: bool = False
    smoothing: float = 0.0
    average: float = 0.0
    clip: float = 0.0
    mixed: bool = False
    crop: bool = False

    @property
    def scaled(self) -> int:
        """Return the pixels of the shorter side before the crop, as timm's ``crop_pct`` has it; 0 without crops."""
        return int(self.size / CROP_SHARE) if self.crop else 0

    @property
    def schedule(self) -> Callable[[float], float]:
        """Return a function from the share of training done to a factor of the learning rate."""
        from holdfast.training.loop import constant, one_cycle

        return one_cycle if self.cycle else constant

    def keep(self, steps: int) -> float | None:
        """Return how much of the averaged weights each of so many steps keeps; None without averaging."""
        return 1 - 1 / max(2.0, self.average * steps) if self.average else None


RECIPES = {
    "paper": Recipe("adam", 1e-4, 1e-4, 0.0, 200, 16),
    "fast": Recipe(
        "adamw", 2e-3, 3e-4, 0.05, 40, 64, cycle=True, augment=True, smoothing=0.1, average=0.02, clip=1.0, mixed=True
    ),
}
"""``paper``: Adam at 1e-4 for 200 epochs, batches of 16, 224², as published with XIMAGENET-12; nothing else is stated
there, so nothing else is done."""


def find_recipe(
    name: str, *, epochs: int = 0, batch_size: int = 0, size: int = 0, rate: float = 0.0, crop: bool = False
) -> Recipe:
    """Return a recipe by name; values that are not 0 replace its own."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    recipe = replace(RECIPES[name], crop=crop)
    changed: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "size": size}
    for option, value in changed.items():
        if value < 0:
            raise UserError(f"{option} must be above 0, not {value}")
    if not 0 <= rate < float("inf"):
        raise UserError(f"a learning rate is a number above 0, not {rate}")
    if batch_size == 1:
        raise UserError("a batch needs at least 2 images")
    recipe = replace(recipe, **{option: value for option, value in changed.items() if value})
    return replace(recipe, rate=rate, rate_pretrained=rate) if rate else recipe


@dataclass(frozen=True)
class RemedyRecipe:
    """How a model is fine-tuned.

    Attributes:
        optimiser: ``adamw`` or ``sgd`` (momentum 0.9).
        rate: the full learning rate.
        epochs: passes over the images.
        batch_size: images a step.
        cycle: up and down along a cosine, or one rate throughout.
        moves: small turns, zooms and shifts besides mirroring.
    """

    optimiser: str
    rate: float
    epochs: int
    batch_size: int
    cycle: bool
    moves: bool


REMEDIES = {
    "default": RemedyRecipe("adamw", 3e-4, 8, 32, cycle=True, moves=True),
    "paper": RemedyRecipe("sgd", 1e-4, 10, 32, cycle=False, moves=False),
}
"""``paper``: SGD at 1e-4 for 10 epochs, as published with ImageNet-D; momentum, batch and mirroring are ours."""
