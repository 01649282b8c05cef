from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.annotate import load_annotator, load_guided
from holdfast.annotate.confidence import MOST_POINTS, checked_guidance
from holdfast.core.errors import UserError
from holdfast.core.protocols import GuidedAnnotator
from holdfast.core.types import Image, Mask

PETS = Path(__file__).parents[2].parent / "shared" / "photos" / "pets12"


def discs(height: int, width: int, *places: tuple[int, int, int]) -> tuple[Image, list[Mask]]:
    """Red discs (x, y, radius) on noisy green, and where they are."""
    rows, columns = np.ogrid[:height, :width]
    masks = [(rows - y) ** 2 + (columns - x) ** 2 <= radius**2 for x, y, radius in places]
    image = np.where(np.any(masks, axis=0)[..., None], (200, 40, 30), (60, 150, 70))
    image = image + np.random.default_rng(3).integers(-8, 9, (height, width, 3))
    return image.astype(np.uint8), masks


def overlap(first: Mask, second: Mask) -> float:
    return float((first & second).sum() / max(1, (first | second).sum()))


def innermost(mask: Mask) -> tuple[int, int]:
    depth = cv2.distanceTransform(np.pad(mask, 1).astype(np.uint8), cv2.DIST_L2, 5)[1:-1, 1:-1]
    y, x = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(x), int(y)


@pytest.fixture(scope="module")
def grabcut() -> GuidedAnnotator:
    return load_guided("grabcut")


def test_the_box_says_which_of_two_is_meant(grabcut: GuidedAnnotator) -> None:
    image, (left, right) = discs(120, 240, (60, 60, 30), (180, 60, 30))
    embedding = grabcut.embed(image)
    assert overlap(grabcut.guided(embedding, box=(25, 25, 95, 95)).mask, left) > 0.95
    assert overlap(grabcut.guided(embedding, box=(145, 25, 215, 95)).mask, right) > 0.95


def test_a_click_alone_finds_the_disc_it_hits(grabcut: GuidedAnnotator) -> None:
    image, (left, right) = discs(120, 240, (60, 60, 30), (180, 60, 30))
    found = grabcut.guided(grabcut.embed(image), inside=[(180, 55)])
    assert overlap(found.mask, right) > 0.9
    assert not (found.mask & left).any()
    assert 0.3 < found.confidence < 0.7  # there is another just like it


def test_a_click_outside_takes_a_part_away(grabcut: GuidedAnnotator) -> None:
    # Two shades of red in one box: the click says that the darker one is not meant.
    image, (left, right) = discs(120, 200, (60, 60, 30), (140, 60, 30))
    image[right] = (120, 10, 90)
    box = (25.0, 25.0, 175.0, 95.0)
    both = grabcut.guided(image, box=box).mask
    one = grabcut.guided(image, box=box, inside=[(60, 60)], outside=[(140, 60)]).mask
    assert (both & right).sum() > 0.8 * right.sum()
    assert overlap(one, left) > 0.9


def test_edges_are_those_of_the_full_image(grabcut: GuidedAnnotator) -> None:
    # The cut is made on 256 pixels, where one is worth eight here: nearest-neighbour steps would cost 1 % overlap.
    image, (mask,) = discs(1500, 2000, (1000, 700, 500))
    found = grabcut.guided(grabcut.embed(image), box=(480, 180, 1520, 1220), inside=[(1000, 700)])
    assert overlap(found.mask, mask) > 0.997


def test_a_click_outside_the_box_enlarges_it(grabcut: GuidedAnnotator) -> None:
    image, (mask,) = discs(120, 240, (120, 60, 40))
    found = grabcut.guided(image, box=(90, 30, 130, 90), inside=[(120, 60), (158, 60), (82, 60), (120, 22), (120, 98)])
    assert overlap(found.mask, mask) > 0.9


def test_a_flat_image_gives_the_ellipse_and_no_confidence(grabcut: GuidedAnnotator) -> None:
    found = grabcut.guided(np.full((60, 80, 3), 90, np.uint8), box=(10, 10, 49, 49), outside=[(30, 30)])
    assert found.confidence == 0
    assert not found.mask[30, 30]
    assert found.mask.sum() == pytest.approx(np.pi * 20**2, rel=0.1)


@pytest.mark.parametrize(
    ("guidance", "says"),
    [
        ({}, "draw a box"),
        ({"outside": [(3, 3)]}, "draw a box"),
        ({"box": (50, 5, 60, 9)}, "must overlap the image of 40 × 30 pixels, and is outside"),
        ({"box": (5, 5, 6, 6)}, "2 × 2 pixels"),
        ({"box": (5, 5, 20, 6)}, "16 × 2 pixels"),
        ({"box": (5, 5, float("nan"), 6)}, "4 numbers"),
        ({"box": (1, 2, 3)}, "4 numbers"),
        ({"box": "here"}, "4 numbers"),
        ({"inside": [(3, 99)]}, "the point 3, 99 must be in the image of 40 × 30 pixels"),
        ({"inside": [(3,)]}, "2 numbers"),
        ({"inside": [(float("inf"), 3)]}, "2 numbers"),
        ({"inside": [(3, 3)], "outside": [(3.2, 2.9)]}, "marked as inside and as outside"),
        ({"inside": [(3, 3)] * (MOST_POINTS + 1)}, "more than"),
    ],
)
def test_guidance_that_makes_no_sense_says_why(
    grabcut: GuidedAnnotator, guidance: dict[str, object], says: str
) -> None:
    image, _ = discs(30, 40, (20, 15, 8))
    with pytest.raises(UserError, match=says):
        grabcut.guided(grabcut.embed(image), **guidance)  # type: ignore[arg-type]


def test_boxes_are_brought_into_order() -> None:
    assert checked_guidance(30, 40, (35, 99, -5, 4), [], []).box == (0, 4, 35, 29)
    assert checked_guidance(30, 40, (5, 5, 10, 10), [(39.6, 0)], []).box == (5, 0, 39, 10)
    assert checked_guidance(1, 2, (0, 0, 1, 0), [], []).box == (0, 0, 1, 0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_points_are_kept_whatever_the_picture(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    image = rng.integers(*data.draw(st.sampled_from([(0, 256), (100, 103), (7, 8)])), (height, width, 3), np.uint8)
    factor = data.draw(st.sampled_from([1, 1, 11]))  # also images that are reduced
    image = np.ascontiguousarray(image.repeat(factor, 0).repeat(factor, 1))
    height, width = height * factor, width * factor
    place = st.tuples(st.integers(0, width - 1), st.integers(0, height - 1))
    inside = data.draw(st.lists(place, max_size=4, unique=True))
    outside = [one for one in data.draw(st.lists(place, max_size=4, unique=True)) if one not in inside]
    corners = data.draw(place), data.draw(place)
    box = (*corners[0], *corners[1]) if data.draw(st.booleans()) or not inside else None
    try:
        found = load_guided("grabcut").guided(image, box=box, inside=inside, outside=outside)
    except UserError as error:
        assert "pixels; draw it" in str(error)
        return
    assert found.mask.shape == (height, width)
    assert 0 <= found.confidence <= 1
    assert all(found.mask[y, x] for x, y in inside)
    assert not any(found.mask[y, x] for x, y in outside)


def test_the_image_stays_and_answers_repeat(grabcut: GuidedAnnotator) -> None:
    image, _ = discs(90, 120, (60, 45, 25))
    before = image.copy()
    embedding = grabcut.embed(image)
    first = grabcut.guided(embedding, box=(30, 15, 90, 75), inside=[(60, 45)])
    cv2.setRNGSeed(99)
    again = grabcut.guided(embedding, box=(30, 15, 90, 75), inside=[(60, 45)])
    assert (first.mask == again.mask).all()
    assert first.confidence == again.confidence
    assert (image == before).all()


@pytest.mark.parametrize("maker", ["threshold", "u2netp"])
def test_makers_without_guidance_say_which_have_it(maker: str) -> None:
    with pytest.raises(UserError, match="these do: grabcut, sam"):
        load_guided(maker)


@pytest.mark.skipif(not PETS.is_dir(), reason="needs the pets12 images in ../shared")
def test_a_box_and_a_click_help_on_photos(grabcut: GuidedAnnotator) -> None:
    # Every twentieth of 120 images; measured on every second: see docs/masks.md.
    led, unled = [], []
    for path in sorted((PETS / "images").glob("*/*.jpg"))[::20]:
        image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
        truth = cv2.imread(str(PETS / "masks" / path.parent.name / f"{path.stem}.png"), cv2.IMREAD_GRAYSCALE) > 127
        rows, columns = np.nonzero(truth)
        box = (int(columns.min()), int(rows.min()), int(columns.max()), int(rows.max()))
        led.append(overlap(grabcut.guided(grabcut.embed(image), box=box, inside=[innermost(truth)]).mask, truth))
        unled.append(overlap(load_annotator("grabcut").propose(image).mask, truth))
    assert len(led) == 6
    assert np.mean(led) > 0.65
    assert np.mean(led) > np.mean(unled) + 0.08
