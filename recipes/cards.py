"""The card of an embedded model that its own library saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.networks import packed
from holdfast.diorama import CLASSES
from holdfast.diorama.vocabulary import KEYS
from holdfast.generators.embedded import INT8
from holdfast.training.checkpoint import card

WNIDS = tuple(KEYS[label].wnids[0] for label in CLASSES)


def write_packed(folder: Path, model: Any) -> None:
    """Put packed weights in the place of those that diffusers saved."""
    from safetensors.torch import save_file

    save_file(packed(model.state_dict()), folder / INT8, metadata={"format": "pt"})
    (folder / "diffusion_pytorch_model.safetensors").unlink()


def write_card(folder: Path, text: str, facts: Mapping[str, Any]) -> None:
    """README.md for people, ``card.json`` for tests, hashes of the weights in both."""
    files = sorted(folder.rglob("*.safetensors"))
    hashes = {file.relative_to(folder).as_posix(): bytes_sha256(file.read_bytes()) for file in files}
    facts = {**facts, "sha256": hashes}
    (folder / "card.json").write_text(json.dumps(facts, indent=2) + "\n")
    (folder / "README.md").write_text(card(text, facts))
