"""``holdfast verify``: some of an entry's rows, measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.progress import TerminalProgress
from holdfast.core.limits import DEFAULT_MAX_PIXELS

AGREES, DISAGREES = 0, 1
SHOWN = 20
Option = typer.Option


def verify(
    entry: Annotated[
        Path, typer.Argument(metavar="ENTRY.json", help="An entry with its table beside it, or their folder.")
    ],
    data: Annotated[str, Option(help="The dataset of the entry: its hash has to be the same.")],
    masks: Annotated[Path | None, Option(help="Masks in a tree parallel to the images.", show_default=False)] = None,
    labels: Annotated[Path | None, Option(help="CSV that maps classes to model outputs.", show_default=False)] = None,
    rows: Annotated[int, Option(min=1, help="How many rows are measured again.")] = 200,
    seed: Annotated[
        int | None, Option(help="Of the drawing, to repeat one; else nobody knows it beforehand.", show_default=False)
    ] = None,
    tolerance: Annotated[float, Option(min=0, max=1, help="By which probabilities may differ.")] = 0.01,
    allow: Annotated[float, Option(min=0, max=1, help="Share of what is drawn that may disagree.")] = 0.0,
    renamed: Annotated[
        bool, Option("--renamed", help="Accept rows with other ids here, such as those of other weights.")
    ] = False,
    model: Annotated[str, Option(help="How its model is loaded here, if not by its name.", show_default=False)] = "",
    generator: Annotated[str, Option(help="The same for its generator.", show_default=False)] = "",
    oracle: Annotated[str, Option(help="The same for its oracle.", show_default=False)] = "",
    prompts: Annotated[Path | None, Option(help="TOML with a prompt a class.", show_default=False)] = None,
    sparse: Annotated[Path | None, Option(help="Mask of the latent, of sparse walks.", show_default=False)] = None,
    backgrounds: Annotated[Path | None, Option(help="Folder of donor backgrounds.", show_default=False)] = None,
    split: Annotated[str, Option(help="Only samples of this split.", show_default=False)] = "",
    limit: Annotated[int, Option(min=0, help="At most so many source images; 0 takes all.")] = 0,
    out: Annotated[Path | None, Option(help="CSV of every row that was compared.", show_default=False)] = None,
    batch_size: Annotated[int, Option(min=1, help="Images a forward pass.")] = 32,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    max_pixels: Annotated[int, Option(min=1, help="Refuse larger images before decoding them.")] = DEFAULT_MAX_PIXELS,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Measure a random part of an entry's rows again: exit code 0 they agree, 1 they do not, 2 they cannot be."""
    from holdfast.board.verify import verify as check_rows
    from holdfast.board.verify import write_rows

    def text(path: Path | None) -> str | None:
        return None if path is None else str(path)

    with TerminalProgress(quiet=quiet) as progress:
        found = check_rows(
            entry, data, rows=rows, seed=seed, tolerance=tolerance, allow=allow, renamed=renamed, progress=progress,
            masks=text(masks), labels=text(labels), backgrounds=text(backgrounds), split=split, limit=limit,
            max_pixels=max_pixels, model=model, generator=generator, oracle=oracle, prompts=text(prompts),
            sparse=text(sparse), device=device, batch_size=batch_size,
        )  # fmt: skip
    for sentence in found.sentences():
        typer.echo(sentence)
    odd = [row for row in found.rows if not row.agrees]
    for row in odd[:SHOWN]:
        pixels = "" if row.same_pixels is None else ", same pixels" if row.same_pixels else ", other pixels"
        typer.echo(f"  {row.sample_id} under {row.condition}: {row.why}{pixels}")
    if len(odd) > SHOWN:
        typer.echo(f"  … and {len(odd) - SHOWN} more" + (f"; {out} has all" if out else "; --out FILE.csv has all"))
    if out is not None:
        write_rows(found, out)
    raise typer.Exit(AGREES if found.agrees else DISAGREES)
