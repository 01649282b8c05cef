"""A model that ends its process with ``os._exit`` ends no command as if all were done, and no row is missing unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core.errors import HoldfastError
from holdfast.engine import LocalExecutor
from holdfast.pipeline.jobs.execute import execute
from holdfast.pipeline.jobs.plan import Job, plan
from holdfast.store import Run
from shapes import make_photos

MODELS = """
import os, numpy as np
from pathlib import Path

class Dies:
    labels = ["cross", "disc", "square"]
    fingerprint = "1"
    def __init__(self):
        self.asked = 0
    def predict(self, images):
        self.asked += len(images)
        if self.asked > 3 and Path("dies").exists():
            os._exit(0)
        return np.eye(3)[[0] * len(images)]

class Speaks:
    fingerprint = "1"
    def __init__(self):
        self.asked = 0
    def answer(self, images, questions):
        self.asked += len(images)
        if self.asked > 3 and Path("dies").exists():
            os._exit(0)
        return ["a cross"] * len(images)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "photos", "--models", "python:dying:Dies", "--scenarios", "original,grey"],
        ["eval", "photos", "--models", "python:dying:Dies", "--scenarios", "original,grey", "--workers", "2"],
        ["ask", "diorama:test?n=12", "--models", "vlm+python:dying:Speaks", "--distractor", "embedded:resnet_rho0"],
    ],
    ids=["eval", "eval with workers", "ask"],
)
def test_a_model_that_exits_fails_the_command_and_the_next_one_finishes_it(words: list[str], tmp_path: Path) -> None:
    make_photos(tmp_path / "photos")
    (tmp_path / "dying.py").write_text(MODELS)
    (tmp_path / "dies").touch()

    def typed() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast", *words, "--batch-size", "2", "--out", "run"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    died = typed()
    assert died.returncode == 1, (died.returncode, died.stdout, died.stderr)
    assert "called os._exit(0)" in died.stderr and "run the same command again" in died.stderr
    (tmp_path / "dies").unlink()
    again = typed()
    assert again.returncode == 0, again.stderr
    rows = Run(tmp_path / "run").predictions.rows(["row_id", "sample_id"]).to_pylist()
    assert len({row["row_id"] for row in rows}) == len(rows)
    assert len({row["sample_id"] for row in rows}) == 12


def test_a_child_that_a_model_forks_may_end_as_it_likes() -> None:
    from holdfast.core.errors import end_process, no_exit

    with no_exit(), no_exit():
        if not (child := os.fork()):
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert os._exit is end_process
    with pytest.raises(HoldfastError, match=r"os\._exit\(3\)"), no_exit():
        os._exit(3)
    assert os._exit is end_process


class _Forgetful:
    """A worker that leaves out one of its rows and says nothing."""

    name = "forgetful"

    def load(self) -> None:
        return None

    def run(self, resources: None, jobs: Sequence[Job[str, str]]) -> Iterator[dict[str, Any]]:
        for job in jobs:
            for row_id in job.ids:
                if row_id != "b":
                    yield {"row_id": row_id, "status": "ok"}


def test_a_planned_row_that_is_not_stored_is_an_error(tmp_path: Path) -> None:
    table = holdfast.evaluate("diorama:test?n=2", models="embedded:resnet_rho0", scenarios="original", device="cpu",
                              out=tmp_path / "run").run.predictions  # fmt: skip
    todo = plan(table, [Job(name, (name,)) for name in "abc"], lambda job: [job.item])
    with pytest.raises(HoldfastError, match="1 of 3 planned rows were not stored"):
        execute(todo, _Forgetful(), LocalExecutor(1), step="test")
