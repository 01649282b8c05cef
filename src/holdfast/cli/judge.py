"""The verbs that read results: report, compare, audit."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.core.errors import UserError
from holdfast.core.names import split_list

if TYPE_CHECKING:
    from holdfast.stats.models.gate import Verdict

PASSED, FAILED, UNDECIDED = 0, 1, 3
FLOORS = ("score", "accuracy")


class Accuracy(StrEnum):
    """Which right answers count."""

    full = "full"
    restricted = "restricted"


class Average(StrEnum):
    """Whether classes or photos weigh the same."""

    macro = "macro"
    micro = "micro"


Which = Annotated[Accuracy, typer.Option(help="Right over all outputs, or among the dataset's classes only.")]
Mean = Annotated[Average, typer.Option(help="Every class counts the same, or every photo does.")]


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories of one dataset.")],
    out: Annotated[Path | None, typer.Option(help="The folder to write; RUN/report by default.")] = None,
    accuracy: Which = Accuracy.full,
    average: Mean = Average.macro,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    votes: Annotated[
        Path | None,
        typer.Option(help="People's votes on a perturb run's images (review --export): FMR is corrected by them."),
    ] = None,
) -> None:
    """What the numbers mean, as one page that opens from disk."""
    from holdfast import api
    from holdfast.core.votes import read_votes

    where = out or runs[0] / "report"
    page = api.report(
        list(runs), where, outcome=accuracy.value, average=average.value, resamples=resamples, seed=seed,
        votes=None if votes is None else read_votes(votes),
    )  # fmt: skip
    typer.echo(str(page))


def compare(
    old: Annotated[Path, typer.Argument(help="The run of the model in use.")],
    new: Annotated[Path, typer.Argument(help="The run of the model that would replace it; may be the same run.")],
    margin: Annotated[float, typer.Option(min=0, max=1, help="Loss of accuracy that is tolerated, 0 to 1.")] = 0.02,
    old_model: Annotated[
        str | None, typer.Option(help="Which model, where OLD has several.", show_default=False)
    ] = None,
    new_model: Annotated[
        str | None, typer.Option(help="Which model, where NEW has several.", show_default=False)
    ] = None,
    conditions: Annotated[
        str, typer.Option(help="Only these conditions, separated by commas.", show_default=False)
    ] = "",
    fail_under: Annotated[
        str, typer.Option(help="Floors for NEW, such as score=0.8,accuracy=0.7.", show_default=False)
    ] = "",
    accuracy: Which = Accuracy.full,
) -> None:
    """The release gate: exit code 0 passed, 1 failed, 3 undecided."""
    from holdfast import api
    from holdfast.cli.listing import print_frame

    floors = _floors(fail_under)
    found = api.compare(
        old, new, margin=margin, old_model=old_model, new_model=new_model, outcome=accuracy.value,
        conditions=split_list(conditions) or None,
    )  # fmt: skip
    shown = ["condition", "old", "new", "difference", "low", "high", "n", "verdict", "more_photos"]
    # The bounds are one-sided: one decides on passing, the other on failing.
    print_frame(found.conditions[shown].rename(columns={"low": "at least", "high": "at most"}))
    typer.echo(found.sentence)
    verdicts = [found.verdict]
    for name, floor in floors:
        verdict, sentence = _check_floor(new, new_model, name, floor, accuracy.value)
        typer.echo(sentence)
        verdicts.append(verdict)
    code = FAILED if "failed" in verdicts else UNDECIDED if "undecided" in verdicts else PASSED
    raise typer.Exit(code)


def _floors(text: str) -> list[tuple[str, float]]:
    floors = []
    for part in split_list(text):
        name, _, value = part.partition("=")
        try:
            floor = float(value)
        except ValueError:
            raise UserError(f"--fail-under reads name=number,name=number, which {part!r} is not") from None
        if name.strip() not in FLOORS:
            raise UserError(f"--fail-under knows {' and '.join(FLOORS)}, not {name.strip()!r}")
        if not 0 <= floor <= 1:
            raise UserError(f"--fail-under takes a floor from 0 to 1, which {part!r} is not")
        floors.append((name.strip(), floor))
    return floors


def _check_floor(new: Path, model: str | None, name: str, floor: float, outcome: str) -> tuple[Verdict, str]:
    """One floor against the lower end of its interval, not against the point."""
    from holdfast import api
    from holdfast.stats.models.gate import check_floor

    results = api.open_run(new)
    if name == "score":
        frame = results.scores(outcome=outcome)  # type: ignore[arg-type]
    else:
        frame = results.accuracy(outcome=outcome)  # type: ignore[arg-type]
        frame = frame[frame["condition"] == "original"]
    rows = frame[frame["model"].astype(str) == model] if model else frame
    if len(rows) != 1:
        raise UserError(f"--fail-under needs one model; {new} has {len(rows)}: name it with --new-model")
    row = rows.iloc[0]
    verdict = check_floor(float(row[name]), float(row["low"]), float(row["high"]), floor)
    interval = f"{row[name]:.3f} (95 % interval {row['low']:.3f} to {row['high']:.3f}, n = {int(row['n'])})"
    return verdict, f"{name} {interval} against a floor of {floor:g}: {verdict}"


def audit(
    table: Annotated[Path, typer.Argument(metavar="TABLE.csv", help="A printed table of one of the three protocols.")],
    reference: Annotated[
        Path | None, typer.Option(help="Another table of the same paper to check against.", show_default=False)
    ] = None,
    n: Annotated[
        int | None, typer.Option(min=1, help="Images behind each row, where known.", show_default=False)
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(help="Another table that prints some of the same figures; may be repeated.", show_default=False),
    ] = None,
    claims: Annotated[
        Path | None,
        typer.Option(help="Sentences that quote the tables: columns text, value, table, how.", show_default=False),
    ] = None,
) -> None:
    """Check a printed table for slips that arithmetic can prove: exit code 0 none, 1 some."""
    from holdfast.stats.audit import audit as find
    from holdfast.stats.audit import check_claims, read_table

    printed = read_table(table)
    others = {path.name: read_table(path) for path in also or ()}
    second = read_table(reference) if reference else None
    findings = find(printed, name=table.name, reference=second, n=n, also=others)
    if claims is not None:
        findings += check_claims(read_table(claims), {table.name: printed, **others})
    for finding in findings:
        typer.echo(f"{finding.where}: {finding.sentence}")
    typer.echo(f"{table.name}: {len(findings)} findings" if findings else f"{table.name}: nothing found")
    raise typer.Exit(1 if findings else 0)
