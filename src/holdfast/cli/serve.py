"""``holdfast serve``: the pages where people draw masks and judge images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Option = typer.Option
State = Annotated[Path, Option(help="Where votes and accounts are kept.")]
DatabaseUrl = Annotated[
    str, Option("--database", help="postgresql://USER@HOST/NAME instead of SQLite in --state.", show_default=False)
]
Host = Annotated[str, Option(help="Address to listen on; others than 127.0.0.1 can be reached from elsewhere.")]
Port = Annotated[int, Option(min=0, max=65535, help="0 takes any that is free.")]
PublicUrl = Annotated[
    str, Option(help="How people reach it, where a proxy (for https) stands in front.", show_default=False)
]

Data = Annotated[
    list[str] | None,
    Option("--data", help="A dataset that administrators may open campaigns on; may be repeated.", show_default=False),
]


def serve(
    state: State = Path("holdfast-people"),
    database: DatabaseUrl = "",
    host: Host = "127.0.0.1",
    port: Port = 8420,
    public_url: PublicUrl = "",
    data: Data = None,
) -> None:
    """Serve the pages where people draw masks and judge images; prints an administrator's link."""
    from holdfast.data import load_collection
    from holdfast.people.sources import add_source
    from holdfast.web.serve import run
    from holdfast.web.server_state import ServeOptions, open_server

    server = open_server(ServeOptions(state, database, host, port, public_url))
    for reference in data or ():
        collection = load_collection(reference)
        with server.database.writing() as connection:
            add_source(connection, name=collection.name, reference=reference, collection=collection, now=server.now())
    run(server, say=typer.echo)
