"""``holdfast plan VERB …``: what a run will take, before it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.verb import with_parameters

if TYPE_CHECKING:
    from holdfast.forecast import Estimate, Plan

_PLACES = ("bytes", "kB", "MB", "GB", "TB", "PB")


def app_of(verbs: Mapping[str, Callable[..., None]]) -> typer.Typer:
    """``plan`` with a verb of the same options below it for each of these."""
    app = typer.Typer(
        name="plan",
        help="Say what a run takes before it: images, rows, bytes, hours and memory, from short trials of the same "
        "command. Options of plan stand before the verb.",
        no_args_is_help=True,
    )
    app.callback()(_settings)
    for name, verb in verbs.items():
        told = f"What such a run of {name} will take; its options are those of holdfast {name}. "
        app.command(name, help=told + "--seconds, --machines and --json stand before the verb.")(_planning(name, verb))
    return app


def _settings(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(help="That trials may take together; two are always made.")] = 60.0,
    machines: Annotated[int, typer.Option(help="Say what so many machines would need.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Everything that was measured, for programs.")] = False,
) -> None:
    context.obj = {"seconds": seconds, "machines": machines, "json": json}


def _planning(name: str, verb: Callable[..., None]) -> Callable[..., None]:
    """A function with the signature of the verb, so that mistakes are told as usual, that plans instead."""

    def planning(context: typer.Context, **values: Any) -> None:
        from holdfast.cli.progress import TerminalProgress
        from holdfast.forecast import plan

        asked = {key: value for key, value in values.items() if _typed(context, key)}
        quiet, settings = bool(asked.pop("quiet", False)), dict(context.obj)
        machine = settings.pop("json")
        with TerminalProgress(quiet=quiet or machine) as progress:
            found = plan(name, progress=progress, **settings, **asked)
        if machine:
            _print_json(found)
        else:
            show(found)

    first = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return with_parameters(planning, [first, *inspect.signature(verb).parameters.values()])


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def _print_json(found: Plan) -> None:
    import json
    from dataclasses import asdict

    typer.echo(json.dumps(asdict(found), indent=1))


def show(found: Plan) -> None:
    """Print the table and what it rests on."""
    from rich.table import Table

    from holdfast.cli.listing import console_for_tables
    from holdfast.forecast.planning import total

    pictures = f"{found.images:,}" + (f" ({found.units:,} {found.unit})" if found.units != found.images else "")
    files = ", ".join(
        f"{kind} {size(amount)}"
        for kind, amount in sorted(found.bytes.items(), key=lambda one: -one[1])[:4]
        if amount >= 0.01 * total(found.bytes)
    )
    share = found.seconds.fixed / found.seconds.value if found.seconds.value else 0.0
    each = (found.seconds.value - found.seconds.fixed) / found.units
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("images", pictures)
    table.add_row("conditions × models", f"{found.conditions} × {found.models}")
    table.add_row("rows", f"{found.rows:,}")
    table.add_row("written", f"{size(total(found.bytes))} ({files})" if files else size(total(found.bytes)))
    table.add_row("time", _range(found.seconds, duration))
    table.add_row("processor time", _range(found.processor, duration))
    table.add_row("peak memory", _range(found.memory, size))
    table.add_row("of the time", f"{duration(found.seconds.fixed)} fixed ({share:.0%}), {duration(each)} an image")
    if found.machines > 1:
        table.add_row(
            f"{found.machines} machines",
            f"{duration(found.seconds_on_machines)}, if each pays what is fixed and they share the rest evenly",
        )
    console_for_tables().print(table)
    trials = ", ".join(f"{one.size} in {duration(one.wall)}" for one in found.trials)
    typer.echo(f"from trials of {trials}; load {found.load:.1f}")
    if found.whole:
        typer.echo("the last trial was the whole run: making it takes no longer than planning it")
    for sentence in found.notes:
        typer.echo(f"note: {sentence}")


def _range(found: Estimate, shown: Callable[[float], str]) -> str:
    return f"{shown(found.value)} ({shown(found.low)} to {shown(found.high)})"


def duration(seconds: float) -> str:
    """Seconds in the unit that one would say."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.2g} min" if seconds < 9.95 * 60 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.3g} hours" if seconds < 99.5 * 3600 else f"{seconds / 3600:,.0f} hours"


def size(amount: float) -> str:
    """Bytes in the unit that one would say."""
    place = 0
    while amount >= 999.5 and place < len(_PLACES) - 1:
        amount, place = amount / 1000, place + 1
    return f"{amount:.3g} {_PLACES[place]}"
