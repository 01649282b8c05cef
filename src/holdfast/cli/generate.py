"""``holdfast generate``: a pool of images from categories × nuisances."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import engine_options as engines
from holdfast.cli.progress import TerminalProgress
from holdfast.core.names import split_list
from holdfast.core.places import shown

Option = typer.Option
Generator = Annotated[
    str, Option(help="What makes images of prompts (holdfast ls image-makers): embedded:, diffusers:NAME-OR-FOLDER.")
]
Out = Annotated[Path, Option(help="The pool; one that is there is continued.")]
Categories = Annotated[
    str,
    Option(
        help="What images show: diorama, a text file, a label CSV, ObjectNet's folder of mappings.", show_default=False
    ),
]
Nuisances = Annotated[
    str, Option(help="What they vary: diorama, a TOML, CSV or text file, Broden's folder.", show_default=False)
]
Templates = Annotated[
    Path | None, Option(help="TOML: a template a kind, with {category} and {nuisance}.", show_default=False)
]
PerPair = Annotated[int, Option(min=1, help="Images a prompt, each with its own seed.")]
Kinds = Annotated[str, Option(help="Kinds of nuisance, separated by commas.")]
Limit = Annotated[int, Option(min=0, help="At most so many images, evenly over categories and kinds; 0 makes all.")]
Negative = Annotated[str, Option(help="A prompt to keep away from.", show_default=False)]
Scheduler = Annotated[str, Option(help="A scheduler of diffusers instead of the pipeline's.", show_default=False)]
Labels = Annotated[
    Path | None, Option(help="CSV that maps every category to model outputs.", show_default=False)
]  # fmt: skip
Licence = Annotated[str, Option(help="Of the images, for the manifest.", show_default=False)]


def generate(
    generator: Generator,
    out: Out,
    categories: Categories = "",
    nuisances: Nuisances = "",
    templates: Templates = None,
    per_pair: PerPair = 1,
    kinds: Kinds = "background,texture,material",
    limit: Limit = 0,
    negative: Negative = "",
    scheduler: Scheduler = "",
    labels: Labels = None,
    licence: Licence = "",
    batch_size: Annotated[int, Option(min=1, help="Images at once.")] = 16,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    workers: engines.Workers = "1",
    engine: engines.Engine = "local",
    address: engines.Address = "",
    gpus: engines.Gpus = 0.0,
    cpus: engines.Cpus = 1.0,
    seed: Annotated[int, Option(help="Everything random follows from it and from the prompt.")] = 0,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Make a pool of images, categories × nuisances, with where each comes from; holdfast eval reads it."""
    from holdfast.pipeline.generate.generate import GenerateSpec
    from holdfast.pipeline.generate.generate import generate as run_generate

    spec = GenerateSpec(
        generator=generator, categories=categories, nuisances=nuisances, templates=str(templates or ""),
        per_pair=per_pair, kinds=tuple(split_list(kinds)), limit=limit, seed=seed, negative=negative,
        scheduler=scheduler, labels=None if labels is None else str(labels), licence=licence, batch_size=batch_size,
        device=device,
    )  # fmt: skip
    where = engines.opened(out, engine=engine, address=address, workers=workers, gpus=gpus, cpus=cpus)
    with where as (folder, executor), TerminalProgress(quiet=quiet) as progress:
        summary = run_generate(spec, folder, progress=progress, executor=executor)
    typer.echo(f"{summary.line('images made', made=summary.rows)}; {shown(out)}/manifest.csv")
    for message, count in summary.trouble.most_common(20):
        times = f"{count} × " if count else ""
        typer.echo(f"  {times}{message} ({'first: ' if count > 1 else ''}{summary.examples[message]})")
    if len(summary.trouble) > 20:
        typer.echo(f"  … and {len(summary.trouble) - 20} more of the kind; the manifest and failed.csv have all")
