"""Classifiers as timm saves them, in a folder with ``config.json`` and ``model.safetensors``.

``local-dir:FOLDER`` reads a folder of the user's; the prefix is timm's own. Holdfast's trainings write such folders;
``timm.models.save_for_hf`` does, too. If Holdfast trained one of torchvision's, the configuration says so
(``"library": "torchvision"``), and timm cannot read it. ``embedded:NAME`` reads a folder of ``assets/classifiers``: the
small classifiers that Holdfast carries, trained on scenes of its drawn world. What Holdfast adds is under
``holdfast`` in the configuration: WordNet ids, the metrics of the card, and the hash of the weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.distribution import DISTRIBUTION
from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, unknown
from holdfast.core.networks import unpacked
from holdfast.core.types import LabelSpace
from holdfast.models import checkpoint, label_spaces, timm, torchvision
from holdfast.models.options import display_name, existing_file
from holdfast.models.torch_classifier import TorchClassifier

MAX_CONFIG = 4_000_000
"""Bytes of a configuration; the label names of ImageNet-21k fit."""

MAX_SIDE = 4096
"""Pixels of a model's input; a configuration that asks for more would fill the memory with one image."""

LOADING = ("checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir", "scriptable")
"""Arguments of timm's that read other files, or fetch them."""


def load(name: Name, *, device: str) -> TorchClassifier:
    """Load a classifier from a folder. Option: ``labels=FILE``, if the configuration does not name the outputs."""
    options = checked(name, {"labels": str})
    folder = Path(name.whole)
    config = read_config(existing_file(str(folder / "config.json"), what="configuration of timm's"))
    weights = checkpoint.read_state(existing_file(str(folder / "model.safetensors"), what="file of weights"))[0]
    named = config.get("label_names")
    known = label_spaces.named(list(named)) if named else label_spaces.imagenet(config["num_classes"])
    labels = label_spaces.from_option(options.get("labels"), config["num_classes"], known)
    return assemble(display_name(name, folder.name), config, weights, labels, device=device)


def is_config(file: Path) -> bool:
    """Return whether a ``config.json`` is one of timm's: those of other libraries lack these entries."""
    if file.stat().st_size > MAX_CONFIG:
        return False
    try:
        return {"architecture", "pretrained_cfg"} <= set(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError):
        return False


def read_config(file: Path, *, python: bool = False) -> dict[str, Any]:
    """Read a configuration and check everything that decides what is built.

    A network of the user's own code is refused unless ``python``: a folder does not choose which code runs.
    """
    if file.stat().st_size > MAX_CONFIG:
        raise UserError(f"{file.name} has more than {MAX_CONFIG} bytes and is not a configuration of timm's")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        arguments = dict(config.get("model_args") or {})
        sizes = int(config["num_classes"]), str(config["architecture"]), dict(config["pretrained_cfg"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{file} is not a configuration as timm writes it; it lacks or misspells {error}") from error
    refused = [key for key in arguments if key in LOADING]
    if refused:
        raise UserError(f"{file} asks timm to load more than its own weights ({', '.join(refused)}); take that out")
    library = config.get("library", "timm")
    if library == "python" and not python:
        raise UserError(
            f"{file.parent} holds weights of the network python:{sizes[1]}, whose code is yours; name both: "
            f"python:{sizes[1]}@{file.with_name('model.safetensors')}"
        )
    if ":" in sizes[1] and library != "python":  # hf-hub:NAME would fetch another configuration
        raise UserError(f"{file} names {sizes[1]!r}, which is not an architecture of timm's")
    if library == "torchvision":
        torchvision.find_weights(sizes[1])
    elif library == "timm":
        timm.check_architecture(sizes[1].partition(".")[0])
    elif library != "python":
        raise UserError(f"{file} names the library {library!r}; timm and torchvision are known")
    from timm.data import resolve_data_config

    prepared = resolve_data_config(pretrained_cfg=sizes[2])
    side = max(prepared["input_size"])
    if not side <= MAX_SIDE:
        raise UserError(f"{file} asks for images of {side} pixels; at most {MAX_SIDE} are allowed")
    built = {"architecture": sizes[1], "num_classes": sizes[0], "model_args": arguments, "library": library}
    return {**config, **built, "pretrained_cfg": prepared}


def assemble(
    shown: str, config: dict[str, Any], weights: dict[str, Any], labels: LabelSpace, *, device: str
) -> TorchClassifier:
    """Build the classifier of a configuration and its weights."""
    architecture = config["architecture"]
    module = build(config)
    library = config.get("library", "timm")
    checkpoint.fill(module, weights, f"{library}/{architecture}", f"the file of {shown}")
    return TorchClassifier(
        shown,
        module,
        labels,
        timm.from_config(config["pretrained_cfg"]),
        architecture=f"{library}/{architecture}/{json.dumps(config['model_args'], sort_keys=True)}",
        device=device,
    )


def build(config: dict[str, Any]) -> Any:
    """Build the untrained module of a configuration."""
    from timm import create_model

    name, arguments = config["architecture"], {**config["model_args"], "num_classes": config["num_classes"]}
    try:
        if config.get("library", "timm") == "torchvision":
            return torchvision.build(name, config["num_classes"])
        return create_model(name, pretrained=False, **arguments)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise UserError(
            f"{config.get('library', 'timm')} cannot build {name} as configured: {first_line(error)}"
        ) from error


ASSETS = Path(__file__).parents[1] / "assets"


class Asset(NamedTuple):
    """One embedded model: the library's own configuration, Holdfast's facts about it, and verified weights."""

    config: dict[str, Any]
    facts: dict[str, Any]
    weights: dict[str, torch.Tensor]


def installed(kind: str = "classifiers") -> list[str]:
    """Return the names of the embedded models of a kind: the folders of ``assets/KIND``."""
    return sorted(file.parent.name for file in (ASSETS / kind).glob("*/config.json"))


def folder_of(kind: str, name: str) -> Path | None:
    """Return the folder of an embedded model; those of 128 px are in ``KIND128``; None if there is none."""
    # Only names of the lists become paths, so that none leads out of the folder.
    return next((ASSETS / part / name for part in (kind, f"{kind}128") if name in installed(part)), None)


def read_asset(kind: str, name: Name) -> Asset:
    """Read an embedded model by name; weights that are not those of its card: reinstall are refused."""
    checked(name, {})
    folder = folder_of(kind, name.whole)
    if folder is None:
        raise unknown(f"embedded model ({kind})", name.whole, [*installed(kind), *installed(f"{kind}128")])
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    facts = config.pop("holdfast")
    file = folder / "model.safetensors"
    if bytes_sha256(file.read_bytes()) != facts["sha256"]:
        raise UserError(f"the weights of embedded:{name.whole} are not those of its card: reinstall {DISTRIBUTION}")
    return Asset(config, facts, unpacked(checkpoint.read_state(file)[0]))


def load_embedded(name: Name, *, device: str) -> TorchClassifier:
    """Load an embedded classifier; takes no options. Images of any size are squeezed to the model's 64 or 128 px."""
    config, facts, weights = read_asset("classifiers", name)
    labels = LabelSpace(tuple(config["label_names"]), tuple(facts["wnids"]))
    return assemble(display_name(name, name.name), config, weights, labels, device=device)
