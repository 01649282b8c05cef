"""``python:MODULE:ATTRIBUTE`` as a detector: any callable that returns boxes, scores and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name, checked
from holdfast.core.networks import weights_sha256
from holdfast.core.protocols import LEAST_SCORE, Detections, as_array
from holdfast.core.types import Image, LabelSpace
from holdfast.models.detectors.batched import Answer, PlacedImage, checked_answer
from holdfast.models.options import display_name
from holdfast.models.python import called, maite_model, own_labels
from holdfast.registry import find_attribute


class PythonDetector:
    """A ``Detector`` around a callable from a list of HWC uint8 RGB images to as many answers."""

    def __init__(self, name: str, call: Callable[[list[Image]], Any], labels: LabelSpace, identity: str) -> None:
        self.name, self.labels, self._call = name, labels, call
        self.fingerprint = fingerprint({"code": identity, "labels": labels})

    def detect(self, images: Sequence[Image]) -> list[Detections]:
        """Return the objects of each image; SampleError if an answer is none."""
        if not images:
            return []
        answers = self._call([image.copy() for image in images])
        if len(answers) != len(images):
            raise SampleError(f"the model gave {len(answers)} answers to {len(images)} images")
        return [
            checked_answer(self._parts(answer), PlacedImage(*image.shape[:2]), self.labels)
            for answer, image in zip(answers, images, strict=True)
        ]

    def _parts(self, answer: Any) -> Answer:
        """Return boxes, scores, labels and maybe masks of a tuple or a dictionary; labels may be names."""
        if isinstance(answer, Mapping):
            if not {"boxes", "scores", "labels"} <= set(answer):
                raise SampleError("the model's answer is a dictionary without boxes, scores and labels")
            masks = [answer["masks"]] if "masks" in answer else []
            answer = answer["boxes"], answer["scores"], answer["labels"], *masks
        if not isinstance(answer, (tuple, list)) or len(answer) not in (3, 4):
            raise SampleError("the model should answer each image with boxes, scores and labels")
        boxes, scores, labels, *masks = answer
        if len(labels) and isinstance(labels[0], str):
            places = {label: place for place, label in enumerate(self.labels.names)}
            labels = [places.get(label, -1) for label in labels]
        return boxes, scores, labels if len(labels) else [0][:0], *masks


def load(name: Name, *, device: str) -> PythonDetector:
    """Load an object with ``detect``, a class to instantiate without arguments, or (``?task=detect``) a callable.

    It gets a list of HWC uint8 RGB images of any sizes and returns for each of them boxes (n, 4: x1, y1, x2, y2 in
    pixels), scores (n, 0..1) and labels (n; places in its ``labels``, or names), as a tuple or a dictionary; masks
    (n, height, width) may follow. ``labels`` is an attribute or ``?labels=FILE``. Its own ``fingerprint`` is used if
    it has one, else its module's source.
    """
    del device  # the callable chooses its own
    options = checked(name, {"labels": str, "task": str})
    target, source = find_attribute(name)
    target = target() if isinstance(target, type) else target
    call, identity, _ = called(name, target, source, "detect")
    labels = own_labels(target, options.get("labels"))
    if labels is None:
        raise UserError(f"python:{name.name} needs a labels attribute or ?labels=FILE: the classes of its boxes")
    return PythonDetector(display_name(name, name.name), call, labels, identity)


def load_maite(name: Name, *, device: str) -> PythonDetector:
    """Load ``maite:MODULE:ATTRIBUTE?task=detect``: a MAITE model for object detection; it chooses its own device."""
    del device
    checked(name, {"task": str})
    call, identity, labels, _ = maite_model(name)

    def answer(images: list[Image]) -> list[Answer]:
        targets = call([np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images])
        return [(each.boxes, scores_of_labels(each), each.labels) for each in targets]

    return PythonDetector(display_name(name, name.name), answer, labels, identity)


def scores_of_labels(target: Any) -> Any:
    """Return a score for each box: of scores for every class, the one of the box's label."""
    scores, labels = as_array(target.scores), as_array(target.labels).reshape(-1)
    return scores[np.arange(len(labels)), labels] if scores.ndim == 2 and len(labels) else scores


class UltralyticsDetector(PythonDetector):
    """A ``Detector`` around a model of the ultralytics package that the user's own code has built or loaded."""

    def __init__(self, name: str, model: Any, labels: LabelSpace, identity: str) -> None:
        self._model = model
        super().__init__(name, self._answers, labels, identity)

    def _answers(self, images: list[Image]) -> list[Answer]:
        """Return the boxes of each image; one at a time, since neighbours would change how it is padded."""
        answers: list[Answer] = []
        for image in images:
            (result,) = self._model.predict(image[..., ::-1].copy(), conf=LEAST_SCORE, verbose=False)
            boxes = result.boxes
            answers.append((boxes.xyxy.cpu(), boxes.conf.cpu(), boxes.cls.cpu().numpy().astype(np.int64)))
        return answers


def load_ultralytics(name: Name, *, device: str) -> UltralyticsDetector:
    """Load ``ultralytics:MODULE:ATTRIBUTE``: an object of ultralytics' YOLO or RTDETR in a module of the user's.

    Its weights files are pickles, which Holdfast never opens: the user's own module does. Exported files need no
    package: ``onnx:FILE?decode=yolov8``. The fingerprint is that of the weights.
    """
    del device  # the object chooses its own
    checked(name, {"task": str})
    target, _ = find_attribute(name)
    if not (hasattr(target, "predict") and isinstance(getattr(target, "names", None), Mapping)):
        raise UserError(f"ultralytics:{name.name} is not a model of ultralytics: it has no predict and names")
    labels = LabelSpace(tuple(str(target.names[place]) for place in sorted(target.names)))
    return UltralyticsDetector(display_name(name, name.name), target, labels, weights_sha256(target.model))
