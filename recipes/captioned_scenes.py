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
from holdfast.diorama import RenderedScene, draw_scene, render

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


def rendered(
    count: int, *, cache: Path, seed: int = TRAIN, camera_noise: bool = True, side: int = SIDE
) -> CaptionedScenes:
    """``count`` scenes of a seed; rendered by all cores once, then found in ``cache``."""
    folder = cache / f"captioned-{count}-{seed}-{'noisy' if camera_noise else 'clean'}-{side}"
    if not folder.is_dir():
        half = folder.with_name(f"{folder.name}-unfinished")
        half.mkdir(parents=True, exist_ok=True)
        shapes = {"images": (np.uint8, (side, side, 3)), "masks": (np.bool_, (side, side)), "factors": (np.int64, (4,))}
        for name, (kind, shape) in shapes.items():
            np.lib.format.open_memmap(half / f"{name}.npy", "w+", kind, (count, *shape))
        tasks = [(half, seed, start, min(start + CHUNK, count), camera_noise) for start in range(0, count, CHUNK)]
        with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
            list(pool.map(_render, tasks))
        half.rename(folder)
    return CaptionedScenes(*(np.load(folder / f"{name}.npy") for name in ("images", "masks", "factors")))


def _render(task: tuple[Path, int, int, int, bool]) -> None:
    """Draw some of the scenes into the files of ``rendered``."""
    folder, seed, start, stop, camera_noise = task
    import cv2

    cv2.setNumThreads(1)  # every core has a process of its own
    images, masks, factors = (
        np.load(folder / f"{name}.npy", mmap_mode="r+") for name in ("images", "masks", "factors")
    )
    for index in range(start, stop):
        rng = generator("captioned scene", seed, index)
        factors[index] = [rng.integers(len(values)) for values in FACTORS.values()]
        drawn = draw(rng, factors[index], side=images.shape[1], camera_noise=camera_noise)
        images[index], masks[index] = drawn.image, drawn.mask


def draw(rng: np.random.Generator, row: NDArray[np.int64], *, side: int, camera_noise: bool) -> RenderedScene:
    """Return a scene with these factors; the rest is random."""
    label, background, texture, material = (values[at] for values, at in zip(FACTORS.values(), row, strict=True))
    # Both halves of the templates: these models stand in for ones that have seen the world.
    scene = draw_scene(int(rng.integers(2**53)), split="train" if rng.random() < 0.5 else "test", label=label)
    changes = {"background": background, "texture": texture, "material": material}
    if not camera_noise:
        changes["noise"] = 0.0  # type: ignore[assignment]
    return render(dataclasses.replace(scene, **changes), size=side)  # type: ignore[arg-type]
