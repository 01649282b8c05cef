"""What a report advises runs as it is printed, and errors speak the language of the caller."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.reports.static.front import step_list

DATA = "diorama:test?n=24&context=0.95&size=64"


def test_printed_steps_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models in one run, of which the second leans: what the page and the terminal print as next commands."""
    monkeypatch.chdir(tmp_path)
    models = ["embedded:resnet_rho0", "embedded:vit_rho95"]
    names = "original,same_class_background,random_background"
    run = holdfast.evaluate(DATA, models=models, scenarios=names, out="old run")
    holdfast.evaluate(DATA, models=models[:1], scenarios=names, out="new")
    records = run.verdicts(outcome="restricted", resamples=100).to_dict("records")
    records[1] = {**records[1], "leans": "yes"}  # advice for a leaning model is printed, too
    commands = [line for _, command in step_list(records, run.run, run.counts) for line in command.split("; ") if line]
    assert sum("compare" in line for line in commands) == 1 and any("synth" in line for line in commands)
    for line in commands:
        words = [{"NEW_RUN": "new", "TRAINING_PHOTOS": DATA}.get(word, word) for word in shlex.split(line)]
        if words[1] in ("mask", "synth"):
            words += ["--limit", "4", "--workers", "1"]
        if words[1] == "explain":
            words += ["--help"]  # explaining takes long; its own tests run it
        answer = CliRunner().invoke(app, words[1:])
        assert answer.exit_code in (0, 1, 3), f"{line}: {answer.output} {answer.exception}"


def test_python_is_told_keywords_and_the_terminal_options(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="boxes= and images= are for detectors"):
        holdfast.check("embedded:resnet_rho0", DATA, boxes="b.csv", out=tmp_path)
    typed = CliRunner().invoke(app, ["check", "embedded:resnet_rho0", DATA, "--boxes", "b.csv", "--out", str(tmp_path)])
    assert "--boxes and --images are for detectors" in f"{typed.output}{typed.exception}"
