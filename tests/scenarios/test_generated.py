"""The scenario alone: what it keeps, what it turns down. Its images come from the context."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from holdfast.core.errors import RejectedError, SampleError
from holdfast.core.types import DEFAULT_MAX_PIXELS, Rendered, Sample
from holdfast.pipeline.donors import DonorPool, SampleContext
from holdfast.scenarios import find_scenario, parse_conditions, render
from holdfast.scenarios.background import border_share
from holdfast.testing.scenario import MemoryContext


def made(text: str, image: np.ndarray, mask: np.ndarray, *, feather: float = 0.0) -> Rendered:
    (condition,) = parse_conditions(text, feather=feather)
    return render(condition, image, mask, rng=np.random.default_rng(0), context=MemoryContext())


def scene() -> tuple[np.ndarray, np.ndarray]:
    image = np.random.default_rng(1).integers(0, 256, (40, 50, 3), np.uint8)
    mask = np.zeros((40, 50), bool)
    mask[10:30, 10:30] = True
    return image, mask


@settings(max_examples=40, deadline=None)
@given(arrays.arrays(np.bool_, (12, 17)), st.integers(0, 2**32 - 1))
def test_the_foreground_is_the_originals_bit_for_bit(mask: np.ndarray, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (12, 17, 3), np.uint8)
    if not mask.any() or mask.all():
        return
    result = made("generated_background?min_share=0&max_border=1", image, mask)
    painted = MemoryContext().paint(image, mask).image
    np.testing.assert_array_equal(result.image, np.where(mask[..., None], image, painted))
    assert result.details == {"prompt": "noise"}


def test_a_soft_seam_is_the_known_blend() -> None:
    image, mask = scene()
    soft = made("generated_background", image, mask, feather=5).image
    weight = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 2.5)[..., None]
    expected = image * weight + MemoryContext().paint(image, mask).image * (1 - weight)
    assert np.abs(soft - expected).max() <= 1


@pytest.mark.parametrize(
    ("text", "box", "said"),
    [
        ("generated_background", (10, 15, 10, 17), "too small: the object is less than 2 % of the image"),
        ("generated_background?min_share=0.3", (5, 25, 5, 25), "too small: the object is less than 30 %"),
        ("generated_background", (0, 20, 10, 30), "incomplete: the object touches the image's border$"),
        ("generated_background", (10, 40, 10, 30), "incomplete"),
        ("generated_background", (10, 30, 10, 50), "incomplete"),
        ("generated_background?max_border=0.1", (0, 20, 10, 30), "border on more than 10 % of its length"),
        ("generated_background?max_border=0.2", (0, 20, 10, 30), ""),
        ("generated_background?min_share=0.01", (10, 15, 10, 17), ""),
    ],
)
def test_the_filter(text: str, box: tuple[int, int, int, int], said: str) -> None:
    image, mask = scene()[0], np.zeros((40, 50), bool)
    mask[box[0] : box[1], box[2] : box[3]] = True
    if not said:
        assert (made(text, image, mask).image[~mask] != image[~mask]).any()
        return
    with pytest.raises(RejectedError, match=said):
        made(text, image, mask)


def test_the_borders_share_counts_each_outer_pixel_once() -> None:
    assert border_share(np.ones((5, 7), bool)) == 1
    mask = np.zeros((5, 7), bool)
    mask[0, 0] = mask[2, 3] = True
    assert border_share(mask) == pytest.approx(1 / 20)


def test_it_is_asked_for_by_name_only_and_needs_a_generator() -> None:
    assert find_scenario("generated").id == "generated_background"
    for group in ("static", "diagnostic", "all"):
        assert "generated_background" not in [one.scenario for one in parse_conditions(group)]
    image, mask = scene()
    context = SampleContext(Sample("a", "cat", image=None), DonorPool([], max_pixels=DEFAULT_MAX_PIXELS))  # type: ignore[arg-type]
    (condition,) = parse_conditions("generated_background")
    with pytest.raises(SampleError, match="no generator"):
        render(condition, image, mask, rng=np.random.default_rng(0), context=context)
