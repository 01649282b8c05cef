"""What the site shows of other files: cards of embedded assets, changelog, contributing, options of every verb.

Nothing is copied into docs/: pages are made while MkDocs builds, from the files that are shipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ASSETS = ROOT / "src" / "holdfast" / "assets"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for where, text in made_pages():
        files.append(File.generated(config, where, content=text))
    return files


def made_pages() -> Iterator[tuple[str, str]]:
    """Path below docs/ and Markdown of each."""
    for card in sorted(ASSETS.rglob("README.md")):
        text = card.read_text(encoding="utf8")
        # Hubs nest lists by two spaces, MkDocs by four.
        yield f"cards/{card.parent.relative_to(ASSETS).as_posix()}.md", re.sub(r"^  - ", "    - ", text, flags=re.M)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        yield name.lower(), (ROOT / name).read_text(encoding="utf8").replace("](docs/", "](")
    yield "commands.md", commands_page()


def commands_page() -> str:
    """Every verb with its arguments and options, as the parser knows them."""
    import typer

    from holdfast.cli.main import app

    parts = ["# All options\n", "Made from the command line's own parser; `holdfast VERB --help` prints the same.\n"]
    for words, command in _commands(typer.main.get_command(app), ("holdfast",)):
        usage = " ".join([*words, *command.collect_usage_pieces(command.context_class(command))])
        usage = re.sub(r"[{}]", "", usage)
        parts += [f"## {' '.join(words)}", "", f"`{usage}`", "", _escaped(command.help or ""), ""]
        rows = [row for parameter in command.params if (row := _row(parameter))]
        if rows:
            parts += ["| option | default | |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands") and command.name != "plan":  # its verbs have the options of the verbs
        for name in sorted(command.commands):
            yield from _commands(command.commands[name], (*words, name))
    else:
        yield words, command


def _row(parameter: Any) -> str:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return ""
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = parameter.metavar or parameter.name.upper()
    default = parameter.default
    if default is None or default in ("", (), [], False) or callable(default):
        default = "needed" if parameter.required else ""
    shown = f"`{default}`" if default not in ("", "needed") else default
    return f"| `{names}` | {shown} | {_escaped(getattr(parameter, 'help', None) or '')} |"


def _escaped(text: str) -> str:
    """Help as one line of Markdown: no cell ends in it and no tag begins."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
