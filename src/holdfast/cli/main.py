"""``holdfast``: the commands in groups, and the entry point; heavy modules are imported inside commands."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing.util
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from holdfast import registry
from holdfast.cli import plan
from holdfast.cli.tree import BROKEN, CommandGroup, Leaf, grow
from holdfast.cli.verb import command_of
from holdfast.core.distribution import installed_version
from holdfast.core.errors import (
    DamageWarning,
    HoldfastError,
    PluginWarning,
    UserError,
    end_process,
    machine_trouble,
    no_exit,
    text_of,
    typed_command,
)
from holdfast.core.memory import keep_memory
from holdfast.core.names import visible
from holdfast.core.secrets import redacted

_UsageError: Any = typer.BadParameter.__bases__[0]  # of the click that this typer uses, its own or the package


class _Commands(CommandGroup):
    """All commands, in which nothing but typer itself ends the process."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the verbs; Typer puts groups last."""
        places = {name.partition(" ")[0]: -place for place, name in enumerate(reversed(list(registry.verbs)))}
        return sorted(self.commands, key=lambda name: places.get(name, 1))

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a model that calls ``sys.exit`` fails it."""
        try:
            with no_exit(), typed_command():
                return super().invoke(ctx)
        except _UsageError as error:  # which rich prints
            error.message = visible(error.message)
            raise


class _ShownStream:
    """A stream that prints what would steer a terminal as an escape: names of files and classes may hold anything.

    Rich draws with such characters. It finds the stream itself under the name that it looks for; anyone who gives it
    names makes them visible.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write the text with escapes and without secrets."""
        return self.rich_proxied_file.write(visible(redacted(text)))

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # else click would find a way past ``write``
            raise AttributeError(name)
        return getattr(self.rich_proxied_file, name)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"holdfast {installed_version()}")
        raise typer.Exit()


def _options(
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def build() -> typer.Typer:
    """Return the command line with every verb: those of the core, then those of other packages."""
    app = typer.Typer(
        name="holdfast",
        cls=_Commands,
        help="Does my vision model see the object, or rely on everything around it?",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    leaves: dict[str, Leaf] = {}
    planned = {}
    for name in registry.verbs:
        try:
            verb = registry.verbs.get(name)
            leaves[name] = Leaf(None if verb.help else command_of(verb), verb.group, verb.help, verb.epilog)
        except Exception as error:  # of another package, which must not stop the rest
            leaves[name] = _broken(name, f"{registry.verbs.entry(name).summary}, cannot be loaded: {text_of(error)}")
            continue
        command = leaves[name].command
        if command is not None and verb.workload is not None:
            planned[name] = command
    grow(app, leaves)
    app.add_typer(plan.app_of(planned), rich_help_panel="Maintain")
    return app


def _broken(name: str, sentence: str) -> Leaf:
    """Return a command that says why it is not there."""

    def broken() -> None:
        raise UserError(f"{name}, {sentence}")

    return Leaf(broken, BROKEN, f"{sentence}.", takes_anything=True)


app = build()

_STOPPED = "stopped; run the same command again to continue"
_INTERRUPTED, _TERMINATED = 130, 143
_python_shows_warning = warnings.showwarning


def _terminate(*_: object) -> None:
    """End at once, as kill -9 would, but with a sentence; workers end first, also one that is just being started."""
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            with contextlib.suppress(OSError):
                if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)
    _fail(_STOPPED, _TERMINATED)


def main() -> None:
    """Entry point: see ``_main``; all that is printed goes through one stream."""
    out, err = _ShownStream(sys.stdout), _ShownStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        _main()


def _main() -> None:
    """Run the command: user mistakes are one sentence and exit code 2; tracebacks only with --debug."""
    debug = "--debug" in sys.argv[1:]
    if debug:
        sys.argv = [sys.argv[0], *(word for word in sys.argv[1:] if word != "--debug")]
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", DamageWarning)
    signal.signal(signal.SIGTERM, _terminate)
    keep_memory()
    try:
        app()
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:  # typer's way of saying Ctrl-C
            _fail(_STOPPED, _INTERRUPTED)
        if isinstance(stop.__context__, OSError) and stop.__context__.errno == errno.EPIPE:
            end_process(0)
        raise
    except Exception as error:
        if debug:
            raise
        if isinstance(error, BrokenPipeError):
            end_process(0)
        _fail(*_ending(error))


def _ending(error: Exception) -> tuple[str, int]:
    """Return the sentence and the exit code of a command that an error ended."""
    expected = isinstance(error, (HoldfastError, PermissionError))
    if not expected and (trouble := machine_trouble(error)):
        return str(trouble), 1
    if isinstance(error, (UserError, FileNotFoundError, PermissionError)):
        return str(error), 2
    if expected or isinstance(error, OSError):
        return str(error), 1
    return f"this should not have happened ({type(error).__name__}: {text_of(error)}); --debug shows where", 1


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **stream: Any) -> None:
    """Print Holdfast's own warnings as sentences, and those of libraries as Python does."""
    if issubclass(category, (DamageWarning, PluginWarning)):
        print(f"holdfast: {message}", file=sys.stderr)
    else:
        _python_shows_warning(message, category, *place, **stream)


def _fail(sentence: str, code: int) -> None:
    print(f"holdfast: {sentence}", file=sys.stderr)
    # Worker processes and prefetching threads must not keep a failed command alive.
    for worker in multiprocessing.active_children():
        worker.terminate()
    # Else the tracker of semaphores complains of what os._exit leaves.
    multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    end_process(code)


if __name__ == "__main__":
    main()
