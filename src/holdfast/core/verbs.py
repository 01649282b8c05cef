"""What a verb is: one object, from which the command, the function, the forecast and their reference are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.options import Spec


def as_text(result: Any) -> Iterable[str]:
    """Return the line that a command prints of a result, if its verb has no ``show``."""
    return [str(result)]


@dataclass(frozen=True)
class Verb:
    """A command of ``holdfast`` and a function of ``import holdfast``.

    ``function``, ``command`` and ``workload`` are objects, or ``"module:attribute"``, imported when they are needed.

    Args:
        name: as it is typed, such as ``count-colours``, or ``count colours`` for a command below ``count``; the
            function is ``holdfast.count_colours``.
        group: the heading in ``holdfast --help``.
        function: takes the spec, and by keyword what it wants of ``out``, ``progress`` and ``executor``. With a
            ``command`` of its own it is the finished function; None if there is none.
        spec: the options, a ``holdfast.core.options.Spec``.
        out: the help of ``--out``; by default that of a run directory.
        about: argument → help, for arguments of the function that are not options of the spec.
        show: makes the lines that the command prints of what the function returns.
        workload: takes the spec and the options and returns a ``holdfast.forecast.Workload``; then ``holdfast plan``
            forecasts the verb, which needs an option ``limit``.
        command: a Typer function, if options of a spec are not enough.
        epilog: is below the help.
        help: for a verb that does nothing but hold the commands below it: what they are for.
    """

    name: str
    group: str
    function: Callable[..., Any] | str | None = None
    spec: type[Spec] | None = None
    out: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    show: Callable[[Any], Iterable[str]] = as_text
    workload: Callable[..., Any] | str | None = None
    command: Any = None
    epilog: str | None = None
    help: str = ""

    @property
    def python_name(self) -> str:
        """Return the name of the function in ``import holdfast``."""
        return python_name(self.name)


def python_name(name: str) -> str:
    """Return the name of the function of a verb; ``eval`` is a function of Python itself."""
    return "evaluate" if name == "eval" else name.replace("-", "_").replace(" ", "_")
