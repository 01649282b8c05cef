"""Images of drawn shapes; not in conftest.py, because rooms have one of their own and "conftest" may mean any."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

CLASSES = ("cross", "disc", "square")


def draw(label: str, index: int, height: int = 48, width: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """A shape on a noisy background, BGR, with its mask."""
    rng = np.random.default_rng([CLASSES.index(label), index])
    image = rng.integers(0, 256, (height, width, 3), np.uint8)
    image = cv2.GaussianBlur(image, (0, 0), 2)
    mask = np.zeros((height, width), np.uint8)
    x, y, r = int(rng.integers(22, 42)), int(rng.integers(18, 30)), int(rng.integers(8, 13))
    if label == "disc":
        cv2.circle(mask, (x, y), r, 255, -1)
    elif label == "square":
        cv2.rectangle(mask, (x - r, y - r), (x + r, y + r), 255, -1)
    else:
        cv2.rectangle(mask, (x - r, y - 3), (x + r, y + 3), 255, -1)
        cv2.rectangle(mask, (x - 3, y - r), (x + 3, y + r), 255, -1)
    image[mask > 0] = {"disc": (40, 40, 220), "square": (40, 220, 40), "cross": (220, 40, 40)}[label]
    return image, mask


def make_photos(folder: Path, count: int = 4) -> Path:
    """``images/`` and ``masks/``: three classes, ``count`` images each."""
    for label in CLASSES:
        for index in range(count):
            image, mask = draw(label, index)
            for tree, suffix, picture in (("images", "png", image), ("masks", "png", mask)):
                path = folder / tree / label / f"{index}.{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(path), picture)
    return folder
