"""The verb for first contact: one model, one folder of photos, one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.judge import Accuracy, Which
from holdfast.cli.progress import TerminalProgress


def check(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model by name (holdfast ls models).")],
    photos: Annotated[
        str, typer.Argument(metavar="PHOTOS", help="A folder with a folder a class, or any data source.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write; checks/PHOTOS by default. A check that is there is continued."),
    ] = None,
    masks: Annotated[
        Path | None, typer.Option(help="Masks in a tree parallel to the photos; others are made.", show_default=False)
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="CSV that maps classes to model outputs.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many photos, evenly over classes; 0 takes all.")] = 0,
    accuracy: Which = Accuracy.full,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Does this model see the object in these photos? Masks, every condition, a report and a verdict."""
    from holdfast.check import check as run_check

    with TerminalProgress(quiet=quiet) as progress:
        found = run_check(
            model, photos, out=out, masks=None if masks is None else str(masks), limit=limit, device=device,
            labels=None if labels is None else str(labels), outcome=accuracy.value, workers=0,
            progress=progress,
        )  # fmt: skip
    for line in found.lines:
        typer.echo(line)
    typer.echo(str(found.page))
