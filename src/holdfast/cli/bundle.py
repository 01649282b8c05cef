"""``holdfast bundle`` and ``holdfast open``: results as one archive, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.progress import TerminalProgress

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]


def bundle(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[Path, typer.Option(help="The archive to write, such as result.zip.")],
    report: Annotated[bool, typer.Option(help="With the report, which opens by itself.")] = True,
    pictures: Annotated[bool, typer.Option("--pictures", help="With the pictures that the run kept.")] = False,
    models: Annotated[bool, typer.Option("--models", help="With the models that the run trained.")] = False,
    quiet: Quiet = False,
) -> None:
    """Pack a run into one archive of open formats that can be read without Holdfast, years later."""
    from holdfast.exchange.bundle import bundle as pack

    with TerminalProgress(quiet=quiet) as progress:
        done = pack(run, out, report=report, pictures=pictures, models=models, progress=progress)
    typer.echo(f"{done.files} files, {done.size / 1e6:.1f} MB; {done.path}")
    typer.echo(f"SHA-256 {done.sha256}")
    for note in done.notes:
        typer.echo(f"  {note}")


def open_(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="An archive that holdfast bundle made.")],
    out: Annotated[Path, typer.Option(help="The run directory to write; it must not be there yet.")],
    keep_report: Annotated[
        bool, typer.Option("--keep-report", help="Write the sender's report too, a web page that a stranger made.")
    ] = False,
    data: Annotated[
        str, typer.Option(help="Where the photos lie here, for pictures in reports.", show_default=False)
    ] = "",
    masks: Annotated[str, typer.Option(help="And their masks.", show_default=False)] = "",
    max_gigabytes: Annotated[float, typer.Option(min=0.001, help="The archive may unpack to so much.")] = 8.6,
) -> None:
    """Check a bundle and write it as a run directory; one that is wrong anywhere is refused, and nothing is written."""
    from holdfast.exchange.opening import KEPT_REPORT, open_bundle

    done = open_bundle(
        bundle, out, keep_report=keep_report, data=data, masks=masks, max_bytes=int(max_gigabytes * 1e9)
    )  # fmt: skip
    rows, pictures = (f"{done.counts.get(name, 0):,}" for name in ("predictions", "samples"))
    typer.echo(f"{done.files} files checked, {rows} rows of {pictures} pictures; {done.path}")
    for note in done.notes:
        typer.echo(f"  {note}")
    if keep_report:
        typer.echo(f"  {done.path / KEPT_REPORT} is the sender's page: open it only if you trust them")
    typer.echo(f"  holdfast report {done.path} makes the report anew from these rows")
