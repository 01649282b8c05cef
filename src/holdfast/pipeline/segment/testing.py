"""A segmenter on images: counted pixels and boundaries, rows of the one table, and a few images for the report."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import fingerprint
from holdfast.core.protocols import Segmenter
from holdfast.core.types import ClassKeys, Collection, Image, LabelSpace, Mask, Sample
from holdfast.data.labels import map_labels
from holdfast.data.writers import encode_image
from holdfast.pipeline.jobs.rows import Row, answer_each, answered
from holdfast.pipeline.train.pictures import Tensors
from holdfast.pipeline.train.train import Answers
from holdfast.stats.effects.segments import BACKGROUND

TOLERANCE = 0.0075
"""How far apart two boundaries may be to meet, as a share of the image's diagonal (Csurka and others, 2013)."""

Map = NDArray[np.uint8]  # HW, places in a list of classes whose first is the background


def tolerance(height: int, width: int) -> int:
    """Return how many pixels two boundaries of an image may be apart: at least 1."""
    return max(1, round(TOLERANCE * float(np.hypot(height, width))))


def count(truth: Map, predicted: Map) -> dict[int, dict[str, int]]:
    """Return the columns of ``core.schema.SEGMENTS`` for every class that is in either map."""
    # A boundary pixel is one of the class with a pixel of another class above, below, left or right of it; the
    # image's edge is not a boundary. It is met if the other boundary has a pixel within ``tolerance``, in a straight
    # line.
    disk = _disk(tolerance(*truth.shape))
    counts = {}
    for place in np.union1d(np.unique(truth), np.unique(predicted)).tolist():
        real, said = truth == place, predicted == place
        both, own, theirs = int((real & said).sum()), int(real.sum()), int(said.sum())
        real_edge, said_edge = boundary(real), boundary(said)
        counts[int(place)] = {
            "intersection": both,
            "union": own + theirs - both,
            "truth": own,
            "predicted": theirs,
            "truth_boundary": int(real_edge.sum()),
            "truth_boundary_met": _met(real_edge, said_edge, disk),
            "predicted_boundary": int(said_edge.sum()),
            "predicted_boundary_met": _met(said_edge, real_edge, disk),
        }
    return counts


def boundary(mask: Mask) -> Mask:
    """Return the pixels of a mask that touch one outside it."""
    inside = np.ones_like(mask)
    inside[1:] &= mask[:-1]
    inside[:-1] &= mask[1:]
    inside[:, 1:] &= mask[:, :-1]
    inside[:, :-1] &= mask[:, 1:]
    return mask & ~inside


@functools.cache
def _disk(radius: int) -> Any:
    across = np.arange(-radius, radius + 1)
    return (across[:, None] ** 2 + across[None, :] ** 2 <= radius**2).astype(np.uint8)


def _met(edge: Mask, other: Mask, disk: Any) -> int:
    if not edge.any() or not other.any():
        return 0
    near = cv2.dilate(other.view(np.uint8), disk)
    return int((edge & near.astype(np.bool_)).sum())


FOUND = 0.5  # IoU of the labelled class from which on a row counts as ``correct``
SHOWN = 4  # images whose segments are kept, under every condition and of every model
SIDE = 128  # pixels of such an image
GAP = 4
_MISSED, _FALSE, _RIGHT = 1, 2, 3  # places in the colours below
_TINTS = ((213, 94, 0), (0, 114, 178), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233))


@dataclass(frozen=True)
class TestedSegmenter:
    """A segmenter, and for each of its outputs the place among background and classes that it counts as."""

    segmenter: Segmenter
    places: NDArray[np.uint8]
    fingerprint: str


def mapped(segmenter: Segmenter, classes: Sequence[str], keys: Mapping[str, ClassKeys]) -> TestedSegmenter:
    """Return a segmenter whose outputs are found by the names of the classes, as a classifier's are."""
    # Masks mark the object alone, so every output that is none of the classes counts as background.
    mapping = map_labels(classes, keys, segmenter.labels)
    places = np.zeros(len(segmenter.labels), np.uint8)
    for place, own in enumerate(mapping.members, 1):
        places[list(own)] = place
    if places.all():
        raise UserError(f"{segmenter.name} has no output for the background: every one of them is a class")
    return TestedSegmenter(segmenter, places, fingerprint([segmenter.fingerprint, mapping.fingerprint]))


def own(segmenter: Segmenter, classes: Sequence[str]) -> TestedSegmenter:
    """Return a segmenter that was trained here: outputs are the background, then the classes."""
    if segmenter.labels != LabelSpace((BACKGROUND, *classes)):
        raise UserError(f"{segmenter.name} was trained on other classes")
    return TestedSegmenter(segmenter, np.arange(len(classes) + 1, dtype=np.uint8), segmenter.fingerprint)


def answers(tested: TestedSegmenter, images: Sequence[Image]) -> list[Map | SampleError]:
    """Return the class map of each image, or why there is none."""

    def ask(images: Sequence[Image]) -> list[Map]:
        maps = tested.segmenter.segment(images)
        for answer, image in zip(maps, images, strict=True):
            if answer.shape != image.shape[:2] or answer.max(initial=0) >= len(tested.places):
                raise SampleError(f"the model answered with a map of shape {answer.shape}, or with unknown classes")
        return [tested.places[answer] for answer in maps]

    return answer_each(ask, images)


def counted(tested: TestedSegmenter, collection: Collection, run: Path) -> Answers:
    """Return how a segmenter's answers become outcome columns, and, as details, counts of every class."""
    # ``prediction`` is the class with the most pixels, background apart; ``correct`` says whether the labelled class
    # reaches an IoU of ``FOUND``. Answers among the dataset's classes only, and confidences, do not exist here.
    # Images of a few samples are kept in the run.
    names = (BACKGROUND, *collection.classes)
    shown = set(chosen(collection))

    def outcomes(pictures: Tensors, ids: Mapping[str, str]) -> Iterator[tuple[Sample, Row]]:
        assert pictures.masks is not None
        images = [np.ascontiguousarray(image.transpose(1, 2, 0)) for image in pictures.images.numpy()]
        masks, places = pictures.masks.numpy(), (pictures.labels + 1).tolist()
        for at, answer in enumerate(answers(tested, images)):
            sample, facts = pictures.samples[at], dict(pictures.facts[at])
            if isinstance(answer, SampleError):
                yield sample, facts | answered(answer)
                continue
            truth, row_id = masks[at].astype(np.uint8) * np.uint8(places[at]), ids[sample.sample_id]
            if sample.sample_id in shown:
                write_atomic(run / "segments" / f"{row_id}.png", shown_beside(images[at], truth, answer))
            yield sample, facts | _outcome(count(truth, answer), names, places[at], row_id)

    return outcomes


def _outcome(counts: Mapping[int, dict[str, int]], names: Sequence[str], label: int, row_id: str) -> Row:
    objects = {place: counted["predicted"] for place, counted in counts.items() if place}
    most = max(objects, key=lambda place: (objects[place], -place), default=0)
    labelled = counts.get(label)
    return {
        "prediction": names[most] if most and objects[most] else None,
        "correct": bool(labelled and labelled["intersection"] >= FOUND * labelled["union"]),
        "status": "ok",
        "segments": [dict(counted, row_id=row_id) | {"class": names[place]} for place, counted in counts.items()],
    }


def chosen(collection: Collection) -> list[str]:
    """Return the samples whose images are kept: the first of the first fold, of classes spread over the list."""
    tested = [sample for sample in collection.samples if sample.fold == 0] or list(collection.samples)
    first: dict[str, str] = {}
    for sample in sorted(tested, key=lambda sample: sample.sample_id):
        first.setdefault(sample.label, sample.source_id)
    present = [name for name in collection.classes if name in first]
    spread = {present[len(present) * place // SHOWN] for place in range(SHOWN)} if present else set()
    wanted = {first[name] for name in spread}
    return [sample.sample_id for sample in tested if sample.source_id in wanted]


def shown_beside(image: Image, truth: Map, answer: Map) -> bytes:
    """Return a PNG: the image and its object above, the answer and where it is right, missing or false below."""
    errors = np.zeros_like(truth)
    errors[(truth == answer) & (truth > 0)] = _RIGHT
    errors[(truth != answer) & (truth > 0)] = _MISSED
    errors[(truth != answer) & (truth == 0)] = _FALSE
    side = min(SIDE, image.shape[1])
    panes = [
        cv2.resize(pane, (side, side), interpolation=cv2.INTER_AREA)
        for pane in (image, _tinted(image, truth), _tinted(image, answer), _tinted(image, errors))
    ]
    across, down = np.full((side, GAP, 3), 255, np.uint8), np.full((GAP, 2 * side + GAP, 3), 255, np.uint8)
    rows = [np.concatenate([panes[at], across, panes[at + 1]], axis=1) for at in (0, 2)]
    return encode_image(np.ascontiguousarray(np.concatenate([rows[0], down, rows[1]]), np.uint8), format="png")


def _tinted(image: Image, classes: Map) -> Image:
    """Return a pale grey image with every class in its colour."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32) * 0.5 + 110
    tinted = np.repeat(grey[..., None], 3, axis=2)
    for place in np.unique(classes):
        if place:
            colour = np.array(_TINTS[(int(place) - 1) % len(_TINTS)], np.float32)
            where = classes == place
            tinted[where] = 0.45 * tinted[where] + 0.55 * colour
    return tinted.clip(0, 255).astype(np.uint8)
