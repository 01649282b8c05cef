"""Checkpoints of a training run, from which a killed run resumes, and folders of trained models with their cards.

A checkpoint is a folder ``epoch-00007``: ``weights.safetensors``, ``average.safetensors`` if weights are averaged,
and ``state.pt`` (optimiser and progress; tensors, numbers and text only, so that reading it runs no code). It gets its
name when it is complete.

Two processes may be at the same training in one folder: a worker that was cut off lives on while its job is begun again
elsewhere. The attempt that is ahead writes and clears away what has fewer epochs; folders vanish at once, not file by
file.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError, raise_machine_trouble
from holdfast.core.files import UNFINISHED, write_atomic
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.lazy import torch

WEIGHTS, AVERAGE, STATE = "weights.safetensors", "average.safetensors", "state.pt"
_PREFIX = "epoch-"
_TRIALS = 3  # of writing a checkpoint that another attempt clears away with the folder of a job it has finished
_ABANDONED = 3600.0  # seconds after which no one is at work on half a checkpoint any more


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after some epochs, on the CPU."""

    weights: Mapping[str, torch.Tensor]  # by name; ``average`` likewise, empty if weights are not averaged
    average: Mapping[str, torch.Tensor]
    optimiser: Mapping[str, Any]  # its state dict
    progress: Mapping[str, Any]  # JSON: epochs done, history, what the training was asked for


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the newest checkpoint and delete the older ones; do nothing if another process has come as far."""
    from safetensors import SafetensorError

    name = f"{_PREFIX}{checkpoint.progress['epochs_done']:05d}"
    if any(other.name >= name for other in _complete(folder)):
        return
    for trial in range(1, _TRIALS + 1):
        unfinished = folder / f"{UNFINISHED}{uuid.uuid4().hex}"
        try:
            _write(unfinished, checkpoint)
            _publish(unfinished, folder / name)
            break
        except (OSError, RuntimeError, SafetensorError):
            if trial == _TRIALS or unfinished.exists():  # a full disk, say
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
    for older in _listed(folder, _PREFIX):
        if older.name < name:
            remove(older)
    for half in _listed(folder, UNFINISHED):
        with suppress(OSError):
            if time.time() - half.stat().st_mtime > _ABANDONED:
                shutil.rmtree(half)


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    save_file(dict(checkpoint.weights), folder / WEIGHTS)
    if checkpoint.average:
        save_file(dict(checkpoint.average), folder / AVERAGE)
    state = {"optimiser": checkpoint.optimiser, "progress": checkpoint.progress}
    torch.save(state, folder / STATE)


def _publish(unfinished: Path, complete: Path) -> None:
    """Give a checkpoint its name; an equal one of another process may have it already."""
    if complete.exists() and not (complete / STATE).is_file():  # half of one, from a store
        remove(complete)
    try:
        unfinished.rename(complete)
    except OSError:
        if not (complete / STATE).is_file():
            raise
        remove(unfinished)


def remove(folder: Path) -> None:
    """Delete a folder at once, also if others read, write or delete it."""
    gone = folder.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
    try:
        folder.rename(gone)
    except OSError:  # it vanished meanwhile, or the disk refuses
        gone = folder
    shutil.rmtree(gone, ignore_errors=True)


def _listed(folder: Path, prefix: str) -> list[Path]:
    """Return the paths that begin with a prefix in a folder, which may vanish, in the order of names."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(path for path in folder.iterdir() if path.name.startswith(prefix))
    return []


def _complete(folder: Path) -> list[Path]:
    # In a store a folder has no name of its own to be given at the end: its last file says that it is complete.
    return [path for path in _listed(folder, _PREFIX) if (path / STATE).is_file()]


@dataclass(slots=True)
class CheckpointWriter:
    """Writes checkpoints in the background, one at a time; an error is raised by the next call or at the end."""

    thread: ThreadPoolExecutor = field(init=False, default_factory=lambda: ThreadPoolExecutor(1))
    pending: Future[None] | None = field(init=False, default=None)

    def save(self, folder: Path, checkpoint: Checkpoint) -> None:
        """Copy the checkpoint's tensors, which training changes further, and start to write it."""
        self.wait()
        copied = replace(
            checkpoint,
            weights=separate(checkpoint.weights),
            average=separate(checkpoint.average),
            optimiser=_copied(checkpoint.optimiser),
            progress=_copied(checkpoint.progress),
        )
        self.pending = self.thread.submit(save, folder, copied)

    def wait(self) -> None:
        """Wait until the last checkpoint is written."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending.result()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self.thread.shutdown()


def _copied(state: Any) -> Any:
    """Return a copy of the state on the CPU."""
    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, Mapping):
        return {name: _copied(member) for name, member in state.items()}
    return [_copied(member) for member in state] if isinstance(state, list) else state


def newest(folder: Path) -> Checkpoint | None:
    """Read the last complete checkpoint of a folder, if there is one; raise UserError if it cannot be read."""
    from safetensors.torch import load_file

    while complete := _complete(folder):
        where = complete[-1]
        try:
            weights = load_file(where / WEIGHTS)
            average = load_file(where / AVERAGE) if (where / AVERAGE).is_file() else {}
            state = torch.load(where / STATE, map_location="cpu", weights_only=True)
            return Checkpoint(weights, average, state["optimiser"], state["progress"])
        except Exception as error:  # damaged pickles raise anything
            if not where.exists():  # another attempt has written a newer one meanwhile
                continue
            raise_machine_trouble(error)
            message = f"the checkpoint {where.name} cannot be read; delete it to train from the beginning"
            raise UserError(message) from error
    return None


def separate(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy tensors into memory of their own: safetensors refuses tensors that share it."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


DRAWN_WORLD = "Drawn scenes: the truth is known there, and photographs may differ."


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
    """Write ``model.safetensors``, ``config.json`` with our facts under ``holdfast``, and the card, README.md."""
    # The card comes last: where it is, the model is complete. ``classes`` go into the weights' metadata, where
    # ``torch:`` finds them.
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
