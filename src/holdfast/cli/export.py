"""``holdfast export``: results and images for other tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.progress import TerminalProgress
from holdfast.core.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.exchange.model_index import ModelResults

_NAMED = 20  # pieces of trouble that are said one by one


def export(
    given: Annotated[str, typer.Argument(metavar="RUN|DATA", help="A run directory, or a dataset as eval takes it.")],
    to: Annotated[str, typer.Option(help="huggingface, fiftyone or model-index.")],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not be there yet.")],
    data: Annotated[
        str, typer.Option(help="Where the run's images are now, if not where they were.", show_default=False)
    ] = "",
    masks: Annotated[str, typer.Option(help="Masks in a tree parallel to the images.", show_default=False)] = "",
    images: Annotated[bool, typer.Option(help="With images and masks, not the table alone.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Write a run or a dataset as a Hugging Face dataset folder, for FiftyOne, or as model cards with results."""
    from holdfast.exchange.export import export as write

    with TerminalProgress(quiet=quiet) as progress:
        notes = write(
            given, to, out, data=data, masks=masks, images=images, scores=board_scores, progress=progress
        )  # fmt: skip
    typer.echo(f"{notes[0]}; {out}")
    for note in notes[1 : 1 + _NAMED]:
        typer.echo(f"  {note}")
    if len(notes) > 1 + _NAMED:
        typer.echo(f"  … and {len(notes) - 1 - _NAMED} more")


def board_scores(rows: pa.Table) -> Iterator[ModelResults]:
    """The numbers of one model's rows, digit for digit as the board has them."""
    from holdfast.board.entry import PROTOCOLS
    from holdfast.board.numbers import numbers, settings
    from holdfast.board.table import by_setting, published, rows_of_protocol
    from holdfast.exchange.model_index import ModelResults

    for name, version in PROTOCOLS.items():
        own = rows_of_protocol(rows, name)
        for part in by_setting(own) if name == "dynamic" else [own]:
            table = published(part)
            try:
                found = numbers(table, name)
            except UserError:
                continue  # these rows do not have what the protocol takes
            yield ModelResults(name, found, {"protocol": name, "version": version, **settings(table, name)})
