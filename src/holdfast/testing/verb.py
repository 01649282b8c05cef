"""The contract suite of verbs: everything that an author may forget fails here, with a sentence."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from holdfast import registry
from holdfast.api.verb import HELP, function_of
from holdfast.cli.tree import BROKEN, leaf_of
from holdfast.core.options import Spec
from holdfast.core.verbs import Verb

HEAVY = ("torch", "torchvision", "pandas", "duckdb", "scipy", "cv2", "transformers", "fastapi")
"""What ``holdfast --help`` must not wait for."""
_RESERVED = ("out", "progress", "executor", "quiet", "spec")
_LOADING = "import sys; from holdfast.cli.main import app; print(*[name for name in {heavy!r} if name in sys.modules])"


def check_verb(verb: Verb) -> None:
    """Check that a verb is registered and complete: command, function, options, forecast and help.

    Args:
        verb: the object that the entry point names.

    Raises:
        AssertionError: says what is missing and where it belongs.
    """
    name = verb.name
    word = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
    assert re.fullmatch(f"{word}( {word})?", name), (
        f"verb {name!r}: use lower-case words joined by hyphens; below another command, its name and a space first"
    )
    assert verb.group, f"verb {name} needs a group, the heading of its commands in holdfast --help"
    registered = name in registry.verbs and registry.verbs.get(name)
    assert registered == verb, (
        f"verb {name} is not registered, or another package has the name; pyproject.toml needs "
        f'[project.entry-points."holdfast.verbs"] with "{name}" = "MODULE:ATTRIBUTE", and the package has to be '
        "installed"
    )
    if verb.spec is not None:
        _check_spec(name, verb.spec)
    if verb.help:
        assert verb.help.endswith("."), f"verb {name}: its help must be a sentence, not {verb.help!r}"
        assert any(other.startswith(f"{name} ") for other in registry.verbs), f"verb {name} has no command below it"
        return
    _check_function(verb)
    _check_command(verb)


def _check_spec(name: str, spec: type[Any]) -> None:
    assert issubclass(spec, Spec), f"verb {name}: {spec.__name__} must derive from holdfast.core.options.Spec"
    for field in fields(spec):
        where = f"verb {name}: {spec.__name__}.{field.name}"
        assert field.name not in _RESERVED, f"{where} has a name that every verb uses already"
        if "part" in field.metadata:
            _check_spec(name, field.metadata["part"])
            continue
        assert "option" in field.metadata or not field.init, (
            f"{where} is on neither the command line nor the function: declare it as option(…, help=…)"
        )
        words = field.metadata["option"].help if "option" in field.metadata else "."
        assert words.endswith("."), f"{where}: its help must be a sentence, not {words!r}"


def _check_function(verb: Verb) -> None:
    if verb.function is None:
        assert verb.command is not None, f"verb {verb.name} needs a function or a command"
        return
    given: Any = registry.resolved(verb.function)
    assert (given.__doc__ or "").strip(), f"verb {verb.name}: {given.__name__} needs a docstring, its help"
    if verb.command is not None:
        return
    assert verb.spec is not None, f"verb {verb.name} needs a spec, from which its command is made, or a command"
    for argument in list(inspect.signature(given).parameters)[1:]:
        assert argument in HELP or argument in verb.about, f"verb {verb.name}: about= has no help for {argument!r}"
    assert function_of(verb) is not None


def _check_command(verb: Verb) -> None:
    command = _root()
    for word in verb.name.split():
        command = command.commands[word]
    own = leaf_of(command)
    assert command.rich_help_panel != BROKEN, f"verb {verb.name} cannot be loaded: {command.help}"
    for words, each in _commands(own, ("holdfast", verb.name)):
        summary = (each.help or "").strip()
        assert summary.partition("\n\n")[0].endswith("."), (
            f"{' '.join(words)}: its help must be a sentence: {summary!r}"
        )
        for option in each.params:
            assert getattr(option, "help", "") or option.name == "help", (
                f"{' '.join(words)}: {option.opts[0]} needs help"
            )
    if verb.workload is not None:
        known = {option.name for option in own.params}
        assert {"limit", "out"} <= known, f"verb {verb.name} declares a workload: holdfast plan needs --limit and --out"
    loading = [sys.executable, "-c", _LOADING.format(heavy=HEAVY)]
    heavy = subprocess.run(loading, capture_output=True, text=True, check=True).stdout.split()
    assert not heavy, f"holdfast --help imports {', '.join(heavy)}: import them inside the function of {verb.name}"


def option_surface(*names: str) -> list[str]:
    """Return a line per argument and option of commands, to be compared with a file that is kept.

    Args:
        names: the verbs; ``""`` stands for the options of ``holdfast`` itself.
    """
    return [
        line
        for words, command in _commands(_root(), ("holdfast",))
        if " ".join(words[1:]) in names or (words[1:2] == ("plan",) and "plan" in names)
        for line in _lines(words, command)
    ]


def _root() -> Any:
    import typer

    from holdfast.cli.main import build

    return typer.main.get_command(build())


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, leaf_of(command)
    # The commands below `plan` have the options of the verbs themselves.
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if words != ("holdfast", "plan"):
            yield from _commands(inner, (*words, name))


def _lines(words: tuple[str, ...], command: Any) -> Iterator[str]:
    name = " ".join(words)
    parameters = inspect.signature(command.callback, eval_str=True).parameters if command.callback else {}
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    for place, argument in enumerate(arguments):
        yield f"{name}: {place + 1}. argument {_rest(argument, parameters)}"
    yield from sorted(
        f"{name}: {' '.join([*each.opts, *each.secondary_opts])} {_rest(each, parameters)}"
        for each in command.params
        if each not in arguments and each.name in parameters
    )


def _rest(each: Any, parameters: Any) -> str:
    annotation = parameters[each.name].annotation
    inner, *extra = get_args(annotation) if get_origin(annotation) is Annotated else (annotation, None)
    bounds = [f"{name} {getattr(info, name)}" for info in extra for name in ("min", "max")
              if getattr(info, name, None) is not None]  # fmt: skip
    choices = [info.metavar[1:-1] for info in extra if str(getattr(info, "metavar", "")).startswith("[")]
    needed = "needed" if each.required else f"default {_default(each.default)}"
    return ", ".join([*(choices or [_type(inner)]), *bounds, needed])


def _type(annotation: Any) -> str:
    kinds = [each for each in get_args(annotation) if each is not NoneType]
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return _type(kinds[0])
    if origin is Literal:
        return "|".join(map(str, kinds))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(each.value) for each in annotation)
    if origin is list:
        return f"{_type(kinds[0])} repeated"
    return " ".join(map(_type, kinds)) if origin is tuple else annotation.__name__


def _default(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "none"
    value = value.value if isinstance(value, Enum) else value
    return "none" if value is None or value == "" else str(value)
