"""``holdfast study``: questions asked of many models at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.progress import TerminalProgress
from holdfast.core.errors import UserError

if TYPE_CHECKING:
    from holdfast.studies.study import Study


def study(
    name: Annotated[str, typer.Argument(help="Which study (holdfast ls studies).")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; a study that is there goes on.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rehearsal: seconds, and no finding.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.", show_default=False)
    ] = None,
    settings: Annotated[bool, typer.Option("--settings", help="List the study's settings and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")] = False,
) -> None:
    """Ask one question of many models: trains or evaluates what it needs, and reports what came out."""
    from holdfast import registry
    from holdfast.studies.study import run_study

    if settings:
        _print_settings(registry.studies.get(name))
        return
    registry.studies.entry(name)
    if out is None:
        raise UserError(f"say where the study writes: holdfast study {name} --out DIR")
    with TerminalProgress(quiet=quiet) as progress:
        page = run_study(
            name, out, assignments=set_ or (), quick=quick, device=device, seed=seed, progress=progress
        )  # fmt: skip
    typer.echo(str(page))


def _print_settings(study: Study) -> None:
    from rich.table import Table

    from holdfast.cli.listing import console_for_tables
    from holdfast.studies.study import kind_of, written

    table = Table("setting", "default", "with --quick", "a value is", "meaning", box=None, pad_edge=False)
    for one in study.settings:
        quick = "" if one.quick is None else written(one.quick)
        table.add_row(one.name, written(one.default), quick, kind_of(one), one.meaning)
    console_for_tables().print(table)
