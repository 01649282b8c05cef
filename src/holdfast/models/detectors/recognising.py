"""Tell names of detectors from names of classifiers, for schemes that have both."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.core.names import Name
from holdfast.models import local_dir
from holdfast.registry import find_attribute

TASK = "detect"
"""Value of the option ``task`` that says: this is a detector."""


def recognises(name: Name) -> bool:
    """Return whether a name means a detector. Nothing is loaded, except for the module of a ``python:`` name."""
    if name.options.get("task") == TASK:
        return True
    if name.scheme == "embedded":
        return name.name in local_dir.installed("detectors")
    if name.scheme == "onnx":
        return "decode" in name.options
    if name.scheme == "torchvision":
        import torchvision.models

        return name.name in torchvision.models.list_models(module=torchvision.models.detection)
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
    try:
        config = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    except (OSError, ValueError):
        return []
    return [str(each) for each in config.get("architectures") or ()] if isinstance(config, dict) else []
