"""``holdfast annotate``: people draw masks in the browser."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.progress import TerminalProgress
from holdfast.cli.serve import DatabaseUrl, Host, Port, PublicUrl, State

Option = typer.Option


class Format(StrEnum):
    """Files that other programs read."""

    coco = "coco"
    darwin = "darwin"


Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A folder, manifest, COCO file or scheme:name (holdfast ls data).")
]
Masks = Annotated[
    Path | None,
    Option(
        help="Folder of the masks: what holdfast mask made (doubtful ones come first), others that are there, or a new "
        "one; drawn masks go there. STATE/masks/NAME where none is named.",
        show_default=False,
    ),
]
With = Annotated[str, Option("--with", help="Turns boxes and clicks into rough masks: grabcut, sam:NAME-OR-FOLDER.")]
Import = Annotated[
    Path | None,
    Option(
        "--import",
        help="Take in masks of a COCO file, a V7 Darwin file or a folder of those; serves nothing.",
        show_default=False,
    ),
]
Export = Annotated[
    Path | None, Option(help="Write all masks to this file (Darwin: folder); serves nothing.", show_default=False)
]


def annotate(
    data: Data,
    masks: Masks = None,
    with_: With = "grabcut",
    import_: Import = None,
    export: Export = None,
    format: Annotated[Format, Option(help="Of --export.")] = Format.coco,
    state: State = Path("holdfast-people"),
    database: DatabaseUrl = "",
    host: Host = "127.0.0.1",
    port: Port = 8420,
    public_url: PublicUrl = "",
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Let people draw masks in the browser; holdfast eval DATA --masks reads them."""
    from holdfast.people import mask_exchange
    from holdfast.web.mask_editing import MaskEditing, take_in
    from holdfast.web.serve import run
    from holdfast.web.server_state import ServeOptions, open_server

    with closing(open_server(ServeOptions(state, database, host, port, public_url))) as server:
        with TerminalProgress(quiet=quiet) as progress:
            set_id = take_in(server, data, masks=masks, guide=with_, progress=progress)
        with server.database.reading() as connection:
            folder = mask_exchange.set_folder(connection, set_id)
        if import_ is None and export is None:
            typer.echo(f"masks go to {folder}")
            run(server, page=f"/annotate/{set_id}", say=typer.echo)
            return
        if import_ is not None:
            size = MaskEditing(server).size
            taken = mask_exchange.import_masks(server.database, set_id, import_, size=size, now=server.now())
            typer.echo(f"{taken.changed} masks taken in, {taken.same} were there already; {folder}")
            _print_lines(
                [f"no image of the dataset is called {name}" for name in taken.unknown]
                + [f"{name}: {problem}" for name, problem in taken.problems]
            )
        with server.database.reading() as connection:
            mask_exchange.write_coco(connection, set_id)
            if export is not None:
                count = mask_exchange.export_masks(connection, set_id, export, format=format.value)
                typer.echo(f"{count} masks; {export}")


def _print_lines(lines: list[str]) -> None:
    for line in lines[:20]:
        typer.echo(f"  {line}")
    if len(lines) > 20:
        typer.echo(f"  … and {len(lines) - 20} more")
