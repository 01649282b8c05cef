"""``onnx:FILE``: a classifier in ONNX, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.core.networks import resolve_device
from holdfast.models.runtimes.exported import ExportedClassifier, Runtime, asked
from holdfast.models.runtimes.exported import load as load_exported

_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(uint8)": "uint8"}


def load(name: Name, *, device: str) -> ExportedClassifier:
    """Load an ONNX file; see ``runtimes.exported.load``.

    ``provider=cpu|cuda|…`` chooses one of onnxruntime's execution providers. Names of the outputs may also be a JSON
    list, ``classes``, in the file's metadata.
    """
    return load_exported(name, device, _open, "ONNX file", "provider")


def _open(file: Path, device: str, provider: str = "") -> Runtime:
    external = external_files(file)
    session = open_session(file, device, provider)
    entry = session.get_inputs()[0]
    return Runtime(
        lambda batch: session.run(None, {entry.name: batch})[0], entry.shape, _TYPES[entry.type], [file, *external],
        classes=session.get_modelmeta().custom_metadata_map.get("classes", ""),
    )  # fmt: skip


def outputs_of(session: Any, batch: NDArray[Any], *, channels_last: bool, name: str) -> list[NDArray[Any]]:
    """Return all outputs for a NCHW batch, in the layout and type that the file takes; bytes from 0..1."""
    entry = session.get_inputs()[0]
    answers = asked(
        lambda given: session.run(None, {entry.name: given}), batch, _TYPES[entry.type], last=channels_last, name=name
    )
    return [np.asarray(answer) for answer in answers]


def external_files(file: Path) -> list[Path]:
    """Return the weight files that an ONNX file points to.

    Raises UserError: a file is missing or outside the folder, or the ONNX file is broken.
    """
    content = memoryview(file.read_bytes())
    try:
        # ONNX Runtime's own format is not protobuf; it keeps its weights inside.
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
            raise UserError(f"{file.name} needs the file {location} next to it")
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
            raise ValueError("it is damaged, or it is not an ONNX file")
        if size > len(message) - place:
            raise ValueError("it is damaged, or it is not an ONNX file")
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
    raise ValueError("it is damaged, or it is not an ONNX file")


def open_session(file: Path, device: str, provider: str = "") -> Any:
    """Return an onnxruntime session of a file that takes one batch of images; a UserError for any other file."""
    session = any_session(file, device, provider)
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type not in _TYPES or len(inputs[0].shape) != 4:
        raise UserError(f"{file.name} must take one batch of images (four dimensions, float or bytes)")
    return session


def any_session(file: Path, device: str, provider: str = "", *, threads: int = 0) -> Any:
    """Return an onnxruntime session of a file with any inputs; ``threads`` within an operator, 0 for all cores."""
    import onnxruntime

    known = {text.removesuffix("ExecutionProvider").lower(): text for text in onnxruntime.get_available_providers()}
    if provider and provider.lower() not in known:
        raise UserError(f"this onnxruntime has no provider {provider!r}; it has {', '.join(known)}")
    chosen = provider.lower() or ("cuda" if resolve_device(device).startswith("cuda") and "cuda" in known else "cpu")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    try:
        providers = list(dict.fromkeys([known[chosen], known["cpu"]]))
        return onnxruntime.InferenceSession(str(file), options, providers=providers)
    except Exception as error:  # onnxruntime's errors share no base class of their own
        raise UserError(f"{file.name} is not an ONNX model that onnxruntime can load") from error
