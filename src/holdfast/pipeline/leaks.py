"""Near-duplicates between two collections, so that leaks between training and test images are seen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError
from holdfast.core.types import Image, Sample
from holdfast.data import load_collection
from holdfast.engine import core_count
from holdfast.pipeline.jobs.progress import Progress, silent, with_progress

Hashes = NDArray[np.uint64]  # hashes (n, 4): 256 bits per image

DEFAULT_MAX_DISTANCE = 48
"""Largest distance of duplicates in bits, of 255.

On 120 photos, re-encoded, halved or brightened copies differ by at most 22, copies cropped by a fiftieth by at most
46, different photos by at least 95.
"""

_SIDE, _KEPT = 64, 16
_BLOCK_PAIRS = 1 << 22  # pairs compared at a time; they take a few dozen megabytes


def find_leaks(
    first: str, second: str, *, distance: int = DEFAULT_MAX_DISTANCE, flips: bool = False, progress: Progress = silent
) -> tuple[list[tuple[str, str, int]], int]:
    """Return pairs (id in first, id in second, distance), closest first, and how many images could not be read."""
    ids: list[list[str]] = []
    hashes: list[NDArray[Any]] = []
    unread = 0
    for step, text in (("first", first), ("second", second)):
        samples = load_collection(text).samples
        with ThreadPoolExecutor(core_count()) as threads:
            pairs = zip(samples, threads.map(_hash, samples), strict=True)
            hashed = list(with_progress(pairs, progress, step, len(samples)))
        ids.append([sample.sample_id for sample, value in hashed if value is not None])
        hashes.append(np.array([value for _, value in hashed if value is not None], np.uint64).reshape(-1, 4))
        unread += len(hashed) - len(ids[-1])
    near = near_duplicates(hashes[0], hashes[1], max_distance=distance, flips=flips)
    return sorted(((ids[0][i], ids[1][j], apart) for i, j, apart in near), key=lambda pair: (pair[2], pair)), unread


def _hash(sample: Sample) -> NDArray[Any] | None:
    try:
        return perceptual_hash(sample.image.load())
    except SampleError:
        return None


def perceptual_hash(image: Image) -> Hashes:
    """Return the 256-bit hash of an image, as four words (4,)."""
    # The signs of the 16 × 16 lowest frequencies (DCT) of its luminance at 64 × 64. Brightness and contrast do not
    # enter (the mean's bit is 0); resizing and re-encoding move high frequencies only. ``image``: HWC, RGB or RGBA (the
    # colour under alpha 0 counts as it is), or HW grey; 0..255.
    grey = image if image.ndim == 2 else cv2.cvtColor(np.ascontiguousarray(image[..., :3]), cv2.COLOR_RGB2GRAY)
    small = cv2.resize(grey, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    frequencies = cv2.dct(small - small.mean())[:_KEPT, :_KEPT]
    # Half a grey level of one pixel: below it lies only rounding, whose sign would be noise in flat images.
    bits = frequencies > 0.5 / _SIDE
    bits[0, 0] = False
    return np.packbits(bits).view(np.uint64)


def mirrored(hashes: Hashes) -> Hashes:
    """Return the hashes of mirrored images: a flip changes the sign of every odd horizontal frequency."""
    odd = np.tile([False, True], (_KEPT, _KEPT // 2))
    return hashes ^ np.packbits(odd).view(np.uint64)


def near_duplicates(
    first: Hashes, second: Hashes, *, max_distance: int = DEFAULT_MAX_DISTANCE, flips: bool = False
) -> list[tuple[int, int, int]]:
    """Return pairs (i, j, distance) of ``first[i]`` and ``second[j]`` at most ``max_distance`` bits apart."""
    # With ``flips`` the distance is the smaller of those to the image and to its mirror image. To look for duplicates
    # within one collection, pass it twice and keep i < j.
    pairs: list[tuple[int, int, int]] = []
    if not len(first) or not len(second):
        return pairs
    rows = max(1, _BLOCK_PAIRS // len(second))
    for start in range(0, len(first), rows):
        block = first[start : start + rows]
        distances = _distances(block, second)
        if flips:
            distances = np.minimum(distances, _distances(mirrored(block), second))
        near, of = np.nonzero(distances <= max_distance)
        pairs.extend(zip((near + start).tolist(), of.tolist(), distances[near, of].tolist(), strict=True))
    return sorted(pairs, key=lambda pair: (pair[2], pair[0], pair[1]))


def _distances(first: Hashes, second: Hashes) -> NDArray[np.uint16]:
    total = np.zeros((len(first), len(second)), np.uint16)
    for word in range(first.shape[1]):
        total += np.bitwise_count(first[:, word, None] ^ second[None, :, word])
    return total
