"""Who lends a background, and what is decoded how often."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.core.errors import SampleError
from holdfast.core.types import DEFAULT_MAX_PIXELS, Image, Mask, Sample
from holdfast.pipeline import donors
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.samples import render_conditions
from holdfast.scenarios import parse_conditions


class Counted:
    """An image that knows how often it was decoded."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.loads = 0

    def fingerprint(self) -> str:
        return str(self.value)

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        self.loads += 1
        return np.full((20, 30, 3), self.value, np.uint8)


class Corner:
    """A mask of one corner, or one that cannot be read."""

    def __init__(self, readable: bool = True) -> None:
        self.readable = readable

    def fingerprint(self) -> str:
        return "corner"

    def load(self, height: int, width: int) -> Mask:
        if not self.readable:
            raise SampleError("the mask is cut short or damaged")
        mask = np.zeros((height, width), np.bool_)
        mask[:5, :5] = True
        return mask


def samples(count: int) -> list[Sample]:
    return [Sample(f"{'ab'[n % 2]}/{n}", "ab"[n % 2], Counted(n), Corner()) for n in range(count)]


def rendered(sample: Sample, pool: DonorPool, names: str = "random_background,red") -> list[Image]:
    made = render_conditions(sample, parse_conditions(names), pool, seed=3, max_pixels=DEFAULT_MAX_PIXELS)
    return [one.rendered.image for one in made if one.rendered is not None]


def test_an_image_is_decoded_once_for_itself_and_for_those_that_borrow_from_it() -> None:
    collection = samples(6)
    pool = DonorPool(collection)
    for sample in collection:
        assert len(rendered(sample, pool)) == 2
    assert [sample.image.loads for sample in collection] == [1] * 6  # type: ignore[attr-defined]


def test_what_is_remembered_changes_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    collection = samples(6)
    pool = DonorPool(collection)
    remembered = [rendered(sample, pool) for sample in collection]
    monkeypatch.setattr(donors, "CACHE_BYTES", 0)
    forgetful = DonorPool(collection)
    for sample, expected in reversed(list(zip(collection, remembered, strict=True))):
        assert all(np.array_equal(*pair) for pair in zip(rendered(sample, forgetful), expected, strict=True))
    assert len(forgetful._cache) == 1


def test_only_what_can_be_lent_is_remembered() -> None:
    collection = samples(4)
    stranger = Sample("c/9", "c", Counted(9), Corner())
    pool = DonorPool(collection)
    rendered(stranger, pool)
    assert "c/9" not in pool._cache and len(pool._cache) == 1
    unused = DonorPool(collection)
    rendered(collection[0], unused, "red")  # nothing borrows
    assert not unused._cache


def test_a_donor_whose_mask_cannot_be_read_is_passed_over() -> None:
    damaged = [Sample(f"b/{n}", "b", Counted(n), Corner(readable=False)) for n in range(5)]
    whole = Sample("b/9", "b", Counted(9), Corner())
    borrower = Sample("a/0", "a", Counted(100), Corner())
    pool = DonorPool([*damaged, whole])
    for seed in range(5):
        assert pool.draw(borrower, np.random.default_rng(seed), same_class=False).sample_id == "b/9"
    with pytest.raises(SampleError, match=r"no image of another class .*or none that can be read"):
        DonorPool(damaged).draw(borrower, np.random.default_rng(0), same_class=False)
    with pytest.raises(SampleError, match="no other image of this class"):  # the borrower is the only one
        DonorPool([borrower, whole]).draw(borrower, np.random.default_rng(0), same_class=True)


@pytest.mark.parametrize(("lenders", "narrower"), [(240, 0.05), (40, 0.035), (12, 0.02)])
def test_donors_drawn_from_keys_cost_little_beside_donors_dealt_out_evenly(lenders: int, narrower: float) -> None:
    """The width of an interval where images on one donor share a tenth of the variance: docs/statistics/sample-size."""
    photos = [Sample(f"c{n % 12}/{n}", f"c{n % 12}", Counted(n)) for n in range(240)]
    pool = DonorPool(photos if lenders == 240 else [Sample(f"b/{n}", "", Counted(n)) for n in range(lenders)])
    widths = []
    for seed in range(5):
        drawn = [next(iter(pool.candidates(s, donors.donor_draws(seed, s, False), same_class=False))) for s in photos]
        loads = np.unique([donor.sample_id for donor in drawn], return_counts=True)[1]
        even = max(len(photos) / lenders, 1)
        widths.append(np.sqrt((1 + ((loads**2).sum() / len(photos) - 1) * 0.1) / (1 + (even - 1) * 0.1)))
    assert 1 <= np.mean(widths) <= 1 + narrower


def shared_by(collection: list[Sample], *, same_class: bool, most: int = 4) -> list[list[str]]:
    pool = DonorPool(collection)
    return [[each.sample_id for each in pool.in_turns(one, 3, same_class=same_class)][:most] for one in collection]


def test_all_samples_share_one_order_of_donors_and_skip_their_own_class_or_themselves() -> None:
    labels = "aaabbbccc"
    collection = [Sample(f"{label}/{n}", label, Counted(n), Corner()) for n, label in enumerate(labels)]
    lent = shared_by(collection, same_class=False)
    assert all(len(set(own)) == 4 and not any(name[0] == label for name in own)
               for own, label in zip(lent, labels, strict=True))  # fmt: skip
    assert lent[0] == lent[1] and len({name for own in lent for name in own}) == 6  # the first two of each class
    own_class = shared_by(collection, same_class=True)
    assert [sorted(own) for own in own_class[:2]] == [["a/1", "a/2"], ["a/0", "a/2"]]
    assert own_class[0][0] == own_class[1][0] or "a/0" in own_class[1][:1] or "a/1" in own_class[0][:1]
    assert shared_by(collection[::-1], same_class=False)[::-1] != shared_by(collection, same_class=True)


def test_a_sample_whose_class_has_too_few_images_is_rejected_with_the_reason() -> None:
    collection = samples(4)
    made = render_conditions(
        collection[0], parse_conditions("same_class_sweep@draw_2"), DonorPool(collection), seed=3,
        max_pixels=DEFAULT_MAX_PIXELS,
    )  # fmt: skip
    (one,) = made
    assert (
        one.status == "rejected" and one.error == "a has 1 other images that lend a background, so there is no draw 2"
    )
