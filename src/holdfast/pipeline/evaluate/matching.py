"""Match the boxes of a detector with the true objects of a picture, and choose the score from which on boxes count.

All functions work on rows of the tables in ``core.objects``, so that a stored answer can be read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.objects import FOUND_IOU, box_overlaps

Row = dict[str, Any]

UNDECIDED = 0.5
"""The threshold of a detector that finds no object on the originals at any score."""

_CORNERS = ("x1", "y1", "x2", "y2")


@dataclass(frozen=True, slots=True)
class Matches:
    """Which object each prediction stands for, -1 for none, and whether it is left out (on a crowd)."""

    objects: NDArray[np.int64]
    ignored: NDArray[np.bool_]
    overlaps: NDArray[np.float64]  # (predictions, objects)


def boxes_of(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return the boxes of rows, (n, 4)."""
    return np.array([[row[corner] for corner in _CORNERS] for row in rows], np.float64).reshape(-1, 4)


def is_counted(row: Row) -> bool:
    """Return whether an object counts: it is in the picture, usable, of a known class and no crowd."""
    return row["status"] == "ok" and not row["crowd"]


def match(objects: Sequence[Row], predictions: Sequence[Row]) -> Matches:
    """Match predictions, the best first: each takes the free object of its class that it overlaps most.

    The matches of the predictions above any score are the same as if there were no others. A second box on an object
    stands for nothing. On crowds, and on objects whose annotation is marked as unusable, boxes of their class are
    neither right nor wrong.
    """
    overlaps = box_overlaps(boxes_of(predictions), boxes_of(objects), crowd=[bool(row["crowd"]) for row in objects])
    counted = np.array([is_counted(row) for row in objects], np.bool_)
    absorbing = np.array([row["crowd"] or row["status"] == "invalid" for row in objects], np.bool_)
    names = np.array([row["label"] for row in objects], object)
    taken = np.zeros(len(objects), np.bool_)
    owner = np.full(len(predictions), -1, np.int64)
    ignored = np.zeros(len(predictions), np.bool_)
    for place, prediction in enumerate(predictions):
        close = (overlaps[place] >= FOUND_IOU) & (names == prediction["label"])
        free = np.flatnonzero(close & counted & ~taken)
        if len(free):
            owner[place] = free[np.argmax(overlaps[place, free])]
            taken[owner[place]] = True
        else:
            ignored[place] = bool((close & absorbing).any())
    return Matches(owner, ignored, overlaps)


def judged(
    objects: Sequence[Row], predictions: Sequence[Row], threshold: float | None
) -> tuple[list[Row], dict[str, Any]]:
    """Return the objects with their outcome, and the columns of the picture's row in ``IMAGES``.

    ``objects``: rows of OBJECTS without an outcome. ``predictions``: rows of DETECTIONS, the best first. ``threshold``:
    None where it is not decided yet: outcomes are then null.
    """
    counted = [row for row in objects if is_counted(row)]
    columns: dict[str, Any] = {"n_objects": len(counted), "threshold": threshold}
    if threshold is None:
        return [dict(row) for row in objects], columns | {"n_predictions": None, "false_alarms": None}
    sure = [row for row in predictions if row["score"] >= np.float32(threshold)]
    matches = match(objects, sure)
    owners = {int(owner): place for place, owner in enumerate(matches.objects) if owner >= 0}
    answered = []
    for place, row in enumerate(objects):
        if row["status"] not in ("ok", "removed"):
            answered.append(dict(row))
            continue
        own = owners.get(place, -1)
        overlaps = matches.overlaps[:, place]
        if row["status"] == "removed":  # nothing is there: does a box of its class stand there all the same?
            ghosts = [at for at, each in enumerate(sure) if each["label"] == row["label"] and overlaps[at] >= FOUND_IOU]
            own = max(ghosts, key=lambda at: overlaps[at], default=-1)
        best = int(np.argmax(overlaps)) if len(sure) else -1
        seen = sure[best]["label"] if best >= 0 and overlaps[best] >= FOUND_IOU else ""
        answered.append(
            dict(row)
            | {
                "found": own >= 0, "iou": float(overlaps[own]) if own >= 0 else 0.0,
                "score": float(sure[own]["score"]) if own >= 0 else 0.0, "predicted": seen,
            }
        )  # fmt: skip
    alarms = int(((matches.objects < 0) & ~matches.ignored).sum())
    return answered, columns | {"n_predictions": len(sure), "false_alarms": alarms}


def is_right(objects: Iterable[Row], columns: Row) -> bool | None:
    """Return whether every counted object was found; on a picture without objects, whether nothing was reported."""
    if columns["threshold"] is None:
        return None
    outcomes = [bool(row["found"]) for row in objects if is_counted(row)]
    return all(outcomes) if outcomes else columns["false_alarms"] == 0


def best_threshold(pictures: Iterable[tuple[Sequence[Row], Sequence[Row]]]) -> tuple[float, float]:
    """Return the score with the best F1 over pictures (objects, predictions), and that F1.

    Half-way to the next lower score, so that rounding decides nothing; among equals the highest. Without any found
    object, ``UNDECIDED`` and 0.
    """
    scores: list[float] = []
    right: list[bool] = []
    total = 0
    for objects, predictions in pictures:
        total += sum(map(is_counted, objects))
        matches = match(objects, predictions)
        for prediction, owner, ignored in zip(predictions, matches.objects, matches.ignored, strict=True):
            if not ignored:
                scores.append(float(prediction["score"]))
                right.append(bool(owner >= 0))
    if not any(right):
        return UNDECIDED, 0.0
    order = np.argsort(-np.array(scores), kind="stable")
    sorted_scores, hits = np.array(scores)[order], np.cumsum(np.array(right)[order])
    f1 = 2 * hits / (total + np.arange(1, len(hits) + 1))
    last = np.append(sorted_scores[1:] < sorted_scores[:-1], True)  # equal scores stand or fall together
    place = int(np.flatnonzero(last)[np.argmax(f1[last])])
    lower = float(sorted_scores[place + 1]) if place + 1 < len(sorted_scores) else 0.0
    return round((float(sorted_scores[place]) + lower) / 2, 6), float(f1[place])
