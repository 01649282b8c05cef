"""Attacks as conditions: the settings of each. ``holdfast eval`` makes the images against every model.

A scenario knows no model, so what these return is what an attack starts from: the image itself. ``holdfast eval`` hands
it to the function named in ``attack``, once for every model; nothing else can make an attack's images.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.types import Image, Mask
from holdfast.scenarios.base.definition import Parameter, scenario

FAMILY = "attack"

_EPS = Parameter(
    "eps",
    4 / 255,
    "largest change of a value at the model's input, on a 0..1 scale; rounded down to whole steps of 1/255",
    minimum=1 / 255,
    maximum=1.0,
)
_SPACE = Parameter(
    "space",
    "all",
    "what counts as missed: any other output wins (all), or another class of the dataset does (dataset)",
    choices=("all", "dataset"),
)
_ATTACKS: dict[str, tuple[str, tuple[Parameter, ...]]] = {
    "fgsm": ("one step of the gradient's sign against the model (ℓ∞)", ()),
    "pgd": (
        "projected gradient descent against the model from a random start (ℓ∞)",
        (Parameter("steps", 20, "steps of the descent", minimum=1, maximum=10000),),
    ),
    "strong_attack": (
        "the worst of four attacks on the model, one of them without gradients (ℓ∞)",
        (
            Parameter("steps", 50, "steps of each descent", minimum=1, maximum=10000),
            Parameter(
                "decision_steps", 5, "steps of the attack without gradients; 0 leaves it out", minimum=0, maximum=1000
            ),
        ),
    ),
    "decision_attack": (
        "along the boundary of the model's decision; needs no gradients (ℓ∞)",
        (Parameter("steps", 10, "steps along the boundary", minimum=1, maximum=1000),),
    ),
}
"""Name → summary and further parameters."""


def starting_photo(image: Image, mask: Mask, **_: Any) -> Image:
    """Return the image that the attack starts from."""
    return image


for _name, (_summary, _further) in _ATTACKS.items():
    scenario(
        id=_name,
        summary=_summary,
        family=FAMILY,
        group="attacks",
        composites=False,
        needs_mask=False,
        parameters=(_EPS, _SPACE, *_further),
        attack=f"holdfast.models.attacks:{_name}",
    )(starting_photo)
