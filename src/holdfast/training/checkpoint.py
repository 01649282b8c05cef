"""What a training run leaves after every epoch, so that a killed one goes on from there.

A checkpoint is a folder ``epoch-00007``: ``weights.safetensors``, ``average.safetensors`` where weights are averaged,
and ``state.pt`` (optimiser and progress; tensors, numbers and text only, so that reading it runs no code). It gets its
name when it is complete.
"""

from __future__ import annotations

import pickle
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.files import UNFINISHED

if TYPE_CHECKING:
    import torch

WEIGHTS, AVERAGE, STATE = "weights.safetensors", "average.safetensors", "state.pt"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after some epochs, on the CPU.

    Attributes:
        weights: by name; ``average`` likewise, empty where weights are not averaged.
        optimiser: its state dict.
        progress: JSON: epochs done, history, what the training was asked for.
    """

    weights: Mapping[str, torch.Tensor]
    average: Mapping[str, torch.Tensor]
    optimiser: Mapping[str, Any]
    progress: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the newest checkpoint and forget the older ones."""
    import torch
    from safetensors.torch import save_file

    unfinished = folder / f"{UNFINISHED}{uuid.uuid4().hex}"
    unfinished.mkdir(parents=True)
    save_file(_separate(checkpoint.weights), unfinished / WEIGHTS)
    if checkpoint.average:
        save_file(_separate(checkpoint.average), unfinished / AVERAGE)
    state = {"optimiser": checkpoint.optimiser, "progress": checkpoint.progress}
    torch.save(state, unfinished / STATE)
    complete = folder / f"epoch-{checkpoint.progress['epochs_done']:05d}"
    if complete.exists():  # an earlier try at this epoch: a run that had ended is told to go on
        shutil.rmtree(complete)
    unfinished.rename(complete)
    for other in (*folder.glob("epoch-*"), *folder.glob(f"{UNFINISHED}*")):
        if other != complete:
            shutil.rmtree(other)


def newest(folder: Path) -> Checkpoint | None:
    """The last complete checkpoint of a folder, if there is one. Raises UserError where it cannot be read."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    complete = sorted(folder.glob("epoch-*"))
    if not complete:
        return None
    where = complete[-1]
    try:
        weights = load_file(where / WEIGHTS)
        average = load_file(where / AVERAGE) if (where / AVERAGE).is_file() else {}
        state = torch.load(where / STATE, map_location="cpu", weights_only=True)
        return Checkpoint(weights, average, state["optimiser"], state["progress"])
    except (OSError, KeyError, RuntimeError, SafetensorError, pickle.UnpicklingError) as error:
        raise UserError(f"the checkpoint {where.name} cannot be read; delete it to train from the beginning") from error


def _separate(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies in memory of their own: safetensors refuses tensors that share it."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
