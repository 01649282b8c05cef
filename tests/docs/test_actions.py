"""The GitHub Actions of the documentation: YAML, read-only, and made of commands that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import doc_parser
import pytest
import yaml
from doc_blocks import ROOT

ACTIONS = sorted((ROOT / "docs" / "github").glob("*.yml"))


def test_there_are_actions() -> None:
    assert [path.stem for path in ACTIONS] == ["board-check", "release-gate"]


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.stem)
def test_an_action_runs_commands_that_there_are(path: Path) -> None:
    told = yaml.safe_load(path.read_text(encoding="utf8"))
    assert told["permissions"] == {"contents": "read"}
    assert "pull_request" in told[True]  # what YAML 1.1 makes of "on"
    (job,) = told["jobs"].values()
    text = "\n".join(step.get("run", "") for step in job["steps"])
    found = re.findall(r"^holdfast .+$", text, re.M)
    assert found
    for line in found:
        words = shlex.split(line.replace('"${files[@]}"', "board/a.json").replace("$OLD,$NEW", "embedded:a,embedded:b"))
        doc_parser.check_options(words)
    assert "${{" not in text, "what a pull request says must not become part of a script"
