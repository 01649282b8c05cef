"""Each scenario's arithmetic against plain NumPy, and the guards around them."""

import colorsys
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import SampleError
from holdfast.core.fingerprint import array_sha256
from holdfast.core.types import Donor
from holdfast.scenarios import parse_conditions, render
from holdfast.scenarios.base.compositing import GRID
from holdfast.scenarios.blur import gaussian_blur
from holdfast.testing.scenario import MemoryContext

PHOTOS = Path(__file__).parents[2].parent / "shared" / "photos" / "pets12"


def picture(height=40, width=56, seed=0):
    """Smooth colours and noise, and an elliptic mask off the centre."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 8, 3)).astype(np.float32)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    image = np.clip(smooth + rng.normal(0, 8, smooth.shape), 0, 255).astype(np.uint8)
    y, x = np.mgrid[0:height, 0:width]
    mask = ((y - height * 0.55) / (height * 0.3)) ** 2 + ((x - width * 0.6) / (width * 0.2)) ** 2 < 1
    return image, mask


def made(text, image, mask, *, seed=0, context=None, feather=0.0):
    (condition,) = parse_conditions(text, feather=feather)
    return render(condition, image, mask, rng=np.random.default_rng(seed), context=context or MemoryContext())


def joined(inside, outside, mask):
    out = np.array(outside)
    for y, x in zip(*np.nonzero(mask), strict=True):
        out[y, x] = inside[y, x]
    return out


def direct_gaussian(image, sigma, radius):
    """Convolution by hand, mirrored at the edges without repeating them, in double precision."""
    offsets = np.arange(-radius, radius + 1)
    kernel = np.exp(-(offsets**2) / (2 * sigma**2))
    kernel /= kernel.sum()
    out = image.astype(np.float64)
    for axis in (0, 1):
        pads = [(radius, radius) if a == axis else (0, 0) for a in range(3)]
        wide = np.pad(out, pads, mode="reflect")
        length = out.shape[axis]
        out = sum(k * np.take(wide, range(i, i + length), axis=axis) for i, k in enumerate(kernel))
    return out


# --- one by one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "sigma", "radius"), [("@released", 3, 7), ("@released_alternative", 4, 4), ("@1", 1, 3), ("@2", 2, 6)]
)
def test_blur_is_a_gaussian_composited_by_the_mask(tag, sigma, radius):
    image, mask = picture()
    blurred = direct_gaussian(image, sigma, radius)
    background = made(f"blur_background{tag}", image, mask).image
    thing = made(f"blur_object{tag}", image, mask).image
    assert np.abs(background - blurred)[~mask].max() <= 1.5 and np.array_equal(background[mask], image[mask])
    assert np.abs(thing - blurred)[mask].max() <= 1.5 and np.array_equal(thing[~mask], image[~mask])


@pytest.mark.parametrize("sigma", [3.0, 4.0, 5.9, 6.0, 12.0, 30.0])
def test_a_wide_blur_down_the_pyramid_is_a_gaussian_all_the_same(sigma):
    image, _ = picture(301, 400)
    exact = direct_gaussian(image, sigma, round(4 * sigma))
    difference = np.abs(gaussian_blur(image, sigma, 0) - exact)
    edge = round(2 * sigma)
    assert difference.mean() < 1 and difference[edge:-edge, edge:-edge].max() < 2


def test_blur_grows_with_the_image_beyond_the_reference_and_a_radius_fixes_it():
    image, _ = picture(100, 1000)
    assert np.array_equal(gaussian_blur(image, 1.25, 0), cv2.GaussianBlur(image, (0, 0), 2.5))
    assert np.array_equal(gaussian_blur(image, 3, 7), cv2.GaussianBlur(image, (15, 15), 3))
    small = image[:, :400]
    assert np.array_equal(gaussian_blur(small, 1.25, 0), cv2.GaussianBlur(small, (0, 0), 1.25))


def test_grey_is_luma():
    image, mask = picture()
    luma = image @ np.array([0.299, 0.587, 0.114])
    out = made("grey", image, mask).image
    assert np.abs(out[~mask] - luma[~mask][:, None]).max() <= 1
    assert (out[~mask] == out[~mask][:, :1]).all() and np.array_equal(out[mask], image[mask])


@pytest.mark.parametrize(("name", "channel"), [("red", 0), ("green", 1), ("blue", 2)])
def test_one_channel_stays(name, channel):
    image, mask = picture()
    expected = np.zeros_like(image)
    expected[..., channel] = image[..., channel]
    assert np.array_equal(made(name, image, mask).image, joined(image, expected, mask))


@pytest.mark.parametrize(
    ("name", "hues"),
    [("red", {*range(0, 30), *range(150, 180)}), ("green", {*range(30, 90)}), ("blue", {*range(90, 150)})],
)
def test_released_colours_set_one_hue(name, hues):
    image, mask = picture()
    drawn = set()
    for seed in range(600):
        result = made(f"{name}@released", image[:2, :3], np.eye(2, 3, dtype=bool), seed=seed)
        drawn.add(result.details["hue"])
    assert drawn == hues  # 180 is drawn, too, and overflows to 0
    result = made(f"{name}@released", image, mask, seed=3)
    y, x = np.argwhere(~mask)[np.ptp(image[~mask].astype(int), axis=1).argmax()]  # the most saturated pixel
    before, after = (colorsys.rgb_to_hsv(*(int(v) / 255 for v in pixels[y, x])) for pixels in (image, result.image))
    turn = abs(after[0] * 180 - result.details["hue"])
    assert min(turn, 180 - turn) <= 1.5
    assert after[1:] == pytest.approx(before[1:], abs=0.02)
    assert np.array_equal(result.image[mask], image[mask])


def test_red_180_is_the_hue_0():
    image, mask = np.array([[[90, 200, 40], [1, 2, 3]]], np.uint8), np.array([[False, True]])

    class Last:
        def integers(self, high):
            return high - 1

    (condition,) = parse_conditions("red@released")
    result = render(condition, image, mask, rng=Last(), context=MemoryContext())
    assert result.details["hue"] == 0
    assert result.image[0, 0].tolist() == [200, 40, 40]


def hue_of(pixel):
    return int(cv2.cvtColor(np.array([[pixel]], np.uint8), cv2.COLOR_RGB2HSV)[0, 0, 0])


@pytest.mark.parametrize(
    ("hue", "shift", "paper", "released"), [(10, 40, 50, 50), (100, 85, 5, 5), (165, 90, 75, 75), (179, 90, 89, 13)]
)
def test_rainbow_turns_the_hue_and_the_released_one_wraps_in_eight_bits(hue, shift, paper, released):
    pixel = cv2.cvtColor(np.array([[[hue, 255, 255]]], np.uint8), cv2.COLOR_HSV2RGB)[0, 0]
    image, mask = np.array([[pixel, [1, 2, 3]]], np.uint8), np.array([[False, True]])
    for wrap, expected in ((180, paper), (256, released)):
        result = made(f"rainbow?shift_low={shift}&shift_high={shift}&wrap={wrap}", image, mask)
        assert result.details["shift"] == shift
        assert abs(hue_of(result.image[0, 0]) - expected) <= 1
    assert parse_conditions("rainbow@released")[0].parameters["wrap"] == 256


def test_rainbow_draws_from_both_ends_whichever_comes_first():
    image, mask = picture(4, 4)
    mask[0, 0], mask[1, 1] = True, False
    for text in ("rainbow?shift_low=5&shift_high=7", "rainbow?shift_low=7&shift_high=5"):
        assert {made(text, image, mask, seed=s).details["shift"] for s in range(40)} == {5, 6, 7}


@pytest.mark.parametrize(
    ("tag", "weights", "radius"),
    [("", (1.4 * 1.5, -1.4 * 0.5, 0), 2), ("@released", (1.5, 0.9, 1.9), 4), ("?offset=-30", (2.1, -0.7, -30), 2)],
)
def test_bright_is_one_saturating_sum(tag, weights, radius):
    image, mask = picture()
    kernel = 2 * radius + 1
    blurred = direct_gaussian(image, 0.3 * ((kernel - 1) * 0.5 - 1) + 0.8, radius)
    bright = np.clip(weights[0] * image + weights[1] * blurred + weights[2], 0, 255)
    out = made(f"bright_background{tag}", image, mask).image
    assert np.abs(out - bright)[~mask].max() <= 2 and np.array_equal(out[mask], image[mask])
    if "released" not in tag:
        out = made(f"bright_object{tag}", image, mask).image
        assert np.abs(out - bright)[mask].max() <= 2 and np.array_equal(out[~mask], image[~mask])


def test_released_brightness_overexposes():
    image, mask = np.full((9, 9, 3), 110, np.uint8), np.eye(9, dtype=bool)
    assert (made("bright_background@released", image, mask).image[~mask] == 255).all()


def test_segmented_is_black_around():
    image, mask = picture()
    assert np.array_equal(made("segmented", image, mask).image, image * mask[..., None])
    through_jpeg = made("segmented@released", image, mask).image
    assert 0 < np.abs(through_jpeg.astype(int) - image * mask[..., None]).mean() < 12
    assert through_jpeg.shape == image.shape


def test_transparent():
    image, mask = picture()
    out = made("transparent", image, mask).image
    assert np.array_equal(out, np.dstack([image * mask[..., None], mask * np.uint8(255)]))
    released = made("transparent@released", image, mask).image
    assert np.array_equal(released, np.dstack([image, mask * np.uint8(255)]))
    soft = made("transparent", image, mask, feather=4).image
    assert 0 < soft[..., 3][mask].min() < 255 and 0 < soft[..., 3][~mask].max() < 255
    assert (soft[soft[..., 3] == 0] == 0).all()
    assert np.array_equal(soft[soft[..., 3] > 0][:, :3], image[soft[..., 3] > 0])


def test_flat_backgrounds():
    image, mask = picture()
    mean = np.rint(np.mean(image[~mask].astype(float), axis=0))
    assert np.array_equal(made("mean_background", image, mask).image, joined(image, np.full_like(image, mean), mask))
    grey = np.full_like(image, 128)
    assert np.array_equal(made("foreground_on_grey", image, mask).image, joined(image, grey, mask))
    assert np.array_equal(made("silhouette", image, mask).image, joined(np.full_like(image, 32), grey, mask))
    assert np.array_equal(made("silhouette", image, mask).image, made("silhouette", 255 - image, mask).image)


def test_feather_blends_at_the_edge_only():
    image, mask = picture(80, 80)
    soft = made("segmented", image, mask, feather=4).image.astype(int)
    hard = made("segmented", image, mask).image.astype(int)
    near = cv2.dilate(mask.view(np.uint8), np.ones((21, 21))) - cv2.erode(mask.view(np.uint8), np.ones((21, 21)))
    assert np.abs(soft - hard)[near == 0].max() == 0
    ring = cv2.dilate(mask.view(np.uint8), np.ones((3, 3))).astype(bool) & ~mask
    assert (soft[ring].max(axis=1) > 0).mean() > 0.9
    assert np.abs(soft[ring] - image[ring] / 2).mean() < 40


# --- the guards -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "mask", "sentence"),
    [
        (np.zeros((4, 4, 3), np.uint8), None, "grey needs a mask"),
        (np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), bool), "mask is empty"),
        (np.zeros((4, 4, 3), np.uint8), np.ones((4, 4), bool), "covers the whole image"),
        (np.zeros((4, 4, 3), np.uint8), np.eye(5, dtype=bool), "mask is 5×5 and the image 4×4"),
        (np.zeros((4, 4, 3), np.uint8), np.eye(4, dtype=np.uint8), "bool mask, not uint8"),
        (np.zeros((4, 4, 3), np.float32), np.eye(4, dtype=bool), "not float32"),
        (np.zeros((4, 4, 4), np.uint8), np.eye(4, dtype=bool), "RGB image"),
        (np.zeros((4, 4), np.uint8), np.eye(4, dtype=bool), "RGB image"),
        (np.zeros((0, 4, 3), np.uint8), np.zeros((0, 4), bool), "RGB image"),
    ],
)
def test_what_cannot_be_used_is_a_sample_error(image, mask, sentence):
    with pytest.raises(SampleError, match=sentence):
        made("grey", image, mask)


def test_original_needs_no_mask_and_is_the_array_itself():
    image, mask = picture()
    assert made("original", image, None).image is image
    assert made("original", image, np.zeros_like(mask)).image is image
    assert made("original", image, mask).mask is mask


def test_equal_pictures_have_equal_hashes():
    image, mask = picture()
    grey = np.repeat(image[..., :1], 3, axis=2)
    assert array_sha256(made("grey", grey, mask).image) == array_sha256(made("original", grey, mask).image)
    assert array_sha256(made("grey", image, mask).image) != array_sha256(made("original", image, mask).image)
    three, paper = (made(f"blur_object{tag}", image, mask).image for tag in ("@3", ""))
    assert array_sha256(three) == array_sha256(paper)


def test_sharing_does_not_change_results():
    image, mask = picture()
    donors = [Donor(label, label, *picture(30, 70, seed=n)) for n, label in enumerate(("own", "other"))]
    conditions = parse_conditions("all,all@released,static@1,static@5,random_background@moved")
    shared = MemoryContext("own", donors)
    before = [donor.image.copy() for donor in donors]
    for turn in (conditions, conditions[::-1]):
        for condition in turn:
            alone = MemoryContext("own", donors)
            one, other = (
                render(condition, image, mask, rng=np.random.default_rng(5), context=context)
                for context in (shared, alone)
            )
            assert np.array_equal(one.image, other.image), condition.name
            one.image[...] = 0 if condition.scenario != "original" else one.image  # results belong to the caller
    assert all(np.array_equal(donor.image, kept) for donor, kept in zip(donors, before, strict=True))


@pytest.mark.parametrize("name", ["blur_background", "blur_object", "bright_background", "bright_object", "rainbow"])
def test_severities_grow(name):
    image, mask = picture(120, 160)
    image = image // 2 + 30
    changes = [
        np.abs(made(f"{name}@{severity}", image, mask).image.astype(int) - image).mean() for severity in range(1, 6)
    ]
    assert changes == sorted(changes) and len(set(changes)) == 5


@settings(max_examples=25, deadline=None)
@given(st.integers(1, GRID), st.integers(1, GRID), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.5]))
def test_any_size_and_mask(height, width, seed, feather):
    """Whatever the mask, every condition gives an image or a sample error, and keeps its promise."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    mask = rng.random((height, width)) < rng.random()
    donor_mask = rng.random((9, 4)) < rng.random()
    donors = [Donor(label, label, rng.integers(0, 256, (9, 4, 3), dtype=np.uint8), donor_mask) for label in "ab"]
    usable = mask.any() and not mask.all()
    context = MemoryContext("a", donors)
    for condition in parse_conditions("all,random_background@moved,random_background@released", feather=feather):
        try:
            result = render(condition, image, mask, rng=np.random.default_rng(seed), context=context)
        except SampleError:
            assert not usable
            continue
        assert usable or condition.scenario == "original"
        assert result.mask.shape == result.image.shape[:2]
        promise = condition.definition.promise(condition.parameters)
        if promise in ("foreground", "background"):
            kept = mask if promise == "foreground" else ~mask
            assert np.array_equal(result.image[..., :3][kept], image[kept])


@pytest.mark.parametrize("shape", [(3000, 40), (40, 3000), (1, 2), (700, 900)])
def test_extreme_aspects(shape):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    mask = np.zeros(shape, bool)
    mask[shape[0] // 2, shape[1] // 2] = True
    context = MemoryContext("a", [Donor(label, label, *picture(33, 21)) for label in "ab"])
    for condition in parse_conditions("all,static@5,random_background@moved"):
        result = render(condition, image, mask, rng=np.random.default_rng(1), context=context)
        assert result.image.shape[:2] == shape


@pytest.mark.skipif(not PHOTOS.is_dir(), reason="the shared images are not on this machine")
def test_every_condition_on_real_photos():
    labels = ("pug", "beagle")
    photos = []
    for label in labels:
        for path in sorted((PHOTOS / "images" / label).glob("*.jpg"))[:3]:
            image = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
            mask = cv2.imread(str(PHOTOS / "masks" / label / f"{path.stem}.png"), cv2.IMREAD_GRAYSCALE) > 127
            photos.append(Donor(path.stem, label, image, mask))
    for photo in photos:
        others = [donor for donor in photos if donor is not photo]
        context = MemoryContext(photo.label, others)
        hashes = set()
        conditions = parse_conditions("all")
        for condition in conditions:
            result = render(condition, photo.image, photo.mask, rng=np.random.default_rng(1), context=context)
            hashes.add(array_sha256(result.image))
        assert len(hashes) == len(conditions)
