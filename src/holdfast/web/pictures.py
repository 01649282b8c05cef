"""Pictures for browsers: upright, re-encoded without metadata, and cached in memory."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable

import cv2

from holdfast.core.errors import SampleError
from holdfast.core.types import Image, Sample

SIDES = {"place": 768, "small": 256, "full": 0}
"""Pixels of the longer side by size name; pictures to judge all have the same, 0 keeps the file's own."""

_ENLARGED = ("place",)
_QUALITY = 92
_AT_ONCE = 2  # decoders: the largest images need some hundred megabytes each


class PictureCache:
    """JPEG bytes by image and size."""

    def __init__(self, sample: Callable[[int], Sample], *, max_pixels: int, capacity: int = 256 << 20) -> None:
        self._sample, self._max_pixels, self._capacity = sample, max_pixels, capacity
        self._kept: OrderedDict[tuple[int, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._decoders = threading.Semaphore(_AT_ONCE)

    def get(self, image_id: int, size: str) -> bytes:
        """Return the picture as a JPEG.

        Args:
            image_id: a row of the table of images.
            size: a key of ``SIDES``.

        Raises:
            SampleError: the image cannot be read.
        """
        key = (image_id, size)
        if (kept := self._find(key)) is not None:
            return kept
        with self._decoders:
            if (kept := self._find(key)) is not None:  # another request made it while this one waited
                return kept
            image = self._sample(image_id).image.load(max_pixels=self._max_pixels)
            data = encode(image, SIDES[size], enlarge=size in _ENLARGED)
            self._keep(key, data)
            return data

    def _find(self, key: tuple[int, str]) -> bytes | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: tuple[int, str], data: bytes) -> None:
        with self._lock:
            self._kept[key] = data
            self._bytes += len(data)
            while self._bytes > self._capacity and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= len(dropped)


def encode(image: Image, side: int, *, enlarge: bool) -> bytes:
    """Return a JPEG whose longer side is ``side``; 0 keeps the size, as does ``enlarge=False`` for a small image."""
    height, width = image.shape[:2]
    scale = side / max(height, width) if side else 1.0
    if scale < 1 or (scale > 1 and enlarge):
        size = max(1, round(width * scale)), max(1, round(height * scale))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC).view("uint8")
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    try:
        done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    except cv2.error as error:  # a side above 65,535
        raise SampleError("the picture is too large for a browser") from error
    if not done:
        raise SampleError("the picture is too large for a browser")
    return data.tobytes()


def padded(data: bytes, name: str) -> bytes:
    """Return a JPEG with a comment that depends on ``name``, so that its size and hash do.

    A program can then not find repeated pictures by comparing files.
    """
    length = 64 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:2], "big") % 4096
    comment = hashlib.shake_256(name.encode()).digest(length)
    return data[:2] + b"\xff\xfe" + (length + 2).to_bytes(2, "big") + comment + data[2:]
