"""The tree of commands: few in the core, and every command that a text names exists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from holdfast import registry
from holdfast.cli.listing import ls
from holdfast.cli.main import app
from holdfast.cli.tree import leaf_of
from holdfast.commands import VERBS

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"(?<![\w./@:-])(?<!import )(?<!from )holdfast ([a-z][a-z-]*)\b(?![\w.(=/])(?: ([a-z-]+)\b)?")
NOT_COMMANDS = {
    "import", "as", "that", "has", "and", "accuracy", "recall", "release",  # of Python and of prose
    "greet-me", "made-here", "evaluate", "coins",  # of tests of other packages' commands and of wrong ones
}  # fmt: skip
TEXTS = (".py", ".md", ".html", ".j2", ".toml", ".yml", ".yaml", ".ipynb")


def test_the_core_has_few_commands() -> None:
    names = {verb.name.partition(" ")[0] for verb in VERBS} | {"plan"}
    assert len(names) <= 20, sorted(names)


def _texts() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for name in listed.splitlines():
        kept = name.startswith(("tests/freeze/", "tests/migration/")) or name == "CHANGELOG.md"
        if name.endswith(TEXTS) and not kept:
            yield name, (ROOT / name).read_text(encoding="utf8")


def test_every_command_that_a_text_names_exists() -> None:
    groups: dict[str, set[str]] = {}
    for name in [*registry.verbs, "plan"]:
        first, _, second = name.partition(" ")
        groups.setdefault(first, set()).update({second} - {""})
    alone = {name for name in registry.verbs if " " not in name and not registry.verbs.get(name).help} | {"plan"}
    wrong = []
    for where, text in _texts():
        for found in NAMED.finditer(text):
            first, second = found[1], found[2] or ""
            if first in NOT_COMMANDS:
                continue
            if first not in groups or (first not in alone and second not in groups[first] | {""}):
                line = text.count("\n", 0, found.start()) + 1
                wrong.append(f"{where}:{line}: {found[0]!r}")
    assert not wrong, "\n".join(wrong)


def test_options_of_one_feature_have_their_own_panel() -> None:
    panels = {
        "eval": {"--boxes": "Detectors and labels", "--fast": "Device and speed", "--generator": "Painted backgrounds"},
        "compare": {"--parity": "Exported models", "--sidecar": "Exported models"},
        "report": {"--choose": "Choosing a model", "--weights": "Choosing a model"},
        "perturb": {"--find-sparse": "Sparse walks", "--loss-space": "Classes that count", "--frames": "Kept images"},
        "train": {"--epochs": "Recipe", "--generator": "Painted backgrounds", "--device": "Device and speed"},
        "segment": {"--epochs": "Recipe", "--generator": "Painted backgrounds", "--device": "Device and speed"},
        "synth": {"--format": "Files", "--review": "Review", "--feather": "Conditions"},
        "mine": {"--at-least": "Selection", "--again": "New images", "--fast": "Device and speed"},
    }
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, expected in panels.items():
        found = {option.opts[0]: getattr(option, "rich_help_panel", None) for option in leaf_of(commands[name]).params}
        assert expected.items() <= found.items(), name
        alone = [flag for flag, panel in found.items() if flag.startswith("--") and not panel]
        assert len(alone) <= 28, f"{name} has {len(alone)} options without a heading"


def test_ls_lists_what_packages_can_add(capsys: pytest.CaptureFixture[str]) -> None:
    for what, member in {
        "tasks": "classify",
        "measures": "drops",
        "sections": "verdict",
        "hooks": "declaration",
    }.items():
        ls(what)
        names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
        assert member in names, what
