"""The options that ``train``, ``segment`` and ``detect`` have in common."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Option = typer.Option


class How(StrEnum):
    """A recipe of training."""

    fast = "fast"
    paper = "paper"


class TrainOn(StrEnum):
    """What models are trained on."""

    each = "each"
    original = "original"


class Balance(StrEnum):
    """What is done about classes of unlike size."""

    none = "none"
    weights = "weights"
    sampling = "sampling"


Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A folder, manifest, COCO file or scheme:name (holdfast ls data).")
]
Out = Annotated[Path, Option(help="The run; one that is there is continued.")]
Masks = Annotated[Path | None, Option(help="Masks in a tree parallel to the images.", show_default=False)]
Scenarios = Annotated[str, Option(help="Groups, ids, id@variant (holdfast ls scenarios).")]
OnWhat = Annotated[TrainOn, Option(help="Each scenario by itself (originals are tested on all), or originals only.")]
Folds = Annotated[int, Option(min=1, help="Of cross-validation, by photo; 1 is one split.")]
TrainSplit = Annotated[float, Option(help="Share of the photos that one split trains on.")]
Validation = Annotated[
    float, Option(help="Share of the training photos that choose the best epoch; 0 takes the last.")
]  # fmt: skip
Recipe = Annotated[How, Option(help="AdamW, one cycle, augmentation; or the paper's Adam at 1e-4.")]
Epochs = Annotated[int, Option(min=0, help="Instead of the recipe's; 0 keeps them.")]
BatchSize = Annotated[int, Option(min=0, help="Images a step; 0 keeps the recipe's. Halved without memory.")]
Rate = Annotated[float, Option(min=0, help="Learning rate instead of the recipe's; 0 keeps it.")]
Pretrained = Annotated[bool, Option("--pretrained", help="Begin with trained weights, not from scratch.")]
EarlyStopping = Annotated[int, Option(min=0, help="End after so many epochs that validate no better; 0 never.")]
Balanced = Annotated[Balance, Option(help="Of classes: weights in the loss, or sampling.")]
Backgrounds = Annotated[Path | None, Option(help="Take donor backgrounds from this folder.", show_default=False)]
Feather = Annotated[float, Option(min=0, help="Soft edges, in pixels.")]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")]
Memory = Annotated[
    float, Option(min=0, help="GiB of pictures a process holds; more are rendered anew. 0: a share of the machine.")
]
Renderers = Annotated[int, Option(min=0, help="Processes that make pictures; 0: one a core, 1: threads.")]
Compile = Annotated[bool, Option("--compile", help="Compile the steps: for long trainings on a GPU.")]
Split = Annotated[str, Option(help="Only samples of this split.", show_default=False)]
Limit = Annotated[int, Option(min=0, help="At most so many photos, evenly over classes; 0 takes all.")]
Seed = Annotated[int, Option(help="Everything random follows from it.")]
MaxPixels = Annotated[int, Option(min=1, help="Refuse larger images before decoding them.")]
RetryErrors = Annotated[bool, Option("--retry-errors", help="Try failed jobs and images once more.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")]


def text(path: Path | None) -> str | None:
    """A path as specifications have it."""
    return None if path is None else str(path)
