"""From the name of a segmentation network to an untrained one, and to the folder that is a segmenter's name at once."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError, first_line
from holdfast.core.files import write_atomic
from holdfast.core.lazy import torch
from holdfast.core.names import Name, parse_name, unknown
from holdfast.core.networks import offline, weights_sha256
from holdfast.models import load_segmenter, timm
from holdfast.models.local_dir import LOADING, read_asset
from holdfast.models.segmenters import smp, torchvision_segmenters, transformers_segmenters
from holdfast.models.segmenters.torch_segmenter import TorchSegmenter, read_config
from holdfast.models.torch_classifier import picked
from holdfast.models.torchvision import weight_choices
from holdfast.pipeline.train.architectures import Architecture, tried_out
from holdfast.stats.effects.segments import BACKGROUND
from holdfast.training.checkpoint import write_model

SCHEMES = ("smp", "torchvision", "hf", "embedded")
_HINT = "; a plain ViT goes with smp:DPT@tu-vit_base_patch16_224 or hf:upernet@vit"


def resolve(text: str, *, size: int, pretrained: bool = False) -> Architecture:
    """Read ``smp:FPN@resnet50``, ``torchvision:fcn_resnet50``, ``hf:upernet@vit``, ``embedded:unet``, or a folder's."""
    # ``text``: the name. ``smp:ARCHITECTURE@ENCODER`` passes options to its constructor (``channels=8/8/16/16`` is a
    # list); encoders of timm are called ``tu-NAME``. ``pretrained=true`` begins with weights: ImageNet's for the
    # encoder of ``smp:``, the model's own for folders and ``embedded:``. ``size``: pixels of the square images.
    # ``pretrained``: whether all begin with weights.
    name = parse_name(text)
    if name.scheme not in SCHEMES:
        schemes = ", ".join(f"{scheme}:" for scheme in SCHEMES)
        raise UserError(f"a segmenter to train must be named {schemes}NAME, for example smp:FPN@resnet50, not {text!r}")
    options = dict(name.options)
    pretrained = bool(options.pop("pretrained", pretrained))
    plain = dataclasses.replace(name, options=options)
    architecture = _smp(plain, size) if name.scheme == "smp" else _other(plain, size)
    shown = _shown(plain)
    if not pretrained:
        return dataclasses.replace(architecture, name=shown)
    shown += ("&" if "?" in shown else "?") + "pretrained=true"
    if name.scheme == "smp" and not _folder(plain):
        return dataclasses.replace(
            architecture, name=shown, arguments={**architecture.arguments, "encoder_weights": "imagenet"}
        )
    start = text.split("?")[0]
    return dataclasses.replace(architecture, name=shown, start=start, start_sha256=weights_sha256(_weights(start)))


def _shown(name: Name) -> str:
    """Return the name that results use: options included, folders by their last part."""
    body, at, tag = name.whole.partition("@")
    tag = Path(tag).name if _folder(name) else tag
    body = Path(body).name if name.scheme == "hf" else body
    options = "&".join(f"{key}={value}" for key, value in name.options.items())
    return f"{name.scheme}:{body}{at}{tag}" + (f"?{options}" if options else "")


def _folder(name: Name) -> Path | None:
    """Return the folder with a configuration that a name leads to; None without one."""
    where = name.whole if name.scheme == "hf" else name.whole.partition("@")[2]
    return Path(where) if where and (Path(where) / "config.json").is_file() else None


def _smp(name: Name, size: int) -> Architecture:
    architecture, _, encoder = name.whole.partition("@")
    if architecture not in smp.ARCHITECTURES:
        raise unknown("architecture of segmentation_models_pytorch", architecture, smp.ARCHITECTURES)
    folder = _folder(name)
    if folder is not None:
        return _configured(read_config(folder / "config.json"), size)
    if not encoder:
        raise UserError(f"smp: trains smp:ARCHITECTURE@ENCODER, for example smp:{architecture}@resnet50")
    refused = [key for key in name.options if key in (*LOADING, "encoder_weights", "classes", "in_channels")]
    if refused:
        raise UserError(f"smp:{architecture} takes no {', '.join(refused)} here")
    arguments: dict[str, Any] = {"encoder_name": encoder, **name.options}
    for key, value in name.options.items():
        if re.fullmatch(r"\d+(/\d+)+", str(value)):  # ``8/16/32`` is a list; lists of names use commas
            arguments[key] = [int(part) for part in str(value).split("/")]
    if encoder.startswith("tu-"):
        bare = encoder.removeprefix("tu-")
        timm.check_architecture(bare.partition(".")[0])
        import timm as library

        known = library.get_pretrained_cfg(bare)
        if known is not None and known.fixed_input_size:
            arguments.setdefault("img_size", size)
    else:
        import segmentation_models_pytorch as segmentation

        encoders = segmentation.encoders.get_encoder_names()
        if encoder not in encoders:
            raise unknown("encoder of segmentation_models_pytorch (those of timm begin with tu-)", encoder, encoders)
    return Architecture("", "smp", architecture, arguments)


def _configured(config: Mapping[str, Any], size: int) -> Architecture:
    """Return the configuration of a segmentation_models_pytorch folder, for images of another size."""
    facts = config.get("holdfast", {})
    left_out = ("_model_class", "holdfast", "classes", "encoder_weights")
    arguments = {key: value for key, value in config.items() if key not in left_out}
    if "img_size" in arguments:
        arguments["img_size"] = size
    architecture = Architecture("", "smp", str(config["_model_class"]), arguments)
    mean, std = (
        tuple(facts.get(key, otherwise)) for key, otherwise in (("mean", architecture.mean), ("std", architecture.std))
    )
    return dataclasses.replace(architecture, mean=mean, std=std)


def _other(name: Name, size: int) -> Architecture:
    """Return an architecture of torchvision or transformers, or an embedded one."""
    if name.scheme == "embedded":
        asset = read_asset("segmenters", name)
        return _configured({**asset.config, "holdfast": asset.facts}, size)
    if name.scheme == "hf":
        settings = transformers_segmenters.configuration(name, size)
        return Architecture("", "hf", str(settings["model_type"]), settings)
    architecture = name.whole.partition("@")[0]
    weight_choices(architecture, "segmentation")
    if name.options:
        raise UserError(f"torchvision: networks take no options but pretrained, and {', '.join(name.options)} is")
    return Architecture("", "torchvision", architecture)


def _weights(start: str) -> torch.nn.Module:
    segmenter = load_segmenter(start, device="cpu")
    assert isinstance(segmenter, TorchSegmenter)
    return segmenter.module


def build(architecture: Architecture, classes: int, size: int, *, seed: int) -> torch.nn.Module:
    """Return the network with one output for the background and one per class, random weights from the seed."""
    outputs = classes + 1
    module = timm.seeded(lambda: _module(architecture, outputs), seed)
    return tried_out(module, architecture, size, (1, outputs), _weights)


def _module(architecture: Architecture, outputs: int) -> torch.nn.Module:
    if architecture.library == "torchvision":
        return picked(torchvision_segmenters.build(architecture.architecture, outputs), "out")
    if architecture.library == "hf":
        return picked(transformers_segmenters.build(architecture.arguments, outputs), "logits")
    arguments = dict(architecture.arguments)
    weights = arguments.pop("encoder_weights", None)
    config = {"_model_class": architecture.architecture, **arguments, "classes": outputs}
    if weights is not None:
        return _pretrained_encoder(architecture, config, str(weights))
    try:
        module: torch.nn.Module = smp.build(config)
    except UserError as error:
        raise UserError(f"{error}{_HINT if 'downsampling pattern' in str(error) else ''}") from error
    except (AssertionError, AttributeError, IndexError) as error:
        raise UserError(f"{architecture.name} cannot be built: {first_line(error)}") from error
    return module


def _pretrained_encoder(architecture: Architecture, config: Mapping[str, Any], weights: str) -> torch.nn.Module:
    import segmentation_models_pytorch as library

    arguments = {key: value for key, value in config.items() if key != "_model_class"}
    try:
        module: torch.nn.Module = getattr(library, config["_model_class"])(**arguments, encoder_weights=weights)
    except OSError as error:
        raise offline(architecture.name, error) from error
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"{architecture.name} has no such encoder: {first_line(error)}") from error
    return module


def write(
    folder: Path,
    architecture: Architecture,
    module: Any,
    weights: Mapping[str, torch.Tensor],
    classes: tuple[str, ...],
    size: int,
    facts: Mapping[str, Any],
    text: str,
    note: str,
) -> None:
    """Write the folder of a trained network, in the format that its own library reads."""
    names = (BACKGROUND, *classes)
    prepared = {"label_names": list(names), "input_size": [size, size]}
    prepared |= {"mean": list(architecture.mean), "std": list(architecture.std)}
    if architecture.library == "smp":
        config = {"_model_class": architecture.architecture, **json.loads(json.dumps(dict(module.config)))}
        config["encoder_weights"] = None
    else:
        weights = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
        if architecture.library == "torchvision":
            config = torchvision_segmenters.config_of(architecture.architecture, len(names))
        else:
            config = transformers_segmenters.config_of(module.model, names)
            processor = transformers_segmenters.processor_of(size, architecture.mean, architecture.std)
            write_atomic(folder / "preprocessor_config.json", (json.dumps(processor, indent=2) + "\n").encode())
    write_model(folder, weights, config, {**prepared, **facts}, text, note=note, classes=names)


def loaded_as(architecture: Architecture) -> str:
    """Return what is before the folder in the name of the trained segmenter."""
    return "hf:" if architecture.library == "hf" else f"{architecture.library}:{architecture.architecture}@"


def load(architecture: Architecture, folder: Path, *, device: str) -> TorchSegmenter:
    """Load the trained segmenter of a folder; the path may hold what a name may not."""
    if architecture.library == "hf":
        return transformers_segmenters.load(Name("hf", str(folder)), device=device)
    name = Name(architecture.library, architecture.architecture, str(folder))
    if architecture.library == "smp":
        return smp.load(name, device=device)
    return torchvision_segmenters.load(name, device=device)
