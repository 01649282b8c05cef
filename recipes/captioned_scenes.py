"""Scenes of every combination of factors, for models that read or paint them: all templates, textures and places."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from captions import FACTORS
from numpy.typing import NDArray

from holdfast.core.fingerprint import generator
from holdfast.diorama import draw_scene, render

CHUNK = 500
SIDE = 64
TRAIN, HELD_OUT = 0, 1


@dataclass(frozen=True)
class CaptionedScenes:
    """Images (n, side, side, 3) uint8, masks (n, side, side) bool, factors (n, 4) as places in FACTORS."""

    images: NDArray[np.uint8]
    masks: NDArray[np.bool_]
    factors: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.factors)


def rendered(count: int, *, cache: Path, seed: int = TRAIN, camera_noise: bool = True) -> CaptionedScenes:
    """``count`` scenes of a seed; rendered by all cores once, then found in ``cache``."""
    folder = cache / f"captioned-{count}-{seed}-{'noisy' if camera_noise else 'clean'}"
    if not (folder / "factors.npy").is_file():
        tasks = [(seed, start, min(start + CHUNK, count), camera_noise) for start in range(0, count, CHUNK)]
        with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
            parts = list(pool.map(_render, tasks))
        folder.mkdir(parents=True, exist_ok=True)
        for name, arrays in zip(("images", "masks", "factors"), zip(*parts, strict=True), strict=True):
            np.save(folder / f"{name}.npy", np.concatenate(arrays))
    return CaptionedScenes(*(np.load(folder / f"{name}.npy") for name in ("images", "masks", "factors")))


def _render(task: tuple[int, int, int, bool]) -> tuple[NDArray[np.uint8], ...]:
    seed, start, stop, camera_noise = task
    import cv2

    cv2.setNumThreads(1)  # every core has a process of its own
    images = np.empty((stop - start, SIDE, SIDE, 3), np.uint8)
    masks = np.empty((stop - start, SIDE, SIDE), np.bool_)
    factors = np.empty((stop - start, len(FACTORS)), np.int64)
    for row, index in enumerate(range(start, stop)):
        rng = generator("captioned scene", seed, index)
        factors[row] = [rng.integers(len(values)) for values in FACTORS.values()]
        label, background, texture, material = (
            values[at] for values, at in zip(FACTORS.values(), factors[row], strict=True)
        )
        # Both halves of the templates: these models stand in for ones that have seen the world.
        scene = draw_scene(int(rng.integers(2**53)), split="train" if rng.random() < 0.5 else "test", label=label)
        changes = {"background": background, "texture": texture, "material": material}
        if not camera_noise:
            changes["noise"] = 0.0  # type: ignore[assignment]
        drawn = render(dataclasses.replace(scene, **changes), size=SIDE)  # type: ignore[arg-type]
        images[row], masks[row] = drawn.image, drawn.mask
    return images, masks, factors
