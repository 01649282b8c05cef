"""Commands below commands: ``holdfast mine POOL`` and ``holdfast mine modes RUN``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from holdfast.core.distribution import extra_with, pip_install
from holdfast.core.errors import UserError

BROKEN = "Cannot be loaded"
"""The heading of commands that are not there because their package fails."""


@dataclass(frozen=True)
class Leaf:
    """What a name does: a Typer function; None if the name only holds the commands below it."""

    command: Callable[..., None] | None
    panel: str = ""
    help: str = ""
    epilog: str | None = None
    takes_anything: bool = False


class CommandGroup(TyperGroup):
    """Commands below one name. ``own`` is what the name does by itself, if it does anything."""

    own: Any = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.own is not None:
            self.own.format_help = self.format_help

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; the error for one of a package that is not installed names the package."""
        command = super().get_command(ctx, cmd_name)
        words = [cmd_name]
        while ctx.parent:
            words, ctx = [ctx.info_name, *words], ctx.parent
        if command is None and (extra := extra_with(" ".join(words))):
            raise UserError(f"holdfast {' '.join(words)} comes with {pip_install(extra)}")
        return command

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of what was typed: of ``own``, unless the first word is a command below it."""
        if self.own is not None and not (args and args[0] in self.commands):
            return self.own.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def get_params(self, ctx: Any) -> Any:
        """Return the options: those of ``own`` in its help."""
        return self.own.get_params(ctx) if ctx.command is self.own else super().get_params(ctx)

    def get_usage(self, ctx: Any) -> Any:
        """Return the line of usage: that of ``own`` in its help."""
        return self.own.get_usage(ctx) if ctx.command is self.own else super().get_usage(ctx)


def leaf_of(command: Any) -> Any:
    """Return the command that has the options: a group's own, or the command itself."""
    return getattr(command, "own", None) or command


def grow(app: typer.Typer, leaves: Mapping[str, Leaf]) -> None:
    """Add commands by name; ``mine modes`` is a command below ``mine``."""
    below: dict[str, dict[str, Leaf]] = {}
    for name, leaf in leaves.items():
        parent, _, word = name.rpartition(" ")
        if parent:
            below.setdefault(parent, {})[word] = leaf
    for name in dict.fromkeys(name.partition(" ")[0] for name in leaves):
        leaf = leaves.get(name, Leaf(None, next(iter(below.get(name, {"": Leaf(None)}).values())).panel))
        if name in below:
            _add_group(app, name, leaf, below[name])
        elif leaf.command is not None:
            _add(app, name, leaf, leaf.panel)


def _add(app: typer.Typer, name: str, leaf: Leaf, panel: str | None, **settings: Any) -> None:
    """Add one command."""
    if leaf.takes_anything:
        settings["context_settings"] = {"ignore_unknown_options": True, "allow_extra_args": True}
    command: Any = leaf.command
    app.command(name, rich_help_panel=panel, help=leaf.help or None, epilog=leaf.epilog, **settings)(command)


def _add_group(app: typer.Typer, name: str, leaf: Leaf, below: Mapping[str, Leaf]) -> None:
    """Add a name with commands below it."""
    kind: Any = CommandGroup
    help = leaf.help or f"{', '.join(below)}."
    if leaf.command is not None:
        alone = typer.Typer(add_completion=False)
        _add(alone, name, leaf, None)
        own = typer.main.get_command(alone)
        help = own.help or help
        kind = type("GroupWithOwn", (CommandGroup,), {"own": own})
    group = typer.Typer(cls=kind, no_args_is_help=leaf.command is None, help=help, epilog=leaf.epilog)
    for word, each in below.items():
        _add(group, word, each, each.panel if each.takes_anything else None)
    app.add_typer(group, name=name, rich_help_panel=leaf.panel)
