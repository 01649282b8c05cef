"""What detectors of all families share: letterboxes, suppression of double boxes, checked answers, batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError
from holdfast.core.lazy import torch
from holdfast.core.protocols import LEAST_SCORE, MOST_PREDICTIONS, Boxes, Detections, as_array, box_overlaps
from holdfast.core.types import Image, LabelSpace
from holdfast.models.torch_classifier import in_parts

CANDIDATES = 1000
"""Boxes of an image that suppression looks at, the best first."""

GROUND = 114  # grey around a letterboxed image

DOUBLE = 0.65
"""IoU from which on two boxes of one class count as the same, if a decoder has to say so."""

Asked = TypeVar("Asked")
Answer = tuple[Any, ...]
"""Boxes (n, 4), scores (n,) and labels (n,) of one image, in the pixels of the network's input; then, if the
detector gives some, masks (n, height, width) bool in the pixels of the image."""


@dataclass(frozen=True, slots=True)
class PlacedImage:
    """Where an image is in the network's input: x of the input is ``across`` times x of the image plus ``left``."""

    height: int
    width: int
    across: float = 1.0
    down: float = 1.0
    left: float = 0.0
    top: float = 0.0

    def in_image(self, boxes: Boxes) -> NDArray[np.float64]:
        """Return boxes of the input as boxes of the image."""
        shift = np.array([self.left, self.top] * 2)
        return np.asarray((boxes - shift) / np.array([self.across, self.down] * 2))


def letterboxed(image: Image, size: tuple[int, int], *, centred: bool = False) -> tuple[Image, PlacedImage]:
    """Return the image resized to fit (height, width), aspect kept, on a grey ground, and where it is there."""
    height, width = image.shape[:2]
    scale = min(size[0] / height, size[1] / width)
    inner = max(1, min(size[1], round(width * scale))), max(1, min(size[0], round(height * scale)))
    method = cv2.INTER_AREA if scale < 0.5 else cv2.INTER_LINEAR
    small = cv2.resize(image, inner, interpolation=method)
    canvas = np.full((*size, 3), GROUND, np.uint8)
    left, top = ((size[1] - inner[0]) // 2, (size[0] - inner[1]) // 2) if centred else (0, 0)
    canvas[top : top + inner[1], left : left + inner[0]] = small
    return canvas, PlacedImage(height, width, inner[0] / width, inner[1] / height, left, top)


def letterboxed_tensors(pictures: Any, size: tuple[int, int], *, centred: bool = False) -> tuple[Any, PlacedImage]:
    """Return what ``letterboxed`` does for images NCHW uint8: within one of 255 if they are not halved or more."""
    height, width = pictures.shape[2:]
    scale = min(size[0] / height, size[1] / width)
    inner = max(1, min(size[0], round(height * scale))), max(1, min(size[1], round(width * scale)))
    how: dict[str, Any] = {"mode": "area"} if scale < 0.5 else {"mode": "bilinear", "align_corners": False}
    small = torch.nn.functional.interpolate(pictures.float(), inner, **how).round().clamp(0, 255).to(torch.uint8)
    left, top = ((size[1] - inner[1]) // 2, (size[0] - inner[0]) // 2) if centred else (0, 0)
    canvas = torch.full((len(pictures), 3, *size), GROUND, dtype=torch.uint8, device=pictures.device)
    canvas[:, :, top : top + inner[0], left : left + inner[1]] = small
    return canvas, PlacedImage(height, width, inner[1] / width, inner[0] / height, left, top)


def without_doubles(answer: Answer, *, overlap: float = DOUBLE) -> Answer:
    """Return the boxes that no better box of the same class covers (greedy, best first)."""
    boxes, scores, labels = (np.asarray(part) for part in answer)
    order = np.argsort(-scores, kind="stable")[:CANDIDATES]
    order = order[scores[order] >= LEAST_SCORE]
    boxes, scores, labels = boxes[order], scores[order], labels[order]
    same = (box_overlaps(boxes, boxes) > overlap) & (labels[:, None] == labels[None])
    kept = np.ones(len(boxes), np.bool_)
    for place in range(len(boxes)):
        if kept[place]:
            kept[place + 1 :] &= ~same[place, place + 1 :]
    return boxes[kept], scores[kept], labels[kept]


def checked_answer(answer: Answer, frame: PlacedImage, labels: LabelSpace) -> Detections:
    """Return an answer in the image's pixels, the best first; SampleError if it is none.

    Boxes are cut at the image's edges, empty ones left out, as are scores below ``LEAST_SCORE``.
    """
    try:
        boxes, scores, places = map(as_array, answer[:3])
        boxes, scores = boxes.astype(np.float64).reshape(-1, 4), scores.astype(np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise SampleError("the model should answer with boxes (n, 4), scores (n) and labels (n)") from error
    if not len(boxes) == len(scores) == places.size:
        raise SampleError(f"the model gave {len(boxes)} boxes, {len(scores)} scores and {places.size} labels")
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
        raise SampleError("the model answered with boxes or scores that are not finite numbers")
    if len(scores) and not (scores.min() >= 0 and scores.max() <= 1 + 1e-6):
        raise SampleError(f"the model's scores lie between {scores.min():g} and {scores.max():g}, not between 0 and 1")
    places = places.reshape(-1)
    if len(places) and (places.dtype.kind not in "iu" or places.min() < 0 or places.max() >= len(labels)):
        raise SampleError(f"the model answered with a label that is none of its {len(labels)} outputs")
    if len(answer) > 3 and tuple(np.shape(answer[3])) not in ((len(boxes), frame.height, frame.width), (0,)):
        raise SampleError(f"the model gave masks of shape {tuple(np.shape(answer[3]))} for {len(boxes)} boxes")
    boxes = frame.in_image(boxes).clip(0, [frame.width, frame.height] * 2)
    usable = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]) & (scores >= LEAST_SCORE)
    order = np.flatnonzero(usable)
    order = order[np.argsort(-scores[order], kind="stable")][:MOST_PREDICTIONS]
    return Detections(
        boxes[order].astype(np.float32), scores[order].clip(0, 1).astype(np.float32), places[order].astype(np.int64),
        tuple(np.asarray(answer[3][place], np.bool_) for place in order) if len(answer) > 3 else (),
    )  # fmt: skip


class BatchedDetector:
    """Base of detectors that compute on batches: subclasses prepare one image and ask about several of one shape.

    Neighbours of another shape are asked in another batch, since padding would let them change an answer. If memory
    runs out, the batch is halved from then on.
    """

    name: str
    labels: LabelSpace
    fingerprint: str
    device = "cpu"
    batch_size = 8
    takes_tensors = False
    """Whether ``ask_tensors`` is there: the device can prepare images as well as look at them."""

    def prepare(self, image: Image) -> tuple[Any, PlacedImage]:
        """Return the network's input for one RGB image, and where the image is in it."""
        raise NotImplementedError

    def ask(self, batch: list[Any]) -> list[Answer]:
        """Return the answers to inputs of one shape."""
        raise NotImplementedError

    def ask_tensors(self, pictures: Any) -> tuple[list[Answer], PlacedImage]:
        """Return the answers to images NCHW uint8 on the device, and where each is in the input."""
        raise NotImplementedError

    def detect_tensors(self, pictures: Any) -> list[Detections]:
        """Return the objects of images NCHW uint8 of one size; on a GPU the network computes in bfloat16."""

        def ask(some: Any) -> list[tuple[Answer, PlacedImage]]:
            cuda = self.device.startswith("cuda")
            with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=cuda):
                answers, frame = self.ask_tensors(some)
            return [(answer, frame) for answer in answers]

        return [checked_answer(answer, frame, self.labels) for answer, frame in self._in_halves(pictures, ask)]

    def detect(self, images: Sequence[Image]) -> list[Detections]:
        """Return the objects of each RGB image of any size."""
        answers: list[Detections] = []
        for start in range(0, len(images), self.batch_size):
            prepared = [self.prepare(image) for image in images[start : start + self.batch_size]]
            for _, group in groupby(prepared, key=lambda pair: pair[0].shape):
                alike = list(group)
                given = self._in_halves([tensor for tensor, _ in alike], self.ask)
                answers += [
                    checked_answer(answer, frame, self.labels) for answer, (_, frame) in zip(given, alike, strict=True)
                ]
        return answers

    def _in_halves(self, batch: Any, ask: Callable[[Any], list[Asked]]) -> list[Asked]:
        return list(chain.from_iterable(in_parts(self, batch, ask)))
