"""The table of the three papers: its commands are known, its tests exist, and what is not whole says why."""

from __future__ import annotations

import re

import pytest
import typer
from doc_blocks import ROOT

from holdfast import registry
from holdfast.cli.main import app

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]

ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (ROOT / "docs" / "seeds.md").read_text(encoding="utf8").splitlines()
    if line.startswith("| ") and not line.startswith("| there")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1]}"[:60])
def test_a_row_has_a_command_that_a_test_runs_or_says_why_not(row: list[str]) -> None:
    assert len(row) == 5, row
    _, _, command, state, where = row
    for text in re.findall(r"`(holdfast [^`]+)`", command):
        verb, *names = text.split()[1:]
        assert verb in COMMANDS, text
        assert verb != "study" or names[0] in registry.studies or names[0] in COMMANDS["study"].commands, text
    assert re.match(r"whole|part: .+|missing", state), f"{row[0]}: {state}"
    if state.startswith("missing"):
        return
    assert command and where, f"{row[0]}: neither a command nor where its result stands"
    for path in re.findall(r"[\w/]*tests/[\w/.]+", where):
        assert (ROOT / path.rstrip(".")).exists(), f"{row[0]}: there is no {path}"
