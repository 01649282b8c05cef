"""A command of the documentation, held against the real parser."""

from __future__ import annotations

from typing import Any

import typer

from holdfast import registry
from holdfast.cli.main import app
from holdfast.cli.tree import leaf_of
from holdfast.scenarios import parse_conditions
from holdfast_studies.study import chosen

_APP: Any = typer.main.get_command(app)


def find(words: list[str]) -> tuple[Any, list[str]]:
    """The verb (with its second word, if it has one) of ``holdfast VERB …``, and the words after it."""
    command, rest = _APP, words[1:]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands and leaf_of(command) is not command:
            break
        assert rest[0] in command.commands, f"holdfast has no verb {rest[0]!r}: {' '.join(words)}"
        command, rest = command.commands[rest[0]], rest[1:]
        while hasattr(command, "commands") and rest and rest[0].startswith("--"):  # holdfast plan --seconds 20 eval …
            own = [one for one in command.params if rest[0] in one.opts]
            assert own, f"{rest[0]} is not an option of: {' '.join(words)}"
            rest = rest[1 if own[0].is_flag else 2 :]
    return leaf_of(command), rest


def check_options(words: list[str]) -> None:
    """Verb and names of options exist; what is left out of a sentence may be anything."""
    command, rest = find(words)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        option = word.partition("=")[0].rstrip(",;:.)")
        if option.startswith("--") and len(option) > 2:
            assert option in known | {"--help"}, f"{option} is not an option of: {' '.join(words)}"


def check_command(words: list[str]) -> None:
    """The parser takes it: nothing missing or unknown, every value of its type; conditions, studies, settings exist."""
    check_options(words)
    command, rest = find(words)
    if command is _APP or {"-h", "--help"} & set(rest):
        return
    values = command.make_context(command.name, list(rest)).params
    if values.get("scenarios"):
        parse_conditions(",".join(values["scenarios"]))
    if command.name == "study":
        chosen(
            values["name"], registry.studies.get(values["name"]).settings, values["set_"] or (), quick=values["quick"]
        )
