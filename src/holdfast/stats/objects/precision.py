"""Average precision, equal to pycocotools' to the last digit, and its interval by resampled photos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import scipy_sparse
from holdfast.stats.core.bootstrap import Codes, Floats, drawn_weights, t_quantile
from holdfast.stats.objects.matching import OVERLAPS, SIZES, MatchTable

RECALLS: Floats = np.linspace(0.0, 1.0, 101)  # Where the curve of precision over recall is read off

MEASURES = ("ap", "ap50", "ap75")
RESAMPLES = 400  # The interval needs their standard deviation, not their tails: 400 meet it to 4 %

_WORK = 400_000_000  # candidates × overlaps × resamples, about; fewer resamples beyond that, 100 at least


@dataclass(frozen=True)
class PrecisionTable:
    """Precision at every overlap, recall, class and size, (overlaps, recalls, classes, sizes); −1: no such object."""

    precision: Floats
    sizes: tuple[str, ...]

    def mean(self, *, overlap: float | None = None, size: str = "all") -> float:
        """Return the average precision; NaN where no object counts."""
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

    Precision is highest where an object was met, so it is computed there only.
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


def resampled_precision(table: MatchTable, images: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Return AP, AP50 and AP75 of all sizes in resamples of photos, (resamples, 3).

    Photos are drawn as in every other statistic, so that two conditions are resampled together; ``images``: how many
    there are.
    """
    fewer = int(_WORK / max(1, len(table.near) * len(OVERLAPS) + len(table.image)))
    weights = drawn_weights(images, min(resamples, max(100, fewer)), seed)
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


def change_interval(value: float, drawn: Floats, images: int) -> tuple[float, float]:
    """Return the 95 % interval of a number from its resamples: t × their standard deviation to either side.

    Few photos give too high an AP, because the curve is the largest precision from a point on: resamples lie above the
    number by about as much as the number above the truth, and the interval moves down by that. It is stretched by
    √(G / (G − 1)) for G photos, as everywhere. One photo says nothing: NaN.
    """
    known = drawn[np.isfinite(drawn)]
    if images < 2 or len(known) < 2:
        return float("nan"), float("nan")
    half = t_quantile(images - 1) * float(known.std()) * np.sqrt(images / (images - 1))
    centre = 2 * value - float(known.mean())
    return min(centre - half, value), max(centre + half, value)
