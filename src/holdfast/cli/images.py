"""Commands about images and masks: mask, synth, leaks, split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import Argument, Data, Masks, Option, Seed
from holdfast.cli.progress import TerminalProgress, echo_lines, echo_summary, echo_trouble
from holdfast.cli.verb import CommandCall, Quiet, verb
from holdfast.core.places import shown
from holdfast.pipeline.specs import MaskSpec, SynthSpec


@verb(MaskSpec, out="Folder of the masks; existing masks are kept.", engine=True,
      without=("masks", "backgrounds", "split", "seed"))  # fmt: skip
def mask(
    job: CommandCall[MaskSpec],
    doubtful: Annotated[float, Option(min=0, max=1, help="List masks whose confidence is below this.")] = 0.5,
) -> None:
    """Make masks for photos that have none."""
    from holdfast.pipeline.mask import make_masks

    with job.running(whole=False) as (folder, executor, progress):
        summary, rows = make_masks(job.spec, folder, progress=progress, executor=executor)
    echo_summary(summary, f"{job.where}/masks.csv")
    unsure = [row for row in rows if row["status"] == "ok" and row["confidence"] < doubtful]
    if unsure:
        typer.echo(f"{len(unsure)} masks to look at (confidence below {doubtful}), worst first:")
        lines = [f"{row['confidence']:.2f}  {row['path']}" for row in unsure]
        echo_lines(lines, f"more in {job.where}/masks.csv")


@verb(SynthSpec, out="Folder of the images; existing images are kept.", engine=True)
def synth(job: CommandCall[SynthSpec]) -> None:
    """Write scenario images, their masks and a manifest."""
    from holdfast.pipeline.synth.synth import make_spec
    from holdfast.pipeline.synth.synth import synth as run_synth

    spec = make_spec(**vars(job.spec))
    with job.running(whole=spec.verify or spec.review) as (folder, executor, progress):
        summary = run_synth(spec, folder, progress=progress, executor=executor)
    echo_summary(summary, f"{job.where}/manifest.csv")


def leaks(
    first: Annotated[str, Argument(help="A collection, such as the training images.")],
    second: Annotated[str, Argument(help="Another collection, such as the test images.")],
    distance: Annotated[
        int, Option(min=0, max=256, help="Bits of 256 that may differ between copies of one picture.")
    ] = 48,
    flips: Annotated[bool, Option("--flips", help="Find mirrored copies, too.")] = False,
    quiet: Quiet = False,
) -> None:
    """Find near-duplicates between two collections."""
    from holdfast.pipeline.leaks import find_leaks

    with TerminalProgress(quiet=quiet) as progress:
        pairs, unread = find_leaks(first, second, distance=distance, flips=flips, progress=progress)
    for image, copy, bits in pairs:
        typer.echo(f"{image}\t{copy}\t{bits}")
    unreadable = f"; {unread} images could not be read" if unread else ""
    typer.echo(f"{len(pairs)} near-duplicate pairs{unreadable}", err=True)


def split(
    data: Data,
    out: Annotated[Path, Option(help="The manifest to write (.csv or .parquet).")],
    masks: Masks = None,
    test: Annotated[float, Option(min=0, max=1, help="Share of sources in the test split, class by class.")] = 0.2,
    folds: Annotated[int, Option(min=0, help="Number of folds; 0 makes none.")] = 0,
    seed: Seed = 0,
) -> None:
    """Write a manifest with a stratified split and folds."""
    from holdfast.pipeline.jobs.summary import Summary
    from holdfast.pipeline.split import write_split

    summary = Summary()
    where = None if masks is None else shown(masks)
    counts = write_split(data, out, masks=where, test_fraction=test, folds=folds, seed=seed, summary=summary)
    typer.echo(", ".join(f"{name}: {count}" for name, count in counts.items()) + f"; {out}")
    echo_trouble(summary)
