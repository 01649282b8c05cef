"""Images, masks and backgrounds from files, a few dozen samples at a time, in processes that do nothing else.

What such a process needs travels with each unit of work: it knows neither the collection nor the pool of donors, so
sixteen of them hold no more than their pictures.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import RejectedError, SampleError
from holdfast.core.types import Donor, Image, Mask, Sample
from holdfast.pipeline.donors import DonorPool, SampleContext, donor_draws, load_sample
from holdfast.scenarios import Condition
from holdfast.scenarios.background import cover, donor_background
from holdfast.scenarios.rendering import check_input, mask_missing

DONORS = 4
"""So many of those that could lend a background travel with a sample; rarely is the first one unreadable."""


@dataclass(frozen=True)
class Order:
    """A sample, the conditions it is wanted under (places in the run's list), and who may lend it a background."""

    sample: Sample
    conditions: tuple[int, ...]
    donors: tuple[Sample, ...] = ()
    all_donors: bool = True  # there are no others


@dataclass(frozen=True)
class Unit:
    """Orders that are done together."""

    number: int
    orders: list[Order]


@dataclass
class Facts:
    """What is known of a unit's samples besides pixels; places are those of the orders."""

    number: int
    failed: list[tuple[int, int, str, str]] = field(default_factory=list)  # place, condition, status, reason
    donors: dict[int, dict[str, Any]] = field(default_factory=dict)
    undecided: list[int] = field(default_factory=list)  # none of the donors that came along can be read


@dataclass
class Group:
    """Pictures of one size: the places of their orders, NHWC uint8, NHW bool, NHWC uint8."""

    places: list[int]
    images: NDArray[np.uint8]
    masks: NDArray[np.bool_]
    backgrounds: NDArray[np.uint8]


@dataclass
class _Decoded:
    place: int
    image: Image
    mask: Mask
    background: Image


def unit_of(
    number: int,
    wanted: Sequence[tuple[Sample, Sequence[int]]],
    conditions: Sequence[Condition],
    pool: DonorPool,
    seed: int,
) -> Unit:
    """A unit of work, with the donors that the pool would ask in turn."""
    borrows = {place for place, condition in enumerate(conditions) if condition.definition.donor}
    orders = []
    for sample, places in wanted:
        lenders: list[Sample] = []
        if borrows.intersection(places):
            asked = pool.candidates(sample, donor_draws(seed, sample, False), same_class=False)
            lenders = list(itertools.islice(asked, DONORS + 1))
        orders.append(Order(sample, tuple(places), tuple(lenders[:DONORS]), len(lenders) <= DONORS))
    return Unit(number, orders)


class Decoder:
    """Decodes units of work."""

    def __init__(self, conditions: Sequence[Condition], max_pixels: int) -> None:
        self.conditions = list(conditions)
        self.max_pixels = max_pixels

    def __call__(self, unit: Unit) -> tuple[Facts, list[Group]]:
        """What is known of a unit's samples, and their pictures by size."""
        facts = Facts(unit.number)
        by_size: dict[tuple[int, ...], list[_Decoded]] = {}
        for place, order in enumerate(unit.orders):
            one = self._decode(place, order, facts)
            if one is not None:
                by_size.setdefault(one.image.shape, []).append(one)
        return facts, [
            Group(
                [one.place for one in alike],
                np.stack([one.image for one in alike]),
                np.stack([one.mask for one in alike]),
                np.stack([one.background for one in alike]),
            )
            for alike in by_size.values()
        ]

    def _decode(self, place: int, order: Order, facts: Facts) -> _Decoded | None:
        """The pictures of one sample; None where no condition can be made of it."""
        try:
            image, mask, no_mask = load_sample(order.sample, self.max_pixels)
        except SampleError as error:
            facts.failed += [(place, number, "error", str(error)) for number in order.conditions]
            return None
        background: Image | None = None
        good = 0
        for number in order.conditions:
            condition = self.conditions[number]
            if mask is None and condition.definition.needs_mask:
                reason = no_mask or mask_missing(condition.scenario)
                facts.failed.append((place, number, "error" if no_mask else "skipped", reason))
                continue
            try:
                check_input(condition.definition, image, mask)
                if condition.definition.donor and background is None and place not in facts.undecided:
                    background = self._background(place, order, image.shape, facts)
            except SampleError as error:
                status = "rejected" if isinstance(error, RejectedError) else "error"
                facts.failed.append((place, number, status, str(error)))
                continue
            good += 1
        if not good:
            return None
        nothing = np.zeros(image.shape[:2], np.bool_)
        # Only who borrows looks at the background; any picture of the size will do elsewhere.
        return _Decoded(place, image, nothing if mask is None else mask, image if background is None else background)

    def _background(self, place: int, order: Order, shape: tuple[int, ...], facts: Facts) -> Image | None:
        """Of the first donor that can be read, cleared and in the picture's size."""
        for donor in order.donors:
            try:
                image, mask, no_mask = load_sample(donor, self.max_pixels)
            except SampleError:
                continue
            if not no_mask:
                made, facts.donors[place] = lent(Donor(donor.sample_id, donor.label, image, mask), shape)
                return made
        if order.all_donors:
            raise SampleError("no readable image of another class to borrow a background from")
        facts.undecided.append(place)
        return None


def lent(donor: Donor, shape: tuple[int, ...]) -> tuple[Image, dict[str, Any]]:
    """A donor's background in a picture's size, and what rows say about it."""
    cleared, details = donor_background(donor)
    return cover(cleared, shape[0], shape[1]), details


def settle(order: Order, pool: DonorPool, seed: int, shape: tuple[int, ...]) -> tuple[Image, dict[str, Any]]:
    """The background of an order whose first donors cannot be read, from the whole pool; SampleError without any."""
    return lent(SampleContext(order.sample, pool, seed).donor(same_class=False), shape)
