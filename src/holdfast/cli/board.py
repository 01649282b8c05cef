"""``holdfast board``: make, check and import entries of a leaderboard, and build its site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.core.names import split_list

app = typer.Typer(name="board", help="A leaderboard that recomputes every number.", no_args_is_help=True)

Option, Argument = typer.Option, typer.Argument
Out = Annotated[Path, Option(help="Folder of the board, or of a submission.")]


@app.command()
def add(
    run: Annotated[Path, Argument(help="A run directory of eval, train or perturb.")],
    out: Out,
    meta: Annotated[
        Path | None, Option(help="TOML: title, paper, code, note, speed on stated hardware.", show_default=False)
    ] = None,
    models: Annotated[
        list[str] | None, Option(help="Use only these models of the run, separated by commas.", show_default=False)
    ] = None,
    device: Annotated[str, Option(help="Device on which models are loaded to count their parameters.")] = "cpu",
) -> None:
    """Make entries from a run: ID.json and ID.parquet for each model and protocol."""
    from holdfast.board.add import add as run_add

    for path in run_add(run, out, meta, models=split_list(",".join(models or ())) or None, device=device):
        typer.echo(str(path))


@app.command()
def check(
    places: Annotated[list[Path], Argument(help="A board, or the files of a submission.", metavar="DIR|FILES")],
    against: Annotated[Path | None, Option(help="The board that a submission is to join.", show_default=False)] = None,
) -> None:
    """Recompute every number and report what is wrong: exit code 0 nothing, 1 something."""
    from holdfast.board.check import check as run_check

    recomputed: list[str] = []
    problems = run_check(places, against=against, keep=lambda entry, _: recomputed.append(entry.id))
    for problem in problems:
        typer.echo(str(problem))
    count = f"{len(problems)} problem{'s' * (len(problems) > 1)}" if problems else "nothing is wrong"
    typer.echo(f"{count}; measured entries recomputed: {len(recomputed)}", err=True)
    raise typer.Exit(1 if problems else 0)


@app.command("import")
def import_(
    files: Annotated[list[Path], Argument(help="RobustBench's model_info files.", metavar="MODEL_INFO.json…")],
    out: Out,
    threat: Annotated[
        str, Option(help="Linf, L2 or corruptions, if the folders above a file do not say.", show_default=False)
    ] = "",
) -> None:
    """Make printed entries from RobustBench's list."""
    from holdfast.board.printed import import_model_info

    for path in import_model_info(files, out, threat=threat):
        typer.echo(str(path))


@app.command()
def build(
    board: Annotated[Path, Argument(help="The board: ID.json and ID.parquet for each entry.", metavar="DIR")],
    out: Annotated[Path, Option(help="The site: a new folder, or an earlier site, which is replaced.", metavar="SITE")],
    title: Annotated[str, Option(help="Title of the board.")] = "Leaderboard",
    printed: Annotated[bool, Option("--printed/--no-printed", help="Show tables printed in papers, too.")] = True,
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out entries that the check refuses, and name them.")
    ] = False,
    reports: Annotated[
        bool, Option("--reports", help="Write the full report of every static and hard entry; takes seconds each.")
    ] = False,
    cache: Annotated[
        Path | None, Option(help="Folder that keeps measured numbers for the next build.", show_default=False)
    ] = None,
    workers: Annotated[
        int, Option(min=0, help="Number of processes; 0 starts one per core if there are many entries.")
    ] = 0,
) -> None:
    """Write a site that opens from disk and from any web server; every number is recomputed."""
    from holdfast.board.site.build import build as run_build

    built = run_build(
        board, out, title=title, printed=printed, skip_bad=skip_bad, reports=reports, cache=cache, workers=workers
    )
    for problem in built.refused:
        typer.echo(f"left out: {problem}", err=True)
    typer.echo(f"{built.measured} measured entries, {built.printed} printed; {built.page}")
