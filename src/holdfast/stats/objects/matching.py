"""Predicted boxes matched to true ones by the rules of COCO, for many images and classes at once.

Predictions take objects in the order of their scores, each the object of its class with the largest overlap that is
still free. Those of unlike images and classes never meet, so that the best prediction of every image and class is
matched in one step, then the second best of all, and so on: at most ``MOST`` steps, whatever the number of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from holdfast.stats.core.bootstrap import Codes, Floats

Bools = NDArray[np.bool_]

OVERLAPS: Floats = np.linspace(0.5, 0.95, 10)
"""How much a prediction and an object have to overlap (intersection over union), at least."""

MOST = 100  # Predictions of one class in one image that count: those with the highest scores

SIZES = {"all": (0.0, 1e10), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
"""Smallest and largest area of an object in square pixels."""

_PAIRS = 4_000_000  # whose overlaps are computed at a time


@dataclass(frozen=True)
class TrueBoxes:
    """Objects: ``image``, ``label`` (n,) codes, ``corners`` (n, 4) as x1, y1, x2, y2, ``area``, ``crowd`` (n,)."""

    image: Codes
    label: Codes
    corners: Floats
    area: Floats
    crowd: Bools


@dataclass(frozen=True)
class PredictedBoxes:
    """Predictions: ``image`` and ``label`` (n,) codes, ``corners`` (n, 4) as x1, y1, x2, y2, ``score`` (n,)."""

    image: Codes
    label: Codes
    corners: Floats
    score: Floats


@dataclass(frozen=True)
class MatchTable:
    """Which predictions met an object, in the order of class, then score.

    image, label, score: (predictions,) codes, codes, and 0..1. ``met``: (candidates, sizes, overlaps) 0: no object, 1:
    an object that counts, 2: an ignored one. truth_image, truth_label: (objects,) codes.
    """

    image: Codes
    label: Codes
    score: Floats
    inside: Bools  # (predictions, sizes) whether the predicted box itself is of that size
    near: Codes  # (candidates,) places of the predictions that overlap an object of their class by half or more
    met: NDArray[np.int8]
    truth_image: Codes
    truth_label: Codes
    counted: Bools  # (objects, sizes) objects that count: no crowd, and of that size
    classes: int  # how many classes there are

    def among(self, images: Codes) -> MatchTable:
        """Return the table of some images only, numbered again; ``images``: ascending."""
        kept, own = np.isin(self.image, images), np.isin(self.truth_image, images)
        near = kept[self.near]
        place = np.cumsum(kept) - 1
        image, truth_image = np.searchsorted(images, self.image[kept]), np.searchsorted(images, self.truth_image[own])
        return MatchTable(
            image, self.label[kept], self.score[kept], self.inside[kept], place[self.near[near]], self.met[near],
            truth_image, self.truth_label[own], self.counted[own], self.classes,
        )  # fmt: skip


def match(
    truth: TrueBoxes, predicted: PredictedBoxes, *, classes: int, sizes: tuple[str, ...] = tuple(SIZES)
) -> MatchTable:
    """Match predictions to objects at every overlap of ``OVERLAPS`` and for every size.

    ``predicted``: the predictions, in any order; of equal scores the earlier image and the earlier row come first.
    ``classes``: how many classes there are; labels are 0 to classes − 1. ``sizes``: names of ``SIZES``.
    """
    order = _by_class_and_score(predicted, classes)
    images = 1 + max(int(predicted.image.max(initial=0)), int(truth.image.max(initial=0)))
    cell = predicted.label[order] * np.intp(images) + predicted.image[order]
    kept = _rank(cell) < MOST
    order, cell = order[kept], cell[kept]
    corners = predicted.corners[order]
    bounds = np.array([SIZES[name] for name in sizes])
    counted = ~truth.crowd[:, None] & _within(truth.area, bounds)
    pairs, objects, overlap = _overlapping(cell, corners, truth, images)
    near, place = np.unique(pairs, return_inverse=True)
    met = _taken_in_turn(cell[near], place, objects, overlap, counted, truth.crowd)
    area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    return MatchTable(
        predicted.image[order], predicted.label[order], predicted.score[order], _within(area, bounds), near, met,
        truth.image, truth.label, counted, classes,
    )  # fmt: skip


def _by_class_and_score(predicted: PredictedBoxes, classes: int) -> Codes:
    """Return the order of class, then falling score, then image, then row: stable sorts, the last key first."""
    order = np.arange(len(predicted.image))
    if (np.diff(predicted.image) < 0).any():
        order = np.argsort(predicted.image, kind="stable")
    order = order[np.argsort(-predicted.score[order], kind="stable")]
    label = predicted.label[order].astype(np.int16 if classes < 2**15 else np.intp)  # short ones are sorted by digits
    return order[np.argsort(label, kind="stable")]


def _within(area: Floats, bounds: Floats) -> Bools:
    return np.asarray((area[:, None] >= bounds[:, 0]) & (area[:, None] <= bounds[:, 1]))


def _rank(cell: Codes) -> Codes:
    """Return how many earlier elements have the same code, (n,)."""
    order = np.argsort(cell, kind="stable")
    places = np.arange(len(cell))
    starts = np.append(True, np.diff(cell[order]) != 0)[: len(cell)]
    rank = np.empty(len(cell), np.intp)
    rank[order] = places - np.maximum.accumulate(np.where(starts, places, 0))
    return rank


def _overlapping(cell: Codes, corners: Floats, truth: TrueBoxes, images: int) -> tuple[Codes, Codes, Floats]:
    """Return pairs of a prediction and an object of its image and class that overlap enough, and by how much."""
    truth_cell = truth.label * np.intp(images) + truth.image
    by_cell = np.argsort(truth_cell, kind="stable")
    first = np.searchsorted(truth_cell[by_cell], cell, "left")
    count = np.searchsorted(truth_cell[by_cell], cell, "right") - first
    kept: list[tuple[Codes, Codes, Floats]] = []
    for part in _parts(count):
        pairs = np.repeat(np.arange(part.start, part.stop), count[part])
        ends = np.cumsum(count[part])
        within = np.arange(len(pairs)) - np.repeat(ends - count[part], count[part])
        objects = by_cell[first[pairs] + within]
        overlap = box_overlap(corners[pairs], truth.corners[objects], truth.crowd[objects])
        enough = overlap >= OVERLAPS[0]
        kept.append((pairs[enough], objects[enough], overlap[enough]))
    if not kept:
        return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
    pairs, objects, overlap = (np.concatenate(columns) for columns in zip(*kept, strict=True))
    return pairs, objects, overlap


def _parts(count: Codes) -> Iterator[slice]:
    """Yield slices of predictions with about ``_PAIRS`` pairs each."""
    total = np.cumsum(count)
    cuts = np.searchsorted(total, np.arange(_PAIRS, int(total[-1]) if len(total) else 0, _PAIRS))
    edges = np.unique([0, *(cuts + 1), len(count)])
    for start, stop in pairwise(edges.tolist()):
        yield slice(start, stop)


def box_overlap(first: Floats, second: Floats, crowd: Bools | None = None) -> Floats:
    """Return the intersection over the union of boxes, pair by pair; over the first box if the second is a crowd.

    Sides are taken as widths and heights, as COCO stores them, so that the last digit is the same as there.
    """
    (x, y, width, height), (x2, y2, width2, height2) = (
        (box[:, 0], box[:, 1], box[:, 2] - box[:, 0], box[:, 3] - box[:, 1]) for box in (first, second)
    )
    across = np.minimum(x + width, x2 + width2) - np.maximum(x, x2)
    down = np.minimum(y + height, y2 + height2) - np.maximum(y, y2)
    both = np.where((across > 0) & (down > 0), across * down, 0.0)
    own = width * height
    either = own + width2 * height2 - both
    if crowd is not None:
        either = np.where(crowd, own, either)
    return np.divide(both, either, out=np.zeros_like(both), where=both > 0)


def _taken_in_turn(
    cell: Codes, place: Codes, objects: Codes, overlap: Floats, counted: Bools, crowd: Bools
) -> NDArray[np.int8]:
    """Let predictions take objects, the best of every image and class first; return ``MatchTable.met``.

    ``cell``: (candidates,) image and class. ``place``, ``objects``, ``overlap``: of each pair, ascending by candidate.
    ``crowd``: (objects,) which any number of predictions may take.
    """
    sizes = counted.shape[1]
    met = np.zeros((len(cell), sizes, len(OVERLAPS)), np.int8)
    taken = np.zeros((len(counted), sizes, len(OVERLAPS)), np.bool_)
    if not len(place):
        return met
    # an object that counts before an ignored one, then the larger overlap, then the later object
    whole = np.dtype(np.int32 if 2 * len(place) < 2**31 else np.int64)
    wish = np.empty(len(place), whole)
    by_wish = np.lexsort((objects, overlap))
    wish[by_wish] = np.arange(len(place))
    needed = np.minimum(OVERLAPS, 1 - 1e-10)
    alone = np.bincount(place)[place] == 1
    turn = 2 * _rank(cell)[place] + alone
    by_turn = np.argsort(turn, kind="stable")
    edges = np.searchsorted(turn[by_turn], np.arange(int(turn.max()) + 2))
    for number, (start, stop) in enumerate(pairwise(edges.tolist())):
        now = by_turn[start:stop]
        own, whose = objects[now], place[now]
        free = ~(taken[own] & ~crowd[own, None, None]) & (overlap[now, None, None] >= needed)
        if number % 2:  # overlaps with a single object: nothing to choose
            met[whose] = np.where(free, np.where(counted[own], np.int8(1), np.int8(2))[:, :, None], np.int8(0))
            taken[own] |= free
            continue
        key = wish[now, None] + len(place) * counted[own].astype(whole)
        starts = np.flatnonzero(np.append(True, np.diff(whose) != 0)[: len(whose)])
        if not len(starts):
            continue
        best = np.maximum.reduceat(np.where(free, key[:, :, None], np.array(-1, whole)), starts, axis=0)
        who, size, step = np.nonzero(best >= 0)
        winner = objects[by_wish[best[who, size, step] % len(place)]]
        taken[winner, size, step] = True
        met[whose[starts][who], size, step] = np.where(counted[winner, size], 1, 2)
    return met
