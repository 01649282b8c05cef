"""Adapters, one file per family of models; classifiers, segmenters and vision-language models are loaded by name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, cast

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.files import json_object
from holdfast.core.names import Name, parse_name
from holdfast.core.protocols import Classifier, Detector, Segmenter, VisionLanguageModel
from holdfast.core.types import Collection
from holdfast.registry import find_attribute

FEATURES = "features"
"""The scheme of encoders, ``features:MODEL``."""


def load_classifier(text: str, *, device: str = "auto", classes: Sequence[str] | None = None) -> Classifier:
    """Load a model by a name such as ``timm:resnet50`` or ``torch:resnet18@best.pth?labels=names.txt``.

    Args:
        text: ``scheme:name[@tag][?option=value&…]``; every scheme knows ``name=``, which is what the results call
            the model (two checkpoints called ``best.pth`` need it).
        device: ``auto`` (the best one available), ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        classes: the dataset's classes, for models that answer with class names instead of scores.

    Returns:
        The model with its preprocessing and the names of its outputs.

    Raises:
        UserError: There is no such model, or its package or weights are missing.

    Examples:
        >>> holdfast.load_classifier("embedded:resnet_rho95").name
        'embedded:resnet_rho95'
    """
    name = parse_name(text)
    if name.scheme in registry.vlms:
        raise UserError(f"{name.scheme}: answers in words, not with classes; use it with holdfast ask")
    if name.scheme == FEATURES:
        raise UserError(f"{text} returns embeddings, not classes; use it with holdfast eval alone")
    examples = {".onnx": f"onnx:{text}", ".pt": f"torch:ARCHITECTURE@{text}", ".py": "python:MODULE:ATTRIBUTE"}
    examples |= dict.fromkeys((".pth", ".safetensors", ".ckpt"), examples[".pt"])
    example = examples.get(PurePath(name.name).suffix, "timm:resnet50")
    return cast(Classifier, _load(registry.models, name, "a model", example, device=device, classes=classes))


def load_segmenter(text: str, *, device: str = "auto") -> Segmenter:
    """Load a segmenter by a name such as ``embedded:unet``, ``smp:FPN@FOLDER`` or ``hf:FOLDER``; ``name=`` as above."""
    return cast(Segmenter, _load(registry.segmenters, parse_name(text), "a segmenter", "embedded:unet", device=device))


def load_detector(text: str, *, device: str = "auto", collection: Collection | None = None) -> Detector:
    """Load a detector by a name such as ``hf:FOLDER``, ``onnx:FILE?decode=yolox`` or ``embedded:boxes_rho0``.

    ``collection`` is for detectors that are asked for its classes (``owl:``) or know its answers (``known:``).
    """
    name, example = parse_name(text), "torchvision:fasterrcnn_resnet50_fpn_v2"
    classes = collection.classes if collection is not None else None
    given = {"device": device, "classes": classes, "collection": collection}
    return cast(Detector, _load(registry.detectors, name, "a detector", example, **given))


def is_detector(text: str) -> bool:
    """Return whether a name means a detector."""
    name = parse_name(text)
    if name.scheme not in registry.detectors:
        return False
    return name.scheme not in registry.models or _recognises_detector(name)


def load_vlm(text: str, *, device: str = "auto") -> VisionLanguageModel:
    """Load a vision-language model by a name such as ``vlm:FOLDER`` or ``vlm+http://localhost:8000/v1#llava``."""
    # An address may hold an @, which is not a tag there.
    name = parse_name(text, tagged=not parse_name(text, tagged=False).scheme.startswith("vlm+http"))
    return cast(VisionLanguageModel, _load(registry.vlms, name, "a vision-language model", "vlm:FOLDER", device=device))


def is_vlm(text: str) -> bool:
    """Return whether a name means a vision-language model; any other name means a classifier."""
    scheme = parse_name(text, tagged=False).scheme
    return scheme.startswith("vlm") or scheme in registry.vlms


def _load(loaders: registry.Registry[Any], name: Name, what: str, example: str, **given: Any) -> Any:
    """Call the loader of a scheme with what it takes of ``given``; ``?name=`` renames the model."""
    if not name.scheme:
        useful = [entry for entry in loaders.entries() if entry.name != "live" and "refused" not in entry.summary]
        known = ", ".join(f"{entry.name}:" for entry in useful)
        if meant := _meant(name.name):
            raise UserError(f"{what} is named scheme:name; for {name.name!r} write {meant}")
        raise UserError(f"{what} is named scheme:name, for example {example}, not {name.name!r}; schemes: {known}")
    options = dict(name.options)
    options.pop("name", "")
    shown = name.text("name")
    adapting = {option: options.pop(option) for option in list(options) if option.startswith("adapt")}
    load = loaders.get(name.scheme)
    takes = inspect.signature(load).parameters
    given = {key: value for key, value in given.items() if key == "device" or (value is not None and key in takes)}
    model = load(dataclasses.replace(name, options=options), **given)
    if adapting:
        from holdfast.models.adaptation import adapted

        model = adapted(model, adapting)
    if shown:
        model.name = shown
    return model


_SCHEMES = {
    ".onnx": "onnx:{}",
    ".tflite": "litert:{}",
    ".xml": "openvino:{}",
    ".engine": "tensorrt:{}",
} | dict.fromkeys((".pth", ".pt", ".safetensors"), "torch:ARCHITECTURE@{}")  # How a file is opened


def _meant(text: str) -> str:
    """Return the name that someone meant who wrote one without its scheme; empty if that is unknown."""
    ready = [f"{scheme}:{text}" for scheme in ("packaged", "embedded") if f"{scheme}:{text}" in available(scheme)]
    return ready[0] if ready else _SCHEMES.get(Path(text).suffix.lower(), "").format(text)


def available(scheme: str) -> list[str]:
    """Return the models of a scheme that work as they are (packaged, embedded); none for other schemes."""
    if scheme not in ("packaged", "embedded"):
        return []
    from holdfast.models import checkpoint, local_dir

    names = checkpoint.installed_packages() if scheme == "packaged" else local_dir.installed()
    return [f"{scheme}:{name}" for name in names]


TORCHVISION_DETECTORS = ("fasterrcnn_", "fcos_", "keypointrcnn_", "maskrcnn_", "retinanet_", "ssd300_", "ssdlite320_")
"""How torchvision's names of detectors begin: its list of them takes a second to import."""


def _recognises_detector(name: Name) -> bool:
    """Return whether a name means a detector. Nothing is loaded, except for the module of a ``python:`` name."""
    if name.options.get("task") == "detect":
        return True
    if name.scheme == "embedded":
        from holdfast.models import local_dir

        return name.name in local_dir.installed("detectors")
    if name.scheme == "onnx":
        return "decode" in name.options
    if name.scheme == "torchvision":
        return name.name.startswith(TORCHVISION_DETECTORS)
    if name.scheme == "python":
        return hasattr(find_attribute(name)[0], "detect")
    return name.scheme == "hf" and any("ObjectDetection" in each for each in _architectures(name.name))


def _architectures(folder: str) -> list[str]:
    """Return the architectures of a local ``config.json``, or of one in the cache of the Hugging Face hub."""
    file: Path | str | None = Path(folder) / "config.json"
    if not Path(folder).is_dir():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            cached = try_to_load_from_cache(folder, "config.json")
        except HFValidationError:
            return []
        file = cached if isinstance(cached, str) else None
    return [str(each) for each in json_object(Path(file)).get("architectures") or ()] if file else []
