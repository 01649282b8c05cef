"""``onnx:FILE`` and ``python:MODULE:ATTRIBUTE`` as segmenters: networks of any library, by export or by a callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import file_sha256, fingerprint
from holdfast.core.names import Name, checked, unknown
from holdfast.core.types import Image, LabelSpace
from holdfast.models import label_spaces
from holdfast.models.options import display_name, existing_file
from holdfast.models.python import called, own_labels
from holdfast.models.runtimes.exported import layout_of
from holdfast.models.runtimes.onnx import external_files, open_session, outputs_of
from holdfast.models.segmenters.torch_segmenter import OPTIONS, class_map, prepared_as, prepared_image
from holdfast.registry import find_attribute

SIZE = 256
"""Pixels if a file leaves the size open, as published with XIMAGENET-12."""

_ANSWERS = ("auto", "scores", "classes")


class OnnxSegmenter:
    """A ``Segmenter`` around an onnxruntime session: scores (n, classes, h, w) or (n, h, w, classes), or class maps."""

    def __init__(self, name: Name, file: Path, options: dict[str, Any], device: str) -> None:
        external = external_files(file)
        self.name = display_name(name, file.name)
        self.batch_size = 8
        self._session = open_session(file, device)
        entry = self._session.get_inputs()[0]
        self._channels_last, size = layout_of(entry.shape, file.name)
        self._single = entry.shape[0] == 1
        facts: dict[str, Any] = {"input_size": size or (SIZE, SIZE)}
        if entry.type == "tensor(uint8)":  # such networks take plain pixels
            facts |= {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
        self.preparation = prepared_as(self.name, facts, options)
        if size is not None and tuple(self.preparation.input_size) != tuple(size):
            raise UserError(f"{file.name} takes images of {size[0]}/{size[1]}, so size={options['size']} cannot be met")
        classes = self._session.get_modelmeta().custom_metadata_map.get("classes")
        own = label_spaces.from_json(classes, file.name) if classes else None
        answer = self._run(np.zeros((1, 3, *self.preparation.input_size), np.float32))
        self._reads, count = _layout_of_answer(answer, options.get("answers", "auto"), file.name)
        self.labels = self._named(options.get("labels"), count, own)
        self.fingerprint = fingerprint(
            {
                "files": [file_sha256(path) for path in (file, *external)],
                "preparation": asdict(self.preparation),
                "labels": self.labels,
                "answers": self._reads,
            }
        )

    def _named(self, option: str | None, count: int | None, own: LabelSpace | None) -> LabelSpace:
        if count is not None:
            return label_spaces.from_option(option, count, own)
        if option is None and own is None:
            raise UserError(f"{self.name} answers with class maps; name its classes with ?labels=FILE")
        return own if option is None and own else label_spaces.named(label_spaces.read_names(option or ""))

    def segment(self, images: Sequence[Image]) -> list[NDArray[np.uint8]]:
        """Return a class map, HW, of places in ``labels``, for every RGB image of any size."""
        maps: list[NDArray[np.uint8]] = []
        step = 1 if self._single else self.batch_size
        for start in range(0, len(images), step):
            several = images[start : start + step]
            answer = self._run(np.stack([prepared_image(image, self.preparation) for image in several]))
            for plane, image in zip(answer, several, strict=True):
                maps.append(as_class_map(plane, self._reads, image.shape[:2], len(self.labels), self.name))
        return maps

    def _run(self, batch: NDArray[np.float32]) -> NDArray[Any]:
        return outputs_of(self._session, batch, channels_last=self._channels_last, name=self.name)[0]


class PythonSegmenter:
    """A ``Segmenter`` around a callable from a list of HWC uint8 RGB images to class maps or scores."""

    def __init__(self, name: str, call: Callable[[list[Image]], Any], labels: LabelSpace, identity: str) -> None:
        self.name, self.labels, self._call = name, labels, call
        self.fingerprint = fingerprint({"code": identity, "labels": labels})

    def segment(self, images: Sequence[Image]) -> list[NDArray[np.uint8]]:
        """Return a class map, HW, for each image; scores are resized to it, class maps by their nearest pixel."""
        if not images:
            return []
        answers = self._call([image.copy() for image in images])
        if len(answers) != len(images):
            raise UserError(f"{self.name} answered with {len(answers)} maps for {len(images)} images")
        maps = []
        for answer, image in zip(answers, images, strict=True):
            plane = np.asarray(answer.detach().cpu() if hasattr(answer, "detach") else answer)
            reads, _ = _layout_of_answer(plane[None], "auto", self.name, classes=len(self.labels))
            maps.append(as_class_map(plane, reads, image.shape[:2], len(self.labels), self.name))
        return maps


def load_onnx(name: Name, *, device: str) -> OnnxSegmenter:
    """Load an ONNX file whose one input is a batch of images and whose first output is scores or class maps.

    Layout and size are read from the file. Options: ``labels=FILE`` (the classes in order, background among them,
    unless the file's metadata has them as a JSON list, ``classes``), ``answers=auto|scores|classes``, ``size``,
    ``mean``, ``std``. Images are squeezed to the size and normalised with ImageNet's mean and deviation; networks that
    take bytes get plain pixels.
    """
    options = checked(name, {**OPTIONS, "answers": str})
    if options.get("answers", "auto") not in _ANSWERS:
        raise unknown("kind of answers", options["answers"], _ANSWERS)
    return OnnxSegmenter(name, existing_file(name.whole, what="ONNX file"), options, device)


def load_python(name: Name, *, device: str) -> PythonSegmenter:
    """Load a callable, a class to instantiate without arguments, or an object with ``segment``.

    It gets a list of HWC uint8 RGB images and returns as many class maps (HW, whole numbers: places in its ``labels``)
    or scores (classes first or last). ``labels`` is an attribute or ``?labels=FILE``, background among them. Its own
    ``fingerprint`` is used if it has one, else the source of its module. The working directory is importable.
    """
    del device  # the callable chooses its own
    options = checked(name, {"labels": str})
    target, source = find_attribute(name)
    target = target() if isinstance(target, type) else target
    call, identity, _ = called(name, target, source, "segment")
    labels = own_labels(target, options.get("labels"))
    if labels is None:
        raise UserError(f"{name.scheme}:{name.name} needs a labels attribute or ?labels=FILE: the classes of its maps")
    return PythonSegmenter(display_name(name, name.name), call, labels, identity)


def _layout_of_answer(
    answer: NDArray[Any], asked: str, name: str, *, classes: int | None = None
) -> tuple[str, int | None]:
    """Return how an answer reads (``maps``, ``first`` or ``last``) and how many classes it has, None for maps."""
    shape = answer.shape
    whole = answer.dtype.kind in "iub"
    flat = len(shape) == 3 or (len(shape) == 4 and 1 in (shape[1], shape[3]))
    if asked == "classes" or (asked == "auto" and flat and (whole or len(shape) == 3)):
        if not flat:
            raise UserError(f"{name} answers with shape {shape}, which are not class maps (n, height, width)")
        return "maps", None
    if len(shape) != 4:
        raise UserError(
            f"{name} answers with shape {shape}; scores are (n, classes, height, width) or (n, height, width, "
            "classes), class maps (n, height, width)"
        )
    first, last = shape[1], shape[3]
    if classes is not None and classes in (first, last):
        return ("first", first) if first == classes else ("last", last)
    # Classes are fewer than pixels, or height and width are equal and the odd one out is the number of classes.
    by_size = first < last if shape[2] not in (first, last) else shape[2] == last
    return ("first", first) if by_size else ("last", last)


def as_class_map(plane: NDArray[Any], reads: str, size: tuple[int, ...], classes: int, name: str) -> NDArray[np.uint8]:
    """Return one answer as a class map of this size."""
    import cv2

    if reads == "maps":
        numbers = plane.reshape([side for side in plane.shape if side != 1] if plane.ndim == 3 else plane.shape)
        if numbers.ndim != 2 or numbers.min() < 0 or numbers.max() >= classes:
            raise UserError(f"{name} answers with classes {numbers.min()} to {numbers.max()}, and has {classes} labels")
        whole = np.ascontiguousarray(numbers, np.uint8)
        height, width = size
        if whole.shape == (height, width):
            return whole
        return np.asarray(cv2.resize(whole, (width, height), interpolation=cv2.INTER_NEAREST_EXACT), np.uint8)
    scores = plane if reads == "first" else plane.transpose(2, 0, 1)
    if len(scores) != classes:
        raise UserError(f"{name} answers with {len(scores)} scores a pixel, and has {classes} labels")
    return class_map(np.ascontiguousarray(scores, np.float32), size)
