"""Scenes: sets of recorded factors, and how they are drawn at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import generator
from holdfast.core.names import unknown
from holdfast.diorama import vocabulary
from holdfast.diorama.shapes import FAMILIES, templates
from holdfast.diorama.vocabulary import CLASSES, COLOURS, MATERIALS, SPLITS, Split

CLUTTER = ("ball", "box", "plant", "sign", "cone", "balloon", "pot", "lamp")
"""Distractors behind the object; none is of the twelve classes."""

OCCLUDERS = ("none", "tuft", "post", "boulder", "leaves")  # things that may stand in front of the object

MAX_OCCLUDED = 0.25  # the largest share of the object that is ever hidden


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a picture depends on; lengths are shares of the picture's side, angles degrees."""

    label: str
    template: str
    proportions: tuple[float, ...]  # eight, -1..1: lengths and widths within the template
    flip: bool
    rotation: float
    articulation: float  # -1..1: tails wag, heads lift, claws open
    scale: float  # the object's size: its longer side, where it is as high as wide
    x: float  # 0 at the left edge … 1 at the right
    y: float  # 0 at the top … 1 at the bottom
    light_direction: float  # -90 from the left … 90 from the right
    warmth: float  # -1 blue … 1 golden
    brightness: float  # 1 as painted
    texture: str
    texture_scale: float
    material: str
    colour: str
    second_colour: str
    markings: float  # how far tyres, bands, muzzles differ from the object's colour; 1 fully
    background: str
    background_seed: int
    shadow: float  # 0 none … 1 black; falls only where the background has a ground
    occluder: str
    occlusion: float  # at most this share of the object is hidden
    clutter: tuple[str, ...]
    noise: float  # standard deviation of the camera's noise, 0..255
    seed: int  # places clutter, the texture's phase and the camera's noise

    def factors(self) -> dict[str, Any]:
        """Return the factors as JSON values."""
        values = dataclasses.asdict(self)
        return values | {"proportions": list(self.proportions), "clutter": list(self.clutter)}

    @property
    def caption(self) -> str:
        """Return a description in words of the fixed vocabulary."""
        return vocabulary.caption(self.label, self.texture, self.material, self.background)


@dataclass(frozen=True, slots=True)
class Contexts:
    """How strongly a class goes with its home, 0..1: P(home) = ρ + (1 − ρ)/K among K kinds in use."""

    background: float = 0.0
    texture: float = 0.0
    material: float = 0.0
    colour: float = 0.3

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not 0 <= value <= 1:
                raise UserError(f"the context of the {field.name} lies between 0 and 1, {value!r} does not")


def tied_choice(rng: np.random.Generator, home: str, kinds: Sequence[str], context: float) -> str:
    """Return ``home`` with probability ρ, else any of the kinds, home included: P(home) = ρ + (1 − ρ)/K."""
    draws = rng.random(2)
    return home if draws[0] < context else kinds[int(draws[1] * len(kinds))]


def draw_scene(
    seed: int | np.random.Generator,  # of the whole scene; from a generator, the next seed is taken
    *,
    # ``train``; ``test`` has shape templates and textures of its own; ``ood`` has those of ``test`` and backgrounds
    # of its own.
    split: Split = "train",
    # how strongly class and background go together, 0..1; ``Contexts`` says the same of textures, materials and
    # colours.
    context: float | Contexts = 0.0,
    label: str | None = None,  # the class; any of the twelve where it is not given
) -> Scene:
    """Draw every factor."""
    if split not in SPLITS:
        raise unknown("split of diorama", split, SPLITS)
    if label is not None and label not in CLASSES:
        raise unknown("class of diorama", label, CLASSES)
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**53))
    contexts = context if isinstance(context, Contexts) else Contexts(float(context))
    rng = generator("diorama scene", seed)
    pick = int(rng.integers(len(CLASSES)))  # drawn in any case: a given label leaves the rest as it was
    label = CLASSES[pick] if label is None else label
    kinds = _draw_kinds(rng, label, split, contexts)
    shapes = templates(label, held_out=split != "train")
    u = rng.random(17).tolist()
    occluded = u[1] < 0.28
    return Scene(
        label=label, template=shapes[int(u[2] * len(shapes))],
        proportions=tuple(np.round(rng.uniform(-1, 1, 8), 3).tolist()), flip=u[3] < 0.5,
        rotation=round(FAMILIES[label].rotation * (2 * u[4] - 1), 2), articulation=round(2 * u[5] - 1, 3),
        scale=round(0.66 + 0.2 * u[0], 4), x=round(u[6], 4), y=round(0.2 + 0.7 * u[7], 4),
        light_direction=round(140 * u[8] - 70, 1), warmth=round(2 * u[9] - 1, 3),
        brightness=round(0.92 + 0.22 * u[10], 3), texture=kinds.texture, texture_scale=round(0.9 + 0.4 * u[11], 3),
        material=kinds.material, colour=kinds.colour, second_colour=kinds.second_colour,
        markings=round(0.6 + 0.4 * u[16], 3), background=kinds.background, background_seed=int(rng.integers(2**31)),
        shadow=round(0.25 + 0.35 * u[12], 3) if u[12] > 0.1 else 0.0,
        occluder=OCCLUDERS[1 + int(u[13] * (len(OCCLUDERS) - 1))] if occluded else "none",
        occlusion=round(0.06 + 0.12 * u[14], 3) if occluded else 0.0,
        clutter=tuple(CLUTTER[int(kind)] for kind in rng.integers(len(CLUTTER), size=int(u[15] * 3.2))),
        noise=round(5.5 * float(rng.random()) ** 2, 2), seed=seed,
    )  # fmt: skip


class _Kinds(NamedTuple):
    background: str
    texture: str
    material: str
    colour: str
    second_colour: str


def _draw_kinds(rng: np.random.Generator, label: str, split: Split, contexts: Contexts) -> _Kinds:
    """Draw the factors that a class can be tied to; the second colour differs from the first."""
    background = tied_choice(
        rng, vocabulary.home_background(label, split), vocabulary.backgrounds(split), contexts.background
    )
    texture = tied_choice(rng, vocabulary.home_texture(label, split), vocabulary.textures(split), contexts.texture)
    material = tied_choice(rng, vocabulary.home_material(label), tuple(MATERIALS), contexts.material)
    colour = tied_choice(rng, vocabulary.home_colour(label), tuple(COLOURS), contexts.colour)
    others = [name for name in COLOURS if name != colour]
    return _Kinds(background, texture, material, colour, others[int(rng.integers(len(others)))])
