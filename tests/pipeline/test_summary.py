"""What many workers did, in one summary."""

from __future__ import annotations

import time

import pytest

from holdfast.pipeline.jobs.progress import ProgressLines, Summary


def test_what_each_worker_says_with_its_own_figures_is_said_once() -> None:
    faster = "timm:vit_{} is not compiled: it is faster as it is ({} images/s, compiled {})"
    whole = Summary()
    for notes in (
        [faster.format(1, 900, 800), "timm:a is not compiled: no compiler"],
        [faster.format(1, 950, 780), faster.format(2, 30, 20)],
        [faster.format(2, 31, 19), "timm:a is not compiled: no compiler", "timm:b is not compiled: no compiler"],
    ):
        whole.merge(Summary(notes=notes))
    assert whole.notes == [
        faster.format(1, 900, 800),
        "timm:a is not compiled: no compiler",
        faster.format(2, 30, 20),
        "timm:b is not compiled: no compiler",
    ]


def test_the_end_of_a_step_is_printed_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([0.0, 8.0, 8.1, 20.0, 30.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    progress = ProgressLines()
    for done in (0, 8, 8, 0, 8):  # masks are made and then listed; the last time is another step of this name
        progress("mask", done, 8)
    assert capsys.readouterr().err.splitlines() == ["mask: 8/8, 1.0/s", "mask: 8/8, 0.8/s"]
