"""From the name of an architecture to an untrained network, and to the configuration that builds it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import torch
from holdfast.core.names import Name, parse_name
from holdfast.core.networks import weights_sha256
from holdfast.models import checkpoint, load_classifier, local_dir, python, timm, torchvision
from holdfast.models.local_dir import read_asset
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.specs.training import CROP_SHARE
from holdfast.registry import find_attribute

SCHEMES = ("timm", "torchvision", "embedded", "local-dir", "packaged", "torch", "python")


@dataclass(frozen=True)
class Architecture:
    """A network to train."""

    name: str  # what results call it
    library: str  # ``timm``, ``torchvision``, or ``python`` for a callable of the user's
    architecture: str  # its name there, ``MODULE:ATTRIBUTE`` for a callable
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the constructor
    # per channel, 0..1, that images are shifted by; ``std`` that they are scaled by
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    start: str = ""  # the model whose weights it begins with; empty from scratch
    start_sha256: str = ""  # of those weights
    source: str = ""  # of a callable: changes with its code

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that decides the starting weights, except for the seed."""
        about = dataclasses.asdict(self) | {"name": "", "start": ""}
        if not self.source:
            del about["source"]
        return fingerprint(about)

    @property
    def loaded_as(self) -> str:
        """Return what is before ``@FILE`` in the name of the trained model."""
        if self.library == "python":
            return f"python:{self.architecture}"
        return f"torch:{self.architecture}" if self.library == "timm" else f"torch:{self.library}/{self.architecture}"


def resolve(text: str, *, size: int, pretrained: bool = False) -> Architecture:
    """Read ``timm:resnet50``, ``timm:vit_tiny_patch16_224?patch_size=8``, ``torchvision:alexnet``, ``embedded:…``, ….

    ``text``: the name. Options go to timm's constructor; ``pretrained=true`` begins with weights: the tag's for
    ``timm:`` and ``torchvision:``, the model's own for the other schemes. ``size``: pixels of the square images.
    ``pretrained``: whether all begin with weights.
    """
    name = parse_name(text)
    if name.scheme not in SCHEMES:
        schemes = ", ".join(f"{scheme}:" for scheme in SCHEMES)
        raise UserError(f"an architecture to train must be named {schemes}NAME, such as timm:resnet50, not {text!r}")
    options = dict(name.options)
    pretrained = bool(options.pop("pretrained", pretrained))
    plain = dataclasses.replace(name, options=options)
    read = {"timm": _timm, "python": _callable}.get(name.scheme, _other)
    architecture = read(plain, size)
    shown = text.split("?")[0] + ("?" + "&".join(f"{key}={value}" for key, value in options.items()) if options else "")
    if not pretrained and (name.scheme == "torch" or (name.scheme == "python" and name.tag)):
        alone = f"python:{name.name}" if name.scheme == "python" else f"timm:{name.name}"
        raise UserError(f"{text} names weights; begin with them by --pretrained, or name {alone} alone")
    if pretrained and name.scheme == "python" and not name.tag:
        raise UserError(f"{text} has no weights to begin with; name a file: python:{name.name}@FILE")
    if name.scheme in ("local-dir", "torch"):  # results are called after the file, not after where it is
        shown = f"{name.scheme}:{Path(plain.whole).name}"
    if not pretrained:
        return dataclasses.replace(architecture, name=shown)
    shown += ("&" if "?" in shown else "?") + "pretrained=true"
    start = text.split("?")[0]
    return dataclasses.replace(
        architecture, name=shown, start=start, start_sha256=weights_sha256(_weights(start).module)
    )


def _timm(name: Name, size: int) -> Architecture:
    import timm as library
    from timm.data import resolve_data_config

    timm.check_architecture(name.name, f"{name.name}.{name.tag}" if name.tag else name.name)
    refused = [key for key in name.options if key in local_dir.LOADING]
    if refused:
        raise UserError(f"timm:{name.name} takes no {', '.join(refused)} here; --pretrained begins with weights")
    known = library.get_pretrained_cfg(name.name)
    config = resolve_data_config(pretrained_cfg=known.to_dict() if known else {})
    arguments = dict(name.options)
    if known is not None and known.fixed_input_size:
        arguments.setdefault("img_size", size)
    return Architecture("", "timm", name.name, arguments, tuple(config["mean"]), tuple(config["std"]))


def _callable(name: Name, size: int) -> Architecture:
    """Return the architecture of a class or function that builds networks; options are its arguments."""
    del size  # the network is tried on images of that size when it is built
    target, source = find_attribute(name)
    if not python.is_builder(target):
        raise UserError(
            f"python:{name.name} builds no network; train takes a class of torch.nn.Module, or a function with the "
            "argument num_classes that returns one"
        )
    return Architecture("", "python", name.name, python.arguments_of(name, target), source=source)


def _other(name: Name, size: int) -> Architecture:
    """Return an architecture of torchvision, or one whose folder or package says what it is."""
    if name.options:
        raise UserError(f"{name.scheme}: architectures take no option but pretrained, not {', '.join(name.options)}")
    if name.scheme == "torchvision":
        own = torchvision.find_weights(name.name, name.tag).transforms()
        return Architecture("", "torchvision", name.name, {}, tuple(own.mean), tuple(own.std))
    if name.scheme in ("packaged", "torch"):
        if name.scheme == "packaged" and name.name not in checkpoint.MODELS:
            load_classifier(f"packaged:{name.name}")  # says what there is
        whole = checkpoint.MODELS[name.name].architecture if name.scheme == "packaged" else name.whole.split("@")[0]
        library, _, bare = whole.rpartition("/")
        architecture = _timm(Name("timm", bare), size) if library in ("", "timm") else _other(Name(library, bare), size)
        if name.scheme == "torch":
            return architecture
        own = _weights(f"packaged:{name.name}").preprocessing
        return dataclasses.replace(architecture, mean=own.mean, std=own.std)
    if name.scheme == "embedded":
        config = {"library": "timm", **read_asset("classifiers", name).config}
    else:
        config = local_dir.read_config(Path(name.whole) / "config.json")
    arguments = dict(config["model_args"])
    if "img_size" in arguments:
        arguments["img_size"] = size
    data = config["pretrained_cfg"]
    library = config["library"]
    return Architecture("", library, config["architecture"], arguments, tuple(data["mean"]), tuple(data["std"]))


def _weights(start: str) -> TorchClassifier:
    classifier = load_classifier(start, device="cpu")
    if not isinstance(classifier, TorchClassifier):
        raise UserError(f"{start} has no weights of a network to begin with")
    return classifier


def build(architecture: Architecture, classes: int, size: int, *, seed: int) -> torch.nn.Module:
    """Return the network with so many outputs, its random weights drawn from the seed alone."""
    if architecture.library == "python":
        target = find_attribute(parse_name(f"python:{architecture.architecture}"))[0]
        module = python.build(architecture.architecture, target, architecture.arguments, classes, seed=seed)
    else:
        config = config_of(architecture, None, [str(place) for place in range(classes)], size)
        module = timm.seeded(lambda: local_dir.build(config), seed)
    return tried_out(module, architecture, size, (1, classes), lambda start: _weights(start).module)


def tried_out(
    module: Any,
    architecture: Architecture,
    size: int,
    shape: tuple[int, ...],
    weights: Callable[[str], torch.nn.Module],
) -> torch.nn.Module:
    """Return a network in training mode, with the weights that it starts from, if any."""
    try:
        with torch.inference_mode():
            answer = module.eval()(torch.zeros(1, 3, size, size))
    except (RuntimeError, ValueError, AssertionError, IndexError, TypeError) as error:
        raise UserError(f"{architecture.name} does not take images of {size} pixels: {first_line(error)}") from error
    given = tuple(answer.shape)
    if len(given) not in (2, 4) or given[: len(shape)] != shape:
        raise UserError(f"{architecture.name} answers with shape {given}, not with {shape[1]} classes")
    if architecture.start:
        transplant(module, weights(architecture.start), architecture)
    return module.requires_grad_(True).train()  # type: ignore[no-any-return]


def transplant(module: torch.nn.Module, donor: torch.nn.Module, architecture: Architecture) -> None:
    """Load the donor's weights, except for its last layer if that has other outputs."""
    given, own = donor.state_dict(), module.state_dict()
    fitting = {name: tensor for name, tensor in given.items() if name in own and tensor.shape == own[name].shape}
    heads = {name.rpartition(".")[0] for name in own if name not in fitting}
    if len(heads) > 1 or set(given) != set(own):
        raise UserError(
            f"the weights of {architecture.start} are of another architecture or image size: "
            f"{len(heads)} layers of {architecture.name} find nothing in them"
        )
    module.load_state_dict({**own, **fitting})


def config_of(
    architecture: Architecture,
    module: torch.nn.Module | None,
    classes: Sequence[str],
    size: int,
    *,
    crop: bool = False,
) -> dict[str, Any]:
    """Return the configuration file of a trained network; timm reads it if the library is timm."""
    data = {
        "custom_load": False, "input_size": [3, size, size], "interpolation": "bilinear",
        "crop_pct": CROP_SHARE if crop else 1.0, "crop_mode": "center" if crop else "squash",
        "mean": list(architecture.mean), "std": list(architecture.std),
    }  # fmt: skip
    own = dict(getattr(module, "pretrained_cfg", None) or {})
    kept = {key: own[key] for key in ("first_conv", "classifier") if key in own}
    features = getattr(module, "num_features", None)
    return {
        "architecture": architecture.architecture,
        **({"library": architecture.library} if architecture.library != "timm" else {}),
        "num_classes": len(classes),
        **({"num_features": int(features)} if isinstance(features, int) else {}),
        "model_args": dict(architecture.arguments),
        "label_names": list(classes),
        "pretrained_cfg": {**data, **kept, "num_classes": len(classes)},
    }
