"""Commands that make evidence: declare, dossier and watch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress
from holdfast.cli.verb import Device, Quiet
from holdfast.core.names import split_list
from holdfast.core.numbers import percent, points


def declare(
    protocol: Annotated[Path, Argument(metavar="PROTOCOL.toml", help="Data, models, conditions, margin and rule.")],
    out: Annotated[Path, Option(help="The declaration to write, such as declaration.json; never replaced.")],
    key: Annotated[
        Path | None, Option(help="PEM file of a private Ed25519 key that signs it.", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Declare a measurement before it is made: with time, hash of the data, weights and power."""
    from holdfast.dossier import declare as write

    with TerminalProgress(quiet=quiet) as progress:
        done = write(protocol, out, key=key, progress=progress)
    margin, detectable = done["protocol"]["margin"], done["detectable"]
    typer.echo(f"declared {done['declared']}: {done['data']['photos']} photos, {len(done['models'])} models, "
               f"{len(done['conditions'])} conditions; fingerprint {done['fingerprint'][:16]}…")  # fmt: skip
    if detectable is not None:
        enough = "enough for" if detectable <= margin else "too few for"
        typer.echo(f"a difference of {points(detectable)} is found with power "
                   f"{percent(done['protocol']['power'], 0)} if one photo in ten changes its answer: {enough} the "
                   f"margin of {100 * margin:g}")  # fmt: skip
    typer.echo(f"holdfast eval … --protocol {out} measures under it")


def dossier(
    runs: Annotated[list[Path], Argument(metavar="RUN…", help="Run directories of eval.")],
    out: Annotated[Path, Option(help="A new folder for the document, its pictures and its bundles.")],
    standards: Annotated[
        list[str] | None,
        Option("--for", show_default=False, help="Map to a standard: iso-24029, ai-act-15, model-card, "
               "neurips-checklist, or a TOML file; several by comma."),
    ] = None,
    votes: Annotated[
        Path | None, Option(help="What people said about pictures (holdfast review … --export).", show_default=False)
    ] = None,
    title: Annotated[str, Option(help="Title of the document.", show_default=False)] = "",
    pictures: Annotated[bool, Option(help="Show photos and charts.")] = True,
) -> None:  # fmt: skip
    """Write the evidence of runs as one PDF (and HTML, Markdown), with every answer in a bundle beside it."""
    from holdfast.dossier import dossier as write

    names = [name for text in standards or () for name in split_list(text)]
    page = write(runs, out, standards=names, votes=votes, title=title, pictures=pictures)
    typer.echo(f"{page}; holdfast verify {out} says whether its files belong together")


def watch(
    series: Annotated[Path, Argument(metavar="SERIES", help="Folder of the series; made with its first run.")],
    run: Annotated[Path | None, Argument(metavar="[RUN]", help="A run directory of eval to add.")] = None,
    photos: Annotated[
        str | None, Option(help="New photos without labels: are they within what was tested?", show_default=False)
    ] = None,
    model: Annotated[str | None, Option(help="Which model, if RUN has several.", show_default=False)] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Keep a series of runs of one model family: what changed since the first, with few false alarms over all time."""
    from holdfast.dossier.series import watch as look
    from holdfast.dossier.series_page import sentence

    with TerminalProgress(quiet=quiet) as progress:
        kept = look(series, run, photos=photos, model=model, device=device, progress=progress)
    last = kept["entries"][-1]
    for entry in [last] if run or photos else kept["entries"]:
        typer.echo(sentence(entry))
        for note in entry["notes"]:
            typer.echo(f"note: {note}")
    for number in kept["missing"]:
        typer.echo(f"note: the folder of run {number} is gone")
    typer.echo(kept["page"])
    worse = any(row["change"] == "worse" for row in last.get("changes", ()))
    if (run or photos) and (worse or last.get("answer") == "outside"):
        raise typer.Exit(1)
    if photos and last["answer"] == "cannot say":
        raise typer.Exit(3)
