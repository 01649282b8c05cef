"""``holdfast share export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, echo_lines
from holdfast.cli.verb import Quiet
from holdfast.core.verbs import Verb


def export(
    given: Annotated[str, Argument(metavar="RUN|DATA", help="A run directory, or a dataset as eval takes it.")],
    to: Annotated[str, Option(help="huggingface, fiftyone, model-index, inspect-ai or lmms-eval.")],
    out: Annotated[Path, Option(help="The folder to write; it must not exist yet.")],
    data: Annotated[str, Option(help="Where the run's images are now, if they have moved.", show_default=False)] = "",
    masks: Annotated[str, Option(help="Folder of masks, with the same tree as the images.", show_default=False)] = "",
    images: Annotated[bool, Option(help="Write images and masks, not the table alone.")] = True,
    quiet: Quiet = False,
) -> None:
    """Write a run or a dataset as a Hugging Face folder, for FiftyOne, as model cards, or as tasks of VLM harnesses."""
    from holdfast_exchange.export import export as write

    with TerminalProgress(quiet=quiet) as progress:
        notes = write(given, to, out, data=data, masks=masks, images=images, progress=progress)
    typer.echo(f"{notes[0]}; {out}")
    echo_lines(notes[1:])


EXPORT = Verb("share export", "Companions", command=export, function="holdfast_exchange.export:export")
