"""Pictures that small models are trained on: scenes of the drawn world, cached in a folder, or those of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.diorama import CLASSES, Split, draw_scene, render

CHUNK = 500
HELD_OUT = ("test", "ood")


@dataclass(frozen=True)
class Scenes:
    """Images (n, side, side, 3) uint8, masks (n, side, side) bool, labels (n,) as places in the list of classes."""

    images: NDArray[np.uint8]
    masks: NDArray[np.bool_]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DrawnPictures:
    """Drawn scenes, rendered where they are missing from the folder ``cache``."""

    cache: Path
    classes: tuple[str, ...] = CLASSES

    def scenes(self, split: Split, context: float, count: int) -> Scenes:
        """Return so many scenes of a split."""
        return rendered(split, context, count, cache=self.cache)

    def about(self, train: int, side: int, context: float) -> dict[str, Any]:
        """Return what the card of a model says about its training pictures."""
        return {"rho": context, "data": f"{train} training scenes of diorama at {side} px, context {context}"}


@dataclass(frozen=True)
class OwnPictures:
    """Pictures of a collection, split into ``train`` and ``test``; ``name`` is what cards call them."""

    name: str
    classes: tuple[str, ...]
    parts: Mapping[str, Scenes]

    def scenes(self, split: Split, context: float, count: int) -> Scenes:
        """Return all pictures of a split; context and number are those of drawn scenes."""
        del context, count
        return self.parts[split]

    def about(self, train: int, side: int, context: float) -> dict[str, Any]:
        """Return what the card of a model says about its training pictures."""
        del train, context
        return {"data": f"{len(self.parts['train'])} images of {self.name} at {side} px"}


def squeezed(images: Sequence[NDArray[np.uint8]], labels: Sequence[int], *, side: int) -> Scenes:
    """Return RGB images of any size as squares of one size, without masks."""
    small = [cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA) for image in images]
    none = np.zeros((len(small), side, side), np.bool_)
    return Scenes(np.stack(small).astype(np.uint8), none, np.array(labels, np.int64))


def rendered(split: Split, context: float, count: int, *, cache: Path, seed: int = 0, side: int = 64) -> Scenes:
    """Render scenes; at every context scene i has the same factors except the background, and classes take turns."""
    folder = cache / f"{split}-{context}-{count}-{seed}-{side}"
    if not (folder / "labels.npy").is_file():
        tasks = [(split, context, seed, start, min(start + CHUNK, count), side) for start in range(0, count, CHUNK)]
        if len(tasks) == 1:  # not worth starting processes
            parts = [_render(tasks[0])]
        else:
            with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), cv2.setNumThreads, (1,)) as pool:
                parts = list(pool.map(_render, tasks))
        folder.mkdir(parents=True, exist_ok=True)
        for name, arrays in zip(("images", "masks", "labels"), zip(*parts, strict=True), strict=True):
            np.save(folder / f"{name}.npy", np.concatenate(arrays))
    return Scenes(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("images", "masks", "labels")))


def scene_seed(split: Split, seed: int, index: int) -> int:
    """Return the seed of a scene; training scenes of different seeds do not overlap."""
    return index if split in HELD_OUT else (1 + seed) * 10_000_000 + index


def _render(task: tuple[Split, float, int, int, int, int]) -> tuple[NDArray[Any], ...]:
    split, context, seed, start, stop, side = task
    images = np.empty((stop - start, side, side, 3), np.uint8)
    masks = np.empty((stop - start, side, side), np.bool_)
    labels = np.arange(start, stop) % len(CLASSES)
    for row, index in enumerate(range(start, stop)):
        scene = draw_scene(scene_seed(split, seed, index), split=split, context=context, label=CLASSES[labels[row]])
        drawn = render(scene, size=side)
        images[row], masks[row] = drawn.image, drawn.mask
    return images, masks, labels
