"""``torchvision:ARCHITECTURE[@WEIGHTS-OR-FOLDER]``: torchvision's semantic segmenters (deeplabv3, fcn, lraspp).

The tag names weights of torchvision's, or a folder with ``config.json`` and ``model.safetensors`` as
``holdfast segment`` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, unknown
from holdfast.models import checkpoint
from holdfast.models.options import display_name, existing_file
from holdfast.models.segmenters.torch_segmenter import OPTIONS, TorchSegmenter, assembled, read_config
from holdfast.models.torch_classifier import picked
from holdfast.models.torchvision import pretrained, weight_choices


def load(name: Name, *, device: str) -> TorchSegmenter:
    """Load a segmenter with torchvision's weights (the default ones without a tag) or from a folder.

    Options: ``labels=FILE``, ``size``, ``mean`` and ``std``. Images are squeezed to a square: 520 pixels for
    torchvision's own weights.
    """
    options = checked(name, OPTIONS)
    architecture, _, path = name.whole.partition("@")  # a folder's name may hold an @ as well
    name = replace(name, name=architecture, tag=path)
    choices = weight_choices(architecture, "segmentation")
    folder = Path(path) if path and (Path(path) / "config.json").is_file() else None
    if folder is not None:
        return _from_folder(name, folder, options, device)
    if name.tag and name.tag not in choices.__members__:
        if "/" in name.tag:
            raise UserError(f"there is no segmenter's configuration in the folder {name.tag!r}")
        raise unknown(f"set of weights for {name.name}", name.tag, choices.__members__)
    weights = choices[name.tag] if name.tag else choices.DEFAULT
    module = pretrained(name.name, weights)
    own = weights.transforms()
    side = int(own.resize_size[0])
    facts = {"input_size": (side, side), "mean": tuple(own.mean), "std": tuple(own.std)}
    return assembled(
        display_name(name, name.whole), picked(module, "out"), weights.meta["categories"], facts, options,
        architecture=f"torchvision/{name.name}", device=device,
    )  # fmt: skip


def _from_folder(name: Name, folder: Path, options: Mapping[str, Any], device: str) -> TorchSegmenter:
    config = read_config(folder / "config.json")
    stated = config.get("architecture", name.name)
    if stated != name.name:
        raise UserError(f"the folder {folder.name} holds a {stated}, not a {name.name}")
    facts = config.get("holdfast", {})
    shown = display_name(name, f"{name.name}@{folder.name}")
    module = build(name.name, config["classes"])
    state, _ = checkpoint.read_state(existing_file(str(folder / "model.safetensors"), what="segmenter's weights"))
    checkpoint.fill(module, state, f"torchvision/{name.name}", shown)
    return assembled(
        shown, picked(module, "out"), config["classes"], facts, options, architecture=f"torchvision/{name.name}",
        device=device,
    )  # fmt: skip


def build(architecture: str, outputs: int) -> torch.nn.Module:
    """Build the module without trained weights; its answer is a dictionary whose ``out`` are the scores."""
    import torchvision.models

    module: torch.nn.Module = torchvision.models.get_model(
        architecture, weights=None, weights_backbone=None, num_classes=outputs
    )
    return module


def config_of(architecture: str, outputs: int) -> dict[str, Any]:
    """Return what ``config.json`` says of a trained segmenter."""
    return {"library": "torchvision", "architecture": architecture, "classes": outputs}
