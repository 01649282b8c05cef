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
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
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
    save_file(dict(checkpoint.weights), unfinished / WEIGHTS)
    if checkpoint.average:
        save_file(dict(checkpoint.average), unfinished / AVERAGE)
    state = {"optimiser": checkpoint.optimiser, "progress": checkpoint.progress}
    torch.save(state, unfinished / STATE)
    complete = folder / f"epoch-{checkpoint.progress['epochs_done']:05d}"
    if complete.exists():  # an earlier try at this epoch: a run that had ended is told to go on
        shutil.rmtree(complete)
    unfinished.rename(complete)
    for other in (*folder.glob("epoch-*"), *folder.glob(f"{UNFINISHED}*")):
        if other != complete:
            shutil.rmtree(other)


@dataclass(slots=True)
class Writer:
    """Writes checkpoints beside the training, one at a time; what went wrong is raised by the next call or the end."""

    thread: ThreadPoolExecutor = field(init=False, default_factory=lambda: ThreadPoolExecutor(1))
    pending: Future[None] | None = field(init=False, default=None)

    def save(self, folder: Path, checkpoint: Checkpoint) -> None:
        """Copy the checkpoint's tensors, which training goes on to change, and have it written."""
        self.wait()
        copied = replace(
            checkpoint,
            weights=_separate(checkpoint.weights),
            average=_separate(checkpoint.average),
            optimiser=_copied(checkpoint.optimiser),
            progress=_copied(checkpoint.progress),
        )
        self.pending = self.thread.submit(save, folder, copied)

    def wait(self) -> None:
        """Until the last one is written."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending.result()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self.thread.shutdown()


def _copied(state: Any) -> Any:
    """The same state with tensors of its own, on the CPU."""
    import torch

    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, Mapping):
        return {name: _copied(one) for name, one in state.items()}
    return [_copied(one) for one in state] if isinstance(state, list) else state


def newest(folder: Path) -> Checkpoint | None:
    """The last complete checkpoint of a folder, if there is one. Raises UserError where it cannot be read."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    # In a store a folder has no name of its own to be given at the end: its last file says that it is complete.
    complete = sorted(one for one in folder.glob("epoch-*") if (one / STATE).is_file())
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
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
