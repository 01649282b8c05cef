"""Measures of pictures besides a model's answers: FID, KID, precision and recall, diversity, neighbours, seam."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.core.types import Image, Mask

Floats = NDArray[np.float64]

EDGE = 1.5  # pixels on either side of the mask's edge that count as the seam

NEARBY = (3.0, 7.0)  # pixels from the edge, on either side, that the seam is compared with


def frechet_distance(real: NDArray[np.float32], generated: NDArray[np.float32]) -> float:
    """Return FID (torchmetrics) between given features, (n, width) each."""
    from torchmetrics.image.fid import FrechetInceptionDistance

    return _distance(FrechetInceptionDistance(feature=_given(real.shape[1])), real, generated)


def kernel_distance(real: NDArray[np.float32], generated: NDArray[np.float32]) -> float:
    """Return KID (torchmetrics) of given features, on one subset of the smaller set's size, so nothing is random."""
    from torchmetrics.image.kid import KernelInceptionDistance

    size = min(len(real), len(generated))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Metric `Kernel Inception Distance` will save all")
        metric = KernelInceptionDistance(feature=_given(real.shape[1]), subsets=1, subset_size=size)
    return _distance(metric, real[:size], generated[:size])


def _given(width: int) -> Any:
    """Return a module that lets torchmetrics take features instead of pictures."""

    class Given(torch.nn.Identity):
        num_features = width

    return Given()


def _distance(metric: Any, real: NDArray[np.float32], generated: NDArray[np.float32]) -> float:
    metric.set_dtype(torch.float64)
    for features, is_real in ((real, True), (generated, False)):
        metric.update(torch.from_numpy(features).double(), real=is_real)
    # KID shuffles with torch's global generator: a seed keeps the last bits, and the fork leaves others' numbers alone.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        value = metric.compute()
    return float(value[0] if isinstance(value, tuple) else value)


def diversity(features: NDArray[np.float32], groups: Sequence[str]) -> float:
    """Return the mean cosine distance between two pictures (unit vectors) of one group, averaged over groups."""
    distances = []
    for group in dict.fromkeys(groups):
        own = features[np.asarray(groups) == group].astype(np.float64)
        if len(own) > 1:
            total = np.square(own.sum(0)).sum() - np.square(own).sum()  # over ordered pairs of two pictures
            distances.append(1 - total / (len(own) * (len(own) - 1)))
    return float(np.mean(distances)) if distances else float("nan")


def precision_recall(real: NDArray[np.float32], generated: NDArray[np.float32], k: int = 5) -> tuple[float, float]:
    """Return improved precision and recall (Kynkäänniemi and others 2019), from Euclidean distances of features."""
    apart = _apart(real, generated)
    precision = (apart <= _radii(real, k)[:, None]).any(axis=0).mean()
    recall = (apart <= _radii(generated, k)[None, :]).any(axis=1).mean()
    return float(precision), float(recall)


def coverage(real: NDArray[np.float32], generated: NDArray[np.float32], k: int = 5) -> float:
    """Return the share of real pictures with a generated one within the distance to their k-th neighbour."""
    return float((_apart(real, generated).min(axis=1) <= _radii(real, k)).mean())


def nearest(
    features: NDArray[np.float32], others: NDArray[np.float32], *, itself: bool = False
) -> tuple[NDArray[np.intp], Floats]:
    """Return place and cosine of each unit vector's nearest one among others; ``itself``: not counting itself."""
    similar = features.astype(np.float64) @ others.astype(np.float64).T
    if itself:
        np.fill_diagonal(similar, -np.inf)
    return similar.argmax(axis=1), similar.max(axis=1)


def _apart(first: NDArray[np.float32], second: NDArray[np.float32]) -> Floats:
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(first.astype(np.float64), second.astype(np.float64)))


def _radii(features: NDArray[np.float32], k: int) -> Floats:
    """Return each picture's distance to its k-th neighbour among the same pictures."""
    k = min(k, len(features) - 1)
    return np.asarray(np.partition(_apart(features, features), k, axis=1)[:, k])


def seam(image: Image, mask: Mask) -> float:
    """Return the ratio of mean gradients along the mask's edge and nearby; NaN where nothing is steep nearby."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
    steep = np.hypot(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
    inside = mask.view(np.uint8)
    distances = [cv2.distanceTransform(side, cv2.DIST_L2, cv2.DIST_MASK_PRECISE) for side in (inside, 1 - inside)]
    away = np.maximum(*distances)  # of each pixel from the other side of the mask's edge
    edge, nearby = away <= EDGE, (away >= NEARBY[0]) & (away <= NEARBY[1])
    if not edge.any() or not nearby.any() or not steep[nearby].any():
        return float("nan")
    return float(steep[edge].mean() / steep[nearby].mean())


def seam_against(image: Image, original: Image, mask: Mask) -> float:
    """Return ``seam`` over that of the original: 1 where the edge stands out no more than before."""
    before = seam(original, mask)
    return seam(image, mask) / before if before > 0 else float("nan")


def clip_scores(pictures: NDArray[np.float32], prompts: NDArray[np.float32]) -> Floats:
    """Return 100 × cosine of picture and prompt, at least 0, from unit vectors (n, width) of each."""
    return np.asarray(np.maximum(100 * (pictures.astype(np.float64) * prompts).sum(1), 0))
