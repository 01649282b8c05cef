"""The whole option surface, held against ``option_surface.txt``: an option, type or default changes only on purpose.

``python tests/cli/test_option_surface.py`` writes the file anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from holdfast.cli.main import app

SURFACE = Path(__file__).with_name("option_surface.txt")


def surface() -> str:
    """Return a line per argument and option of every command, sorted within a command."""
    return "\n".join(line for words, command in _commands(_root(), ()) for line in _lines(words, command)) + "\n"


def _root() -> Any:
    return typer.main.get_command(app)


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    # The commands below `plan` have the options of the verbs themselves.
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if words != ("plan",):
            yield from _commands(inner, (*words, name))


def _lines(words: tuple[str, ...], command: Any) -> Iterator[str]:
    name = " ".join(("holdfast", *words))
    parameters = inspect.signature(command.callback, eval_str=True).parameters if command.callback else {}
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    for place, one in enumerate(arguments):
        yield f"{name}: {place + 1}. argument {_rest(one, parameters)}"
    yield from sorted(
        f"{name}: {' '.join([*one.opts, *one.secondary_opts])} {_rest(one, parameters)}"
        for one in command.params
        if one not in arguments and one.name in parameters
    )


def _rest(one: Any, parameters: Any) -> str:
    annotation = parameters[one.name].annotation
    inner, *extra = get_args(annotation) if get_origin(annotation) is Annotated else (annotation, None)
    bounds = [f"{name} {getattr(info, name)}" for info in extra for name in ("min", "max")
              if getattr(info, name, None) is not None]  # fmt: skip
    choices = [info.metavar[1:-1] for info in extra if str(getattr(info, "metavar", "")).startswith("[")]
    needed = "needed" if one.required else f"default {_default(one.default)}"
    return ", ".join([*(choices or [_type(inner)]), *bounds, needed])


def _type(annotation: Any) -> str:
    kinds = [one for one in get_args(annotation) if one is not NoneType]
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return _type(kinds[0])
    if origin is Literal:
        return "|".join(map(str, kinds))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(one.value) for one in annotation)
    if origin is list:
        return f"{_type(kinds[0])} repeated"
    return " ".join(map(_type, kinds)) if origin is tuple else annotation.__name__


def _default(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "none"
    value = value.value if isinstance(value, Enum) else value
    return "none" if value is None or value == "" else str(value)


def test_every_option_is_as_it_was() -> None:
    known, now = SURFACE.read_text(encoding="utf8").splitlines(), surface().splitlines()
    lost, added = sorted(set(known) - set(now)), sorted(set(now) - set(known))
    assert not (lost or added), "\n".join([*(f"- {line}" for line in lost), *(f"+ {line}" for line in added)])


if __name__ == "__main__":
    SURFACE.write_text(surface(), encoding="utf8")
