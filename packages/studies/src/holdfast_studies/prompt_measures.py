"""Measures of images other than a model's answers: FID, KID, precision and recall, diversity, neighbours, seam."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from holdfast.core.protocols import Classifier
from holdfast.core.types import Collection, Image, Mask, Sample
from holdfast.data.nuisances import article
from holdfast.models.clip import Clip, text_embeddings
from holdfast.pipeline.generate.prompts import ORIGINALS, Prompts, spoken

Floats = NDArray[np.float64]
Features = NDArray[np.float32]

EDGE = 1.5  # pixels on either side of the mask's edge that count as the seam

NEARBY = (3.0, 7.0)  # pixels from the edge, on either side, that the seam is compared with


def frechet_distance(real: Features, generated: Features) -> float:
    """Return FID (torchmetrics) between given features, (n, width) each."""
    from torchmetrics.image.fid import FrechetInceptionDistance

    return _distance(FrechetInceptionDistance(feature=_given(real.shape[1])), real, generated)


def kernel_distance(real: Features, generated: Features) -> float:
    """Return KID (torchmetrics) of given features, on one subset of the smaller set's size, so nothing is random."""
    from torchmetrics.image.kid import KernelInceptionDistance

    size = min(len(real), len(generated))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Metric `Kernel Inception Distance` will save all")
        metric = KernelInceptionDistance(feature=_given(real.shape[1]), subsets=1, subset_size=size)
    return _distance(metric, real[:size], generated[:size])


def _given(width: int) -> Any:
    """Return a module that lets torchmetrics take features instead of images."""

    class Given(torch.nn.Identity):
        num_features = width

    return Given()


def _distance(metric: Any, real: Features, generated: Features) -> float:
    metric.set_dtype(torch.float64)
    for features, is_real in ((real, True), (generated, False)):
        metric.update(torch.from_numpy(features).double(), real=is_real)
    # KID shuffles with torch's global generator: a seed keeps the last bits, and the fork leaves others' numbers alone.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        value = metric.compute()
    return float(value[0] if isinstance(value, tuple) else value)


def diversity(features: Features, groups: Sequence[str]) -> float:
    """Return the mean cosine distance between two images (unit vectors) of one group, averaged over groups."""
    distances = []
    for group in dict.fromkeys(groups):
        own = features[np.asarray(groups) == group].astype(np.float64)
        if len(own) > 1:
            total = np.square(own.sum(0)).sum() - np.square(own).sum()  # over ordered pairs of two images
            distances.append(1 - total / (len(own) * (len(own) - 1)))
    return float(np.mean(distances)) if distances else float("nan")


def precision_recall(real: Features, generated: Features, k: int = 5) -> tuple[float, float]:
    """Return improved precision and recall (Kynkäänniemi and others 2019), from Euclidean distances of features."""
    apart = _apart(real, generated)
    precision = (apart <= _radii(real, k)[:, None]).any(axis=0).mean()
    recall = (apart <= _radii(generated, k)[None, :]).any(axis=1).mean()
    return float(precision), float(recall)


def coverage(real: Features, generated: Features, k: int = 5) -> float:
    """Return the share of real images with a generated one within the distance to their k-th neighbour."""
    return float((_apart(real, generated).min(axis=1) <= _radii(real, k)).mean())


def nearest(features: Features, others: Features, *, itself: bool = False) -> tuple[NDArray[np.intp], Floats]:
    """Return place and cosine of each unit vector's nearest one among others; ``itself``: not counting itself."""
    similar = features.astype(np.float64) @ others.astype(np.float64).T
    if itself:
        np.fill_diagonal(similar, -np.inf)
    return similar.argmax(axis=1), similar.max(axis=1)


def _apart(first: Features, second: Features) -> Floats:
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(first.astype(np.float64), second.astype(np.float64)))


def _radii(features: Features, k: int) -> Floats:
    """Return each image's distance to its k-th neighbour among the same images."""
    k = min(k, len(features) - 1)
    return np.asarray(np.partition(_apart(features, features), k, axis=1)[:, k])


def seam(image: Image, mask: Mask) -> float:
    """Return the ratio of mean gradients along the mask's edge and nearby; NaN if nothing is steep nearby."""
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
    """Return ``seam`` over that of the original: 1 if the edge stands out no more than before."""
    before = seam(original, mask)
    return seam(image, mask) / before if before > 0 else float("nan")


def clip_scores(pictures: Features, prompts: Features) -> Floats:
    """Return 100 × cosine of image and prompt, at least 0, from unit vectors (n, width) of each."""
    return np.asarray(np.maximum(100 * (pictures.astype(np.float64) * prompts).sum(1), 0))


@dataclass(frozen=True)
class PaintedPictures:
    """The images of one strategy and seed, in one order, with the rows of their manifest."""

    strategy: str
    seed: int
    folder: Path
    rows: list[dict[str, Any]]
    images: list[Image]
    features: Features

    @property
    def name(self) -> str:
        """Return the name of its folder and its run."""
        return f"{self.strategy}-{self.seed}"

    @property
    def sources(self) -> list[str]:
        """Return the scene of each image."""
        return [str(row["source_id"]) for row in self.rows]


@dataclass(frozen=True)
class Originals:
    """The scenes as they were, by id; ``place`` is the row of ``features``."""

    samples: Mapping[str, Sample]
    images: Mapping[str, Image]
    masks: Mapping[str, Mask]
    features: Features
    place: Mapping[str, int]

    def of(self, sources: Sequence[str]) -> Features:
        """Return the features of some scenes."""
        return self.features[[self.place[source] for source in sources]]


def measured(
    painted: Sequence[PaintedPictures],
    strategies: Mapping[str, Prompts],
    originals: Originals,
    collection: Collection,
    clip: Clip,
    judge: Classifier,
) -> pd.DataFrame:
    """Return a row per strategy and seed, after one of the originals; ``judge`` names the classes of images."""
    sources = painted[0].sources
    own = originals.of(sources)
    # How far photographs are from one another.
    yardstick = {"strategy": ORIGINALS, "seed": 0, "pictures": len(sources), "seam": 1.0}
    yardstick |= _distances(originals, sources, own)
    rows = [yardstick | {"diversity": diversity(own, [originals.samples[source].label for source in sources])}]
    for part in painted:
        labels = [str(row["label"]) for row in part.rows]
        answers = judge.predict(part.images).argmax(1)
        right = [collection.classes[int(place)] == label for place, label in zip(answers, labels, strict=True)]
        prompts = text_embeddings(clip, [str(row["prompt"]) for row in part.rows])
        seams = [
            seam_against(image, originals.images[source], originals.masks[source])
            for image, source in zip(part.images, part.sources, strict=True)
        ]
        rows.append(
            {
                "strategy": part.strategy,
                "seed": part.seed,
                "pictures": len(part.rows),
                "recognised": float(np.mean(right)),
                "background_seen": _background_seen(part, strategies[part.strategy].backgrounds, collection, clip),
                **_distances(originals, part.sources, part.features),
                "clip_score": float(clip_scores(part.features, prompts).mean()),
                "diversity": diversity(part.features, labels),
                "seam": float(np.nanmedian(seams)) if np.isfinite(seams).any() else float("nan"),
            }
        )
    return pd.DataFrame(rows)


def _distances(originals: Originals, sources: Sequence[str], features: Features) -> dict[str, float]:
    """Return FID and KID of images of half the scenes from originals of the other half, averaged over both ways.

    Images and originals of one scene show the same object, which would make them look alike. Unit vectors are
    scaled to a root mean square of 1, where torchmetrics' kernel distinguishes them.
    """
    labels = pd.Series([originals.samples[source].label for source in sources])
    second = (labels.groupby(labels).cumcount() % 2 == 1).to_numpy()  # every other scene of each class
    if second.sum() < 2 or (~second).sum() < 2:
        return {"fid": float("nan"), "kid": float("nan")}
    real = originals.of(sources)
    scale = np.float32(np.sqrt(real.shape[1]))
    pairs = [(scale * real[part], scale * features[~part]) for part in (second, ~second)]
    return {
        "fid": float(np.mean([frechet_distance(*pair) for pair in pairs])),
        "kid": float(np.mean([kernel_distance(*pair) for pair in pairs])),
    }


def _background_seen(
    part: PaintedPictures, phrases: Mapping[str, str], collection: Collection, clip: Clip
) -> float:  # fmt: skip
    """Return the share of images whose asked background CLIP picks among those of the strategy; NaN without any."""
    kinds = list(phrases)
    if len(kinds) < 2:
        return float("nan")
    texts: dict[str, Features] = {}
    hits = []
    for row, feature in zip(part.rows, part.features, strict=True):
        label = str(row["label"])
        name = spoken(label, collection.keys.get(label))
        if name not in texts:
            texts[name] = text_embeddings(clip, [f"{article(name)} {name} {phrases[kind]}" for kind in kinds])
        hits.append(kinds[int((texts[name] @ feature).argmax())] == row.get("asked_background"))
    return float(np.mean(hits))
