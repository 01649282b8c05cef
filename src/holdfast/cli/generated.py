"""Commands that make images and masks: mask, synth, generate, mine and the commands below it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, echo_lines, echo_summary
from holdfast.cli.verb import CommandCall, verb
from holdfast.core.numbers import percent, points, span
from holdfast.pipeline.specs import GenerateSpec, MaskSpec, MineSpec, ModesSpec, RemedySpec, SynthSpec

if TYPE_CHECKING:
    from holdfast.pipeline.hard.mine import Mined


@verb(MaskSpec, out="Folder of the masks; existing masks are kept.", engine=True,
      without=("masks", "backgrounds", "split", "seed"))  # fmt: skip
def mask(
    job: CommandCall[MaskSpec],
    doubtful: Annotated[float, Option(min=0, max=1, help="List masks whose confidence is below this.")] = 0.5,
) -> None:
    """Make masks for images; with --keep only for those that have none."""
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
def mine_modes(
    job: CommandCall[ModesSpec],
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run directories or hard sets; several are compared.")],
    out: Annotated[Path | None, Option(help="Folder of the page; RUN/modes by default.")] = None,
    seed: Annotated[int, Option(help="Seed of the shuffles behind 'by chance'.")] = 0,
) -> None:
    """Say what explains wrong answers: the background, the texture, the material, or a class that looks alike."""
    from holdfast import api

    with TerminalProgress(quiet=job.quiet) as progress:
        page, measured = api.mine_modes(runs, spec=job.spec, out=out, seed=seed, progress=progress)
    for modes in measured:
        typer.echo(f"{modes.answers.name}: {int(modes.answers.wanted.sum())} images")
        for model in modes.answers.models:
            rows = modes.by_model[(modes.by_model["model"] == model) & (modes.by_model["answers"] > 0)]
            shares = ", ".join(f"{row['mode']} {percent(row['estimate'], 0)}" for row in rows.to_dict("records"))
            typer.echo(f"  {model}: {int(rows['answers'].sum())} wrong answers" + (f": {shares}" if shares else ""))
    typer.echo(str(page))


@verb(RemedySpec, out="Folder of the run and the new model; an existing run is continued.")
def mine_remedy(job: CommandCall[RemedySpec]) -> None:
    """Fine-tune a model on generated images that the surrogates get right, and measure it before and after."""
    from holdfast import api

    with TerminalProgress(quiet=job.quiet) as progress:
        done = api.mine_remedy(spec=job.spec, out=job.out, progress=progress)
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
