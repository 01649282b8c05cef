"""Save a trained model: half-precision weights, the configuration that rebuilds it, and its card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256

if TYPE_CHECKING:
    import torch

DRAWN_WORLD = "Known-truth world; says nothing about photos."


def halve(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights in half precision, and load them into the model, so that its metrics are theirs."""
    state = {
        name: (tensor.half() if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in model.state_dict().items()
    }
    assert all(tensor.isfinite().all() for tensor in state.values()), "a weight is too large for half precision"
    model.load_state_dict(state)
    return state


def write_model(
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    config: Mapping[str, Any],
    facts: Mapping[str, Any],
    text: str,
    *,
    note: str = DRAWN_WORLD,
    classes: Sequence[str] = (),
) -> None:
    """Write ``model.safetensors``, ``config.json`` with our facts under ``holdfast``, and the card, README.md.

    The card comes last: where it is, the model is complete. ``classes`` go into the weights' metadata, where ``torch:``
    finds them.
    """
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    named = {"classes": json.dumps(list(classes))} if classes else {}
    stored = save(dict(weights), metadata={"format": "pt", **named})
    write_atomic(folder / "model.safetensors", stored)
    facts = {**facts, "sha256": bytes_sha256(stored)}
    write_atomic(folder / "config.json", (json.dumps({**config, "holdfast": facts}, indent=2) + "\n").encode())
    write_atomic(folder / "README.md", card(text, facts, note=note).encode())


def card(text: str, facts: Mapping[str, Any], *, note: str = DRAWN_WORLD) -> str:
    """Return the text with the facts as Markdown below it."""
    lines = [text.strip(), "", *([note, ""] if note else [])]
    for name, value in facts.items():
        if isinstance(value, Mapping):
            lines += [
                f"- {name.replace('_', ' ')}:",
                *(f"  - {key.replace('_', ' ')}: {entry}" for key, entry in value.items()),
            ]
        elif name not in ("wnids", "label_names"):
            lines.append(f"- {name.replace('_', ' ')}: {value}")
    return "\n".join(lines) + "\n"
