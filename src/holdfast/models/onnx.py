"""``onnx:FILE``: a classifier in ONNX, run by onnxruntime."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError, first_line, out_of_memory
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.types import Image
from holdfast.models import label_spaces, timm
from holdfast.models.label_spaces import OUTPUTS, probabilities
from holdfast.models.options import (
    PREPROCESSING,
    checked,
    display_name,
    existing_file,
    preprocessing_overrides,
    untagged,
)
from holdfast.models.torch_classifier import picture, resolve_device
from holdfast.registry import unknown

_DEFAULTS = {
    "interpolation": "bilinear",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "crop_pct": 0.875,
    "crop_mode": "center",
}


class OnnxClassifier:
    """A ``StagedClassifier`` around an onnxruntime session."""

    def __init__(self, name: Name, file: Path, options: dict[str, Any], device: str) -> None:
        external = external_files(file)
        self.name = display_name(name, file.name)
        self._session = open_session(file, device)
        entry = self._session.get_inputs()[0]
        self._type = entry.type
        self._channels_last, size = layout_of(entry.shape, file.name)
        self._single = entry.shape[0] == 1
        overrides = preprocessing_overrides(options)
        if self._type == "tensor(uint8)":
            overrides |= {"mean": (0.0,) * 3, "std": (1.0,) * 3}
        wanted = overrides.get("input_size", (3, *(size or (224, 224))))
        if size is not None and wanted[1:] != size:
            raise UserError(f"{file.name} takes images of {size[0]}/{size[1]}, so size={options['size']} cannot be met")
        self._preprocessing = timm.from_config({**_DEFAULTS, **overrides, "input_size": wanted})
        self._outputs = options.get("outputs", "auto")
        count = self._run(np.zeros((1, *wanted), np.float32)).shape[-1]
        classes = self._session.get_modelmeta().custom_metadata_map.get("classes")
        own = label_spaces.from_json(classes, file.name) if classes else None
        self.labels = label_spaces.from_option(options.get("labels"), count, own)
        self.fingerprint = fingerprint(
            {
                "files": [file_sha256(path) for path in (file, *external)],
                "preprocessing": self._preprocessing.description,
                "outputs": self._outputs,
                "labels": self.labels,
            }
        )

    def prepare(self, image: Image) -> NDArray[Any]:
        """Prepare an RGB image of any size: CHW float32, normalised, or 0..1 for networks that take bytes."""
        tensor: NDArray[Any] = self._preprocessing.transform(picture(image, crops_centre=True)).numpy()
        return tensor

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels)."""
        return self.predict_prepared([self.prepare(image) for image in images])

    def predict_prepared(self, prepared: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels), for what ``prepare`` returned."""
        if not prepared:
            return np.empty((0, len(self.labels)), np.float32)
        step = 1 if self._single else 64
        batches = [np.stack(prepared[start : start + step]) for start in range(0, len(prepared), step)]
        scores = np.concatenate([self._run(batch) for batch in batches])
        return probabilities(
            scores, images=len(prepared), labels=len(self.labels), outputs=self._outputs, name=self.name
        )

    def _run(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Return the scores, (n, outputs), of a NCHW batch."""
        scores = first_output(self._session, batch, channels_last=self._channels_last, name=self.name)
        return scores.reshape(len(batch), -1)


def first_output(session: Any, batch: NDArray[Any], *, channels_last: bool, name: str) -> NDArray[Any]:
    """Return the first output for a NCHW batch, in the layout and type that the file takes; bytes from 0..1."""
    entry = session.get_inputs()[0]
    if entry.type == "tensor(uint8)":
        batch = np.rint(batch * 255).astype(np.uint8)
    elif entry.type == "tensor(float16)":
        batch = batch.astype(np.float16)
    if channels_last:
        batch = batch.transpose(0, 2, 3, 1)
    try:
        answer = session.run(None, {entry.name: np.ascontiguousarray(batch)})[0]
    except Exception as error:  # onnxruntime's errors share no base class of their own
        if out_of_memory(error):
            raise
        raise UserError(f"{name} cannot be run: {first_line(error)}") from error
    return np.asarray(answer)


def load(name: Name, *, device: str) -> OnnxClassifier:
    """Load an ONNX file whose one input is a batch of images and whose first output is scores.

    Layout and size are read from the file (224 where it leaves the size open). Options: ``labels=FILE|imagenet``,
    ``outputs=auto|logits|probabilities`` and those of ``options.PREPROCESSING``; by default the short side is resized
    so that the centre crop keeps 0.875, and pixels are normalised with ImageNet's mean and deviation. Networks that
    take bytes get plain pixels. Names of the outputs may also be a JSON list, ``classes``, in the file's metadata.
    """
    options = checked(name, {"labels": str, "outputs": str, **PREPROCESSING})
    if options.get("outputs", "auto") not in OUTPUTS:
        raise unknown("kind of outputs", options["outputs"], OUTPUTS)
    return OnnxClassifier(name, existing_file(untagged(name), what="ONNX file"), options, device)


def external_files(file: Path) -> list[Path]:
    """Return the weight files that an ONNX file points to.

    Raises UserError: a file is missing or outside the folder, or the ONNX file is broken.
    """
    content = memoryview(file.read_bytes())
    try:
        # ONNX Runtime's own format is no protobuf; it keeps its weights inside.
        locations = set() if bytes(content[4:8]) == b"ORTM" else set(_locations(content, "model"))
    except ValueError as error:
        raise UserError(f"{file.name} is not an ONNX model that onnxruntime can load: {error}") from error
    folder = file.resolve().parent
    paths = []
    for location in sorted(locations):
        path = (folder / location).resolve()
        if not path.is_relative_to(folder):
            raise UserError(f"{file.name} keeps weights outside its own folder ({location}), which is refused")
        if not path.is_file():
            raise UserError(f"{file.name} needs the file {location} beside it")
        paths.append(path)
    return paths


# Where onnx.proto has tensors: for each message, which message the field of a number holds.
_MESSAGES = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_EXTERNAL_DATA, _DATA_LOCATION, _EXTERNAL = 13, 14, 1  # of TensorProto
_DEEPEST = 100  # as deep as protobuf itself reads


def _locations(message: memoryview, kind: str, depth: int = 0) -> Iterator[str]:
    """Yield the file names in the external data of every tensor of a message."""
    if depth > _DEEPEST:
        raise ValueError("its graphs are nested too deeply")
    if kind == "tensor":
        entries, is_external = dict[bytes, bytes](), False
        for number, value in _fields(message):
            if number == _EXTERNAL_DATA and isinstance(value, memoryview):
                entry = {key: bytes(text) for key, text in _fields(value) if isinstance(text, memoryview)}
                entries[entry.get(1, b"")] = entry.get(2, b"")
            elif number == _DATA_LOCATION:
                is_external = value == _EXTERNAL
        if is_external:
            yield entries.get(b"location", b"").decode(errors="replace")
        return
    for number, value in _fields(message):
        inner = _MESSAGES[kind].get(number)
        if inner is not None and isinstance(value, memoryview):
            yield from _locations(value, inner, depth + 1)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and the value of every field of a protobuf message, in the order they are written."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(message, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("it is not a protobuf message")
        if size > len(message) - place:
            raise ValueError("it ends in the middle of a field")
        yield number, message[place : place + size]
        place += size


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message) and shift < 70:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise ValueError("it is not a protobuf message")


def open_session(file: Path, device: str) -> Any:
    """Return an onnxruntime session of a file that takes one batch of images; a UserError for any other file."""
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    if resolve_device(device).startswith("cuda") and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        providers.insert(0, "CUDAExecutionProvider")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=providers)
    except Exception as error:  # onnxruntime's errors share no base class of their own
        raise UserError(f"{file.name} is not an ONNX model that onnxruntime can load") from error
    inputs = session.get_inputs()
    known = ("tensor(float)", "tensor(float16)", "tensor(uint8)")
    if len(inputs) != 1 or inputs[0].type not in known or len(inputs[0].shape) != 4:
        raise UserError(f"{file.name} should take one batch of images (four dimensions, float or bytes)")
    return session


def layout_of(shape: Sequence[Any], file_name: str) -> tuple[bool, tuple[int, int] | None]:
    """Return whether channels come last, and height and width if the file fixes them."""
    channels_last = shape[1] != 3 and shape[3] == 3
    if not channels_last and isinstance(shape[1], int) and shape[1] != 3:
        raise UserError(f"{file_name} takes images with {shape[1]} channels; only RGB is supported")
    height, width = (shape[1], shape[2]) if channels_last else (shape[2], shape[3])
    fixed = isinstance(height, int) and isinstance(width, int)
    return channels_last, (height, width) if fixed else None


def file_sha256(file: Path) -> str:
    """Return the hash of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
