from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from holdfast.core.types import Image
from holdfast.data.near import COPY_DISTANCE, copies, is_copy, mirrored, near_duplicates, perceptual_hash

PETS = Path(__file__).parents[2].parent / "shared" / "photos" / "pets12"
HASHES = hnp.arrays(np.uint64, st.tuples(st.integers(0, 6), st.just(4)))


def scene(seed: int, height: int = 150, width: int = 200) -> Image:
    """Smooth random colours with some shapes: a stand-in for an image."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (6, 8, 3), np.uint8)
    image = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    for _ in range(6):
        centre = tuple(int(v) for v in rng.integers(0, 150, 2))
        cv2.circle(image, centre, int(rng.integers(5, 40)), tuple(int(v) for v in rng.integers(0, 256, 3)), -1)
    return image


def jpeg(image: Image, quality: int) -> Image:
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


def halved(image: Image) -> Image:
    return cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)


def brighter(image: Image) -> Image:
    return np.clip(image.astype(int) + 15, 0, 255).astype(np.uint8)


def stacked(images: list[Image]) -> np.ndarray:
    return np.stack([perceptual_hash(image) for image in images])


@pytest.mark.parametrize("change", [lambda i: jpeg(i, 60), halved, brighter, lambda i: brighter(jpeg(halved(i), 75))])
def test_copies_are_found_and_nothing_else(change: Callable[[Image], Image]) -> None:
    originals = [scene(seed) for seed in range(60)]
    pairs = near_duplicates(stacked(originals), stacked([change(image) for image in originals]))
    assert sorted((i, j) for i, j, _ in pairs) == [(i, i) for i in range(60)]


def test_mirrored_copies_are_found_when_asked_for() -> None:
    originals = [scene(seed) for seed in range(30)]
    flipped = stacked([jpeg(np.ascontiguousarray(image[:, ::-1]), 80) for image in originals])
    assert near_duplicates(stacked(originals), flipped) == []
    found = near_duplicates(stacked(originals), flipped, flips=True)
    assert sorted((i, j) for i, j, _ in found) == [(i, i) for i in range(30)]
    assert np.bitwise_count(mirrored(stacked(originals)) ^ flipped).sum(axis=1).max() < 20


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 50, 3), (300, 2, 3), (20, 30, 4), (20, 30)])
def test_any_shape_has_a_hash(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    value = perceptual_hash(image)
    assert value.shape == (4,)
    assert value.dtype == np.uint64


def test_flat_images_are_alike_whatever_their_colour() -> None:
    assert not stacked([np.full((50, 70, 3), grey, np.uint8) for grey in (0, 77, 255)]).any()


@given(HASHES, HASHES, st.integers(0, 255), st.booleans())
def test_pairs_are_what_counting_bits_gives(first: np.ndarray, second: np.ndarray, most: int, flips: bool) -> None:
    def distance(a: np.ndarray, b: np.ndarray) -> int:
        return sum(bin(int(x) ^ int(y)).count("1") for x, y in zip(a, b, strict=True))

    expected = [
        (i, j, min(distance(a, b), distance(mirrored(a), b) if flips else 999))
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]
    found = near_duplicates(first, second, max_distance=most, flips=flips)
    assert sorted(found) == sorted(pair for pair in expected if pair[2] <= most)
    assert [pair[2] for pair in found] == sorted(pair[2] for pair in found)


def test_blocks_cover_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = np.random.default_rng(0).integers(0, 2**63, (57, 4), np.uint64)
    monkeypatch.setattr(import_module("holdfast.data.near"), "_BLOCK_PAIRS", 57 * 10)
    assert near_duplicates(hashes, hashes) == [(i, i, 0) for i in range(57)]


def test_fifteen_thousand_squared_in_seconds() -> None:
    hashes = np.random.default_rng(0).integers(0, 2**63, (15_000, 4), np.uint64)
    started = time.perf_counter()
    assert len(near_duplicates(hashes, hashes[:5_000])) == 5_000  # a third of the work
    assert time.perf_counter() - started < 20


@pytest.mark.skipif(not PETS.is_dir(), reason="needs the pets12 images in ../shared")
def test_photos() -> None:
    photos = [cv2.imread(str(path)) for path in sorted((PETS / "images").glob("*/*.jpg"))]
    hashes = stacked(photos)
    assert len(photos) == 120
    assert [pair for pair in near_duplicates(hashes, hashes, flips=True) if pair[0] != pair[1]] == []
    copies = stacked([jpeg(halved(photo), 75) for photo in photos])
    assert sorted((i, j) for i, j, _ in near_duplicates(hashes, copies)) == [(i, i) for i in range(120)]


def test_copies_of_one_collection_are_those_of_all_pairs() -> None:
    rng = np.random.default_rng(5)
    hashes = rng.integers(0, 2**64, (400, 4), np.uint64)
    for at, bits in enumerate([0, 3, 9, 14, 15, 24, 25, 60]):  # the first eight, with a few bits changed
        flipped = np.unpackbits(hashes[at].view(np.uint8))
        flipped[rng.choice(256, bits, replace=False)] ^= 1
        hashes[200 + at] = np.packbits(flipped).view(np.uint64)
    every = [(i, j) for i, j, _ in near_duplicates(hashes, hashes, max_distance=COPY_DISTANCE) if i < j]
    assert sorted(every) == [(at, 200 + at) for at in range(6)]
    assert set(every[:5]) <= set(copies(hashes)) <= set(every)  # 24 bits may touch all 16 parts
    hashes[:] = hashes[0]  # many of one kind: nothing is compared without end
    assert len(list(copies(hashes))) == 400 * 399 / 2


def test_flat_images_are_no_copies_of_each_other() -> None:
    flat = [np.full((40, 40, 3), value, np.uint8) for value in (0, 128, 255)]
    assert list(copies(stacked(flat))) == []


@pytest.mark.skipif(not PETS.is_dir(), reason="needs the pets12 images in ../shared")
def test_re_encoded_photos_are_copies_and_others_are_not() -> None:
    photos = [cv2.imread(str(path)) for path in sorted((PETS / "images").glob("*/*.jpg"))]
    every = [*photos, *(jpeg(photo, 30) for photo in photos), *(jpeg(halved(photo), 80) for photo in photos[:10])]
    pairs = {(i, j) for i, j in copies(stacked(every)) if is_copy(every[i], every[j])}
    count = len(photos)
    assert {pair for pair in pairs if pair[1] < 2 * count} == {(at, count + at) for at in range(count)}
    assert len({pair[0] for pair in pairs if pair[1] >= 2 * count and pair[0] < count}) >= 9
    assert all(i % count == j % count for i, j in pairs)
