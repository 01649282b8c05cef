"""``smp:ARCHITECTURE@FOLDER``: segmenters of segmentation_models_pytorch, from what its ``save_pretrained`` wrote.

``embedded:NAME`` are those that Holdfast carries, in the same format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError, first_line
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, unknown
from holdfast.models import checkpoint, local_dir
from holdfast.models.options import display_name, existing_file
from holdfast.models.segmenters.torch_segmenter import OPTIONS, TorchSegmenter, assembled, read_config

ARCHITECTURES = (
    "DeepLabV3", "DeepLabV3Plus", "DPT", "FPN", "Linknet", "MAnet", "PAN", "PSPNet", "Segformer", "UPerNet", "Unet",
    "UnetPlusPlus",
)  # fmt: skip


def load(name: Name, *, device: str) -> TorchSegmenter:
    """Load a segmenter from a folder with ``config.json`` and ``model.safetensors``.

    Options: ``labels=FILE``, ``size``, ``mean`` and ``std`` as for classifiers. Without them images are squeezed to
    256 × 256 and normalised as ImageNet's are.
    """
    options = checked(name, OPTIONS)
    architecture, _, path = name.whole.partition("@")  # a folder's name may hold an @ as well
    if architecture not in ARCHITECTURES:
        raise unknown("architecture of segmentation_models_pytorch", architecture, ARCHITECTURES)
    if not path:
        raise UserError(f"smp: reads smp:ARCHITECTURE@FOLDER, for example smp:Unet@folder, not {architecture!r}")
    folder = Path(path)
    config = read_config(folder / "config.json")
    stated = config.get("_model_class", architecture)
    if stated != architecture:
        raise UserError(f"the folder {folder.name} holds a {stated}, not a {architecture}")
    facts = config.pop("holdfast", {})
    state, _ = checkpoint.read_state(existing_file(str(folder / "model.safetensors"), what="segmenter's weights"))
    body = f"{architecture}@{folder.name}"
    return _segmenter(display_name(name, body), config, facts, state, options, device)


def load_embedded(name: Name, *, device: str) -> TorchSegmenter:
    """Load a segmenter of ``assets/segmenters``; takes no options."""
    return _segmenter(display_name(name, name.name), *local_dir.read_asset("segmenters", name), {}, device)


def _segmenter(
    shown: str,
    config: Mapping[str, Any],
    facts: Mapping[str, Any],
    state: Mapping[str, torch.Tensor],
    options: Mapping[str, Any],
    device: str,
) -> TorchSegmenter:
    module = build(config)
    checkpoint.fill(module, state, f"smp/{config['_model_class']}", shown)
    architecture = f"smp/{json.dumps(config, sort_keys=True)}"
    return assembled(shown, module, int(config["classes"]), facts, options, architecture=architecture, device=device)


def build(config: Mapping[str, Any]) -> Any:
    """Build the untrained network of a configuration: the name of its class and its arguments."""
    import segmentation_models_pytorch as library

    arguments = {key: value for key, value in config.items() if key != "_model_class"}
    # Weights come from the folder; a configuration that names pretrained ones would reach for a hub.
    arguments["encoder_weights"] = None
    try:
        return getattr(library, config["_model_class"])(**arguments)
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"the configuration does not fit {config['_model_class']}: {first_line(error)}") from error
