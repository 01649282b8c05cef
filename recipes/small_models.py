"""Train the networks of the studies that train: ``PYTHONPATH=src python recipes/small_models.py --out DIR --jobs 8``.

torch, timm, accelerate, NumPy and OpenCV are enough; ``dat`` needs diffusers as well. ``--only`` names studies or ways
of training. ``--set trained=DIR`` names the folder to the studies; the study dose looks into ``models`` of its own
folder. After an interruption the same command continues: complete models are kept, the others resume from their last
epoch.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from holdfast.training import robust
from holdfast_studies.drawn.classifiers import Size
from holdfast_studies.drawn.small_models import (
    DOSE,
    DOSE_SEEDS,
    DOSE_SIZE,
    DOSES,
    SEEDS,
    SIZE,
    STUDIES,
    dose_models,
    small_models,
    train_all,
)


def main() -> None:
    """Train from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [DOSE, *STUDIES, *dict.fromkeys(way for ways in STUDIES.values() for way in ways)]
    parser.add_argument("--only", nargs="+", default=list(STUDIES), choices=known, help="studies or ways of training")
    parser.add_argument("--rho", type=float, nargs="+", default=list(DOSES), help="doses of the study dose")
    parser.add_argument("--generator", default=robust.GENERATOR, help="whose latent dat moves in")
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--work", type=Path, help="folder for scenes and checkpoints (OUT-work)")
    parser.add_argument("--seeds", type=int, help=f"{SEEDS}, and {DOSE_SEEDS} for dose")
    parser.add_argument("--epochs", type=int, help=f"{SIZE.epochs}, and {DOSE_SIZE.epochs} for dose")
    parser.add_argument("--train", type=int, default=SIZE.train, help="training scenes")
    parser.add_argument("--test", type=int, default=SIZE.test, help="held-out scenes for the cards")
    parser.add_argument("--batch", type=int, default=SIZE.batch)
    parser.add_argument("--jobs", type=int, default=1, help="models trained at a time")
    asked = parser.parse_args()
    ways = list(dict.fromkeys(way for name in asked.only for way in STUDIES.get(name, (name,)) if way != DOSE))
    plans = [(small_models(ways, asked.seeds or SEEDS), SIZE)]
    if DOSE in asked.only:
        plans.append((dose_models(asked.rho, asked.seeds or DOSE_SEEDS), DOSE_SIZE))
    began = time.monotonic()
    for models, size in plans:
        train_all(
            models,
            Size(asked.train, asked.test, asked.epochs or size.epochs, asked.batch, seconds=None),
            out=asked.out,
            work=asked.work or asked.out.with_name(f"{asked.out.name}-work"),
            device="cuda" if torch.cuda.is_available() else "cpu",
            generator=asked.generator,
            jobs=asked.jobs,
            say=print_line,
        )
    print_line(f"all: {time.monotonic() - began:.0f} s")


def print_line(line: str) -> None:
    """Print a line at once, also where the output is a file."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
