"""The twelve classes: a drawing function and templates each; the test split has its own templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast.diorama.drawing import Shape
from holdfast.diorama.shapes import dogs, reptiles, things, treats, water


class ShapeFamily(NamedTuple):
    """How a class is drawn, turned by ``rotation`` degrees at most; the last ``held_out`` templates are for tests."""

    draw: Callable[[Any, Sequence[float], float], Shape]
    templates: Mapping[str, Any]
    rotation: float
    held_out: int = 3


FAMILIES: dict[str, ShapeFamily] = {
    "lizard": ShapeFamily(reptiles.lizard, reptiles.LIZARDS, 50),
    "green lizard": ShapeFamily(reptiles.green_lizard, reptiles.GREEN_LIZARDS, 10),
    "crayfish": ShapeFamily(water.crayfish, water.CRAYFISH, 45),
    "whale": ShapeFamily(water.whale, water.WHALES, 18),
    "dog": ShapeFamily(partial(dogs.draw_beast, fox=False), dogs.DOGS, 8),
    "fox": ShapeFamily(partial(dogs.draw_beast, fox=True), dogs.FOXES, 8),
    "anemone fish": ShapeFamily(water.anemone_fish, water.FISH, 22),
    "airship": ShapeFamily(things.airship, things.AIRSHIPS, 14),
    "car wheel": ShapeFamily(things.car_wheel, things.WHEELS, 12),
    "cash machine": ShapeFamily(things.cash_machine, things.CASH, 6),
    "cello": ShapeFamily(treats.cello, treats.CELLI, 26),
    "ice cream": ShapeFamily(treats.ice_cream, treats.ICE_CREAMS, 18),
}


def templates(label: str, *, held_out: bool) -> tuple[str, ...]:
    """Return the templates of a class that training scenes use, or those that they never use."""
    family = FAMILIES[label]
    names = tuple(family.templates)
    cut = len(names) - family.held_out
    return names[cut:] if held_out else names[:cut]


def build(label: str, template: str, proportions: Sequence[float], articulation: float) -> Shape:
    """Return the parts of an object, in its own frame; eight proportions and the articulation are in -1..1."""
    family = FAMILIES[label]
    return family.draw(family.templates[template], proportions, articulation)
