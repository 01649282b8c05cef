"""Commands about images: data, mask, synth, leaks, split, generate, mine, modes, remedy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, echo_lines, echo_summary, echo_trouble
from holdfast.cli.verb import CommandCall, Data, Masks, Quiet, Seed, verb
from holdfast.core.numbers import percent, points, span
from holdfast.core.places import shown
from holdfast.pipeline.specs import GenerateSpec, InventorySpec, MaskSpec, MineSpec, ModesSpec, RemedySpec, SynthSpec

FEW = 10  # Photos of a class below which a verdict hardly ever is sure

if TYPE_CHECKING:
    from holdfast.data.inventory import Inventory
    from holdfast.pipeline.hard.mine import Mined


@verb(InventorySpec, out="")
def data(
    job: CommandCall[InventorySpec],
    machine: Annotated[bool, Option("--json", help="Print the inventory as JSON, for programs.")] = False,
    exit_zero: Annotated[bool, Option("--exit-zero", help="Exit with code 0 even if something is found.")] = False,
) -> None:
    """List what a dataset holds and what is wrong with it, gravest first; exit with 1 if something is.

    Reads every file, writes nothing.
    """
    import json
    from dataclasses import asdict

    from holdfast.pipeline.samples import inventory
    from holdfast.report.page.words import plural

    with TerminalProgress(quiet=job.quiet or machine) as progress:
        held = inventory(job.spec, progress)
    if machine:
        typer.echo(json.dumps(asdict(held), indent=1))
        raise typer.Exit(int(bool(held.findings) and not exit_zero))
    _echo_inventory(held)
    if not any(held.masked.values()):
        typer.echo("no photo has a mask: holdfast check makes them, and so does holdfast mask")
    texts = [
        f"{finding.sentence}\n   {', '.join(finding.examples)}{', …' if finding.count > len(finding.examples) else ''}"
        f"\n   {finding.advice}" for finding in held.findings
    ]  # fmt: skip
    typer.echo(f"{plural(len(texts), 'finding')}, gravest first:" if texts else "nothing found")
    for place, text in enumerate(texts, start=1):
        typer.echo(f"{place}. {text}")
    if held.classes and 1 < (fewest := min(held.classes.values())) < FEW:
        typer.echo(f"The smallest class has {fewest} photos: verdicts need some {FEW} of each, or they stay open.")
    raise typer.Exit(int(bool(texts) and not exit_zero))


def _echo_inventory(held: Inventory) -> None:
    conditions = ", ".join(f"{name} {count:,}" for name, count in held.conditions.items())
    splits = ", ".join(f"{name} {count:,}" for name, count in held.splits.items())
    typer.echo(f"{held.name}: {held.images:,} pictures of {held.photos:,} photos, {len(held.classes)} classes, "
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
            f"cover {percent(low)} to {percent(high)} of their pictures, half of them more than {percent(middle)}"
        )
    for name, text in facts.items():
        if text:
            typer.echo(f"{name}: {text}")


@verb(MaskSpec, out="Folder of the masks; existing masks are kept.", engine=True,
      without=("masks", "backgrounds", "split", "seed"))  # fmt: skip
def mask(
    job: CommandCall[MaskSpec],
    doubtful: Annotated[float, Option(min=0, max=1, help="List masks whose confidence is below this.")] = 0.5,
) -> None:
    """Make masks for photos; with --keep only for those that have none."""
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
    from holdfast.pipeline.files import write_split
    from holdfast.pipeline.jobs.progress import Summary

    summary = Summary()
    where = None if masks is None else shown(masks)
    counts = write_split(data, out, masks=where, test_fraction=test, folds=folds, seed=seed, summary=summary)
    typer.echo(", ".join(f"{name}: {count}" for name, count in counts.items()) + f"; {out}")
    echo_trouble(summary)


@verb(GenerateSpec, out="Folder of the pool; an existing pool is continued.", engine=True)
def generate(job: CommandCall[GenerateSpec]) -> None:
    """Make a pool of images, categories × nuisances, and record how each was made; holdfast eval reads it."""
    from holdfast.pipeline.generate.generate import generate as run_generate

    with job.running() as (folder, executor, progress):
        summary = run_generate(job.spec, folder, progress=progress, executor=executor)
    typer.echo(f"{summary.line('images made', count=summary.rows)}; {job.where}/manifest.csv")
    lines = [
        f"{f'{count} × ' if count else ''}{message} ({'first: ' if count > 1 else ''}{summary.examples[message]})"
        for message, count in summary.trouble.most_common()
    ]
    echo_lines(lines, "more of the kind; the manifest and failed.csv have all")


@verb(MineSpec, out="Folder of the hard set; an existing set is continued, or mined again.", engine=True)
def mine(job: CommandCall[MineSpec]) -> None:
    """Keep the images that several models fail together, and measure how hard they are for other models."""
    from holdfast import api

    with job.running() as (folder, executor, progress):
        mined = api.mine(spec=job.spec, out=folder, progress=progress, executor=executor)
    _print_mined(mined, job.where)


def _print_mined(mined: Mined, out: str) -> None:
    facts = mined.facts
    for sentence in mined.warnings:
        typer.echo(f"warning: {sentence}")
    typer.echo(
        f"{facts['shared']} of {facts['images']} images are failed by {facts['choice']['words']} "
        f"surrogates ({', '.join(facts['used'])}); the oracle accepts {facts['hard_valid']} of the "
        f"{facts['hard']} that are kept"
    )
    accuracy, drops = mined.tables["accuracy"], mined.tables["drops"]
    report = (accuracy["half"] == "report") & (accuracy["subset"] == "valid") & (accuracy["role"] == "target")
    lost = drops[(drops["half"] == "report") & (drops["subset"] == "valid")]
    typer.echo(f"on valid images of the reporting half of the {facts['source']}s, with 95 % intervals:")
    for model in facts["targets"]:
        shares = ", ".join(
            f"{row['set']} {percent(row['estimate'])} ({span(row['low'], row['high'])}) of {row['n']}"
            for row in accuracy[report & (accuracy["model"] == model)].to_dict("records")
            if row["n"]
        )
        typer.echo(f"  {model}: {shares}")
        for row in lost[(lost["model"] == model) & lost["estimate"].notna()].to_dict("records"):
            typer.echo(
                f"    {points(row['estimate'])} lost against the {row['against']} ({span(row['low'], row['high'])})"
            )
    typer.echo(f"{mined.images} images published; {out}/mining/report/index.html")


@verb(ModesSpec, out="")
def modes(
    job: CommandCall[ModesSpec],
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run directories or hard sets; several are compared.")],
    out: Annotated[Path | None, Option(help="Folder of the page; RUN/modes by default.")] = None,
    seed: Annotated[int, Option(help="Seed of the shuffles behind 'by chance'.")] = 0,
) -> None:
    """Say what explains wrong answers: the background, the texture, the material, or a class that looks alike."""
    from holdfast import api

    with TerminalProgress(quiet=job.quiet) as progress:
        page, measured = api.modes(runs, spec=job.spec, out=out, seed=seed, progress=progress)
    for modes in measured:
        typer.echo(f"{modes.answers.name}: {int(modes.answers.wanted.sum())} images")
        for model in modes.answers.models:
            rows = modes.by_model[(modes.by_model["model"] == model) & (modes.by_model["answers"] > 0)]
            shares = ", ".join(f"{row['mode']} {percent(row['estimate'], 0)}" for row in rows.to_dict("records"))
            typer.echo(f"  {model}: {int(rows['answers'].sum())} wrong answers" + (f": {shares}" if shares else ""))
    typer.echo(str(page))


@verb(RemedySpec, out="Folder of the run and the new model; an existing run is continued.")
def remedy(job: CommandCall[RemedySpec]) -> None:
    """Fine-tune a model on generated images that the surrogates get right, and measure it before and after."""
    from holdfast import api

    with TerminalProgress(quiet=job.quiet) as progress:
        done = api.remedy(spec=job.spec, out=job.out, progress=progress)
    for warning in done.warnings:
        typer.echo(f"warning: {warning}")
    typer.echo(f"trained on {done.facts['images']} easy images; accuracy with 95 % intervals of the change:")
    for row in done.table.to_dict("records"):
        typer.echo(
            f"  {row['set']}: {percent(row['before'])} → {percent(row['after'])}, {points(row['estimate'])} "
            f"({span(row['low'], row['high'])}) of {row['n']}"
        )
    typer.echo(done.name)
    typer.echo(f"{done.path}/report/index.html")
