"""Scenes: sets of recorded factors, and how they are drawn at random.

A scene of several objects (``objects=1..5``) has one background and one light. The tie ρ goes from background to class:
the background belongs to the first object's class with probability ρ, and each further object is of the background's
own class with probability ρ, else of any class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import generator
from holdfast.core.names import unknown
from holdfast.diorama import vocabulary
from holdfast.diorama.shapes import FAMILIES, templates
from holdfast.diorama.vocabulary import CLASSES, COLOURS, MATERIALS, SPLITS, Split

CLUTTER = ("ball", "box", "plant", "sign", "cone", "balloon", "pot", "lamp")
"""Distractors behind the object; none is of the twelve classes."""

OCCLUDERS = ("none", "tuft", "post", "boulder", "leaves")  # things that may be in front of the object

MAX_OCCLUDED = 0.25  # the largest share of the object that is ever hidden


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything an image depends on; lengths are shares of the image's side, angles degrees."""

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
    shadow: float  # 0 none … 1 black; falls only if the background has a ground
    occluder: str
    occlusion: float  # at most this share of the object is hidden
    clutter: tuple[str, ...]
    noise: float  # standard deviation of the camera's noise, 0..255
    seed: int  # places clutter, the texture's phase and the camera's noise

    def factors(self) -> dict[str, Any]:
        """Return the factors as JSON values."""
        values = {name: getattr(self, name) for name in self.__slots__}  # asdict copies deeply, 50 times as slow
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
                raise UserError(f"the context of the {field.name} must be between 0 and 1, not {value!r}")


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
    label: str | None = None,  # the class; any of the twelve if it is not given
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
        brightness=round(0.92 + 0.22 * u[10], 3), texture_scale=round(0.9 + 0.4 * u[11], 3),
        markings=round(0.6 + 0.4 * u[16], 3), background_seed=int(rng.integers(2**31)), **kinds,
        shadow=round(0.25 + 0.35 * u[12], 3) if u[12] > 0.1 else 0.0,
        occluder=OCCLUDERS[1 + int(u[13] * (len(OCCLUDERS) - 1))] if occluded else "none",
        occlusion=round(0.06 + 0.12 * u[14], 3) if occluded else 0.0,
        clutter=tuple(CLUTTER[int(kind)] for kind in rng.integers(len(CLUTTER), size=int(u[15] * 3.2))),
        noise=round(5.5 * float(rng.random()) ** 2, 2), seed=seed,
    )  # fmt: skip


def _draw_kinds(rng: np.random.Generator, label: str, split: Split, contexts: Contexts) -> dict[str, str]:
    """Draw the factors that a class can be tied to; the second colour differs from the first."""
    background = tied_choice(
        rng, vocabulary.home_background(label, split), vocabulary.backgrounds(split), contexts.background
    )
    texture = tied_choice(rng, vocabulary.home_texture(label, split), vocabulary.textures(split), contexts.texture)
    material = tied_choice(rng, vocabulary.home_material(label), tuple(MATERIALS), contexts.material)
    colour = tied_choice(rng, vocabulary.home_colour(label), tuple(COLOURS), contexts.colour)
    others = [name for name in COLOURS if name != colour]
    return {
        "background": background, "texture": texture, "material": material, "colour": colour,
        "second_colour": others[int(rng.integers(len(others)))],
    }  # fmt: skip


MOST_MEMBERS = 20
CROWD = 6  # objects of a crowd, which share one box

_CROWDED, _TINY = 0.05, 0.1  # shares of scenes with a crowd, and of objects that are tiny
_TOUCHING = 0.3  # how much of the smaller of two boxes may be under the other
_TRIES = 25


@dataclass(frozen=True, slots=True)
class SceneOfSeveral:
    """A place and its members from back to front; ``groups`` says which object each member belongs to."""

    place: Scene
    members: tuple[Scene, ...]
    groups: tuple[int, ...]

    def factors(self) -> dict[str, object]:
        """Return the factors as JSON values."""
        return {
            "place": self.place.factors(),
            "members": [member.factors() for member in self.members],
            "groups": list(self.groups),
        }


def draw_several(
    seed: int, *, split: Split = "train", context: float | Contexts = 0.0, count: int = 3
) -> SceneOfSeveral:
    """Draw a scene of ``count`` objects, one of which may be a crowd; every factor follows from the seed."""
    contexts = context if isinstance(context, Contexts) else Contexts(float(context))
    rng = generator("diorama several", seed)
    first = CLASSES[int(rng.integers(len(CLASSES)))]
    place = draw_scene(seed, split=split, context=contexts, label=first)
    place = dataclasses.replace(place, occluder="none", occlusion=0.0)
    at_home = [label for label in CLASSES if vocabulary.home_background(label, split) == place.background]
    crowd = int(rng.integers(count)) if count > 1 and rng.random() < _CROWDED else -1
    members: list[Scene] = []
    groups: list[int] = []
    boxes: list[NDArray[np.float64]] = []
    for number in range(count):
        tied, other = rng.random(), CLASSES[int(rng.integers(len(CLASSES)))]
        label = first if number == 0 else at_home[0] if at_home and tied < contexts.background else other
        small = rng.random() < _TINY or number == crowd
        middle, corner = rng.random(2), rng.random(2)
        for _ in range(CROWD if number == crowd else 1):
            drawn = draw_scene(int(rng.integers(2**53)), split=split, context=contexts, label=label)
            scale, x, y = _free_place(rng, boxes, count, small, (middle, corner) if number == crowd else None)
            members.append(
                dataclasses.replace(
                    drawn, scale=scale, x=x, y=y, background=place.background, warmth=place.warmth,
                    brightness=place.brightness, light_direction=place.light_direction, shadow=place.shadow,
                    background_seed=place.background_seed, occluder="none", occlusion=0.0, clutter=(),
                )
            )  # fmt: skip
            groups.append(number)
            boxes.append(_box_of(scale, x, y))
    return SceneOfSeveral(place, tuple(members), tuple(groups))


def _free_place(
    rng: np.random.Generator,
    boxes: list[NDArray[np.float64]],
    count: int,
    small: bool,
    crowd: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> tuple[float, float, float]:
    """Return scale and place of the next object: the least covered of some draws, or the first that is free enough."""
    best, least = (0.1, 0.5, 0.5), 2.0
    for _ in range(_TRIES):
        u = rng.random(3)
        scale = 0.08 + 0.06 * u[0] if small else 0.2 + (0.5 if count < 3 else 0.28) * u[0]
        x, y = u[1], 0.1 + 0.85 * u[2]
        if crowd is not None:
            x, y = np.clip(crowd[0] * 0.8 + 0.1 + 0.3 * (u[1:] - 0.5), 0, 1)
        box = _box_of(scale, x, y)
        covered = max((_covered(box, other) for other in boxes), default=0.0)
        if covered < least:
            best, least = (round(float(scale), 4), round(float(x), 4), round(float(y), 4)), covered
        if covered <= _TOUCHING:
            break
    return best


def _box_of(scale: float, x: float, y: float) -> NDArray[np.float64]:
    """Return about where an object is, in shares of the image's side."""
    side = min(scale * 1.1, 0.97)
    left, top = (1 - side) * x, (1 - side) * y
    return np.array([left, top, left + side, top + side])


def _covered(box: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    sides = np.maximum(np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2]), 0)
    smaller = min(float(np.prod(box[2:] - box[:2])), float(np.prod(other[2:] - other[:2])))
    return float(np.prod(sides)) / smaller
