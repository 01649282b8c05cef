"""``holdfast compare``: the release gate, and exported models against their originals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, print_frame, print_table
from holdfast.cli.share import tell
from holdfast.cli.verb import Average, Outcome, Quiet, Track, needs, refuse, typed
from holdfast.core.errors import UserError, cannot_write
from holdfast.core.files import clear_leftovers, write_atomic
from holdfast.core.names import split_list
from holdfast.pipeline.specs import DataSpec, EvaluateSpec

if TYPE_CHECKING:
    from holdfast.stats.models.gate import Gate, Verdict

Baseline = Annotated[
    list[str] | None, Option(help="Models that make the line of effective robustness; by default all.")
]
PASSED, FAILED, UNDECIDED = 0, 1, 3
FLOORS = ("score", "accuracy")
_EXPORTED = "Exported models"
EXIT = {"equivalent": 0, "different": 1, "undecided": 3}


def compare(
    context: typer.Context,
    old: Annotated[
        str, Argument(metavar="OLD", help="The run of the model in use; with --parity and --sidecar, a model by name.")
    ],
    new: Annotated[
        str, Argument(metavar="NEW", help="The run of the model that would replace it; may be the same run.")
    ] = "",
    margin: Annotated[
        float, Option(min=0, max=1, help="Loss of accuracy (detectors: of recall) that is tolerated, 0 to 1.")
    ] = 0.02,
    alarms_margin: Annotated[float | None, Option(min=0, help="Detectors: false alarms more per image (0.1).")] = None,
    threshold: Annotated[
        str | None,
        Option(help="Detectors: boxes of both count from this score on (the old model's; own: each model's own)."),
    ] = None,
    old_model: Annotated[str | None, Option(help="Which model, if OLD has several.")] = None,
    new_model: Annotated[str | None, Option(help="Which model, if NEW has several.")] = None,
    conditions: Annotated[list[str] | None, Option(help="Compare only these conditions, separated by commas.")] = None,
    fail_under: Annotated[list[str] | None, Option(help="Floors for NEW, such as score=0.8,accuracy=0.7.")] = None,
    outcome: Outcome = "full",
    between: Annotated[
        bool, Option("--between", help="No gate: what models lose from OLD's dataset to NEW's, on other images.")
    ] = False,
    sequential: Annotated[
        bool, Option("--sequential", help="Images are added and looked at again until it passes or fails.")
    ] = False,
    average: Average = "macro",
    baseline: Baseline = None,
    junit: Annotated[Path | None, Option(help="Write the verdicts as a JUnit file.", show_default=False)] = None,
    markdown: Annotated[
        Path | None, Option(help="Write a summary for a pull request, as Markdown.", show_default=False)
    ] = None,
    github: Annotated[
        bool, Option("--github", help="Print GitHub's annotations, and add the summary to the job's.")
    ] = False,
    track: Track = None,
    parity: Annotated[
        str,
        Option(metavar="DATA", rich_help_panel=_EXPORTED, show_default=False,
               help="No runs: measure on this dataset whether model NEW, an export, still answers as model OLD."),
    ] = "",
    sidecar: Annotated[
        bool,
        Option("--sidecar", rich_help_panel=_EXPORTED,
               help="Write how images reach NEW into NEW.holdfast.toml, which every command reads; what its name "
               "does not say is taken from OLD. With one model: everything from its name."),
    ] = False,
    out: Annotated[
        Path | None,
        Option(rich_help_panel=_EXPORTED, show_default=False,
               help="The run directory of --parity; its folder parity is the page. By default a temporary one."),
    ] = None,
    scenarios: Annotated[
        list[str] | None,
        Option(metavar="A,B,…", rich_help_panel=_EXPORTED, show_default=False,
               help="Conditions of --parity (holdfast ls scenarios); static by default."),
    ] = None,
    masks: Annotated[Path | None, typed(DataSpec, "masks", _EXPORTED)] = None,
    labels: Annotated[Path | None, typed(EvaluateSpec, "labels", _EXPORTED)] = None,
    limit: Annotated[int, typed(DataSpec, "limit", _EXPORTED)] = 0,
    seed: Annotated[int, typed(DataSpec, "seed", _EXPORTED)] = 0,
    device: Annotated[str, typed(EvaluateSpec, "device", _EXPORTED)] = "auto",
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Compare a new model with the old one, as a release gate: exit code 0 passed, 1 failed, 3 undecided."""
    from holdfast import api

    of_parity = {"scenarios", "masks", "labels", "limit", "seed", "out"}
    refuse(context, "--parity", {"old", "new", "margin", "outcome", "parity", "device", *of_parity})
    refuse(context, "--sidecar", {"old", "new", "sidecar", "device"})
    needs(context, "--parity", of_parity)
    if sidecar:
        from holdfast.models.runtimes.exported import sidecar as write_sidecar

        typer.echo(str(write_sidecar(new or old, old if new else "", device=device)))
        return
    if not new:
        raise UserError("compare takes two: holdfast compare OLD NEW")
    if parity:
        _parity(
            old, new, parity, out=out, margin=margin, scenarios=",".join(scenarios or ["static"]), outcome=outcome,
            masks=None if masks is None else str(masks), labels=None if labels is None else str(labels), limit=limit,
            seed=seed, device=device, quiet=quiet,
        )  # fmt: skip
    if between:
        _refuse_gate_options(fail_under=fail_under, conditions=conditions, old_model=old_model, new_model=new_model)
        _print_between(old, new, outcome, average, named(baseline))
        return
    refuse_baseline(baseline)
    floors = _floors(",".join(fail_under or ()))
    gate = api.compare(
        old, new, margin=margin, old_model=old_model, new_model=new_model,
        conditions=named(conditions), sequential=sequential,
        **_of_detectors(old, outcome, floors, alarms_margin=alarms_margin, threshold=threshold),
    )  # fmt: skip
    typer.echo(gate.heading)
    titles, *rows = gate.rows()
    print_table(titles, rows)
    for line in (*gate.footnotes(), gate.sentence, *gate.notes, *gate.advice()):
        typer.echo(line)
    if gate.conditions["condition"].str.contains("@severity_").any():
        for line in _failure_lines(old, new, old_model, new_model, outcome):
            typer.echo(line)
    held = [(name, *_check_floor(new, new_model, name, floor, outcome)) for name, floor in floors]
    for _, _, sentence in held:
        typer.echo(sentence)
    hand_on(gate, held, junit=junit, markdown=markdown, github=github)
    if track:
        from holdfast.exchange.tracking import record_gate

        tell(track, lambda: record_gate(gate, Path(new), old=old, new=new))
    verdicts = [gate.verdict, *(verdict for _, verdict, _ in held)]
    raise typer.Exit(FAILED if "failed" in verdicts else UNDECIDED if "undecided" in verdicts else PASSED)


def _refuse_gate_options(**options: object) -> None:
    for name, given in options.items():
        if given:
            raise UserError(
                f"--{name.replace('_', '-')} belongs to the release gate; --between takes all models of both runs"
            )


def hand_on(
    gate: Gate, floors: list[tuple[str, Verdict, str]], *, junit: Path | None, markdown: Path | None, github: bool
) -> None:
    """Write the files that ``compare`` was asked for, and print GitHub's annotations."""
    from holdfast.exchange.gate_files import as_annotations, as_junit, as_markdown

    for file, content in ((junit, as_junit), (markdown, as_markdown)):
        if file is not None:
            text = content(gate, floors)
            try:
                clear_leftovers(file)
                write_atomic(file, text if isinstance(text, bytes) else text.encode())
            except OSError as error:
                raise cannot_write(file, error) from error
    if github:
        for line in as_annotations(gate, floors):
            typer.echo(line)
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(summary).open("a", encoding="utf-8") as opened:
                opened.write(as_markdown(gate, floors))


def _failure_lines(old: str, new: str, old_model: str | None, new_model: str | None, outcome: Outcome) -> list[str]:
    """Return a line per scenario with three severities or more: how many more of them the new model survives."""
    from holdfast.results import open_run
    from holdfast.stats.effects.failure_point import failure_differences

    runs = [open_run(run) for run in (old, new)]
    if runs[0].is_detection:
        return []
    models: dict[str, Any] = {"old_model": old_model, "new_model": new_model, "outcome": outcome}
    frame = failure_differences(runs[0].counts, runs[1].counts, **models)
    return [
        f"How much it can take, {row['scenario'].replace('_', ' ')}: the new model survives {row['difference']:+.2f} "
        f"severities ({row['low']:+.2f} to {row['high']:+.2f}) on {row['n']} images that both recognise"
        + ("; who is better turns with severity" if row["turns"] else "")
        for row in frame.to_dict("records")
    ]


def _of_detectors(old: str, outcome: Outcome, floors: list[Any], **own: float | str | None) -> dict[str, Any]:
    """Return the options of the gate that only one kind of run has."""
    from holdfast.results import open_run

    if not open_run(old).is_detection:
        for name, value in own.items():
            if value is not None:
                raise UserError(f"--{name.replace('_', '-')} is for runs of detectors, which these are not")
        return {"outcome": outcome}
    if floors:
        raise UserError("--fail-under is for classifiers: detectors are held to --margin and --alarms-margin")
    return {name: value for name, value in own.items() if value is not None}


def named(given: list[str] | None) -> list[str] | None:
    """Return the names of a repeated option, None without any."""
    return split_list(",".join(given or ())) or None


def refuse_baseline(baseline: list[str] | None) -> None:
    """Raise a UserError for ``--baseline`` without ``--between``."""
    if baseline:
        raise UserError("--baseline makes the line of effective robustness between datasets: add --between")


def _print_between(old: str, new: str, outcome: str, average: str, baseline: list[str] | None) -> None:
    from holdfast import api

    lost = api.open_run(old).between(new, outcome=outcome, average=average, baseline=baseline)
    columns = ["model", "dataset", "part", "reference", "accuracy", "drop", "low", "high", "n_reference", "n"]
    print_frame(lost.drops[columns].rename(columns={"reference": lost.reference}))
    if not lost.effective.reason:
        print_frame(lost.effective.table[["model", "dataset", "predicted", "effective", "low", "high"]])
    typer.echo(lost.sentence)
    typer.echo(lost.effective.sentence)


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
            raise UserError(f"--fail-under must be a number from 0 to 1, not {part!r}")
        floors.append((name.strip(), floor))
    return floors


def _check_floor(new: str, model: str | None, name: str, floor: float, outcome: str) -> tuple[Verdict, str]:
    """Hold the lower end of the interval, not the estimate, against a floor."""
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


def _parity(old: str, new: str, data: str, *, quiet: bool, **options: Any) -> NoReturn:
    """Print whether an exported model still answers as its original, and exit by the verdict."""
    from holdfast import api

    with TerminalProgress(quiet=quiet) as progress:
        answer = api.parity(old, new, data, progress=progress, **options)
    columns = ["condition", "n", "flipped", "flips_low", "flips_high", "old", "new", "low", "high", "verdict"]
    shown = answer.result.conditions[columns]
    print_frame(
        shown.rename(
            columns={"flips_low": "flips from", "flips_high": "flips to", "low": "new − old from", "high": "to"}
        )
    )
    costs = answer.costs.assign(MB=answer.costs["bytes"] / 1e6, ms=answer.costs["milliseconds"])
    print_table(("model", "ms per image", "MB of weights"), (
        (row["model"], f"{row['ms']:.2f}", f"{row['MB']:.2f}") for row in costs.to_dict("records")
    ))  # fmt: skip
    for note in answer.notes:
        typer.echo(f"Note: {note}")
    typer.echo(answer.result.sentence)
    typer.echo(str(answer.page))
    raise typer.Exit(EXIT[answer.result.verdict])
