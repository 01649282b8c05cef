"""Average precision, equal to pycocotools' to the last digit, and its interval by resampled images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import scipy_sparse
from holdfast.stats.core.bootstrap import (
    NO_DONORS,
    Codes,
    Estimate,
    Floats,
    SharedClusters,
    drawn_weights,
    t_quantile,
    unseen,
)
from holdfast.stats.objects.matching import OVERLAPS, SIZES, MatchTable

RECALLS: Floats = np.linspace(0.0, 1.0, 101)  # If the curve of precision over recall is read off

MEASURES = ("ap", "ap50", "ap75")
RESAMPLES = 400  # The interval needs their standard deviation, not their tails: 400 meet it to 4 %

_WORK = 400_000_000  # candidates × overlaps × resamples, about; fewer resamples beyond that, 100 at least


@dataclass(frozen=True)
class PrecisionTable:
    """Precision at every overlap, recall, class and size, (overlaps, recalls, classes, sizes); −1: no such object."""

    precision: Floats
    sizes: tuple[str, ...]

    def mean(self, *, overlap: float | None = None, size: str = "all") -> float:
        """Return the average precision; NaN if no object counts."""
        table = self.precision[..., self.sizes.index(size)]
        if overlap is not None:
            table = table[np.flatnonzero(np.isclose(OVERLAPS, overlap))]
        known = table[table > -1]
        return float(np.mean(known)) if len(known) else float("nan")

    def numbers(self) -> dict[str, float]:
        """Return ``ap``, ``ap50``, ``ap75``, and ``ap_small`` … for the sizes that were matched."""
        values = {"ap": self.mean(), "ap50": self.mean(overlap=0.5), "ap75": self.mean(overlap=0.75)}
        return values | {f"ap_{size}": self.mean(size=size) for size in self.sizes if size != "all"}


def average_precision(table: MatchTable, sizes: Sequence[str] = tuple(SIZES)) -> PrecisionTable:
    """Return the curves of precision over recall.

    Precision is highest if an object was met, so it is computed there only.
    """
    shape = (len(OVERLAPS), len(RECALLS), table.classes, len(sizes))
    precision = np.full(shape, -1.0)
    label = np.arange(table.classes + 1)
    edges, starts = np.searchsorted(table.label[table.near], label), np.searchsorted(table.label, label)
    for number in range(table.classes):
        objects = table.counted[table.truth_label == number].sum(axis=0)
        first, last = int(edges[number]), int(edges[number + 1])
        if last > first:
            near, met = table.near[first:last], table.met[first:last]
            tried = np.cumsum(table.inside[starts[number] : near[-1] + 1], axis=0)[near - starts[number], :, None]
            inside, right = table.inside[near][:, :, None], np.cumsum(met == 1, axis=0, dtype=np.float64)
            # met an object that counts though its own size is another, or an ignored one though its size would count
            moved = ((met == 1) & ~inside).astype(np.int8) - ((met == 2) & inside)
            if moved.any():
                tried = tried + np.cumsum(moved, axis=0)
            share = np.maximum.accumulate((right / (tried + np.spacing(1)))[::-1], axis=0)[::-1]
        for size in np.flatnonzero(objects):
            precision[:, :, number, size] = 0.0
            for step in range(len(OVERLAPS) if last > first else 0):
                places = np.searchsorted(right[:, size, step] / objects[size], RECALLS)
                reached = places < last - first
                precision[step, reached, number, size] = share[places[reached], size, step]
    return PrecisionTable(precision, tuple(sizes))


def resampled_precision(
    table: MatchTable, photos: int, *, owner: Codes | None = None, resamples: int = RESAMPLES, seed: int = 0
) -> Floats:
    """Return AP, AP50 and AP75 of all sizes in resamples of images, (resamples, 3).

    Images are drawn as in every other statistic, so that two conditions are resampled together; ``photos``: how many
    there are; ``owner``: (images,) the source of each image, if the two differ.
    """
    fewer = int(_WORK / max(1, len(table.near) * len(OVERLAPS) + len(table.image)))
    weights = drawn_weights(photos, min(resamples, max(100, fewer)), seed)
    weights = weights if owner is None else weights[owner]
    edges, starts, objects = (
        np.searchsorted(labels, np.arange(table.classes + 1))
        for labels in (table.label[table.near], table.label, np.sort(table.truth_label))
    )
    counted = table.counted[:, 0]
    by_label = np.argsort(table.truth_label, kind="stable")
    total, number = np.zeros((len(OVERLAPS), weights.shape[1])), np.zeros(weights.shape[1])
    for label in range(table.classes):
        own = by_label[objects[label] : objects[label + 1]]
        true = weights[table.truth_image[own[counted[own]]]].sum(axis=0, dtype=np.float64)
        number += true > 0
        first, last = int(edges[label]), int(edges[label + 1])
        if last > first and true.any():
            near = table.near[first:last]
            total += _class_precision(table, weights, slice(first, last), near, int(starts[label]), true)
    with np.errstate(invalid="ignore"):
        means = total / number
    return np.stack([means.mean(axis=0), means[0], means[5]], axis=1)


def _class_precision(
    table: MatchTable, weights: NDArray[np.float32], rows: slice, near: Codes, start: int, true: Floats
) -> Floats:
    """Return the average precision of one class at every overlap in every resample, (overlaps, resamples)."""
    images = table.image[start : near[-1] + 1]
    up_to = np.searchsorted(near, np.arange(start, near[-1] + 1))
    between = scipy_sparse.csr_array(
        (np.ones(len(images), np.float32), (up_to, images)), shape=(len(near), len(weights))
    )
    tried = np.cumsum(np.asarray(between @ weights), axis=0)
    own = weights[table.image[near]]
    value = np.zeros((len(OVERLAPS), weights.shape[1]))
    scale = np.where(true > 0, 100 / np.maximum(true, 1), 0).astype(np.float32)
    for step in range(len(OVERLAPS)):
        met = table.met[rows, 0, step]
        if not (met == 1).any():
            continue
        ignored = (met == 2).any()
        tries = tried - np.cumsum(own * (met == 2)[:, None], axis=0) if ignored else tried
        hit = met == 1
        right = np.cumsum(own[hit], axis=0)
        share = right / np.maximum(tries[hit], 1)
        share = np.maximum.accumulate(share[::-1], axis=0)[::-1]
        reached = np.floor(right * scale + 1e-4)
        value[step] = (np.diff(reached, axis=0, prepend=np.float32(-1)) * share).sum(axis=0) / len(RECALLS)
    return value * (true > 0)


def precision_influence(table: MatchTable, images: int) -> Floats:
    """Return what each image adds to the deviation of AP, AP50 and AP75 from the truth, (images, 3).

    The derivative of the area under the curve by the image's weight, with the curve's largest precisions where they
    are: an image adds its own hits, and moves the precision of all predictions that rank below its own.
    """
    influence, classes = np.zeros((len(OVERLAPS), images)), 0
    edges, starts = (
        np.searchsorted(labels, np.arange(table.classes + 1)) for labels in (table.label[table.near], table.label)
    )
    for label in range(table.classes):
        own = table.counted[:, 0] & (table.truth_label == label)
        true = np.bincount(table.truth_image[own], minlength=images).astype(np.float64)
        if not true.any():
            continue
        classes += 1
        near, said = (slice(int(ends[label]), int(ends[label + 1])) for ends in (edges, starts))
        image = table.image[said]
        for step in range(len(OVERLAPS)):
            met = np.zeros(len(image), np.int8)
            met[table.near[near] - starts[label]] = table.met[near, 0, step]
            influence[step] += _moved_area(image, met, true)
    by_overlap = np.stack([influence.mean(axis=0), influence[0], influence[5]], axis=1)
    return np.asarray(by_overlap / max(classes, 1))


def _moved_area(image: Codes, met: NDArray[np.int8], true: Floats) -> Floats:
    """Return each image's influence on a class's area, (images,); ``true``: (images,) how many objects it has."""
    image, hit = image[met != 2], met[met != 2] == 1
    objects = true.sum()
    if not hit.any():
        return np.zeros(len(true))
    tried, right, last = np.arange(1, len(hit) + 1), np.cumsum(hit), len(hit) - 1
    precision = right / tried
    best = np.maximum.accumulate(precision[::-1])[::-1]
    # where the largest precision from a hit on is reached
    place = last - np.maximum.accumulate(np.where(precision[::-1] >= best[::-1], np.arange(len(hit)), 0))[::-1]
    weight = np.bincount(place[hit], minlength=len(hit)) / objects  # of each place in the area
    below = np.cumsum((weight / tried)[::-1])[::-1]
    lost = np.cumsum((weight * best / tried)[::-1])[::-1]
    area = float(best[hit].sum()) / objects
    moved = np.where(hit, below + best / objects, 0.0) - lost
    return np.asarray(np.bincount(image, moved, len(true)) - area * true / objects)


def change_interval(value: float, drawn: Floats, photos: int, shared: SharedClusters = NO_DONORS) -> Estimate:
    """Return a number with its 95 % interval from its resamples: t × their standard deviation to either side.

    Few images give too high an AP, because the curve is the largest precision from a point on: resamples lie above the
    number by about as much as the number above the truth, and the interval moves down by that. It is stretched by
    √(G / (G − 1)) for G images, as everywhere, and for ``shared`` donors. One image says nothing: NaN.
    If all resamples agree, it reaches as far as images that no one has seen could.
    """
    known = drawn[np.isfinite(drawn)]
    if photos < 2 or len(known) < 2:
        return Estimate(value, float("nan"), float("nan"))
    half = t_quantile(min(photos - 1, shared.freedom)) * float(known.std()) * np.sqrt(photos / (photos - 1))
    half = float(half * shared.stretch if half > 1e-9 else unseen(photos))
    centre = 2 * value - float(known.mean())
    return Estimate(value, min(centre - half, value), max(centre + half, value))
