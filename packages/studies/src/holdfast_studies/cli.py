"""``holdfast study`` and ``holdfast study telltale``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, print_table
from holdfast.cli.verb import CommandCall, Device, Quiet, Seed, verb
from holdfast.core.errors import UserError
from holdfast.core.numbers import estimate
from holdfast.core.verbs import Verb
from holdfast.pipeline.specs import TelltaleSpec


def study(
    name: Annotated[str, Argument(help="Which study (holdfast ls studies).")],
    out: Annotated[Path | None, Option(help="Where to write; an existing study is continued.")] = None,
    quick: Annotated[bool, Option("--quick", help="A rehearsal: takes seconds, and finds nothing.")] = False,
    device: Device = "auto",
    seed: Seed = 0,
    set_: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a setting.")] = None,
    settings: Annotated[bool, Option("--settings", help="List the study's settings and stop.")] = False,
    quiet: Quiet = False,
) -> None:
    """Ask one question of many models: trains or evaluates what it needs, and reports the answer."""
    from holdfast import registry
    from holdfast_studies.study import kind_of, run_study, written

    if settings:
        print_table(("setting", "default", "with --quick", "a value is", "meaning"), (
            (own.name, written(own.default), "" if own.quick is None else written(own.quick), kind_of(own), own.meaning)
            for own in registry.studies.get(name).settings
        ))  # fmt: skip
        return
    registry.studies.entry(name)
    if out is None:
        raise UserError(f"say where the study writes: holdfast study {name} --out DIR")
    with TerminalProgress(quiet=quiet) as progress:
        page = run_study(name, out, assignments=set_ or (), quick=quick, device=device, seed=seed, progress=progress)
    typer.echo(str(page))


@verb(TelltaleSpec, without=("backgrounds", "train_split", "validation", "balance", "memory", "renderers", "compile",
                             "retry_errors"))  # fmt: skip
def telltale(job: CommandCall[TelltaleSpec]) -> None:
    """Train a network to distinguish original, generated and random backgrounds, and see how it does so."""
    from holdfast.pipeline.telltale import LEFT_OUT
    from holdfast.stats.trained import accuracies
    from holdfast_studies.telltale import study_telltale

    with TerminalProgress(quiet=job.quiet) as progress:
        results = study_telltale(spec=job.spec, out=job.out, progress=progress)
    for row in accuracies(results.counts).to_dict("records"):
        typer.echo(
            f"{row['model']}: {estimate(row['accuracy'], row['low'], row['high'])} of {row['n']} images; "
            "chance is 33.3 %"
        )
    left_out = sum(LEFT_OUT in str(problem) for problem in results.run.samples()["problem"].to_pylist())
    if left_out:
        typer.echo(f"  {left_out} images are left out, because not all three kinds could be made of them")
    for row in results.counts.trouble.head(10).to_dict("records"):
        typer.echo(f"  {row['n']} × {row['status']}: {row['error']} (first: {row['example']})")
    typer.echo(str(job.out / "report" / "index.html"))


STUDY = Verb("study", "Companions", command=study)
TELLTALE = Verb(
    "study telltale", "Companions", "holdfast_studies.telltale:study_telltale", TelltaleSpec, command=telltale,
    workload="holdfast.forecast.workload:trained",
)  # fmt: skip
