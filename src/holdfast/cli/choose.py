"""``holdfast choose``: which model to take for given conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.judge import Accuracy, Average, Mean, Which
from holdfast.cli.progress import TerminalProgress

Option = typer.Option


def choose(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories of one dataset.")],
    weights: Annotated[
        str,
        Option(
            help="Conditions, families or groups, such as blur=2,random_background=3; a family shares its weight. "
            "Without: every condition the same.",
            show_default=False,
        ),
    ] = "",
    accuracy_weight: Annotated[
        float | None, Option(min=0, help="Weight of the originals; 1 where not given.", show_default=False)
    ] = None,
    limit_size: Annotated[
        float | None,
        Option(min=0, help="Only models whose weights take at most so many megabytes.", show_default=False),
    ] = None,
    limit_time: Annotated[
        float | None,
        Option(min=0, help="Only models that take at most so many milliseconds an image.", show_default=False),
    ] = None,
    speed: Annotated[
        str, Option(help="measure (here and now), none, or a CSV with the columns model,milliseconds.")
    ] = "measure",
    batch_size: Annotated[int, Option(min=1, help="Pictures a pass where speed is measured.")] = 8,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps: where speed is measured.")] = "auto",
    out: Annotated[Path | None, Option(help="The folder to write; RUN/choice by default.", show_default=False)] = None,
    accuracy: Which = Accuracy.full,
    average: Mean = Average.macro,
    resamples: Annotated[int, Option(min=100, help="Bootstrap resamples.")] = 4000,
    seed: Annotated[int, Option(help="Of the bootstrap.")] = 0,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Which model to take for your conditions: weighted accuracy with its uncertainty, size and speed side by side."""
    from holdfast import api
    from holdfast.cli.listing import print_frame

    with TerminalProgress(quiet=quiet) as progress:
        found = api.choose(
            list(runs), weights=weights, accuracy_weight=accuracy_weight, limit_size=limit_size,
            limit_time=limit_time, speed=speed, batch_size=batch_size, device=device, out=out,
            outcome=accuracy.value, average=average.value, resamples=resamples, seed=seed, progress=progress,
        )  # fmt: skip
    columns = ["model", "accuracy", "low", "high", "best", "milliseconds", "parameters", "bytes", "front_time"]
    print_frame(found.choice.models[columns].rename(columns={"best": "best in", "front_time": "on front"}))
    for sentence in found.recommendation.sentences:
        typer.echo(sentence)
    typer.echo(str(found.page))
