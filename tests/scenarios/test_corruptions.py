"""The nineteen corruptions against their published definition, each formulated a second time by other means."""

from __future__ import annotations

import colorsys
import io

import cv2
import numpy as np
import pytest
from PIL import Image as Pillow
from scipy import ndimage

from holdfast.core.types import CORRUPTIONS, SPARE_CORRUPTIONS
from holdfast.scenarios import find_scenario, parse_conditions, render
from holdfast.scenarios.corruptions.blurs import sources
from holdfast.scenarios.corruptions.weather import TEXTURES, frost_texture, plasma
from holdfast.testing.scenario import MemoryContext

# As printed in the code that made ImageNet-C, severity 1 to 5.
PUBLISHED = {
    "gaussian_noise": [0.08, 0.12, 0.18, 0.26, 0.38],
    "shot_noise": [60, 25, 12, 5, 3],
    "impulse_noise": [0.03, 0.06, 0.09, 0.17, 0.27],
    "speckle_noise": [0.15, 0.2, 0.35, 0.45, 0.6],
    "gaussian_blur": [1, 2, 3, 4, 6],
    "defocus_blur": [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
    "glass_blur": [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
    "motion_blur": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
    "zoom_blur": [(1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)],
    "snow": [
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ],
    "frost": [(1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)],
    "fog": [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
    "spatter": [
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ],
    "brightness": [0.1, 0.2, 0.3, 0.4, 0.5],
    "contrast": [0.4, 0.3, 0.2, 0.1, 0.05],
    "saturate": [(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)],
    "jpeg_compression": [25, 18, 15, 10, 7],
    "pixelate": [0.6, 0.5, 0.4, 0.3, 0.25],
    "elastic_transform": [
        (488, 170.8, 24.4),
        (488, 19.52, 48.8),
        (12.2, 2.44, 4.88),
        (17.08, 2.44, 4.88),
        (29.28, 2.44, 4.88),
    ],
}
SEVERITIES = range(1, 6)
UNEVEN = {"glass_blur", "saturate", "elastic_transform", "snow", "frost"}
"""Whose published severities do not grow by every measure."""


def photo(side=224, seed=0, width=None):
    """Something of every scale, all colours, not clipped."""
    rng = np.random.default_rng(seed)
    values = np.zeros((side, width or side, 3), np.float32)
    for cells, weight in ((4, 90), (16, 50), (64, 25)):
        coarse = rng.uniform(-1, 1, (cells, cells, 3)).astype(np.float32)
        values += weight * cv2.resize(coarse, (width or side, side), interpolation=cv2.INTER_CUBIC)
    return np.clip(values + 120, 2, 250).astype(np.uint8)


def made(text, image, *, mask=None, seed=0):
    (condition,) = parse_conditions(text)
    return render(condition, image, mask, rng=np.random.default_rng(seed), context=MemoryContext())


def picture(values):
    """0..1 cut off to 0..255, in double precision."""
    return np.floor(np.clip(values, 0, 1) * 255 + 1e-6).astype(int)


def assert_near(image, expected, most=1, mean=0.2):
    difference = np.abs(image.astype(int) - expected)
    assert difference.max() <= most and difference.mean() <= mean, (difference.max(), difference.mean())


def motion(values, radius, sigma, angle):
    """A sum of shifted copies, edges repeated."""
    steps = range(2 * radius + 1)
    weights = np.array([np.exp(-(i**2) / (2 * sigma**2)) for i in steps])
    wide = np.pad(values, ((60, 60), (60, 60), *[(0, 0)] * (values.ndim - 2)), mode="edge").astype(np.float64)
    total = np.zeros(values.shape)
    for i, weight in zip(steps, weights / weights.sum(), strict=True):
        x, y = (int(np.ceil(i * turn(np.deg2rad(angle)) - 0.5)) for turn in (np.cos, np.sin))
        total += weight * wide[60 + y : 60 + y + values.shape[0], 60 + x : 60 + x + values.shape[1]]
    return total


def enlarged(values, factor):
    """SciPy's zoom of the middle, trimmed to the size it had."""
    side = len(values)
    kept = int(np.ceil(side / factor))
    start = (side - kept) // 2
    zooms = (factor, factor, 1)[: values.ndim]
    big = ndimage.zoom(values[start : start + kept, start : start + kept], zooms, order=1)
    trim = (len(big) - side) // 2
    return big[trim : trim + side, trim : trim + side]


def test_the_nineteen_are_there_with_the_published_numbers():
    names = [condition.scenario for condition in parse_conditions("corruptions@3")]
    assert sorted(names) == sorted(PUBLISHED) == sorted(CORRUPTIONS + SPARE_CORRUPTIONS) and len(names) == 19
    assert not set(names) & {condition.scenario for condition in parse_conditions("all")}
    for name, table in PUBLISHED.items():
        definition = find_scenario(name)
        assert not definition.needs_mask and definition.leaves == "nothing" and definition.group == "corruptions"
        for severity, numbers in zip(SEVERITIES, table, strict=True):
            expected = numbers if isinstance(numbers, tuple) else (numbers,)
            assert tuple(definition.severities[severity].values()) == pytest.approx(expected)
        assert definition.severities[3].items() <= definition.defaults.items()


@pytest.mark.parametrize("name", PUBLISHED)
def test_severities_harm_more_and_more(name):
    image = photo(width=256)
    kept = [
        np.mean(
            [((made(f"{name}@{severity}", image, seed=s).image - image.astype(float)) ** 2).mean() for s in range(3)]
        )
        for severity in SEVERITIES
    ]
    assert min(kept) > 1
    if name not in UNEVEN:
        assert kept == sorted(kept)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_noise_is_normal_and_has_its_deviation(severity):
    grey = np.full((200, 200, 3), 128, np.uint8)
    sigma = PUBLISHED["gaussian_noise"][severity - 1]
    noise = (made(f"gaussian_noise@{severity}", grey).image.astype(float) - 127.5) / 255
    inside = np.abs(noise) < 0.45  # a clipped tail says nothing
    expected = np.random.default_rng(1).normal(128 / 255 - 0.5, sigma, 10**6)
    expected = expected[np.abs(expected) < 0.45]
    assert noise[inside].std() == pytest.approx(expected.std(), rel=0.02)
    assert abs(noise[inside].mean()) < 0.01
    assert inside.mean() == pytest.approx(
        (np.abs(np.random.default_rng(1).normal(0, sigma, 10**5)) < 0.45).mean(), abs=0.01
    )
    flat = noise.reshape(-1, 3)
    assert np.abs(np.corrcoef(flat.T) - np.eye(3)).max() < 0.02  # channels apart


@pytest.mark.parametrize("severity", SEVERITIES)
def test_shot_noise_counts_photons(severity):
    photons = PUBLISHED["shot_noise"][severity - 1]
    for value in (30, 90):
        flat = np.full((200, 200, 3), value, np.uint8)
        counts = made(f"shot_noise@{severity}", flat).image.astype(float) / 255 * photons
        assert np.abs(counts - np.round(counts)).max() <= photons / 255  # whole ones, cut off at a grey level
        counts = np.round(counts)
        assert counts.mean() == pytest.approx(value / 255 * photons, rel=0.03)
        if counts.max() < photons:  # not clipped at white
            assert counts.var() == pytest.approx(value / 255 * photons, rel=0.03)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulse_noise_hits_its_share_and_nothing_else(severity):
    image = photo()
    noisy = made(f"impulse_noise@{severity}", image).image
    amount = PUBLISHED["impulse_noise"][severity - 1]
    hit = noisy != image
    assert set(np.unique(noisy[hit])) == {0, 255}
    for value in (0, 255):
        assert (noisy == value).mean() == pytest.approx(amount / 2, rel=0.06)
    together = hit.all(axis=2).mean()
    assert together == pytest.approx(amount**3, abs=0.002)  # channels apart


@pytest.mark.parametrize("severity", SEVERITIES)
def test_speckle_noise_grows_with_the_value(severity):
    sigma = PUBLISHED["speckle_noise"][severity - 1]
    for value in (40, 80):
        flat = np.full((200, 200, 3), value, np.uint8)
        noisy = made(f"speckle_noise@{severity}", flat).image.astype(float) + 0.5
        inside = noisy > 1
        expected = value * (1 + sigma * np.random.default_rng(2).standard_normal(10**6))
        assert noisy[inside].std() == pytest.approx(expected[expected > 1].std(), rel=0.02)
    black = np.zeros((20, 20, 3), np.uint8)
    assert not made(f"speckle_noise@{severity}", black).image.any()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur_is_scipys(severity):
    image = photo(seed=1)
    sigma = PUBLISHED["gaussian_blur"][severity - 1]
    expected = ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest", truncate=4)
    assert_near(made(f"gaussian_blur@{severity}", image).image, picture(expected))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_blur_is_a_disc_with_a_soft_edge(severity):
    radius, softness = PUBLISHED["defocus_blur"][severity - 1]
    reach, taps = (8, 1) if radius <= 8 else (radius, 2)
    span = range(-reach, reach + 1)
    disc = np.array([[float(x * x + y * y <= radius * radius) for x in span] for y in span])
    disc /= disc.sum()
    edge = np.exp(-(np.arange(-taps, taps + 1.0) ** 2) / (2 * softness**2))
    for axis in (0, 1):
        disc = ndimage.correlate1d(disc, edge / edge.sum(), axis=axis, mode="mirror")
    image = photo(seed=2)
    channels = [ndimage.correlate(image[..., c] / 255, disc, mode="mirror") for c in range(3)]
    assert_near(made(f"defocus_blur@{severity}", image).image, picture(np.dstack(channels)))


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_strews_as_the_published_loop_does(reach):
    height, width = 30, 41
    found = sources(height, width, reach, np.random.default_rng(3))
    inner = (height - 2 * reach, width - 2 * reach)
    dy, dx = np.random.default_rng(3).integers(-reach, reach, (2, *inner))
    x = np.repeat(np.arange(height * width).reshape(height, width, 1), 3, axis=2)
    for h in range(height - reach, reach, -1):
        for w in range(width - reach, reach, -1):
            to = h + dy[h - reach - 1, w - reach - 1], w + dx[h - reach - 1, w - reach - 1]
            x[h, w], x[to] = x[to], x[h, w]  # meant as a swap; these are views, so it is a copy
    assert np.array_equal(found.reshape(height, width), x[..., 0])
    assert (found != np.arange(height * width)).mean() > 0.5


def test_glass_blur_is_blur_strewing_and_blur():
    image, sigma, reach = photo(seed=3), 1.5, 4
    rng = np.random.default_rng(0)
    blurred = np.floor(255 * ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest") + 1e-3)
    for _ in range(2):
        blurred = blurred.reshape(-1, 3)[sources(224, 224, reach, rng)].reshape(image.shape)
    expected = ndimage.gaussian_filter(blurred / 255, (sigma, sigma, 0), mode="nearest")
    assert_near(made("glass_blur@5", image).image, picture(expected), most=2)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur_is_a_sum_of_shifted_copies(severity):
    image = photo(seed=4)
    radius, sigma = PUBLISHED["motion_blur"][severity - 1]
    for seed in range(2):
        angle = np.random.default_rng(seed).uniform(-45, 45)
        expected = np.rint(motion(image, radius, sigma, angle)).astype(int)
        assert_near(made(f"motion_blur@{severity}", image, seed=seed).image, expected)


@pytest.mark.parametrize("severity", [1, 5])
def test_zoom_blur_is_a_mean_of_enlargements(severity):
    image = photo(seed=5)
    values = image / 255
    factors = np.arange(1, *PUBLISHED["zoom_blur"][severity - 1])
    expected = (values + sum(enlarged(values, factor) for factor in factors)) / (len(factors) + 1)
    assert_near(made(f"zoom_blur@{severity}", image).image, picture(expected))


def test_plasma_is_midpoint_displacement_on_a_torus():
    side, decay = 16, 1.7
    found = plasma(side, decay, np.random.default_rng(4))
    rng = np.random.default_rng(4)
    grid, step, amplitude = {(0, 0): 0.0}, side, 1.0
    while step > 1:
        half, count = step // 2, side // step
        for dy, dx in ((half, half), (0, half), (half, 0)):
            draw = amplitude * rng.uniform(-1, 1, (count, count))
            around = [(-half, -half), (-half, half), (half, -half), (half, half)]
            if (dy, dx) != (half, half):
                around = [(-half, 0), (half, 0), (0, -half), (0, half)]
            for row in range(count):
                for column in range(count):
                    y, x = row * step + dy, column * step + dx
                    known = [grid[(y + a) % side, (x + b) % side] for a, b in around]
                    grid[y, x] = sum(known) / 4 + draw[row, column]
        step, amplitude = half, amplitude / decay**2
    expected = np.array([[grid[y, x] for x in range(side)] for y in range(side)])
    expected = (expected - expected.min()) / (expected.max() - expected.min())
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("severity", [1, 5])
def test_fog_is_added_and_the_whole_darkened(severity):
    image = photo(seed=6)
    density, decay = PUBLISHED["fog"][severity - 1]
    clouds = plasma(256, decay, np.random.default_rng(0))[:224, :224, None]
    brightest = image.max() / 255
    expected = (image / 255 + density * clouds) * brightest / (brightest + density)
    assert_near(made(f"fog@{severity}", image).image, picture(expected))
    assert not made(f"fog@{severity}", np.zeros((30, 30, 3), np.uint8)).image.any()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_is_streaked_noise_over_a_whitened_picture(severity):
    image = photo(seed=7)
    mean, sigma, zoom, threshold, radius, streak, kept = PUBLISHED["snow"][severity - 1]
    rng = np.random.default_rng(0)
    angle = rng.uniform(-135, -45)
    flakes = enlarged(rng.normal(mean, sigma, (224, 224)), zoom)
    flakes[flakes < threshold] = 0
    fallen = np.rint(motion(picture(flakes), radius, streak, angle))[..., None] / 255
    values = image / 255
    grey = values @ np.array([0.299, 0.587, 0.114])
    white = kept * values + (1 - kept) * np.maximum(values, grey[..., None] * 1.5 + 0.5)
    expected = picture(white + fallen + np.rot90(fallen, 2))
    difference = np.abs(made(f"snow@{severity}", image).image.astype(int) - expected)
    # A value of noise that is on the threshold may be a flake for one and none for the other.
    assert difference.mean() < 0.2 and np.quantile(difference, 0.999) <= 3


def test_frost_is_a_weighted_sum_with_a_drawn_texture():
    black = np.zeros((224, 224, 3), np.uint8)
    ice = {severity: made(f"frost@{severity}", black).image.astype(int) for severity in SEVERITIES}
    piece = ice[1] / 0.4
    distances = []
    for index in range(TEXTURES):
        texture = frost_texture(index)
        y, x = np.unravel_index(_best(texture, piece), (289, 289))
        distances.append(np.abs(texture[y : y + 224, x : x + 224] - piece).max())
    assert min(distances) < 3.6  # it is a piece of one of them, cut off at whole values
    image = photo(seed=8)
    for severity, (kept, weight) in zip(SEVERITIES, PUBLISHED["frost"], strict=True):
        expected = np.minimum(255, kept * image + weight * piece)
        assert_near(made(f"frost@{severity}", image).image, expected, most=6, mean=1.8)


def _best(texture, piece):
    match = cv2.matchTemplate(texture.astype(np.float32), piece.astype(np.float32), cv2.TM_SQDIFF)
    return int(match.argmin())


def test_frost_textures_are_five_and_white_or_blue():
    textures = [frost_texture(index) for index in range(TEXTURES)]
    assert len({one.tobytes() for one in textures}) == 5
    for one in textures:
        red, _, blue = one.reshape(-1, 3).mean(axis=0)
        assert blue > red and one.std() > 12
        assert np.abs(one.astype(int) - cv2.GaussianBlur(one, (0, 0), 4)).mean() > 4  # needles, not haze alone
    with pytest.raises(ValueError):
        textures[0][0, 0] = 0


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_water_brightens_in_its_colour_up_to_its_strength(severity):
    dark = np.full((224, 224, 3), 20, np.uint8)
    added = (made(f"spatter@{severity}", dark).image.astype(float) - 20) / 255
    strength = PUBLISHED["spatter"][severity - 1][4]
    assert added.min() >= 0 and added.max() == pytest.approx(strength * 238 / 255, abs=0.01)
    assert 0.001 < (added[..., 1] > 0.05).mean() < 0.5
    strong = added[..., 1] > 0.2
    assert added[strong][:, 0] / added[strong][:, 1] == pytest.approx(np.full(strong.sum(), 175 / 238), abs=0.03)
    assert np.array_equal(added[..., 1], added[..., 2])


@pytest.mark.parametrize("severity", [4, 5])
def test_mud_covers_where_smoothed_noise_is_high(severity):
    image = photo(seed=9)
    mean, sigma, smoothing, threshold, softness, _ = PUBLISHED["spatter"][severity - 1]
    noise = np.random.default_rng(0).normal(mean, sigma, (224, 224))
    liquid = ndimage.gaussian_filter(noise, smoothing, mode="nearest")
    share = ndimage.gaussian_filter((liquid > threshold).astype(float), softness, mode="nearest")
    share[share < 0.8] = 0
    expected = image / 255 * (1 - share[..., None]) + share[..., None] * np.array([63, 42, 20]) / 255
    difference = np.abs(made(f"spatter@{severity}", image).image.astype(int) - picture(expected))
    assert difference.mean() < 0.2 and np.quantile(difference, 0.999) <= 2


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_and_saturation_against_colorsys(severity):
    image = photo(side=12, seed=10)
    brighter, saturated = (made(f"{name}@{severity}", image).image for name in ("brightness", "saturate"))
    factor, more = PUBLISHED["saturate"][severity - 1]
    for y, x in np.ndindex(image.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(image[y, x] / 255))
        light = colorsys.hsv_to_rgb(hue, saturation, min(1, value + PUBLISHED["brightness"][severity - 1]))
        assert_near(brighter[y, x], picture(np.array(light)), mean=1)
        strong = colorsys.hsv_to_rgb(hue, min(1, saturation * factor + more), value)
        assert_near(saturated[y, x], picture(np.array(strong)), mean=1)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_jpeg_and_pixels(severity):
    image = photo(seed=11)
    values = image / 255
    means = values.mean(axis=(0, 1))
    expected = means + (values - means) * PUBLISHED["contrast"][severity - 1]
    assert_near(made(f"contrast@{severity}", image).image, picture(expected))
    file = io.BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=PUBLISHED["jpeg_compression"][severity - 1])
    assert np.array_equal(made(f"jpeg_compression@{severity}", image).image, np.asarray(Pillow.open(file)))
    coarse = made(f"pixelate@{severity}", image).image
    side = int(224 * PUBLISHED["pixelate"][severity - 1])
    assert len(np.unique(coarse.reshape(-1, 3), axis=0)) <= side * side
    if 224 % side == 0:
        block = 224 // side
        # Pillow shrinks along one side, rounds, and shrinks along the other.
        columns = np.floor(image.reshape(224, side, block, 3).mean(axis=2) + 0.5)
        blocks = np.floor(columns.reshape(side, block, side, 3).mean(axis=1) + 0.5)
        assert np.array_equal(coarse, blocks.repeat(block, 0).repeat(block, 1))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_elastic_transform_against_scipy_and_its_mask_goes_with_it(severity):
    image = photo(seed=12)
    alpha, sigma, shear = PUBLISHED["elastic_transform"][severity - 1]
    rng = np.random.default_rng(0)
    corners = 112 + 74 * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners + rng.uniform(-shear, shear, (3, 2))
    affine = np.linalg.solve(np.c_[corners, np.ones(3)], moved).T  # new x, y of an old point
    back = np.linalg.inv(np.r_[affine, [[0, 0, 1]]])
    dx, dy = (
        alpha * ndimage.gaussian_filter(rng.uniform(-1, 1, (224, 224)), sigma, mode="reflect", truncate=3) for _ in "xy"
    )
    rows, columns = np.indices((224, 224))

    def bent(values):
        x, y = (back[i, 0] * columns + back[i, 1] * rows + back[i, 2] for i in (0, 1))
        first = np.dstack([ndimage.map_coordinates(values[..., c], (y, x), order=1, mode="mirror") for c in range(3)])
        return np.dstack(
            [
                ndimage.map_coordinates(first[..., c], (rows + dy, columns + dx), order=1, mode="reflect")
                for c in range(3)
            ]
        )

    mask = np.zeros((224, 224), bool)
    mask[60:150, 40:120] = True
    result = made(f"elastic_transform@{severity}", image, mask=mask)
    difference = np.abs(result.image.astype(int) - picture(bent(image / 255)))
    assert difference.mean() < 0.7 and np.quantile(difference, 0.99) <= 4
    expected = bent(np.repeat(mask[..., None], 3, axis=2).astype(float))[..., 0] >= 0.5
    assert (result.mask != expected).mean() < 0.005 and (result.mask != mask).mean() > 0.005


def test_larger_pictures_are_shrunk_to_the_published_scale_and_smaller_ones_scaled():
    image, mask = photo(side=512, width=640), np.zeros((512, 640), bool)
    mask[100:300, 200:400] = True
    small = made("contrast@1", image, mask=mask)
    assert small.image.shape == (256, 320, 3) and small.mask.shape == (256, 320)
    assert small.mask.mean() == pytest.approx(mask.mean(), rel=0.02)
    assert made("contrast@1", image).image.shape == (256, 320, 3)  # without a mask, too
    assert made("contrast@1?size=0", image, mask=mask).image.shape == image.shape
    unchanged = photo(side=240)
    assert made("contrast@1", unchanged).image.shape == (240, 240, 3)
    # Lengths go with the shorter side: half the image, half the σ; twice the 256, twice the σ.
    for picture_, scale, text in ((photo(side=112), 0.5, "gaussian_blur@4"), (image, 2, "gaussian_blur@4?size=0")):
        expected = ndimage.gaussian_filter(picture_ / 255, (4 * scale, 4 * scale, 0), mode="nearest", truncate=4)
        assert_near(made(text, picture_).image, picture(expected))


def test_layers_look_the_same_on_a_small_picture():
    """Snow on an image of 112 is that of 224, shrunk, and not flakes as large on fewer pixels."""
    grey = np.full((224, 224, 3), 60, np.uint8)
    large, small = (made("snow@3", one).image for one in (grey, grey[::2, ::2].copy()))
    shrunk = cv2.resize(large, (112, 112), interpolation=cv2.INTER_AREA)
    assert np.abs(shrunk.astype(int) - small).mean() < 3 < np.abs(shrunk.astype(int) - 60).mean()


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_severity_is_nothing_on_a_small_picture(name):
    image = photo(side=64)
    assert all((made(f"{name}@{severity}", image).image != image).any() for severity in (1, 2))


def test_defocus_of_a_small_picture_is_that_of_a_large_one():
    """A disc of 3 of 224 pixels is less than one of 64 and blurs as much all the same."""
    large = photo(side=256)[:224, :224]
    small = cv2.resize(large, (64, 64), interpolation=cv2.INTER_AREA)
    for severity in SEVERITIES:
        shrunk = cv2.resize(made(f"defocus_blur@{severity}", large).image, (64, 64), interpolation=cv2.INTER_AREA)
        left = np.abs(shrunk[8:-8, 8:-8].astype(int) - made(f"defocus_blur@{severity}", small).image[8:-8, 8:-8]).mean()
        assert left < 0.4 * np.abs(shrunk[8:-8, 8:-8].astype(int) - small[8:-8, 8:-8]).mean()
