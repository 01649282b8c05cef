"""The adapter of all exported runtimes, and the sidecar that carries a file's preprocessing: MODEL.holdfast.toml."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError, first_line, out_of_memory
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import file_sha256, fingerprint
from holdfast.core.names import Name, checked, parse_name, unknown, write_options
from holdfast.core.types import Image, LabelSpace
from holdfast.models import label_spaces, load_classifier, timm
from holdfast.models.label_spaces import OUTPUTS, probabilities
from holdfast.models.options import PREPROCESSING, display_name, existing_file, preprocessing_overrides
from holdfast.models.torch_classifier import picture

SIDECAR = ".holdfast.toml"
"""Ending of the file next to a model that says how images reach it."""

_DEFAULTS = {
    "interpolation": "bilinear",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "crop_pct": 0.875,
    "crop_mode": "center",
}
_OPTIONS = {"labels": str, "outputs": str, **PREPROCESSING}


@dataclass(frozen=True)
class Runtime:
    """A loaded file: a function, and what the file says of its input."""

    run: Callable[[NDArray[Any]], NDArray[Any]]  # batch in the file's layout and type → its first output
    shape: Sequence[Any]  # of the input, four entries; no number, or one below 1, if a size is open
    dtype: str  # of the input: float32, float16, uint8 (plain pixels) or int8
    files: Sequence[Path]  # where the weights are
    step: float = 1.0  # number = step × (int8 − zero)
    zero: int = 0
    classes: str = ""  # names of the outputs as a JSON list; '' if the file has none
    outputs: str = "auto"  # probabilities if the file says that these come out


class ExportedClassifier:
    """A ``StagedClassifier`` around a ``Runtime``."""

    def __init__(self, name: Name, file: Path, runtime: Runtime, options: dict[str, Any]) -> None:
        self.name = display_name(name, file.name)
        self._runtime = runtime
        self._channels_last, size = layout_of(runtime.shape, file.name)
        stated, names = read_sidecar(file)
        for chosen, origin in ((options, "the name"), (stated, file.name + SIDECAR)):
            _check_against_file(chosen, origin, file.name, size, runtime.dtype)
        overrides = preprocessing_overrides(stated) | preprocessing_overrides(options)
        options = {**stated, **options}
        if runtime.dtype == "uint8":
            overrides |= {"mean": (0.0,) * 3, "std": (1.0,) * 3}
        wanted = overrides.get("input_size", (3, *(size or (224, 224))))
        self.preprocessing = timm.from_config({**_DEFAULTS, **overrides, "input_size": wanted})
        self.outputs = options.get("outputs", runtime.outputs)
        self.embeds = False  # whether outputs are an embedding, which ``predict`` returns as it is
        count = self._run(np.zeros((1, *wanted), np.float32)).shape[-1]
        own = label_spaces.from_json(runtime.classes, file.name) if runtime.classes else None
        if names is not None and len(names) != count:
            raise UserError(f"{file.name} has {count} outputs, but {file.name}{SIDECAR} names {len(names)}")
        self.labels = label_spaces.from_option(options.get("labels"), count, names or own)
        self.fingerprint = fingerprint(
            {
                "files": [file_sha256(path) for path in runtime.files],
                "preprocessing": self.preprocessing.description,
                "outputs": self.outputs,
                "labels": self.labels,
                **({} if name.scheme == "onnx" else {"runtime": name.scheme}),
            }
        )

    def prepare(self, image: Image) -> NDArray[Any]:
        """Prepare an RGB image of any size: CHW float32, normalised, or 0..1 for networks that take bytes."""
        shown = picture(image, crops_centre=self.preprocessing.crops_centre)
        tensor: NDArray[Any] = self.preprocessing.transform(shown).numpy()
        return tensor[::-1] if self.preprocessing.channels == "bgr" else tensor

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels)."""
        return self.predict_prepared([self.prepare(image) for image in images])

    def predict_prepared(self, prepared: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels), for what ``prepare`` returned."""
        if not prepared:
            return np.empty((0, len(self.labels)), np.float32)
        step = 1 if self._runtime.shape[0] == 1 else 64
        batches = [np.stack(prepared[start : start + step]) for start in range(0, len(prepared), step)]
        scores = np.concatenate([self._run(batch) for batch in batches])
        if self.embeds:
            return scores.astype(np.float32)
        return probabilities(
            scores, images=len(prepared), labels=len(self.labels), outputs=self.outputs, name=self.name
        )

    def _run(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Return the scores, (n, outputs), of a NCHW batch."""
        file = self._runtime
        answer = asked(file.run, batch, file.dtype, file.step, file.zero, last=self._channels_last, name=self.name)
        return np.asarray(answer).reshape(len(batch), -1)


def asked(
    run: Callable[[NDArray[Any]], Any], batch: NDArray[Any], dtype: str, step: float = 1.0, zero: int = 0, *,
    last: bool, name: str,
) -> Any:  # fmt: skip
    """Return what ``run`` answers to a NCHW batch, handed over in the type and layout (``last``: NHWC) of the file.

    Bytes are pixels 0..255 of values 0..1; int8 stands for step × (int8 − zero).
    """
    if dtype == "uint8":
        batch = np.rint(batch * 255)
    elif dtype == "int8":
        batch = np.clip(np.rint(batch / step) + zero, -128, 127)
    try:
        return run(np.ascontiguousarray(batch.transpose(0, 2, 3, 1) if last else batch, dtype))
    except Exception as error:  # runtimes' errors share no base class
        if out_of_memory(error):
            raise
        raise UserError(f"{name} cannot be run: {first_line(error)}") from error


def load(name: Name, device: str, open_file: Callable[..., Runtime], what: str, *own: str) -> ExportedClassifier:
    """Load a file whose one input is a batch of images and whose first output is scores.

    Layout and size are read from the file (224 if it leaves the size open). Options: ``labels=FILE|imagenet``,
    ``outputs=auto|logits|probabilities`` and those of ``options.PREPROCESSING``; else what the sidecar says; else the
    short side is resized so that the centre crop keeps 0.875, and pixels are normalised with ImageNet's mean and
    deviation. Networks that take bytes get plain pixels. ``open_file`` takes a file, the device and the options that
    ``own`` names; ``what`` is the kind of file, for the error where there is none.
    """
    options = checked(name, {**_OPTIONS, **dict.fromkeys(own, str)})
    if options.get("outputs", "auto") not in OUTPUTS:
        raise unknown("kind of outputs", options["outputs"], OUTPUTS)
    file = existing_file(name.whole, what=what)
    runtime = open_file(file, device, **{key: options.pop(key) for key in own if key in options})
    return ExportedClassifier(name, file, runtime, options)


def layout_of(shape: Sequence[Any], file_name: str) -> tuple[bool, tuple[int, int] | None]:
    """Return whether channels come last, and height and width if the file fixes them."""
    if len(shape) != 4:
        raise UserError(f"{file_name} must take one batch of images (four dimensions, float or bytes)")
    channels_last = shape[1] != 3 and shape[3] == 3
    if not channels_last and isinstance(shape[1], int) and shape[1] > 0 and shape[1] != 3:
        raise UserError(f"{file_name} takes images with {shape[1]} channels; only RGB is supported")
    height, width = (shape[1], shape[2]) if channels_last else (shape[2], shape[3])
    fixed = all(isinstance(side, int) and side > 0 for side in (height, width))
    return channels_last, (height, width) if fixed else None


def read_sidecar(file: Path) -> tuple[dict[str, Any], LabelSpace | None]:
    """Return the options that the sidecar of a file states, and the names of the outputs; nothing if there is none.

    Raises UserError: it is not TOML, or has a key or a value that no option has.
    """
    sidecar = file.with_name(file.name + SIDECAR)
    if not sidecar.is_file():
        return {}, None
    try:
        stated = tomllib.loads(sidecar.read_text(encoding="utf-8"))
        names = stated.pop("labels", None)
        texts = {key: "/".join(map(str, value)) if isinstance(value, list) else value for key, value in stated.items()}
        options = checked(
            Name("sidecar", file.name, "", texts), {key: _OPTIONS[key] for key in (*PREPROCESSING, "outputs")}
        )
        preprocessing_overrides(options)
        if options.get("outputs", "auto") not in OUTPUTS:
            raise unknown("kind of outputs", options["outputs"], OUTPUTS)
        if names is not None and not (isinstance(names, list) and names and all(isinstance(n, str) for n in names)):
            raise UserError("labels must be a list of names")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, UserError) as error:
        raise UserError(f"{sidecar} cannot be used: {first_line(error)}") from error
    return options, label_spaces.named(names) if names else None


def _check_against_file(
    options: dict[str, Any], origin: str, file: str, size: tuple[int, int] | None, dtype: str
) -> None:
    """Raise a UserError if what was stated contradicts what the file itself says."""
    stated = preprocessing_overrides(options)
    if size is not None and stated.get("input_size", (3, *size))[1:] != size:
        raise UserError(
            f"{file} takes images of {size[0]}/{size[1]}, so size={options['size']} of {origin} cannot be met"
        )
    plain = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    if dtype == "uint8" and any(stated.get(key, plain[key]) != plain[key] for key in plain):
        raise UserError(
            f"{file} takes bytes, which are plain pixels, but {origin} states a mean or a deviation; leave them out"
        )


def sidecar(model: str, like: str = "", *, device: str = "auto") -> Path:
    """Write the sidecar of an exported model, and return its path: preprocessing, outputs and names, all stated.

    Args:
        model: its name, such as ``onnx:model.onnx?size=224&mean=0.5&std=0.5&labels=names.txt``; what the name leaves
            open is taken from ``like``, from an earlier sidecar, or is the default.
        like: name of the model that it was exported from.
        device: where the models are loaded.
    """
    name = parse_name(model)
    labels = None
    if like:
        original = load_classifier(like, device=device)
        about = dict(getattr(getattr(original, "preprocessing", None), "description", {}))
        if about.get("library") != "timm":
            raise UserError(f"how {like} prepares its images cannot be written down; state it in the name of {model}")
        about = _stated(about)
        if name.options.get("channels", about.get("channels", "rgb")) != about.get("channels", "rgb"):
            about |= {key: about[key][::-1] for key in ("mean", "std")}  # in the order of the channels of the name
        if load_classifier(model, device=device)._runtime.dtype == "uint8":  # type: ignore[attr-defined]
            about = {key: value for key, value in about.items() if key not in ("mean", "std")}
        name = dataclasses.replace(
            name, options={**{key: _text(value) for key, value in about.items()}, **name.options}
        )
        labels = original.labels
    exported = load_classifier(_spelled(name), device=device)
    if not isinstance(exported, ExportedClassifier):
        raise UserError(f"{model} must be the file of an exported model")
    labels = (
        labels if labels and "labels" not in name.options and len(labels) == len(exported.labels) else exported.labels
    )
    entries = {**_stated(exported.preprocessing.description), "outputs": exported.outputs, "labels": list(labels.names)}
    file = Path(name.whole)
    sidecar = file.with_name(file.name + SIDECAR)
    lines = [f"{key} = {json.dumps(value).replace(chr(127), '')}" for key, value in entries.items()]
    write_atomic(
        sidecar, "\n".join([f"# How images reach {file.name}, and what its outputs are called.", *lines, ""]).encode()
    )
    return sidecar


def _stated(about: Any) -> dict[str, Any]:
    """Return a description of preprocessing as options spell it."""
    order = -1 if "channels" in about else 1
    return {
        "size": list(about["input_size"][1:]), "mean": list(about["mean"])[::order], "std": list(about["std"])[::order],
        "crop": float(about["crop_pct"]), "crop_mode": about["crop_mode"], "interpolation": about["interpolation"],
        **timm.described(about),
    }  # fmt: skip


def _text(value: Any) -> Any:
    return "/".join(map(str, value)) if isinstance(value, list) else value


def _spelled(name: Name) -> str:
    """Return the text of a name."""
    return f"{name.scheme}:{name.whole}{write_options(name.options, name.texts)}"
