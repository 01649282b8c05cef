"""Options of commands that are written by hand, declared where the specs declare them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.verb import typed
from holdfast.pipeline.specs import ChooseSpec, DataSpec, EvaluateSpec

Option, Argument = typer.Option, typer.Argument
Runs = Annotated[list[Path], Argument(metavar="RUN...", help="Run directories of one dataset.")]
Baseline = Annotated[
    list[str] | None,
    Option(help="Models that make the line of effective robustness; by default all.", show_default=False),
]
Resamples = Annotated[int, Option(min=100, help="Number of bootstrap resamples.")]
BootstrapSeed = Annotated[int, Option(help="Seed of the bootstrap.")]

if TYPE_CHECKING:
    from typing import TypeAlias

    Data: TypeAlias = str
    Split: TypeAlias = str
    Device: TypeAlias = str
    Outcome: TypeAlias = str
    Average: TypeAlias = str
    Masks: TypeAlias = Path | None
    Labels: TypeAlias = Path | None
    Prompts: TypeAlias = Path | None
    Backgrounds: TypeAlias = Path | None
    Limit: TypeAlias = int
    Seed: TypeAlias = int
    MaxPixels: TypeAlias = int
    BatchSize: TypeAlias = int
else:
    Data, Masks, Split, Limit, Seed, MaxPixels, Backgrounds = (
        typed(DataSpec, name) for name in ("data", "masks", "split", "limit", "seed", "max_pixels", "backgrounds")
    )
    Labels, Prompts, Device, BatchSize = (
        typed(EvaluateSpec, name) for name in ("labels", "prompts", "device", "batch_size")
    )
    Outcome, Average = (typed(ChooseSpec, name) for name in ("outcome", "average"))
