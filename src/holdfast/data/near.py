"""Images that look the same: a perceptual hash, and pairs whose hashes are a few bits apart."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Image

Hashes = NDArray[np.uint64]  # hashes (n, 4): 256 bits per image

DEFAULT_MAX_DISTANCE = 48
"""Largest distance of duplicates in bits, of 255.

On 120 images, re-encoded, halved or brightened copies differ by at most 22, copies cropped by a fiftieth by at most
46, different images by at least 95.
"""
COPY_DISTANCE = 24
"""Largest distance of re-encoded or resized copies: those of 120 images differ by at most 14 (quality 20 to 90, a half
or a quarter of the size); different images by at least 95, scenes by at least 86."""

COPY_DIFFERENCE = 0.12
"""Largest difference of copies in their luminance at 64 × 64, as a share of its spread.

Copies of 120 images at quality 20 to 90 differ by at most 0.09, of half the size by 0.16 (99 of 100 by 0.12).
Two images of different objects by a fixed camera may have alike hashes, and differ by more.
"""

_SIDE, _KEPT = 64, 16
_BLOCK_PAIRS = 1 << 22  # pairs compared at a time; they take a few dozen megabytes
_FLAT = 24  # bits: an image with fewer has no structure to compare
_COMMON = 2_000  # images that agree in a part of the hash, of which that part says nothing


def perceptual_hash(image: Image) -> Hashes:
    """Return the 256-bit hash of an image, as four words (4,)."""
    # The signs of the 16 × 16 lowest frequencies (DCT) of its luminance at 64 × 64. Brightness and contrast do not
    # enter (the mean's bit is 0); resizing and re-encoding move high frequencies only. ``image``: HWC, RGB or RGBA (the
    # colour under alpha 0 counts as it is), or HW grey; 0..255.
    frequencies = cv2.dct(_luminance(image))[:_KEPT, :_KEPT]
    # Half a grey level of one pixel: below it is only rounding, whose sign would be noise in flat images.
    bits = frequencies > 0.5 / _SIDE
    bits[0, 0] = False
    return np.packbits(bits).view(np.uint64)


def is_copy(first: Image, second: Image) -> bool:
    """Return whether one image is the other, re-encoded or resized, by their pixels."""
    small = _luminance(first)
    spread = max(float(small.std()), 1.0)
    return float(np.sqrt(np.mean((small - _luminance(second)) ** 2))) <= COPY_DIFFERENCE * spread


def _luminance(image: Image) -> NDArray[np.float32]:
    """Return the luminance at 64 × 64, less its mean."""
    grey = image if image.ndim == 2 else cv2.cvtColor(np.ascontiguousarray(image[..., :3]), cv2.COLOR_RGB2GRAY)
    small = cv2.resize(grey, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    return np.asarray(small - small.mean(), np.float32)


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


def copies(hashes: Hashes) -> Iterator[tuple[int, int]]:
    """Yield pairs i < j of images whose hashes are those of re-encoded or resized copies."""
    # Two hashes that differ in fewer bits than there are parts agree in one part, so only images that do are compared.
    structured = np.flatnonzero(np.bitwise_count(hashes).sum(axis=1) >= _FLAT)
    parts = np.ascontiguousarray(hashes[structured]).view(np.uint16)
    seen: set[tuple[int, int]] = set()
    for part in parts.T:
        order = np.argsort(part, kind="stable")
        starts = np.flatnonzero(np.diff(part[order], prepend=-1, append=-1).astype(bool))
        for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            if 1 < end - start <= _COMMON:
                group = np.sort(structured[order[start:end]])
                near = np.argwhere(_distances(hashes[group], hashes[group]) <= COPY_DISTANCE)
                seen.update((int(group[i]), int(group[j])) for i, j in near.tolist() if i < j)
    yield from sorted(seen)
