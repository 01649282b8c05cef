from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

from holdfast.annotate.confidence import fill_holes, largest_components, mask_confidence
from holdfast.core.types import Mask

MASKS = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=20))


def square(side: int = 60, low: int = 15, high: int = 45) -> Mask:
    mask = np.zeros((side, side), np.bool_)
    mask[low:high, low:high] = True
    return mask


def soft(mask: Mask, sure: float = 1.0) -> np.ndarray:
    return np.where(mask, 0.5 + sure / 2, 0.5 - sure / 2).astype(np.float32)


def test_a_decided_whole_object_is_trusted_fully() -> None:
    assert mask_confidence(soft(square()), square()) == pytest.approx(1)


def test_each_flaw_lowers_it() -> None:
    good = mask_confidence(soft(square(), 0.9), square())
    holed, split = square(), square()
    holed[25:35, 25:35] = False
    split[:, 28:32] = False
    tiny, huge = square(60, 28, 31), square(60, 1, 60)
    assert mask_confidence(soft(square(), 0.5), square()) < good
    for worse in (holed, split, tiny, huge):
        assert mask_confidence(soft(worse, 0.9), worse) < good


def test_agreement_is_the_expected_overlap() -> None:
    mask = square()  # 900 of 3600 pixels
    assert mask_confidence(soft(mask, 0.8), mask) == pytest.approx(0.9 * 900 / (900 + 0.1 * 2700))


def test_none_and_all_are_worth_nothing() -> None:
    for mask in (np.zeros((9, 9), np.bool_), np.ones((9, 9), np.bool_)):
        assert mask_confidence(soft(mask), mask) == 0


def test_large_masks_are_judged_as_small_ones() -> None:
    small, large = square(), np.kron(square(), np.ones((20, 20), np.bool_))
    assert mask_confidence(soft(large, 0.7), large) == pytest.approx(mask_confidence(soft(small, 0.7), small), abs=0.03)


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"\(3, 4\) and the mask \(4, 3\) must have the same size"):
        mask_confidence(np.zeros((3, 4), np.float32), np.zeros((4, 3), np.bool_))


@given(MASKS, st.integers(0, 2**32 - 1))
def test_it_lies_between_0_and_1(mask: Mask, seed: int) -> None:
    values = np.random.default_rng(seed).random(mask.shape, np.float32)
    assert 0 <= mask_confidence(values, mask) <= 1


@settings(max_examples=200)
@given(MASKS)
def test_holes_are_filled_as_scipy_fills_them(mask: Mask) -> None:
    assert (fill_holes(mask) == ndimage.binary_fill_holes(mask)).all()


@settings(max_examples=200)
@given(MASKS, st.sampled_from([0.2, 0.5, 1.0]))
def test_components_are_kept_by_size(mask: Mask, fraction: float) -> None:
    labels, count = ndimage.label(mask, np.ones((3, 3)))
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    kept = largest_components(mask, fraction=fraction)
    assert not (kept & ~mask).any()
    if count:
        expected = sizes.max() if fraction == 1 else sizes[sizes >= fraction * sizes.max()].sum()
        assert kept.sum() == expected
