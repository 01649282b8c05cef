"""``holdfast study``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, print_table
from holdfast.cli.verb import Device, Quiet, Seed
from holdfast.core.errors import UserError
from holdfast.core.verbs import Verb


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


STUDY = Verb("study", "Studies", command=study)
