"""The kernel of jobs that resume: what is retried, which errors become rows, and which stop the command."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import commands
from holdfast.core.errors import MachineError, SampleError, UserError
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.jobs.rows import answer_each
from holdfast.store import Run

FAULTY = '''
import errno, os, pathlib, sys
import numpy as np
from holdfast.core.errors import UserError

class Faulty:
    """Fails on red pictures in a way that a file says, and has no trouble where the file is missing."""

    labels = ("cross", "disc", "square")

    def __init__(self, name):
        self.name, self.fingerprint = name, name
        self.largest = 0

    def predict(self, images):
        self.largest = max(self.largest, len(images))
        path = pathlib.Path(os.environ["FAULTY"])
        kind = path.read_text() if path.exists() else ""
        if kind == "memory" and len(images) > 1:
            raise MemoryError
        for image in images:
            if image[..., 0].mean() > 127:
                if kind == "user":
                    raise UserError("this model wants another --device")
                if kind == "exit":
                    sys.exit(0)
                if kind == "value":
                    raise ValueError("too red")
                if kind == "one":
                    raise MemoryError
                if kind.isupper():
                    raise OSError(getattr(errno, kind), "trouble")
        return np.full((len(images), 3), 1 / 3, np.float32)

first, second = Faulty("first"), Faulty("second")
'''


@pytest.fixture
def faulty(tmp_path: Path, toy_models: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says how the models of ``faulty_models`` fail."""
    (tmp_path / "modules" / "faulty_models.py").write_text(FAULTY)
    sys.modules.pop("faulty_models", None)
    monkeypatch.setenv("FAULTY", str(tmp_path / "kind"))
    return tmp_path / "kind"


def spec_of(photos: Path, *models: str, **options: Any) -> EvaluateSpec:
    names = tuple(f"python:faulty_models:{name}" for name in models)
    return EvaluateSpec(str(photos), models=names, scenarios="original,grey", device="cpu", batch_size=4, **options)


def statuses(run: Run) -> Counter[tuple[str, str]]:
    return Counter((row["model"].rpartition(":")[2], row["status"]) for row in run.rows().to_pylist())


def test_errors_are_retried_for_the_models_that_the_command_names(photos: Path, faulty: Path, tmp_path: Path) -> None:
    faulty.write_text("value")
    run, summary = evaluate(spec_of(photos, "first", "second"), tmp_path / "run")
    before = statuses(run)
    failed = before["second", "error"]
    assert failed == before["first", "error"] == sum(summary.trouble.values()) / 2 > 0
    assert run.rows(["run_id"])["run_id"].unique().to_pylist() == ["run"]
    faulty.unlink()
    _, again = evaluate(spec_of(photos, "first", retry_errors=True), tmp_path / "run")
    assert (again.rows, again.already) == (failed, sum(before.values()) // 2 - failed)
    after = statuses(run)
    assert after["second", "error"] == failed and not after["first", "error"]
    assert sum(after.values()) == sum(before.values())
    _, last = evaluate(spec_of(photos, "first", "second", retry_errors=True), tmp_path / "run")
    assert (last.rows, last.already) == (failed, sum(before.values()) - failed)
    assert {status for _, status in statuses(run)} == {"ok"}


def test_errors_are_retried_under_the_conditions_that_the_command_names(
    photos: Path, faulty: Path, tmp_path: Path
) -> None:
    faulty.write_text("value")
    wanted = spec_of(photos, "first")
    run, _ = evaluate(wanted, tmp_path / "run")
    failed = {
        row["row_id"] for row in run.rows().to_pylist() if row["status"] == "error" and row["condition"] == "grey"
    }
    faulty.unlink()
    only = EvaluateSpec(**{**wanted.__dict__, "scenarios": "original", "retry_errors": True})
    evaluate(only, tmp_path / "run")
    left = {row["row_id"] for row in run.rows().to_pylist() if row["status"] == "error"}
    assert left == failed


@pytest.mark.parametrize("executor", [1, 2])
def test_a_users_mistake_inside_a_model_stops_the_run(
    executor: int, photos: Path, faulty: Path, tmp_path: Path
) -> None:
    faulty.write_text("user")
    with pytest.raises(UserError, match="wants another --device"):
        evaluate(spec_of(photos, "first", workers=executor), tmp_path / "run")
    assert not [row for row in Run(tmp_path / "run").rows().to_pylist() if row["status"] != "ok"]


def test_the_command_line_ends_with_2_after_a_users_mistake_and_with_1_after_sys_exit(
    photos: Path, faulty: Path, tmp_path: Path
) -> None:
    command = ("eval", photos, "--models", "python:faulty_models:first", "--out", tmp_path / "run", "--quiet")
    for kind, code, words in (("user", 2, "another --device"), ("exit", 1, "called sys.exit()")):
        faulty.write_text(kind)
        assert words in commands.run(*command, code=code).stderr
    faulty.unlink()
    commands.run(*command)
    assert {status for _, status in statuses(Run(tmp_path / "run"))} == {"ok"}


@pytest.mark.parametrize("kind", ["ENOSPC", "EACCES", "EIO", "one"])
def test_trouble_of_the_machine_stops_the_run_and_is_never_a_row(
    kind: str, photos: Path, faulty: Path, tmp_path: Path
) -> None:
    faulty.write_text(kind)
    with pytest.raises(MachineError, match="run the same command again"):
        evaluate(spec_of(photos, "first"), tmp_path / "run")
    faulty.unlink()
    run, _ = evaluate(spec_of(photos, "first"), tmp_path / "run")
    assert statuses(run) == {("first", "ok"): 24}


def test_memory_that_runs_out_halves_the_batch(photos: Path, faulty: Path, tmp_path: Path) -> None:
    faulty.write_text("memory")
    run, summary = evaluate(spec_of(photos, "first"), tmp_path / "run")
    assert statuses(run) == {("first", "ok"): 24} and not summary.trouble
    assert sys.modules["faulty_models"].first.largest == 4


def test_only_the_items_that_fail_become_errors() -> None:
    asked: list[list[int]] = []

    def ask(items: Any) -> list[int]:
        asked.append(list(items))
        if 5 in items:
            raise ValueError("not five")
        return [item * item for item in items]

    answers = answer_each(ask, range(8))
    assert [str(answer) for answer in answers] == ["0", "1", "4", "9", "16", "ValueError: not five", "36", "49"]
    assert isinstance(answers[5], SampleError) and asked[-1] == [6, 7]
    assert answer_each(ask, []) == []
