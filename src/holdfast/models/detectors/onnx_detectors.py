"""``onnx:FILE?decode=…``: detectors in ONNX; the option says how their outputs become boxes.

- ``yolox``: one output (n, cells, 5 + classes), raw heads of the strides 8, 16 and 32; BGR 0..255, fitted into the
  upper left corner.
- ``yolov8``: one output (n, 4 + classes, cells), boxes as middle and size in pixels, scores 0..1; RGB 0..1, centred.
- ``detr``: scores (n, queries, classes) and boxes (n, queries, 4) as middle and size, shares of the image; squeezed,
  normalised as ImageNet's. With one output more than labels the last means "no object" (softmax), else sigmoid.
- ``boxes-scores-labels``: three outputs that are what they are called, in pixels; RGB 0..1, fitted in a corner.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import file_sha256, fingerprint
from holdfast.core.names import Name, checked, unknown
from holdfast.core.networks import resolve_device
from holdfast.core.protocols import LEAST_SCORE
from holdfast.core.types import Image, LabelSpace
from holdfast.models import label_spaces
from holdfast.models.detectors.batched import DOUBLE, Answer, BatchedDetector, PlacedImage, letterboxed, without_doubles
from holdfast.models.options import display_name, existing_file, preprocessing_overrides
from holdfast.models.runtimes.exported import layout_of
from holdfast.models.runtimes.onnx import external_files, open_session, outputs_of

STRIDES = (8, 16, 32)
Outputs = list[NDArray[Any]]


@dataclass(frozen=True)
class OutputDecoder:
    """How a family's images are prepared, and how its outputs become answers.

    ``mean`` and ``std`` are on a 0..1 scale, or None.
    """

    placing: str  # ``corner``, ``centre`` (fitted, aspect kept) or ``squeezed``
    bgr: bool  # whether blue comes first
    scale: float  # what 255 becomes
    classes: Callable[[Outputs], int]  # the number of classes in the outputs; 0 if they do not say
    # (outputs, input size, labels) → answers, before double boxes are taken out.
    read: Callable[[Outputs, tuple[int, int], int], list[Answer]]
    doubles: bool = True  # whether double boxes are left in by the network
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)


def _corners(boxes: NDArray[Any]) -> NDArray[np.float64]:
    """Return boxes as corners, from middle and size."""
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], -1)


def _best(boxes: NDArray[Any], scores: NDArray[Any]) -> Answer:
    """Return a box per cell and class of a score worth keeping."""
    cells, labels = np.nonzero(scores >= LEAST_SCORE)
    return boxes[cells], scores[cells, labels], labels


def _read_yolox(outputs: Outputs, size: tuple[int, int], labels: int) -> list[Answer]:
    raw = outputs[0].astype(np.float64)
    grids, steps = [], []
    for stride in STRIDES:
        rows, columns = np.mgrid[: size[0] // stride, : size[1] // stride]
        grids.append(np.stack([columns, rows], -1).reshape(-1, 2))
        steps.append(np.full((grids[-1].shape[0], 1), stride))
    grid, step = np.concatenate(grids), np.concatenate(steps)
    if raw.shape[1] != len(grid):
        raise UserError(
            f"decode=yolox expects {len(grid)} cells for images of {size[1]} × {size[0]}, not {raw.shape[1]}"
        )
    boxes = _corners(np.concatenate([(raw[..., :2] + grid) * step, np.exp(raw[..., 2:4].clip(-20, 20)) * step], -1))
    return [_best(own, scores) for own, scores in zip(boxes, raw[..., 4:5] * raw[..., 5:], strict=True)]


def _read_yolov8(outputs: Outputs, size: tuple[int, int], labels: int) -> list[Answer]:
    raw = outputs[0].astype(np.float64).transpose(0, 2, 1)
    return [_best(_corners(own[:, :4]), own[:, 4:]) for own in raw]


def _read_detr(outputs: Outputs, size: tuple[int, int], labels: int) -> list[Answer]:
    scores, boxes = sorted(outputs[:2], key=lambda output: output.shape[-1] == 4)
    scores = scores.astype(np.float64)
    if scores.shape[-1] not in (labels, labels + 1):
        raise UserError(
            f"decode=detr gives {scores.shape[-1]} scores a box, which do not fit {labels} classes; give as many names "
            "(one less, if the last means no object) with ?labels=FILE, or labels=coco91"
        )
    if scores.shape[-1] == labels + 1:
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        chances = (powers / powers.sum(-1, keepdims=True))[..., :-1]
    else:
        chances = 1 / (1 + np.exp(-scores.clip(-50, 50)))
    pixels = _corners(boxes.astype(np.float64)) * np.array([size[1], size[0]] * 2)
    return [_best(own, each) for own, each in zip(pixels, chances, strict=True)]


def _read_parts(outputs: Outputs, size: tuple[int, int], labels: int) -> list[Answer]:
    boxes: Outputs = []
    rest: Outputs = []
    for output in outputs:
        (boxes if output.shape[-1:] == (4,) and output.ndim > 1 else rest).append(output)
    if len(boxes) != 1 or len(rest) < 2:
        raise UserError("decode=boxes-scores-labels expects an output of boxes (n, 4), one of scores and one of labels")
    places = next((each for each in rest if each.dtype.kind in "iu"), rest[1])
    scores = next(each for each in rest if each is not places)
    several = boxes[0].ndim == 3
    triples = zip(boxes[0], scores, places, strict=True) if several else [(boxes[0], scores, places)]
    return [(own, each, np.asarray(label).astype(np.int64)) for own, each, label in triples]


_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
DECODERS = {
    "yolox": OutputDecoder("corner", True, 255.0, lambda outputs: outputs[0].shape[-1] - 5, _read_yolox),
    "yolov8": OutputDecoder("centre", False, 1.0, lambda outputs: outputs[0].shape[1] - 4, _read_yolov8),
    "detr": OutputDecoder("squeezed", False, 1.0, lambda outputs: 0, _read_detr, doubles=False, **_IMAGENET),
    "boxes-scores-labels": OutputDecoder("corner", False, 1.0, lambda outputs: 0, _read_parts, doubles=False),
}


@cache
def coco_names(*, gaps: bool = False) -> tuple[str, ...]:
    """Return the eighty classes of COCO; with ``gaps``, at the places of COCO's ids: 91 with those that are none."""
    from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights

    listed = FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
    return tuple(name for name in listed if gaps or name not in ("__background__", "N/A"))


LONGEST_NAMES = 200_000  # characters


def _listed_names(text: str, file: str) -> LabelSpace:
    """Return the classes of ultralytics' metadata ``names``, a Python dict as text: {0: 'fox', 1: 'dog'}."""
    try:
        listed = ast.literal_eval(text) if len(text) <= LONGEST_NAMES else None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        listed = None
    if not isinstance(listed, dict) or not listed or set(listed) != set(range(len(listed))):
        raise UserError(f"the metadata 'names' of {file} does not number its classes from 0 on; give ?labels=FILE")
    return LabelSpace(tuple(str(listed[place]) for place in range(len(listed))))


class OnnxDetector(BatchedDetector):
    """A ``Detector`` around an onnxruntime session and a decoder."""

    def __init__(self, name: Name, file: Path, options: dict[str, Any], device: str) -> None:
        external = external_files(file)
        self.name, self.device = display_name(name, file.name), resolve_device(device)
        self._session = open_session(file, device)
        self._entry = self._session.get_inputs()[0]
        self._channels_last, fixed = layout_of(self._entry.shape, file.name)
        self.batch_size = 1 if self._entry.shape[0] == 1 else 8
        overrides = preprocessing_overrides(options)
        wanted = overrides.get("input_size", (3, *(fixed or (640, 640))))[1:]
        if fixed is not None and tuple(wanted) != tuple(fixed):
            raise UserError(
                f"{file.name} takes images of {fixed[0]}/{fixed[1]}, so size={options['size']} cannot be met"
            )
        self._size = int(wanted[0]), int(wanted[1])
        self._decoder, self._overlap = DECODERS[options["decode"]], float(options.get("overlap", DOUBLE))
        self._mean = np.float32(overrides.get("mean", self._decoder.mean))
        self._std = np.float32(overrides.get("std", self._decoder.std))
        outputs = self._run(np.zeros((1, 3, *self._size), np.float32))
        self.labels = self._named(options.get("labels"), options["decode"], self._decoder.classes(outputs), file.name)
        self._decoder.read(outputs, self._size, len(self.labels))  # what does not fit is said now
        self.fingerprint = fingerprint(
            {
                "files": [file_sha256(path) for path in (file, *external)], "decode": options["decode"],
                "size": self._size, "mean": self._mean.tolist(), "std": self._std.tolist(),
                "overlap": self._overlap, "labels": self.labels,
            }
        )  # fmt: skip

    def _named(self, option: str | None, decode: str, count: int, file: str) -> LabelSpace:
        stated = self._session.get_modelmeta().custom_metadata_map
        own = label_spaces.from_json(stated["classes"], file) if stated.get("classes") else None
        if option is None and own is None and stated.get("names"):
            own = _listed_names(stated["names"], file)
        if option == "coco" and decode == "boxes-scores-labels":
            raise UserError(
                "labels=coco does not say which numbers decode=boxes-scores-labels gives: write labels=coco91 for "
                "COCO's ids (1 to 90, as torchvision's), or ?labels=FILE with eighty names for 0 to 79"
            )
        if option in ("coco", "coco91") or (option is None and own is None and count == len(coco_names())):
            names = coco_names(gaps=option == "coco91")
            if count not in (0, len(names)):
                raise UserError(f"{file} has {count} classes, labels={option} has {len(names)}; give ?labels=FILE")
            return LabelSpace(names)
        if count:
            return label_spaces.from_option(option, count, own)
        if option is None and own is None:
            raise UserError(f"{file} does not name its classes; give them with ?labels=FILE, labels=coco or coco91")
        return own if option is None and own else label_spaces.named(label_spaces.read_names(option or ""))

    def prepare(self, image: Image) -> tuple[Any, PlacedImage]:
        """Return the input, CHW float32, and where the image is in it."""
        decoder = self._decoder
        if decoder.placing == "squeezed":
            height, width = image.shape[:2]
            placed = cv2.resize(image, self._size[::-1], interpolation=cv2.INTER_LINEAR)
            frame = PlacedImage(height, width, self._size[1] / width, self._size[0] / height)
        else:
            placed, frame = letterboxed(image, self._size, centred=decoder.placing == "centre")
        pixels = np.asarray(placed[..., ::-1] if decoder.bgr else placed, np.float32) / 255
        normal = (pixels - self._mean) / self._std * np.float32(decoder.scale)
        return np.ascontiguousarray(normal.transpose(2, 0, 1), np.float32), frame

    def ask(self, batch: list[Any]) -> list[Answer]:
        """Return the boxes of a batch."""
        answers = self._decoder.read(self._run(np.stack(batch)), self._size, len(self.labels))
        return [without_doubles(each, overlap=self._overlap) if self._decoder.doubles else each for each in answers]

    def _run(self, batch: NDArray[np.float32]) -> Outputs:
        return outputs_of(self._session, batch, channels_last=self._channels_last, name=self.name)


def load(name: Name, *, device: str) -> OnnxDetector:
    """Load an ONNX file with the decoder that ``?decode=`` names.

    Options: ``decode``, ``labels=FILE|coco|coco91`` (eighty unnamed classes are COCO's), ``size``, ``mean``, ``std``,
    and ``overlap``, the IoU from which on two boxes of one class count as the same.
    """
    options = checked(
        name, {"decode": str, "labels": str, "size": str, "mean": str, "std": str, "overlap": float, "task": str}
    )
    if options.get("decode") not in DECODERS:
        raise unknown("decoder of ONNX detectors (?decode=)", str(options.get("decode", "")), DECODERS)
    return OnnxDetector(name, existing_file(name.whole, what="ONNX file"), options, device)
