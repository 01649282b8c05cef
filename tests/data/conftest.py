"""Small images for the readers' tests."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def _encode(array: np.ndarray, format: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, format, **options)
    return stream.getvalue()


@pytest.fixture
def encode() -> Callable[..., bytes]:
    """An array to the bytes of an image file."""
    return _encode


@pytest.fixture
def write_image() -> Callable[..., Path]:
    """Write an image of a colour (or an array); the suffix gives the format."""

    def write(path: Path, colour: object = (200, 40, 40), size: tuple[int, int] = (6, 8)) -> Path:
        array = colour if isinstance(colour, np.ndarray) else np.full((*size, 3), colour, np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path)
        return path

    return write


@pytest.fixture
def write_mask() -> Callable[..., Path]:
    """Write a 0/255 mask whose top half is foreground."""

    def write(path: Path, size: tuple[int, int] = (6, 8)) -> Path:
        array = np.zeros(size, np.uint8)
        array[: size[0] // 2] = 255
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path)
        return path

    return write
