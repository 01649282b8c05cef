"""Commands that hand results on: bundle, open, export, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.progress import TerminalProgress, echo_lines
from holdfast.cli.verb import (
    Argument,
    Backgrounds,
    BatchSize,
    Device,
    Labels,
    Limit,
    Masks,
    MaxPixels,
    Option,
    Prompts,
    Quiet,
    Split,
)
from holdfast.core.types import DEFAULT_MAX_PIXELS

AGREES, DISAGREES = 0, 1


def bundle(
    run: Annotated[Path, Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[Path, Option(help="The archive to write, such as result.zip.")],
    report: Annotated[bool, Option(help="Pack the report, which opens by itself.")] = True,
    pictures: Annotated[bool, Option("--pictures", help="Pack the pictures that the run kept.")] = False,
    models: Annotated[bool, Option("--models", help="Pack the models that the run trained.")] = False,
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
    bundle: Annotated[Path, Argument(metavar="BUNDLE", help="An archive that holdfast bundle made.")],
    out: Annotated[Path, Option(help="The run directory to write; it must not exist yet.")],
    keep_report: Annotated[
        bool, Option("--keep-report", help="Write the sender's report, too: a web page made by a stranger.")
    ] = False,
    data: Annotated[str, Option(help="Where the photos are here, for pictures in reports.", show_default=False)] = "",
    masks: Annotated[str, Option(help="Where the masks of these photos are.", show_default=False)] = "",
    max_gigabytes: Annotated[float, Option(min=0.001, help="Size that the archive may unpack to.")] = 8.6,
) -> None:
    """Check a bundle and write it as a run directory; a bundle with any fault is refused, and nothing is written."""
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
    typer.echo(f"  holdfast report {done.path} makes the report again from these rows")


def export(
    given: Annotated[str, Argument(metavar="RUN|DATA", help="A run directory, or a dataset as eval takes it.")],
    to: Annotated[str, Option(help="huggingface, fiftyone or model-index.")],
    out: Annotated[Path, Option(help="The folder to write; it must not exist yet.")],
    data: Annotated[str, Option(help="Where the run's images are now, if they have moved.", show_default=False)] = "",
    masks: Annotated[str, Option(help="Folder of masks, with the same tree as the images.", show_default=False)] = "",
    images: Annotated[bool, Option(help="Write images and masks, not the table alone.")] = True,
    quiet: Quiet = False,
) -> None:
    """Write a run or a dataset as a Hugging Face dataset folder, for FiftyOne, or as model cards with results."""
    from holdfast.verbs import export as write

    with TerminalProgress(quiet=quiet) as progress:
        notes = write(given, to, out, data=data, masks=masks, images=images, progress=progress)
    typer.echo(f"{notes[0]}; {out}")
    echo_lines(notes[1:])


def verify(
    entry: Annotated[Path, Argument(metavar="ENTRY.json", help="An entry with its table beside it, or their folder.")],
    data: Annotated[str, Option(help="The dataset of the entry; its hash has to be the same.")],
    masks: Masks = None,
    labels: Labels = None,
    rows: Annotated[int, Option(min=1, help="Number of rows to measure again.")] = 200,
    seed: Annotated[
        int | None, Option(help="Seed of the drawing of rows, to repeat it; by default a random one.",
                           show_default=False)
    ] = None,
    tolerance: Annotated[float, Option(min=0, max=1, help="Difference of probabilities that is tolerated.")] = 0.01,
    allow: Annotated[float, Option(min=0, max=1, help="Share of the drawn rows that may disagree.")] = 0.0,
    renamed: Annotated[
        bool, Option("--renamed", help="Accept rows with other ids here, such as those of other weights.")
    ] = False,
    model: Annotated[
        str, Option(help="Name that loads the model here, if not the entry's.", show_default=False)
    ] = "",
    generator: Annotated[str, Option(help="The same for its generator.", show_default=False)] = "",
    oracle: Annotated[str, Option(help="The same for its oracle.", show_default=False)] = "",
    prompts: Prompts = None,
    sparse: Annotated[Path | None, Option(help="Mask of the latent, for sparse walks.", show_default=False)] = None,
    backgrounds: Backgrounds = None,
    split: Split = "",
    limit: Limit = 0,
    out: Annotated[Path | None, Option(help="CSV to write, with every row compared.", show_default=False)] = None,
    batch_size: BatchSize = 32,
    device: Device = "auto",
    max_pixels: MaxPixels = DEFAULT_MAX_PIXELS,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Measure a random part of an entry's rows again: exit code 0 they agree, 1 they do not, 2 they cannot be."""
    from holdfast.board.verify import verify as check_rows
    from holdfast.board.verify import write_rows

    def text(path: Path | None) -> str | None:
        return None if path is None else str(path)

    with TerminalProgress(quiet=quiet) as progress:
        verified = check_rows(
            entry, data, rows=rows, seed=seed, tolerance=tolerance, allow=allow, renamed=renamed, progress=progress,
            masks=text(masks),
            labels=text(labels), backgrounds=text(backgrounds), split=split, limit=limit, max_pixels=max_pixels,
            model=model, generator=generator, oracle=oracle, prompts=text(prompts), sparse=text(sparse), device=device,
            batch_size=batch_size,
        )  # fmt: skip
    for sentence in verified.sentences():
        typer.echo(sentence)
    pixels = {None: "", True: ", same pixels", False: ", other pixels"}
    echo_lines(
        [
            f"{row.sample_id} under {row.condition}: {row.why}{pixels[row.same_pixels]}"
            for row in verified.rows
            if not row.agrees
        ],
        f"more; {out} has all" if out else "more; --out FILE.csv has all",
    )
    if out is not None:
        write_rows(verified, out)
    raise typer.Exit(AGREES if verified.agrees else DISAGREES)
