"""Near-duplicates between two collections, so that leaks between training and test images are seen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import Sample
from holdfast.data import load_collection
from holdfast.data.near import DEFAULT_MAX_DISTANCE, near_duplicates, perceptual_hash
from holdfast.engine import core_count
from holdfast.pipeline.jobs.progress import Progress, silent, with_progress


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
        if samples and all(value is None for _, value in hashed):
            raise UserError(f"none of the {len(samples)} images of {text} can be read")
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
