"""Match the boxes of a detector with the true objects of an image, and choose the score from which on boxes count.

All functions work on rows of the tables in ``core.schema``, so that a stored answer can be read again.
``stats.objects.matching`` is another thing: average precision by COCO's rules, over ten overlaps and all sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.annotate import load_guided
from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import WITHOUT_OBJECT
from holdfast.core.protocols import (
    FOUND_IOU,
    MOST_OBJECTS,
    GuidedAnnotator,
    ObjectsSource,
    TrueObject,
    box_overlaps,
    size_class,
)
from holdfast.core.types import Collection, ImageSource, Mask, MaskSource, Problem, Sample
from holdfast.data.labels import class_keys
from holdfast.data.masks import ArrayMask
from holdfast.pipeline.samples import Rendering
from holdfast.pipeline.specs import EvaluateSpec
from holdfast.scenarios import Condition, parse_conditions
from holdfast.scenarios.base.compositing import bounding_box
from holdfast.scenarios.industrial import touched_sides

Row = dict[str, Any]

UNDECIDED = 0.5  # the threshold of a detector that finds no object on the originals at any score
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
    """Return whether an object counts: it is in the image, usable, of a known class and no crowd."""
    return row["status"] == "ok" and not row["crowd"]


def match(objects: Sequence[Row], predictions: Sequence[Row]) -> Matches:
    """Match predictions, the best first: each takes the free object of its class that it overlaps most."""
    # The matches of the predictions above any score are the same as if there were no others. A second box on an object
    # stands for nothing. On crowds, and on objects whose annotation is marked as unusable, boxes of their class are
    # neither right nor wrong.
    overlaps = box_overlaps(boxes_of(predictions), boxes_of(objects), crowd=[bool(row["crowd"]) for row in objects])
    counted = np.array([is_counted(row) for row in objects], np.bool_)
    absorbing = np.array([row["crowd"] or row["status"] == "invalid" for row in objects], np.bool_)
    said, names = (np.array([row["label"] for row in rows], object) for rows in (predictions, objects))
    close = (overlaps >= FOUND_IOU) & (said[:, None] == names[None, :])
    taken = np.zeros(len(objects), np.bool_)
    owner = np.full(len(predictions), -1, np.int64)
    for place in np.flatnonzero((close & counted).any(axis=1)):
        free = np.flatnonzero(close[place] & counted & ~taken)
        if len(free):
            owner[place] = free[np.argmax(overlaps[place, free])]
            taken[owner[place]] = True
    return Matches(owner, (close & absorbing).any(axis=1) & (owner < 0), overlaps)


def meant(objects: Sequence[Row], prediction: Row) -> int:
    """Return the place of the object of its class that a prediction overlaps most, -1 if it touches none."""
    overlaps = box_overlaps(boxes_of([prediction]), boxes_of(objects))[0]
    same = [row["label"] == prediction["label"] and row["status"] == "ok" for row in objects]
    overlaps = np.where(same, overlaps, 0.0)
    return int(np.argmax(overlaps)) if overlaps.any() else -1


def judged(
    objects: Sequence[Row], predictions: Sequence[Row], threshold: float | None
) -> tuple[list[Row], dict[str, Any]]:
    """Return the objects with their outcome, and the columns of the image's row in ``IMAGES``."""
    # ``objects``: rows of OBJECTS without an outcome. ``predictions``: rows of DETECTIONS, the best first.
    # ``threshold``: None if it is not decided yet: outcomes are then null.
    columns: dict[str, Any] = {"n_objects": sum(map(is_counted, objects)), "threshold": threshold}
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
        if row["status"] == "removed":  # nothing is there: is a box of its class there all the same?
            ghosts = [at for at, each in enumerate(sure) if each["label"] == row["label"] and overlaps[at] >= FOUND_IOU]
            own = max(ghosts, key=lambda at: overlaps[at], default=-1)
        best = int(np.argmax(overlaps)) if len(sure) else -1
        seen = sure[best]["label"] if best >= 0 and overlaps[best] >= FOUND_IOU else ""
        answered.append(
            dict(row)
            | {
                "found": own >= 0, "iou": float(overlaps[own]) if own >= 0 else 0.0,
                "score": float(sure[own]["score"]) if own >= 0 else 0.0, "predicted": seen,
                "mask_iou": sure[own].get("mask_iou") if own >= 0 and meant(objects, sure[own]) == place else None,
            }
        )  # fmt: skip
    alarms = int(((matches.objects < 0) & ~matches.ignored).sum())
    return answered, columns | {"n_predictions": len(sure), "false_alarms": alarms}


def is_right(objects: Iterable[Row], columns: Row) -> bool | None:
    """Return whether every counted object was found; on an image without objects, whether nothing was reported."""
    if columns["threshold"] is None:
        return None
    outcomes = [bool(row["found"]) for row in objects if is_counted(row)]
    return all(outcomes) if outcomes else columns["false_alarms"] == 0


def best_threshold(pictures: Iterable[tuple[Sequence[Row], Sequence[Row]]]) -> tuple[float, float]:
    """Return the score with the best F1 over images (objects, predictions), and that F1."""
    # Half-way to the next lower score, so that rounding decides nothing; among equals the highest. Without any found
    # object, ``UNDECIDED`` and 0.
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
    last = np.append(sorted_scores[1:] < sorted_scores[:-1], True)  # equal scores count together
    place = int(np.flatnonzero(last)[np.argmax(f1[last])])
    lower = float(sorted_scores[place + 1]) if place + 1 < len(sorted_scores) else 0.0
    return round((float(sorted_scores[place]) + lower) / 2, 6), float(f1[place])


_ALIKE = 0.85  # IoU of a moved mask with the scaled and shifted one, from which on boxes follow it
_SAME = 0.95  # the same if the image's edge cuts the mask, so that it must have been shifted only
_Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class UnionMask:
    """The pixels of all usable objects of an image: the foreground of every scenario."""

    objects: ObjectsSource

    def fingerprint(self) -> str:
        """Return a hash of the objects."""
        return fingerprint(["union", self.objects.fingerprint()])

    def load(self, height: int, width: int) -> Mask:
        """Return HW bool."""
        union = np.zeros((height, width), np.bool_)
        for each in self.objects.load(height, width):
            if not each.problem:
                union |= each.pixels(height, width)
        return union


@dataclass(frozen=True, slots=True)
class MaskedObject:
    """The one object of a classified image: what its mask covers, in the box around it."""

    mask: MaskSource
    label: str
    exact = True  # it needs no mask maker

    def fingerprint(self) -> str:
        """Return a hash of the mask and the class."""
        return fingerprint(["masked object", self.label, self.mask.fingerprint()])

    def load(self, height: int, width: int) -> tuple[TrueObject, ...]:
        """Return the object; it is unusable if the mask is empty."""
        return _covered(self, height, width)


@lru_cache(maxsize=32)
def _covered(source: MaskedObject, height: int, width: int) -> tuple[TrueObject, ...]:
    """Return what a mask covers; the last ones are remembered, since every condition asks for them."""
    pixels = source.mask.load(height, width)
    if not pixels.any():
        return (TrueObject("0", source.label, (0.0, 0.0, 0.0, 0.0), problem="the mask is empty"),)
    left, top, right, bottom = (float(edge) for edge in bounding_box(pixels))
    return (TrueObject("0", source.label, (left, top, right, bottom), source.mask, float(pixels.sum())),)


@dataclass(frozen=True)
class GuidedObjects:
    """Objects whose missing masks a mask maker makes from their boxes; those are marked."""

    objects: ObjectsSource
    image: ImageSource
    annotator: GuidedAnnotator

    def fingerprint(self) -> str:
        """Return a hash of the objects and the mask maker; the image has its own in every row id."""
        return fingerprint([self.objects.fingerprint(), self.annotator.fingerprint])

    def load(self, height: int, width: int) -> tuple[TrueObject, ...]:
        """Return the objects, each with a mask."""
        plain = self.objects.load(height, width)
        if all(each.problem or each.mask is not None for each in plain):
            return plain
        return _masked(self, height, width)

    def __hash__(self) -> int:
        return hash((self.objects.fingerprint(), self.annotator.fingerprint))


@lru_cache(maxsize=32)
def _masked(source: GuidedObjects, height: int, width: int) -> tuple[TrueObject, ...]:
    """Return the objects with masks; the last images are remembered, since every condition asks for them."""
    embedding: Any = None
    masked = []
    for each in source.objects.load(height, width):
        if each.problem or each.mask is not None:
            masked.append(each)
            continue
        if embedding is None:
            embedding = source.annotator.embed(source.image.load())
        masked.append(
            replace(each, mask=ArrayMask(_made(source.annotator, embedding, each, height, width)), mask_made=True)
        )
    return tuple(masked)


def _made(annotator: GuidedAnnotator, embedding: Any, each: TrueObject, height: int, width: int) -> Mask:
    """Return the mask that a mask maker finds in a box, cut at the box; the whole box if it finds nothing."""
    whole = replace(each, mask=None).pixels(height, width)
    x1, y1, x2, y2 = each.box
    try:
        mask = annotator.guided(embedding, box=(x1, y1, x2 - 1, y2 - 1)).mask & whole
    except UserError:  # a box of a few pixels
        return whole
    return mask if mask.any() else whole


def for_detectors(spec: EvaluateSpec, conditions: Sequence[Condition]) -> list[Condition]:
    """Return the conditions of a run: if nothing was asked for, those about one object belong to it, too."""
    own = parse_conditions("objects", feather=spec.feather) if spec.scenarios == EvaluateSpec.scenarios else []
    return [*conditions, *own]


def as_detectors_see(spec: EvaluateSpec, collection: Collection) -> Collection:
    """Return the images that have boxes, with all objects as foreground; the others become problems.

    If there are no boxes at all, what an image's mask covers is its one object.
    """
    if not has_objects((*collection.samples, *collection.empty)):
        collection = _boxed_by_masks(spec, collection)
    every = (*collection.samples, *collection.empty)
    without = [sample for sample in every if sample.objects is None]
    boxed = tuple(sample for sample in collection.samples if sample.objects is not None)
    exact = all(getattr(sample.objects, "exact", False) for sample in boxed)
    problems = (*collection.problems, *(Problem(each.sample_id, "the image has no boxes") for each in without))
    classes = collection.object_classes or collection.classes
    problems = tuple(problem for problem in problems if problem.sample_id not in classes)  # no image: but objects
    seen = replace(collection, samples=boxed, problems=problems, classes=classes)
    return with_foreground(seen, None if exact else load_guided(spec.box_masks))


def _boxed_by_masks(spec: EvaluateSpec, collection: Collection) -> Collection:
    """Return classified images with the boxes of their masks; an object is of the class that ``--labels`` names."""
    keys = class_keys(collection, spec.labels)
    names = {name: keys[name].labels[0] if name in keys and len(keys[name].labels) == 1 else name
             for name in collection.classes}  # fmt: skip
    samples = []
    for sample in collection.samples:
        label = names.get(sample.label, sample.label)
        boxes = None if sample.mask is None else MaskedObject(sample.mask, label)
        samples.append(replace(sample, label=label, objects=boxes))
    return replace(
        collection, samples=tuple(samples), classes=tuple(sorted(set(names.values()))),
        keys={names[name]: key for name, key in keys.items() if name in names},
    )  # fmt: skip


def with_foreground(collection: Collection, annotator: GuidedAnnotator | None) -> Collection:
    """Return the collection as detectors see it: images without objects too, all objects as foreground."""
    # Without ``annotator``, boxes without masks stand for themselves.
    samples = []
    for sample in (*collection.samples, *collection.empty):
        source = sample.objects
        if source is None:
            samples.append(sample)
            continue
        if annotator is not None and not getattr(source, "exact", False):
            source = GuidedObjects(source, sample.image, annotator)
        mask = UnionMask(source) if sample.label else None
        samples.append(replace(sample, objects=source, mask=mask))
    empty = {sample.sample_id for sample in collection.empty}
    problems = tuple(problem for problem in collection.problems if problem.sample_id not in empty)
    return replace(collection, samples=tuple(samples), empty=(), problems=problems)


def shown_objects(sample: Sample, rendering: Rendering, size: tuple[int, int], source: Mask | None) -> list[Row]:
    """Return what is true of each object of a rendered image: columns of ``OBJECTS`` without key and outcome."""
    # ``sample``: with its objects. ``rendering``: under one condition; its image may be gone already, its details
    # not. ``size``: height and width of the sample's image. ``source``: the foreground in the sample's image, where the
    # rendering moved it.
    assert sample.objects is not None
    objects = sample.objects.load(*size)
    if len(objects) > MOST_OBJECTS:
        raise SampleError(f"the image has {len(objects)} objects, more than {MOST_OBJECTS}")
    rendered = rendering.rendered
    details = dict(rendered.details) if rendered is not None else {}
    gone = set(map(str, details.get("removed", ())))
    if rendering.condition.scenario in WITHOUT_OBJECT:
        gone = {each.object_id for each in objects}
    scale, shift, shape = (1.0, 1.0), (0.0, 0.0), size
    if rendered is not None and source is not None and rendered.mask is not None and not gone:
        scale, shift = _movement(source, rendered.mask, details)
        shape = rendered.mask.shape
    rows = []
    for each in objects:
        (x1, y1, x2, y2), area = each.box, each.area
        box = x1 * scale[0] + shift[0], y1 * scale[1] + shift[1], x2 * scale[0] + shift[0], y2 * scale[1] + shift[1]
        area = (area or (x2 - x1) * (y2 - y1)) * scale[0] * scale[1]
        inside = max(box[0], 0.0), max(box[1], 0.0), min(box[2], float(shape[1])), min(box[3], float(shape[0]))
        if np.abs(np.subtract(inside, box)).max() > 0.5 and not each.problem:  # across the edge: what is left of it
            left = _moved(each.pixels(*size), scale, shift, shape)
            if not left.any():
                raise SampleError(f"the condition moves object {each.object_id} out of the image")
            ends = bounding_box(left)
            box = max(inside[0], ends[0]), max(inside[1], ends[1]), min(inside[2], ends[2]), min(inside[3], ends[3])
            area = float(left.sum())
        status = "invalid" if each.problem else "removed" if each.object_id in gone else "ok"
        rows.append(
            {
                "object_id": each.object_id, "label": each.label,
                **dict(zip(("x1", "y1", "x2", "y2"), box, strict=True)),
                "area": area, "crowd": each.crowd, "size": size_class(area), "mask_made": each.mask_made,
                "target": str(details.get("target", "")) == each.object_id, "status": status,
                "error": each.problem or None,
            }
        )  # fmt: skip
    return rows


def _movement(before: Mask, after: Mask, details: Mapping[str, Any]) -> tuple[_Pair, _Pair]:
    """Return scale and shift of the foreground; SampleError if it was not only resized and shifted."""
    if not before.any():
        return (1.0, 1.0), (0.0, 0.0)
    if not after.any():
        raise SampleError("the condition moves all objects out of the image")
    old, new = bounding_box(before), bounding_box(after)
    candidates = [((1.0, 1.0), (float(new[x] - old[x]), float(new[y] - old[y]))) for x in (0, 2) for y in (1, 3)]
    cut = any(late and not early for early, late in zip(touched_sides(before), touched_sides(after), strict=True))
    left, top, width, height = new[0], new[1], new[2] - new[0], new[3] - new[1]
    if "moved_to" in details:  # the condition says so itself
        (left, top), factor = details["moved_to"], details["scale"]
        width, height = (max(1, round((old[end + 2] - old[end]) * factor)) for end in (0, 1))
    if "moved_to" in details or not cut:  # if the image's edge cuts objects, their ends say nothing about a scale
        scale = width / (old[2] - old[0]), height / (old[3] - old[1])
        candidates.append((scale, (left - old[0] * scale[0], top - old[1] * scale[1])))
    overlaps = []
    for candidate in candidates:
        moved = _moved(before, *candidate, after.shape)
        overlaps.append((moved & after).sum() / (moved | after).sum())
    best = int(np.argmax(overlaps))
    if overlaps[best] < (_SAME if cut and best < 4 else _ALIKE):
        raise SampleError("the condition moves objects in a way that their boxes cannot follow")
    return candidates[best]


def _moved(mask: Mask, scale: _Pair, shift: _Pair, shape: tuple[int, ...]) -> Mask:
    """Return a mask resized and shifted in an image of this shape."""
    matrix = np.array([[scale[0], 0, shift[0] + (scale[0] - 1) / 2], [0, scale[1], shift[1] + (scale[1] - 1) / 2]])
    return np.asarray(cv2.warpAffine(mask.view(np.uint8), matrix, shape[::-1], flags=cv2.INTER_NEAREST) > 0)


def has_objects(samples: Sequence[Sample]) -> bool:
    """Return whether some sample has boxes."""
    return any(sample.objects is not None for sample in samples)
