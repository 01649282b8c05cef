"""Many small trainings: what is there already, several at a time, and what their models leave behind."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.errors import UserError
from holdfast.diorama import CLASSES
from holdfast.diorama.vocabulary import KEYS
from holdfast.pipeline.jobs.progress import Progress
from holdfast.training import classifiers, saving
from holdfast.training.classifiers import Size
from holdfast.training.loop import Epoch
from holdfast.training.scenes import rendered

COMPLETE = "README.md"
"""The file of a model that is written last."""

Say = Callable[[str], None]
Training = TypeVar("Training")


def is_there(folder: Path, asked: Mapping[str, Any]) -> bool:
    """Whether a model is complete. Raises UserError where it is one of another training."""
    if not (folder / COMPLETE).is_file():
        return False
    facts = facts_of(folder)
    other = {key: facts[key] for key in asked if facts.get(key, asked[key]) != asked[key]}
    if other:
        was = ", ".join(f"{key}: {value}" for key, value in other.items())
        raise UserError(f"{folder} was trained otherwise ({was}); choose another folder or delete it")
    return True


def facts_of(folder: Path) -> dict[str, Any]:
    """What a model's configuration says of its training."""
    facts: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("holdfast", {})
    return facts


def train_missing(
    missing: Sequence[Training],
    total: int,
    task: Callable[[Training], str],
    *,
    jobs: int,
    say: Say | None,
    progress: Progress,
) -> None:
    """Do the trainings that are missing out of ``total``, ``jobs`` at a time; each says how good its model is."""
    done = total - len(missing)

    def told(line: str) -> None:
        nonlocal done
        done += 1
        progress("train", done, total)
        if say:
            say(line)

    if jobs == 1:
        for one in missing:
            told(task(one))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(task, one) for one in missing]):
            told(future.result())


def write(
    folder: Path,
    model: Any,
    config: Callable[[Any], Mapping[str, Any]],
    facts: Mapping[str, Any],
    text: str,
    *,
    rhos: Sequence[float],
    scenes: int,
    cache: Path,
    seconds: float,
) -> str:
    """Save a trained model with its card and its accuracy at each ρ; says how good it is."""
    import torch

    device = next(model.parameters()).device.type
    weights = saving.halve(model)
    metrics = {
        f"accuracy_test_rho{round(100 * rho)}": round(
            classifiers.accuracy(model, rendered("test", rho, scenes, cache=cache)), 4
        )
        for rho in rhos
    }
    facts = {
        "wnids": [KEYS[label].wnids[0] for label in CLASSES],
        **facts,
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else device.upper(),
        "metrics": metrics,
    }
    saving.write_model(folder, weights, config(model), facts, f"# {folder.name}\n\n{text}")
    return f"{folder.name}: {metrics}, {seconds:.0f} s"


def say_epoch(name: str, say: Say, epoch: Epoch) -> None:
    """How an epoch went, as a line."""
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    say(f"{name} epoch {epoch.number}: {numbers}")


def from_command_line(
    parser: argparse.ArgumentParser,
    size: Size,
    seeds: int,
    train: Callable[..., None],
    chosen: Callable[[argparse.Namespace], tuple[Sequence[Any], Mapping[str, Any]]],
) -> None:
    """Read the arguments that all trainings share, and train.

    Args:
        parser: with the arguments that only this command has.
        size: how much of everything, where nothing else is asked for.
        seeds: as many as that, likewise.
        train: gets the trainings, the size, ``out``, ``work``, ``device``, ``jobs``, ``say`` and what ``chosen`` adds.
        chosen: the trainings that the arguments ask for, and further options.
    """
    import torch

    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--work", type=Path, help="folder for scenes and checkpoints (OUT-work)")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--train", type=int, default=size.train, help="training scenes")
    parser.add_argument("--test", type=int, default=size.test, help="held-out scenes for the cards")
    parser.add_argument("--epochs", type=int, default=size.epochs)
    parser.add_argument("--batch", type=int, default=size.batch)
    parser.add_argument("--jobs", type=int, default=1, help="models trained at a time")
    asked = parser.parse_args()
    wanted, more = chosen(asked)
    began = time.monotonic()
    train(
        wanted,
        Size(train=asked.train, test=asked.test, epochs=asked.epochs, batch=asked.batch, seconds=None),
        out=asked.out,
        work=asked.work or asked.out.with_name(f"{asked.out.name}-work"),
        device="cuda" if torch.cuda.is_available() else "cpu",
        jobs=asked.jobs,
        say=print_line,
        **more,
    )
    print_line(f"all: {time.monotonic() - began:.0f} s")


def print_line(line: str) -> None:
    """Printed at once, also where the output is a file."""
    print(line, flush=True)
