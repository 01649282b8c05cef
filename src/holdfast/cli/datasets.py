"""Commands about datasets: ``holdfast data list``, ``check``, ``split`` and ``duplicates``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, echo_lines, echo_trouble
from holdfast.cli.verb import CommandCall, Data, Masks, Quiet, Seed, verb
from holdfast.core.numbers import percent
from holdfast.core.places import shown
from holdfast.pipeline.specs import InventorySpec

if TYPE_CHECKING:
    from holdfast.data.inventory import Inventory

FEW = 10  # Images of a class below which a verdict hardly ever is sure
Json = Annotated[bool, Option("--json", help="Print the inventory as JSON, for programs.")]


@verb(InventorySpec, out="", without=("ties", "attributes", "labels"))
def data_list(job: CommandCall[InventorySpec], machine: Json = False) -> None:
    """List what a dataset holds: classes, splits, formats, sizes and masks."""
    held = _inventory(job, machine=machine)
    if machine:
        _print_json(held)
    else:
        _echo_inventory(held)


@verb(InventorySpec, out="")
def data_check(
    job: CommandCall[InventorySpec],
    machine: Json = False,
    exit_zero: Annotated[bool, Option("--exit-zero", help="Exit with code 0 even if something is found.")] = False,
) -> None:
    """List what a dataset holds and what is wrong with it, gravest first; exit with 1 if something is.

    Reads every file, writes nothing.
    """
    from holdfast.reports.page.words import plural

    held = _inventory(job, machine=machine)
    if machine:
        _print_json(held)
        raise typer.Exit(int(bool(held.findings) and not exit_zero))
    _echo_inventory(held)
    if not any(held.masked.values()):
        typer.echo("no image has a mask: holdfast check makes them, and so does holdfast mask")
    texts = [
        f"{finding.sentence}\n   {', '.join(finding.examples)}{', …' if finding.count > len(finding.examples) else ''}"
        f"\n   {finding.advice}" for finding in held.findings
    ]  # fmt: skip
    typer.echo(f"{plural(len(texts), 'finding')}, gravest first:" if texts else "nothing found")
    for place, text in enumerate(texts, start=1):
        typer.echo(f"{place}. {text}")
    if held.classes and 1 < (fewest := min(held.classes.values())) < FEW:
        typer.echo(
            f"The smallest class has {fewest} images: verdicts need about {FEW} of each, or they are inconclusive."
        )
    raise typer.Exit(int(bool(texts) and not exit_zero))


def _inventory(job: CommandCall[InventorySpec], *, machine: bool) -> Inventory:
    from holdfast.pipeline.samples import inventory

    with TerminalProgress(quiet=job.quiet or machine) as progress:
        return inventory(job.spec, progress)


def _print_json(held: Inventory) -> None:
    import json
    from dataclasses import asdict

    typer.echo(json.dumps(asdict(held), indent=1))


def _echo_inventory(held: Inventory) -> None:
    conditions = ", ".join(f"{name} {count:,}" for name, count in held.conditions.items())
    splits = ", ".join(f"{name} {count:,}" for name, count in held.splits.items())
    typer.echo(f"{held.name}: {held.images:,} images of {held.photos:,} sources, {len(held.classes)} classes, "
               f"{held.bytes / 1e6:,.1f} MB")  # fmt: skip
    lines = [f"{label}: {count:,}, {held.masked.get(label, 0):,} with masks" for label, count in held.classes.items()]
    echo_lines(lines, "more classes")
    formats = ", ".join(f"{name} {count:,}" for name, count in held.formats.items())
    common = list(held.sizes.items())[:5]
    sizes = ", ".join(f"{name} ({count:,})" for name, count in common)
    more = f" and {len(held.sizes) - len(common):,} other sizes" if len(held.sizes) > len(common) else ""
    turned = f"; EXIF turns {held.turned:,}" if held.turned else ""
    facts = {"splits": splits, "conditions": conditions if len(held.conditions) > 1 else "",
             "formats": f"{formats}{turned}", "sizes": f"{sizes}{more}"}  # fmt: skip
    if held.covered:
        low, middle, high = held.covered
        facts["masks"] = (
            f"cover {percent(low)} to {percent(high)} of their images, half of them more than {percent(middle)}"
        )
    for name, text in facts.items():
        if text:
            typer.echo(f"{name}: {text}")


def data_duplicates(
    first: Annotated[str, Argument(help="A collection, such as the training images.")],
    second: Annotated[str, Argument(help="Another collection, such as the test images.")],
    distance: Annotated[
        int, Option(min=0, max=256, help="Bits of 256 that may differ between copies of one image.")
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


def data_split(
    data: Data,
    out: Annotated[Path, Option(help="The manifest to write (.csv or .parquet).")],
    masks: Masks = None,
    test: Annotated[float, Option(min=0, max=1, help="Share of sources in the test split, class by class.")] = 0.2,
    folds: Annotated[int, Option(min=0, help="Number of folds; 0 makes none.")] = 0,
    seed: Seed = 0,
) -> None:
    """Write a manifest with a stratified split and folds."""
    from holdfast.pipeline.files import write_split
    from holdfast.pipeline.jobs.progress import Summary

    summary = Summary()
    where = None if masks is None else shown(masks)
    counts = write_split(data, out, masks=where, test_fraction=test, folds=folds, seed=seed, summary=summary)
    typer.echo(", ".join(f"{name}: {count}" for name, count in counts.items()) + f"; {out}")
    echo_trouble(summary)
