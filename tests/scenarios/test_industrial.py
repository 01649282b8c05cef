"""Displaced and resized objects, and motion blur of one part."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import RejectedError
from holdfast.scenarios import parse_conditions, render
from holdfast.scenarios.industrial import streak_kernel
from holdfast.testing.scenario import MemoryContext


def scene(height=80, width=120, box=(30, 40, 60, 75), seed=0):
    """Noise over a slope and a textured ellipse in a box (top, left, bottom, right), whose mask is exact."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    image = (60 + 80 * x[..., None] / width + rng.integers(0, 20, (height, width, 3))).astype(np.uint8)
    top, left, bottom, right = box
    mask = ((y + 0.5 - (top + bottom) / 2) / ((bottom - top) / 2)) ** 2 + (
        (x + 0.5 - (left + right) / 2) / ((right - left) / 2)
    ) ** 2 <= 1
    image[mask] = rng.integers(180, 256, (np.count_nonzero(mask), 3))
    return image, mask


def made(text, image, mask, seed=0):
    (condition,) = parse_conditions(text)
    return render(condition, image, mask, rng=np.random.default_rng(seed), context=MemoryContext())


def test_the_group_is_asked_for_by_name():
    names = ["shift_object", "scale_object", "motion_blur_background", "motion_blur_object"]
    assert [condition.scenario for condition in parse_conditions("industrial")] == names
    assert [condition.variant for condition in parse_conditions("industrial@4")] == ["severity_4"] * 4
    assert not set(names) & {condition.scenario for condition in parse_conditions("all")}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), severity=st.integers(1, 5))
def test_where_the_object_moves_its_pixels_and_its_mask_move(seed, severity):
    image, mask = scene(seed=seed % 7)
    result = made(f"shift_object@{severity}", image, mask, seed)
    x, y = result.details["moved_by"]
    assert math.hypot(x, y) == pytest.approx({1: 4, 2: 8, 3: 12, 4: 16, 5: 24}[severity], abs=1)
    rows, columns = np.nonzero(mask)
    inside = (rows + y >= 0) & (rows + y < 80) & (columns + x >= 0) & (columns + x < 120)
    expected = np.zeros_like(mask)
    expected[rows[inside] + y, columns[inside] + x] = True
    assert np.array_equal(result.mask, expected)
    assert expected.sum() >= 0.8 * mask.sum()
    assert np.array_equal(result.image[rows[inside] + y, columns[inside] + x], image[rows[inside], columns[inside]])
    # Away from the old place, its rim of a pixel and the new place, nothing changed.
    rim = cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
    assert np.array_equal(result.image[~rim & ~expected], image[~rim & ~expected])
    # The hole shows the scene, not the object: the scene is darker than 160, the object brighter than 180.
    assert result.image[mask & ~expected].max(initial=0) < 165


def test_directions_come_from_the_seed_and_the_object_may_leave_in_part():
    image, mask = scene()
    ways = {tuple(made("shift_object@3", image, mask, seed).details["moved_by"]) for seed in range(12)}
    assert len(ways) > 6
    near = scene(box=(4, 4, 34, 44))
    shares = [made("shift_object@4?visible=0.5", *near, seed).mask.sum() / near[1].sum() for seed in range(20)]
    assert 0.5 <= min(shares) < 1 == max(shares)


def test_a_cut_edge_is_never_shown():
    image, mask = scene(box=(55, 40, 95, 75))  # half of it below the image
    assert mask[-1].any()
    for seed in range(10):
        assert made("shift_object@3", image, mask, seed).details["moved_by"][1] >= 0
    with pytest.raises(RejectedError, match="no room"):
        made("shift_object@5?visible=1", *scene(box=(-10, -10, 90, 130)))
    unmoved = made("shift_object?distance=0", *scene(box=(-10, -10, 90, 130)))
    assert unmoved.details["moved_by"] == [0, 0]


def test_without_anything_around_it_nothing_can_be_guessed():
    image, mask = scene(height=60, width=60)
    mask[:] = True
    mask[30, 30] = False  # all that is left is in the rim
    with pytest.raises(RejectedError, match="too large"):
        made("shift_object@1", image, mask)


@pytest.mark.parametrize(
    ("tag", "factor"), [("1", 0.8), ("2", 0.65), ("3", 0.5), ("4", 0.35), ("5", 0.25), ("larger", 1.5)]
)
def test_a_resized_object_keeps_its_middle_and_its_shape(tag, factor):
    image, mask = scene(height=160, width=200, box=(50, 60, 110, 130))
    result = made(f"scale_object@{tag}", image, mask)
    assert result.mask.sum() == pytest.approx(factor**2 * mask.sum(), rel=0.08)
    for axis in (0, 1):
        before, after = (np.nonzero(one)[axis].mean() for one in (mask, result.mask))
        assert after == pytest.approx(before, abs=1)
    # Its edge has none of the darker background's colours.
    assert result.image[result.mask].min() > 170
    rim = cv2.dilate(mask.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)
    assert np.array_equal(result.image[~rim & ~result.mask], image[~rim & ~result.mask])


def test_a_resized_object_stays_on_the_edge_it_touches():
    image, mask = scene(box=(55, 40, 95, 75))
    result = made("scale_object@3", image, mask)
    assert result.mask[-1].any() and result.mask.sum() == pytest.approx(0.25 * mask.sum(), rel=0.1)
    with pytest.raises(RejectedError, match="two opposite edges"):
        made("scale_object@1", *scene(box=(30, -5, 60, 125)))
    with pytest.raises(RejectedError, match="less than 80 % visible"):
        made("scale_object?factor=8", image, mask)


@settings(max_examples=40, deadline=None)
@given(length=st.floats(1, 60), angle=st.floats(0, math.pi))
def test_a_streak_is_straight_even_and_as_long_as_it_says(length, angle):
    kernel = streak_kernel(length, angle)
    assert kernel.sum() == pytest.approx(1, abs=1e-5) and kernel.min() >= 0
    reach = len(kernel) // 2
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    along, across = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    assert (kernel * along).sum() == pytest.approx(0, abs=0.01)  # to and fro
    assert np.sqrt((kernel * across**2).sum()) < 0.75
    if length > 6:
        spread = np.sqrt((kernel * along**2).sum())
        assert spread == pytest.approx(math.sqrt(((length - 1) ** 2) / 12 + 0.15), rel=0.12)


def test_only_what_moves_is_smeared_and_from_itself_alone():
    image, mask = scene()
    for tag in ("1", "5"):
        behind = made(f"motion_blur_background@{tag}", image, mask)
        before = made(f"motion_blur_object@{tag}", image, mask)
        assert np.array_equal(behind.image[mask], image[mask]) and np.array_equal(before.image[~mask], image[~mask])
        # The object is brighter than 180 and the scene darker than 160, and neither takes from the other.
        assert behind.image[~mask].max() < 161 and before.image[mask].min() > 179
        assert before.image[mask].std() < image[mask].std()
    flat = np.where(mask[..., None], np.uint8(255), np.uint8(0)).repeat(3, axis=2)
    for name in ("background", "object"):
        assert np.array_equal(made(f"motion_blur_{name}@5", flat, mask).image, flat)


def test_a_longer_streak_on_a_larger_photo():
    image, mask = scene(height=60, width=1000, box=(20, 400, 40, 600))
    image[:] = 0
    image[:, 200] = 255
    columns = made("motion_blur_background@3", image, mask, seed=0)
    angle = math.radians(columns.details["angle"])
    wide = np.flatnonzero(columns.image[30, :, 0])
    assert wide.max() - wide.min() == pytest.approx(2 * 15 * abs(math.cos(angle)), abs=3)
