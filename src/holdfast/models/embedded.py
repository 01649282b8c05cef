"""``embedded:NAME``: the small classifiers that Holdfast carries, trained on scenes of its drawn world.

A folder of ``assets/classifiers`` holds timm's own ``config.json`` and ``model.safetensors``; what Holdfast adds stands
under ``holdfast`` in the configuration: WordNet ids, the metrics of the card, and the hash of the weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.names import Name
from holdfast.core.types import LabelSpace
from holdfast.models import checkpoint
from holdfast.models.local_dir import assemble
from holdfast.models.local_dir import build as build
from holdfast.models.options import checked, display_name
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.registry import unknown

if TYPE_CHECKING:
    import torch

ASSETS = Path(__file__).parents[1] / "assets"


@dataclass(frozen=True, slots=True)
class Asset:
    """One embedded model: the library's own configuration, Holdfast's facts about it, and verified weights."""

    config: dict[str, Any]
    facts: dict[str, Any]
    weights: dict[str, torch.Tensor]


def installed(kind: str = "classifiers") -> list[str]:
    """The names of the embedded models of a kind: the folders of ``assets/KIND``."""
    return sorted(file.parent.name for file in (ASSETS / kind).glob("*/config.json"))


def read_asset(kind: str, name: Name) -> Asset:
    """Read an embedded model by name; weights that are not those of its card are refused."""
    checked(name, {})
    whole = f"{name.name}@{name.tag}" if name.tag else name.name
    # Only names of the list become paths, so that none leads out of the folder.
    if whole not in installed(kind):
        raise unknown(f"embedded model ({kind})", whole, installed(kind))
    folder = ASSETS / kind / whole
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    facts = config.pop("holdfast")
    file = folder / "model.safetensors"
    if bytes_sha256(file.read_bytes()) != facts["sha256"]:
        raise UserError(f"the weights of embedded:{whole} are not those of its card; install holdfast again")
    return Asset(config, facts, checkpoint.read_state(file)[0])


def load(name: Name, *, device: str) -> TorchClassifier:
    """An embedded classifier; takes no options. Images of any size are squeezed to the model's 64 pixels."""
    asset = read_asset("classifiers", name)
    labels = LabelSpace(tuple(asset.config["label_names"]), tuple(asset.facts["wnids"]))
    return assemble(display_name(name, name.name), asset.config, asset.weights, labels, device=device)
