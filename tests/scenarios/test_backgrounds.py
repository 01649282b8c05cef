"""Donors, tiles and moved objects."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import SampleError
from holdfast.core.types import Donor
from holdfast.scenarios import parse_conditions, render
from holdfast.scenarios.background import cover
from holdfast.scenarios.base.compositing import largest_free_rectangle, without_object
from holdfast.testing.scenario import MemoryContext


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def box_mask(height, width, top, bottom, left, right):
    mask = np.zeros((height, width), bool)
    mask[top:bottom, left:right] = True
    return mask


def made(text, image, mask, context, seed=0, feather=0.0):
    (condition,) = parse_conditions(text, feather=feather)
    return render(condition, image, mask, rng=np.random.default_rng(seed), context=context)


def test_the_object_stays_in_place_over_the_donor_of_another_class():
    image, mask = noise(30, 40), box_mask(30, 40, 5, 20, 10, 30)
    scene = noise(30, 40, seed=1)
    context = MemoryContext("cat", [Donor("c", "cat", noise(9, 9), None), Donor("d", "dog", scene, None)])
    result = made("random_background", image, mask, context)
    assert np.array_equal(result.image[mask], image[mask]) and np.array_equal(result.image[~mask], scene[~mask])
    assert result.details == {"donor_id": "d", "donor_label": "dog", "donor_unmasked": True}
    assert np.array_equal(result.mask, mask)
    same = made("same_class_background", image, mask, context)
    assert same.details["donor_id"] == "c"


def test_no_donor_is_a_sample_error():
    image, mask = noise(8, 8), np.eye(8, dtype=bool)
    with pytest.raises(SampleError, match="another class"):
        made("random_background", image, mask, MemoryContext("cat"))
    with pytest.raises(SampleError, match="same class"):
        made("same_class_background", image, mask, MemoryContext("cat"))


def test_the_donors_own_object_is_gone():
    """The object is the only red thing in the donor: not a red pixel may be left of it."""
    donor_mask = box_mask(60, 80, 20, 50, 30, 60)
    scene = np.where(donor_mask[..., None], (255, 0, 0), (0, 90, 200)).astype(np.uint8)
    image, mask = np.full((60, 80, 3), 77, np.uint8), box_mask(60, 80, 0, 3, 0, 3)
    context = MemoryContext("cat", [Donor("d", "dog", scene, donor_mask)])
    result = made("random_background", image, mask, context)
    assert (result.image[~mask] == (0, 90, 200)).all()
    assert result.details == {"donor_id": "d", "donor_label": "dog", "donor_unmasked": False}
    for useless in (np.zeros_like(donor_mask), np.ones_like(donor_mask), None):
        context = MemoryContext("cat", [Donor("d", "dog", scene, useless)])
        result = made("random_background", image, mask, context)
        assert result.details["donor_unmasked"] and np.array_equal(result.image[~mask], scene[~mask])


def test_cover_resizes_to_cover_and_crops_around_the_centre():
    wide = np.zeros((10, 40, 3), np.uint8)
    wide[:, 15:25] = 200  # the middle square is what is left
    assert (cover(wide, 30, 30) == 200).all()
    tall = wide.transpose(1, 0, 2).copy()
    assert (cover(tall, 5, 5) == 200).all()
    assert np.array_equal(cover(wide, 10, 40), wide)
    rows, columns = np.mgrid[0:100, 0:100]
    slope = np.dstack([rows, columns, rows]).astype(np.uint8)
    out = cover(slope, 20, 40).astype(int)
    assert abs(out[..., 0].mean() - 49.5) < 1 and out[0, 0, 0] == pytest.approx(26, abs=2)
    assert cover(noise(1, 1), 7, 3).shape == (7, 3, 3)


def test_moved_returns_where_the_object_is_now():
    image, mask = np.full((60, 80, 3), 250, np.uint8), box_mask(60, 80, 10, 40, 20, 50)
    scene = np.full((60, 80, 3), 50, np.uint8)
    context = MemoryContext("cat", [Donor("d", "dog", scene, None)])
    corners = set()
    for seed in range(20):
        result = made("random_background@moved", image, mask, context, seed)
        scale, (x, y) = result.details["scale"], result.details["moved_to"]
        assert 0.5 <= scale <= 1
        side = round(30 * scale)
        assert np.array_equal(result.mask, box_mask(60, 80, y, y + side, x, x + side))
        assert (result.image[result.mask] == round(0.9 * 250 + 0.1 * 50)).all()
        assert (result.image[~result.mask] == 50).all()
        corners.add((x, y))
    assert len(corners) > 15
    option = made("random_background?placement=moved", image, mask, context)
    variant = made("random_background@moved", image, mask, context)
    assert np.array_equal(option.image, variant.image)


def test_moved_keeps_an_object_thinner_than_a_pixel():
    image, mask = noise(50, 50), np.eye(50, dtype=bool)
    context = MemoryContext("cat", [Donor("d", "dog", noise(20, 20), None)])
    result = made("random_background?placement=moved&scale_low=0.01&scale_high=0.2", image, mask, context)
    assert result.mask.any()


def test_released_is_a_saturating_sum_at_the_donors_size():
    image, mask = np.full((20, 20, 3), 200, np.uint8), box_mask(20, 20, 0, 20, 0, 10)
    scene = np.full((40, 60, 3), 90, np.uint8)
    own_object = box_mask(40, 60, 0, 9, 0, 9)
    context = MemoryContext("cat", [Donor("d", "dog", scene, own_object)])
    result = made("random_background@released", image, mask, context)
    assert result.image.shape == scene.shape
    assert (result.image[:, :28] == 255).all() and (result.image[:, 32:] == 90).all()
    assert np.array_equal(result.mask, box_mask(40, 60, 0, 40, 0, 30))


def test_only_background_leaves_no_silhouette():
    image, mask = noise(50, 70), np.zeros((50, 70), bool)
    cv2.circle(view := mask.view(np.uint8), (40, 25), 15, 1, -1)
    assert view.any()
    result = made("only_background", image, mask, MemoryContext())
    outside = np.ones_like(mask)
    outside[10:41, 25:56] = False
    assert np.array_equal(result.image[outside], image[outside]) and not result.mask.any()
    # The left strip (25 columns) is the widest: the box is that strip mirrored at column 25, and once more.
    for column in range(25, 56):
        source = (2 * 25 - 1 - column) if column < 50 else column - 50
        assert np.array_equal(result.image[10:41, column], image[10:41, source])


@pytest.mark.parametrize("side", ["left", "right", "top", "bottom"])
def test_the_largest_strip_fills_the_box_from_any_side(side):
    mask = box_mask(40, 40, 2, 38, 2, 38)
    rows, columns = {
        "left": (slice(None), slice(0, 10)),
        "right": (slice(None), slice(30, 40)),
        "top": (slice(0, 10), slice(None)),
        "bottom": (slice(30, 40), slice(None)),
    }[side]
    mask[rows, columns] = False
    image = np.where(mask[..., None], (255, 255, 255), 0).astype(np.uint8)
    image[rows, columns] = 9
    box = np.zeros_like(mask)
    ys, xs = np.nonzero(mask)
    box[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1] = True
    assert (without_object(image, mask)[box] == 9).all()


def test_a_box_that_fills_the_image_is_tiled_from_the_largest_patch_inside():
    mask = np.ones((96, 96), bool)
    mask[10:40, 50:90] = False
    image = np.where(mask[..., None], (255, 255, 255), 0).astype(np.uint8)
    image[10:40, 50:90] = (3, 60, 90)
    assert (without_object(image, mask) == (3, 60, 90)).all()
    assert without_object(image, np.ones_like(mask)) is None
    with pytest.raises(SampleError, match="no rectangle of background"):
        checked = np.ones((96, 960), bool)
        checked[::2, ::2] = False  # background, but nowhere a patch of it
        made("only_background", noise(96, 960), checked, MemoryContext())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_the_free_rectangle_is_the_largest_there_is(height, width, share, seed):
    mask = np.random.default_rng(seed).random((height, width)) < share
    best = 0
    for top in range(height):
        for bottom in range(top + 1, height + 1):
            for left in range(width):
                for right in range(left + 1, width + 1):
                    if not mask[top:bottom, left:right].any():
                        best = max(best, (bottom - top) * (right - left))
    found = largest_free_rectangle(mask)
    if found is None:
        assert best == 0
    else:
        left, top, right, bottom = found
        assert not mask[top:bottom, left:right].any() and (bottom - top) * (right - left) == best


@settings(max_examples=30, deadline=None)
@given(st.integers(50, 300), st.integers(50, 300), st.integers(0, 2**32 - 1))
def test_the_free_rectangle_of_a_large_mask_is_free(height, width, seed):
    rng = np.random.default_rng(seed)
    mask = np.zeros((height, width), bool)
    mask[rng.integers(0, height, 12), rng.integers(0, width, 12)] = True
    left, top, right, bottom = largest_free_rectangle(mask)
    assert not mask[top:bottom, left:right].any() and (bottom - top) * (right - left) > height * width / 50
