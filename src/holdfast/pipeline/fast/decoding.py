"""Decode images, masks and backgrounds, a few dozen samples at a time, in processes that do nothing else.

What such a process needs travels with each unit of work. It knows neither the collection nor the pool of donors, so
sixteen processes hold no more than their pictures.
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
from holdfast.scenarios.base.rendering import check_input, mask_missing

DONORS = 4
"""Donors that travel with a sample; the first of them is rarely unreadable."""


@dataclass(frozen=True)
class Order:
    """A sample, its conditions (as places in the run's list), and the samples that may lend it a background."""

    sample: Sample
    conditions: tuple[int, ...]
    donors: tuple[Sample, ...] = ()
    all_donors: bool = True  # whether the pool has no others for this sample


@dataclass(frozen=True)
class Unit:
    """Orders that are decoded together."""

    number: int
    orders: list[Order]


@dataclass
class Facts:
    """What is known about a unit's samples besides pixels; places are those of the orders."""

    number: int
    failed: list[tuple[int, int, str, str]] = field(default_factory=list)  # place, condition, status, reason
    donors: dict[int, dict[str, Any]] = field(default_factory=dict)
    undecided: list[int] = field(default_factory=list)  # places for which no donor that travelled along can be read


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
    """Return a unit of work, with the donors in the order in which the pool would try them."""
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
        """Decode a unit: return facts about its samples, and their pictures by size."""
        facts = Facts(unit.number)
        by_size: dict[tuple[int, ...], list[_Decoded]] = {}
        for place, order in enumerate(unit.orders):
            decoded = self._decode(place, order, facts)
            if decoded is not None:
                by_size.setdefault(decoded.image.shape, []).append(decoded)
        return facts, [
            Group(
                [decoded.place for decoded in same_size],
                np.stack([decoded.image for decoded in same_size]),
                np.stack([decoded.mask for decoded in same_size]),
                np.stack([decoded.background for decoded in same_size]),
            )
            for same_size in by_size.values()
        ]

    def _decode(self, place: int, order: Order, facts: Facts) -> _Decoded | None:
        """Return the pictures of one sample; None where no condition can be made of it."""
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
        # Only conditions with a donor use the background; for others, any picture of the size will do.
        return _Decoded(place, image, nothing if mask is None else mask, image if background is None else background)

    def _background(self, place: int, order: Order, shape: tuple[int, ...], facts: Facts) -> Image | None:
        """Return the cleared background of the first readable donor, in the picture's size."""
        for donor in order.donors:
            try:
                image, mask, no_mask = load_sample(donor, self.max_pixels)
            except SampleError:
                continue
            if not no_mask:
                background, facts.donors[place] = lent(Donor(donor.sample_id, donor.label, image, mask), shape)
                return background
        if order.all_donors:
            raise SampleError("no readable image of another class to borrow a background from")
        facts.undecided.append(place)
        return None


def lent(donor: Donor, shape: tuple[int, ...]) -> tuple[Image, dict[str, Any]]:
    """Return a donor's background in a picture's size, and the columns that name the donor."""
    cleared, details = donor_background(donor)
    return cover(cleared, shape[0], shape[1]), details


def settle(order: Order, pool: DonorPool, seed: int, shape: tuple[int, ...]) -> tuple[Image, dict[str, Any]]:
    """Return a background from the whole pool, for an order whose first donors cannot be read; or a SampleError."""
    return lent(SampleContext(order.sample, pool, seed).donor(same_class=False), shape)
