"""What a recipe leaves of a model: half-precision weights, the configuration that rebuilds it, and its card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from holdfast.core.fingerprint import bytes_sha256
from holdfast.diorama import CLASSES
from holdfast.diorama.vocabulary import KEYS

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
WNIDS = tuple(KEYS[label].wnids[0] for label in CLASSES)


def halve(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights in half precision, and the model now computing with exactly those, so that metrics are theirs."""
    state = {
        name: (tensor.half() if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in model.state_dict().items()
    }
    assert all(tensor.isfinite().all() for tensor in state.values()), "a weight is too large for half precision"
    model.load_state_dict(state)
    return state


def write_model(
    folder: Path, weights: Mapping[str, torch.Tensor], config: Mapping[str, Any], facts: Mapping[str, Any], text: str
) -> None:
    """``model.safetensors``, ``config.json`` with our facts under ``holdfast``, and the card for people, README.md."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = save(dict(weights), metadata={"format": "pt"})
    (folder / "model.safetensors").write_bytes(stored)
    facts = {**facts, "sha256": bytes_sha256(stored)}
    (folder / "config.json").write_text(json.dumps({**config, "holdfast": facts}, indent=2) + "\n")
    (folder / "README.md").write_text(card(text, facts))


def card(text: str, facts: Mapping[str, Any]) -> str:
    """The facts as Markdown below the text."""
    lines = [text.strip(), "", "Known-truth world; says nothing about photos.", ""]
    for name, value in facts.items():
        if isinstance(value, Mapping):
            lines += [
                f"- {name.replace('_', ' ')}:",
                *(f"  - {key.replace('_', ' ')}: {one}" for key, one in value.items()),
            ]
        elif name not in ("wnids", "label_names"):
            lines.append(f"- {name.replace('_', ' ')}: {value}")
    return "\n".join(lines) + "\n"


def write_card(folder: Path, text: str, facts: Mapping[str, Any]) -> None:
    """For a model that its library saved: README.md for people, ``card.json`` for tests, hashes in both."""
    files = sorted(folder.rglob("*.safetensors"))
    hashes = {file.relative_to(folder).as_posix(): bytes_sha256(file.read_bytes()) for file in files}
    facts = {**facts, "sha256": hashes}
    (folder / "card.json").write_text(json.dumps(facts, indent=2) + "\n")
    (folder / "README.md").write_text(card(text, facts))
