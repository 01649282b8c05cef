"""``holdfast remedy``: fine-tune a model on easy generated images, and measure what that mends."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.judge import Accuracy
from holdfast.cli.progress import TerminalProgress
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.core.names import split_list


class How(StrEnum):
    """A recipe of training."""

    default = "default"
    paper = "paper"


Option = typer.Option


def remedy(
    hard: Annotated[str, typer.Argument(metavar="HARD", help="What holdfast mine made; its pool must be at hand.")],
    model: Annotated[str, Option(help="What to fine-tune: an embedded:, local-dir: or timm: model.")],
    out: Annotated[Path, Option(help="The run and the new model; one that is there is continued.")],
    originals: Annotated[
        str, Option(help="Datasets that should not be forgotten; drawn scenes where the pool is drawn.")
    ] = "",
    recipe: Annotated[How, Option(help="AdamW for 8 epochs, or the paper's SGD at 1e-4 for 10.")] = How.default,
    epochs: Annotated[int, Option(min=0, help="Instead of the recipe's; 0 keeps them.")] = 0,
    rate: Annotated[float, Option(min=0, help="Learning rate instead of the recipe's; 0 keeps it.")] = 0.0,
    train_batch: Annotated[int, Option(min=0, help="Images a step of training; 0 keeps the recipe's.")] = 0,
    limit: Annotated[int, Option(min=0, help="Train on at most so many images; 0 takes all.")] = 0,
    pool: Annotated[str, Option(help="Where the pool is now, if it has moved.")] = "",
    labels: Annotated[
        Path | None, Option(help="CSV that maps categories to model outputs.", show_default=False)
    ] = None,
    outcome: Annotated[Accuracy, Option(help="Right over all outputs, or among the categories.")] = Accuracy.full,
    batch_size: Annotated[int, Option(min=1, help="Images a forward pass.")] = 32,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    seed: Annotated[int, Option(help="Everything random follows from it.")] = 0,
    max_pixels: Annotated[int, Option(min=1, help="Refuse larger images before decoding them.")] = DEFAULT_MAX_PIXELS,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Fine-tune a model on generated images that the surrogates get right, and measure it before and after."""
    from holdfast import api

    with TerminalProgress(quiet=quiet) as progress:
        done = api.remedy(
            hard, model=model, out=out, originals=tuple(split_list(originals)), recipe=recipe.value, epochs=epochs,
            rate=rate, train_batch=train_batch, limit=limit, pool=pool, labels=labels, outcome=outcome.value,
            batch_size=batch_size, device=device, seed=seed, max_pixels=max_pixels, progress=progress,
        )  # fmt: skip
    for warning in done.warnings:
        typer.echo(f"warning: {warning}")
    typer.echo(f"trained on {done.facts['images']} easy images; accuracy with 95 % intervals of the change:")
    for row in done.table.to_dict("records"):
        typer.echo(
            f"  {row['set']}: {row['before']:.1%} → {row['after']:.1%}, {100 * row['estimate']:+.1f} points "
            f"[{100 * row['low']:+.1f}, {100 * row['high']:+.1f}] of {row['n']}"
        )
    typer.echo(done.name)
    typer.echo(f"{done.path}/report/index.html")
