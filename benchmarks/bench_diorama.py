"""How fast scenes are painted."""

from __future__ import annotations

import time
from collections.abc import Iterator

import cv2
from common import Row

from holdfast.diorama import Scene, draw_scene, render


def rows() -> Iterator[Row]:
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    scenes = [draw_scene(seed) for seed in range(300)]
    _paint(scenes, 64)  # the noise fields are made once
    small = min(_paint(scenes, 64) for _ in range(5))
    large = min(_paint(scenes[:30], 224) for _ in range(5))
    cv2.setNumThreads(threads)
    yield Row("diorama, 64 px, one core", len(scenes) / small, "images/s", at_least=300)
    yield Row("diorama, 224 px, one core", 30 / large, "images/s")


def _paint(scenes: list[Scene], size: int) -> float:
    """Seconds of one core: processor time, so that what else the machine does counts less."""
    start = time.process_time()
    for scene in scenes:
        render(scene, size)
    return time.process_time() - start
