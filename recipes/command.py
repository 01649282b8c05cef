"""The command line of the recipes that train several models, each in a process of its own."""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from holdfast.training import Epoch
from holdfast_studies.drawn.classifiers import Size, rendered

QUICK = Size(train=480, test=120, epochs=2, batch=32, seconds=15)


def train_several(
    description: str | None,
    names: Sequence[str],
    size: Size,
    scenes: Callable[[Sequence[str], Size], Iterable[tuple[str, float, int, int]]],
    make: Callable[..., str],
) -> None:
    """Read the arguments, render what the models share, and train them.

    Args:
        description: of the recipe, for ``--help``.
        names: of the models.
        size: how much of everything, where nothing else is asked for.
        scenes: (split, ρ, number, pixels a side) of the scenes that some of the models need.
        make: trains one by name, with ``size``, ``out`` and ``work``; says how good it is.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--work", type=Path, help="folder for scenes and checkpoints (OUT-work)")
    parser.add_argument("--only", nargs="+", choices=list(names), default=list(names), help="which models (all)")
    parser.add_argument("--jobs", type=int, default=1, help="models trained at a time (1)")
    parser.add_argument("--seconds", type=float, help=f"of training for each model ({size.seconds})")
    parser.add_argument("--epochs", type=int, help=f"passes over the scenes ({size.epochs})")
    parser.add_argument("--train", type=int, help=f"training scenes ({size.train})")
    parser.add_argument("--test", type=int, help=f"held-out scenes ({size.test})")
    parser.add_argument("--start", type=Path, help="the folder of a model whose weights to continue from")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works")
    asked = parser.parse_args()
    given = {
        key: getattr(asked, key) for key in ("seconds", "epochs", "train", "test") if getattr(asked, key) is not None
    }
    size = replace(QUICK if asked.quick else size, **given)
    work = asked.work or asked.out.with_name(f"{asked.out.name}-work")
    began = time.monotonic()
    for split, rho, count, side in scenes(asked.only, size):
        rendered(split, rho, count, cache=work / "scenes", side=side)
    print(f"scenes: {time.monotonic() - began:.0f} s", flush=True)
    task = functools.partial(make, size=size, out=asked.out, work=work)
    if asked.start:
        task = functools.partial(task, start=asked.start)
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        for line in pool.map(task, asked.only):
            print(line, flush=True)
    print(f"all: {time.monotonic() - began:.0f} s", flush=True)


def one_model(parser: argparse.ArgumentParser, *, minutes: float) -> argparse.Namespace:
    """Return the arguments of a recipe that trains a model on captioned scenes, ``cache`` and ``device`` filled in."""
    import torch

    parser.add_argument("--out", type=Path, required=True, help="folder for the model's own folder")
    parser.add_argument("--cache", type=Path, help="folder for the scenes (OUT/cache)")
    parser.add_argument("--minutes", type=float, default=minutes, help=f"of training ({minutes:g})")
    parser.add_argument("--scenes", type=int, default=120_000, help="to train on (120,000)")
    parser.add_argument("--quick", action="store_true", help="a rehearsal on a CPU: tiny model, few scenes")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.scenes = 640 if getattr(arguments, "side", 64) == 64 else 160
        arguments.minutes = min(arguments.minutes, 0.5)
    arguments.cache = arguments.cache or arguments.out / "cache"
    arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    return arguments


def add_side(parser: argparse.ArgumentParser) -> None:
    """Add the argument of the recipes that make models of two sizes."""
    parser.add_argument("--side", type=int, choices=(64, 128), default=64, help="pixels of an image's side (64)")


def say_epoch(epoch: Epoch) -> None:
    """How an epoch went, as a line."""
    numbers = {key: round(value, 4) for key, value in epoch.metrics.items()}
    print(f"epoch {epoch.number}: {json.dumps(numbers)}", flush=True)
