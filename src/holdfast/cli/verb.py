"""Commands made from specs: the options of a command are the fields of its spec; options of handwritten commands."""

from __future__ import annotations

import functools
import inspect
import keyword
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_args

import typer

from holdfast.cli.listing import TerminalProgress
from holdfast.core.errors import UserError
from holdfast.core.options import Declared, Spec, check, make, option, options_of
from holdfast.core.options import Option as SpecOption
from holdfast.core.places import shown
from holdfast.core.verbs import Verb
from holdfast.pipeline.jobs.progress import hushed
from holdfast.pipeline.specs import ChooseSpec, DataSpec, EvaluateSpec
from holdfast.registry import resolved

if TYPE_CHECKING:
    from holdfast.engine import Executor


S = TypeVar("S", bound=Spec)
OUT = "The run directory; an existing run is continued."
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only results and errors.")]


@dataclass(frozen=True)
class EngineOptions(Spec):
    """Where the work of a command runs."""

    PANEL = "Where work runs"

    workers: str = option("1", help="Number of processes; 0 starts one per core, MIN:MAX leaves the number to Ray.",
                          unit="N|MIN:MAX")  # fmt: skip
    engine: str = option("local", help="local (this machine) or ray (many machines).")
    address: str = option("", help="Address of a Ray cluster: auto or HOST:PORT; by default one on this machine.")
    gpus: float = option(0.0, help="GPUs per Ray worker: 0.5 puts two workers on one; 0 uses no GPU.", least=0)
    cpus: float = option(1.0, help="Cores per Ray worker.", least=0)


@dataclass(frozen=True)
class CommandCall(Generic[S]):
    """What was typed: the spec, where the command writes, where its work runs, and whether it prints progress."""

    spec: S
    out: Path
    quiet: bool
    engine: EngineOptions

    @contextmanager
    def running(self, *, whole: bool = True) -> Iterator[tuple[Path, Executor, TerminalProgress]]:
        """Open the folder to write to (a local one if ``out`` is in a store), who does the work, and the progress.

        Without ``whole`` the images that the command writes to a store do not stay on the disk: it must not read them.
        """
        from holdfast.core import places
        from holdfast.engine import open_executor
        from holdfast.store import workplace

        where = self.engine
        # Every worker has its own folder for a store, so there is no folder that all workers must see.
        executor = open_executor(
            where.engine, address=where.address, workers=where.workers, gpus=where.gpus, cpus=where.cpus,
            folder=None if places.address(self.out) else self.out,
        )  # fmt: skip
        try:
            with (
                hushed(self.quiet),
                workplace(self.out, executor, whole=whole) as (folder, sending),
                TerminalProgress(quiet=self.quiet) as progress,
            ):
                yield folder, sending, progress
        finally:
            executor.close()

    @property
    def where(self) -> str:
        """``out`` as its user would type it."""
        return shown(self.out)


def verb(
    spec: type[S], *, out: str = OUT, otherwise: str = "", engine: bool = False, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a command of a function that takes a ``CommandCall`` and further options.

    ``out`` is the help of ``--out``, '' for a command that declares its own; ``otherwise`` is the folder in which a run
    is called after its data if ``--out`` is left out; ``engine`` says whether work can run elsewhere.
    """
    offered = [
        option for option in options_of(spec).values() if option.name not in without and not option.option.python_only
    ]
    counted = options_of(spec).get("workers")

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        options = [parameter(declared) for declared in offered]
        parameters = [option for option in options if _is_argument(option)]
        parameters += [
            *([_out(out, otherwise)] if out else []),
            *own,
            *(option for option in options if not _is_argument(option)),
        ]
        if engine:
            typed = {"workers": str(counted.default)} if counted else {}
            parameters += [
                parameter(declared, default=typed.get(declared.name)) for declared in options_of(EngineOptions).values()
            ]
        parameters.append(inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet))

        @functools.wraps(function)
        def command(**values: Any) -> None:
            given = {declared.name: values.pop(parameter_name(declared)) for declared in offered}
            # A list may be typed with commas, by repeating the option, or both.
            given |= {
                declared.name: ",".join(given[declared.name])
                for declared in offered
                if declared.is_list and given[declared.name]
            }
            where = make(EngineOptions, {name: values.pop(name, None) for name in options_of(EngineOptions)}, verb="")
            if engine and counted:
                from holdfast.engine.local import worker_range

                given["workers"] = worker_range(where.workers)[1]
            asked = make(spec, given, verb=function.__name__)
            path: Any = values.pop("out") if out else None
            if otherwise and path is None:
                from holdfast.store import unmixed

                name = re.sub(r"[^\w.-]+", "_", Path(given["data"]).stem).strip("_.") or "run"
                path = unmixed(Path(otherwise) / name, given["data"])
            function(CommandCall(asked, path, values.pop("quiet"), where), **values)

        return with_parameters(command, parameters)

    return decorate


def command_of(declared: Verb) -> Any:
    """Return what Typer takes of a verb: its own command, or one made from its spec and its function."""
    if declared.command is not None:
        return resolved(declared.command)
    if declared.spec is None or declared.function is None:
        raise UserError(f"the verb {declared.name} needs a spec and a function, or a command")
    function = resolved(declared.function)
    takes = inspect.signature(function).parameters

    def command(job: CommandCall[Any]) -> None:
        with ExitStack() as stack:
            if "out" in takes:
                folder, executor, progress = stack.enter_context(job.running())
                given = {"out": folder, "executor": executor, "progress": progress}
            else:
                given = {"progress": stack.enter_context(TerminalProgress(quiet=job.quiet))}
            result = function(job.spec, **{name: value for name, value in given.items() if name in takes})
        for line in declared.show(result):
            typer.echo(line)

    command.__name__, command.__doc__ = declared.python_name, (function.__doc__ or "").partition("\n\n")[0]
    out = (declared.out or OUT) if "out" in takes else ""
    return verb(declared.spec, out=out, engine="executor" in takes)(command)


def with_parameters(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Give a function the parameters that Typer reads."""
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def typed(spec: type[Spec], name: str, panel: str = "") -> Any:
    """Return what Typer reads of an option that a spec declares, for commands that are written by hand."""
    return _annotation(replace(options_of(spec)[name], panel=panel)).__metadata__[0]


def choice(*choices: str, flag: str, help: str, optional: bool = False, panel: str = "") -> Any:
    """Return what Typer reads of an option with these values."""
    known = SpecOption(help, choices=choices, flag=flag)
    return _annotation(Declared(flag.strip("-"), str, None if optional else choices[0], known, panel)).__metadata__[0]


def _flags(context: typer.Context) -> dict[str, str]:
    """Return name → flag of every argument and option that was typed."""
    flags = {each.name: each.opts[0] for each in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in flags if name}
    return {name: flags[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def refuse(context: typer.Context, mode: str, allowed: Collection[str]) -> None:
    """Raise a UserError if ``mode``, such as ``--find-sparse``, was typed with options that it does not have."""
    given = _flags(context)
    if mode in given.values() and (others := [flag for name, flag in given.items() if name not in {*allowed, "quiet"}]):
        raise UserError(f"{others[0]} cannot be combined with {mode}")


def needs(context: typer.Context, mode: str, names: Collection[str]) -> None:
    """Raise a UserError if options were typed that belong to ``mode``, which was not."""
    given = _flags(context)
    if mode not in given.values() and (alone := [flag for name, flag in given.items() if name in names]):
        raise UserError(f"{alone[0]} goes with {mode}")


def parameter(declared: Declared, *, default: Any = None) -> inspect.Parameter:
    """Return a parameter as Typer reads it; ``default`` replaces the spec's."""
    known = declared.option
    value = default if default is not None else known.typed if known.typed is not None else declared.default
    if value is MISSING:
        value = inspect.Parameter.empty
    elif isinstance(value, tuple) or declared.is_list:
        value = list(value) if isinstance(value, tuple) else [value] if value else None
    elif value == "" and (known.is_path or known.choices):
        value = None
    return inspect.Parameter(
        parameter_name(declared), inspect.Parameter.KEYWORD_ONLY, default=value or None if value == [] else value,
        annotation=_annotation(declared, default=value),
    )  # fmt: skip


def parameter_name(declared: Declared) -> str:
    """Return the parameter's name: that of the flag, with an underscore behind a word that Python keeps for itself."""
    name = declared.option.flag.strip("-").replace("-", "_") or declared.name
    return f"{name}_" if keyword.iskeyword(name) else name


def _annotation(declared: Declared, *, default: Any = MISSING) -> Any:
    known = declared.option
    value = declared.default if default is MISSING else default
    kinds = [kind for kind in get_args(declared.type) or [declared.type] if kind is not type(None)]
    kind: Any = Path if known.is_path else str if known.read or known.choices else kinds[0]
    if known.argument:
        return Annotated[kind, typer.Argument(metavar=known.argument, help=known.help)]
    flag = known.flag or f"--{declared.name.replace('_', '-')}"
    if kind is bool:
        flag = flag if value is False else f"{flag}/--no-{flag.removeprefix('--')}"
    details: dict[str, Any] = {"help": known.help, "rich_help_panel": declared.panel or None}
    details["show_default"] = value is not False and value not in (None, "", (), [])
    if known.choices and not declared.is_list:
        details |= {"metavar": f"[{'|'.join(known.choices)}]", "parser": _chosen(declared)}
        details["autocompletion"] = lambda incomplete: [
            choice for choice in known.choices if choice.startswith(incomplete)
        ]
    elif declared.is_list:
        details["metavar"] = "A,B,…"
    elif known.unit:
        details["metavar"] = known.unit if known.unit == known.unit.upper() else known.unit.upper()
    if kind in (int, float):
        details |= {"min": known.least, "max": known.most}
    kind = list[str] if declared.is_list else kind
    return Annotated[kind | None if value is None else kind, typer.Option(flag, **details)]


def _chosen(declared: Declared) -> Callable[[str], str]:
    def chosen(text: str) -> str:
        check(declared.name, declared.option, text, declared.default)
        return text

    return chosen


def _is_argument(each: inspect.Parameter) -> bool:
    return any(isinstance(info, type(typer.Argument())) for info in get_args(each.annotation)[1:])


def _out(help: str, otherwise: str) -> inspect.Parameter:
    help += f" By default {otherwise}/NAME_OF_THE_DATA." if otherwise else ""
    kind: Any = Path | None if otherwise else Path
    annotation: Any = Annotated[kind, typer.Option("--out", help=help)]
    default = None if otherwise else inspect.Parameter.empty
    return inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


Data = Annotated[str, typed(DataSpec, "data")]
Masks = Annotated[Path | None, typed(DataSpec, "masks")]
Limit = Annotated[int, typed(DataSpec, "limit")]
Seed = Annotated[int, typed(DataSpec, "seed")]
Labels = Annotated[Path | None, typed(EvaluateSpec, "labels")]
Device = Annotated[str, typed(EvaluateSpec, "device")]
Outcome = Annotated[str, typed(ChooseSpec, "outcome")]
Average = Annotated[str, typed(ChooseSpec, "average")]
_TRACKED = "Report to this experiment tracker: numbers with intervals, charts, report, fingerprint."
Track = Annotated[str | None, choice("mlflow", "wandb", "tensorboard", flag="--track", help=_TRACKED, optional=True)]
