"""``holdfast modes``: what explains the wrong answers of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.judge import Accuracy
from holdfast.cli.progress import TerminalProgress

if TYPE_CHECKING:
    from holdfast.stats.hard.failure_modes import Modes


def modes(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories or hard sets; several are compared.")
    ],
    out: Annotated[Path | None, typer.Option(help="The folder to write; RUN/modes by default.")] = None,
    words: Annotated[
        str,
        typer.Option(help="Backgrounds to look for: prompts, diorama, or a file with a phrase a line (in the snow)."),
    ] = "",
    oracle: Annotated[str, typer.Option(help="Who reads them: a clip: model that is none of those tested.")] = "",
    outcome: Annotated[
        Accuracy, typer.Option(help="Wrong over all outputs of a model, or among the classes; a hard set has its own.")
    ] = Accuracy.full,
    labels: Annotated[Path | None, typer.Option(help="CSV with names of classes.", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the shuffles behind 'by chance'.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """What explains wrong answers: the background, the texture, the material, or a class that looks alike."""
    from holdfast import api

    with TerminalProgress(quiet=quiet) as progress:
        page, found = api.modes(
            runs, out=out, words=words, oracle=oracle, outcome=outcome.value, labels=labels, device=device, seed=seed,
            progress=progress,
        )  # fmt: skip
    for one in found:
        _print(one)
    typer.echo(str(page))


def _print(found: Modes) -> None:
    typer.echo(f"{found.answers.name}: {int(found.answers.wanted.sum())} images")
    for model in found.answers.models:
        rows = found.by_model[(found.by_model["model"] == model) & (found.by_model["answers"] > 0)]
        told = ", ".join(f"{row['mode']} {row['estimate']:.0%}" for row in rows.to_dict("records"))
        typer.echo(f"  {model}: {int(rows['answers'].sum())} wrong answers" + (f": {told}" if told else ""))
