"""``holdfast plan VERB …``: forecast what a run takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.tree import Leaf, grow
from holdfast.cli.verb import with_parameters
from holdfast.core.numbers import duration

if TYPE_CHECKING:
    from holdfast.forecast import CostForecast, RunForecast

_PLACES = ("bytes", "kB", "MB", "GB", "TB", "PB")


def app_of(verbs: Mapping[str, Callable[..., None]]) -> typer.Typer:
    """Return the command ``plan``, with a command of the same options below it for each verb."""
    app = typer.Typer(
        name="plan",
        help="Forecast what a run takes: images, rows, bytes, hours and memory, from short trials of the same command. "
        "Options of plan are before the verb.",
        no_args_is_help=True,
    )
    app.callback()(_settings)
    text = "Forecast what this run of {0} takes; its options are those of holdfast {0}. "
    text += "--seconds, --machines and --json are before the verb."
    grow(app, {name: Leaf(_planning(name, verb), help=text.format(name)) for name, verb in verbs.items()})
    app.command("check")(_chances)
    return app


def _chances(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="As for holdfast check; it is not loaded.")],
    photos: Annotated[str, typer.Argument(metavar="PHOTOS", help="As for holdfast check.")],
    limit: Annotated[int, typer.Option(min=0, help="Use at most this many images, evenly over classes.")] = 0,
    budget: Annotated[str, typer.Option(help="As for holdfast check: 300 (answers) or 5@0.002 (money).")] = "",
) -> None:
    """Say how likely holdfast check --stop when-decided decides with these images and this budget, by simulation."""
    from holdfast.check_rounds import decision_chances
    from holdfast.pipeline.samples import DataSpec, read

    typer.echo(f"check {model}")
    for line in decision_chances(read(DataSpec(photos, limit=limit)), budget=budget):
        typer.echo(line)


def _settings(
    context: typer.Context,
    seconds: Annotated[
        float, typer.Option(help="Seconds that the trials may take together; two are always made.")
    ] = 60.0,
    machines: Annotated[int, typer.Option(help="Number of machines that would share the run.")] = 1,
    json: Annotated[
        bool, typer.Option("--json", help="Print everything that was measured as JSON, for programs.")
    ] = False,
) -> None:
    context.obj = {"seconds": seconds, "machines": machines, "json": json}


def _planning(name: str, verb: Callable[..., None]) -> Callable[..., None]:
    """Return a function with the options of the verb that plans instead."""

    def planning(context: typer.Context, **values: Any) -> None:
        import json
        from dataclasses import asdict

        from holdfast.cli.listing import TerminalProgress
        from holdfast.forecast import plan

        sources = {key: context.get_parameter_source(key) for key in values}
        given = [key for key, source in sources.items() if source and source.name not in ("DEFAULT", "DEFAULT_MAP")]
        asked = {key: values[key] for key in given}
        quiet, settings = bool(asked.pop("quiet", False)), dict(context.obj)
        machine = settings.pop("json")
        with TerminalProgress(quiet=quiet or machine) as progress:
            forecast = plan(name, progress=progress, **settings, **asked)
        if machine:
            typer.echo(json.dumps(asdict(forecast), indent=1))
        else:
            show(forecast)

    first = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    own = [each for each in inspect.signature(verb).parameters.values() if each.annotation is not typer.Context]
    return with_parameters(planning, [first, *own])


def show(forecast: RunForecast) -> None:
    """Print the forecast and the trials behind it."""
    from rich.table import Table

    from holdfast.cli.listing import console_for_tables
    from holdfast.forecast.planning import total

    pictures = f"{forecast.images:,}" + (
        f" ({forecast.units:,} {forecast.unit})" if forecast.units != forecast.images else ""
    )
    files = ", ".join(
        f"{kind} {size(amount)}"
        for kind, amount in sorted(forecast.bytes.items(), key=lambda item: -item[1])[:4]
        if amount >= 0.01 * total(forecast.bytes)
    )
    share = forecast.seconds.fixed / forecast.seconds.value if forecast.seconds.value else 0.0
    each = (forecast.seconds.value - forecast.seconds.fixed) / forecast.units
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("images", pictures)
    table.add_row("conditions × models", f"{forecast.conditions} × {forecast.models}")
    table.add_row("rows", f"{forecast.rows:,}")
    table.add_row("written", f"{size(total(forecast.bytes))} ({files})" if files else size(total(forecast.bytes)))
    table.add_row("time", _range(forecast.seconds, duration))
    table.add_row("processor time", _range(forecast.processor, duration))
    table.add_row("peak memory", _range(forecast.memory, size))
    table.add_row("of the time", f"{duration(forecast.seconds.fixed)} fixed ({share:.0%}), {duration(each)} per image")
    if forecast.machines > 1:
        table.add_row(
            f"{forecast.machines} machines",
            f"{duration(forecast.seconds_on_machines)}, if each pays what is fixed and they share the rest evenly",
        )
    console_for_tables().print(table)
    trials = ", ".join(f"{trial.size} in {duration(trial.wall)}" for trial in forecast.trials)
    typer.echo(f"from trials of {trials}; load {forecast.load:.1f}")
    if forecast.whole:
        typer.echo("the last trial was the whole run: making it takes no longer than planning it")
    for sentence in forecast.notes:
        typer.echo(f"note: {sentence}")


def _range(estimate: CostForecast, written: Callable[[float], str]) -> str:
    return f"{written(estimate.value)} ({written(estimate.low)} to {written(estimate.high)})"


def size(amount: float) -> str:
    """Return bytes in the unit that people would use."""
    place = 0
    while amount >= 999.5 and place < len(_PLACES) - 1:
        amount, place = amount / 1000, place + 1
    return f"{amount:.3g} {_PLACES[place]}"
