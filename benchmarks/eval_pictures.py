"""JPEGs of 500 × 375 with PNG masks for ``gpu_eval.py``, and folders of scenario images, made by one process a core.

Nothing here imports torch at the top: every process that makes images imports this file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np

HEIGHT, WIDTH, BASES = 375, 500, 24
CLASSES = 12


def write_pictures(folder: str, numbers: range, wnids: tuple[str, ...]) -> None:
    """Some of the images: drawn scenes, mirrored, shifted and noisy, so that no file is like another."""
    from holdfast.diorama import CLASSES as DRAWN
    from holdfast.diorama import draw_scene, render

    rng = np.random.default_rng(numbers.start)
    noise = rng.normal(0, 10, (2 * HEIGHT, 2 * WIDTH, 3)).astype(np.float32)
    bases = [render(draw_scene(seed, split="train", label=DRAWN[seed % 12]), 256) for seed in range(BASES)]
    for number in numbers:
        base = bases[number % BASES]
        image = cv2.resize(base.image, (WIDTH + 40, HEIGHT + 40), interpolation=cv2.INTER_CUBIC)
        mask = cv2.resize(base.mask.astype(np.uint8), (WIDTH + 40, HEIGHT + 40), interpolation=cv2.INTER_NEAREST)
        y, x, step = rng.integers(40), rng.integers(40), -1 if rng.random() < 0.5 else 1
        image, mask = (one[y : y + HEIGHT, x : x + WIDTH][:, ::step] for one in (image, mask))
        top, left = rng.integers(HEIGHT), rng.integers(WIDTH)
        noisy = np.clip(image + noise[top : top + HEIGHT, left : left + WIDTH], 0, 255).astype(np.uint8)
        label = wnids[(number // BASES) % len(wnids)]
        for tree, suffix, picture in (("images", "jpg", noisy[..., ::-1]), ("masks", "png", mask * 255)):
            target = Path(folder) / tree / label / f"{number:06d}.{suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(target), np.ascontiguousarray(picture), [cv2.IMWRITE_JPEG_QUALITY, 88] * (suffix == "jpg"))


def write_scenarios(data: str, folder: str, names: list[str], scenarios: str) -> None:
    """Scenario images of some images, a folder a scenario, as ``holdfast synth --format jpeg`` has them."""
    from holdfast.core.fingerprint import generator
    from holdfast.core.types import Sample
    from holdfast.data.images import FileImage
    from holdfast.data.writers import encode_image
    from holdfast.pipeline.donors import DonorPool, SampleContext
    from holdfast.scenarios import parse_conditions, render

    donors = DonorPool([Sample("donor", "", FileImage(Path(data) / "images" / names[0]))])
    for name in names:
        image = cv2.cvtColor(cv2.imread(str(Path(data) / "images" / name)), cv2.COLOR_BGR2RGB)
        mask = cv2.imread(str((Path(data) / "masks" / name).with_suffix(".png")), cv2.IMREAD_GRAYSCALE) > 0
        sample = Sample(name, "another", FileImage(Path(data) / "images" / name))
        context = SampleContext(sample, donors)
        for condition in parse_conditions(scenarios):
            made = render(condition, image, mask, rng=generator(0, name, condition.name), context=context)
            suffix = ".jpg" if made.image.shape[2] == 3 else ".png"
            target = (Path(folder) / condition.name / name).with_suffix(suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(encode_image(made.image, format="jpeg"))


def in_processes(work: Callable[..., None], parts: list[tuple[Any, ...]]) -> None:
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for done in [pool.submit(work, *part) for part in parts]:
            done.result()


def pictures(data: str, images: int) -> Path:
    """The folder of so many images, made if it is not there."""
    from holdfast.models import label_spaces

    folder = Path(data) / str(images)
    if not (folder / "done").exists():
        space = label_spaces.imagenet()
        assert space is not None
        wnids = tuple(space.wnids[:: len(space.wnids) // CLASSES][:CLASSES])
        start = time.perf_counter()
        each = -(-images // (2 * (os.cpu_count() or 1)))
        starts = range(0, images, each)
        in_processes(
            write_pictures,
            [(str(folder), range(first, min(first + each, images)), wnids) for first in starts],
        )
        (folder / "done").touch()
        sizes = [path.stat().st_size for path in list((folder / "images").rglob("*.jpg"))[:200]]
        took = time.perf_counter() - start
        print(f"{images} images of {np.mean(sizes) / 1000:.0f} kB written in {took:.1f} s", flush=True)
    return folder
