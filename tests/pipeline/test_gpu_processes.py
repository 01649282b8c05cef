"""Processes that share a GPU: when they are started, and that they make the rows of one process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from drawn_pool import make_pool
from sharded_world import assert_same, in_order, rows_of

import holdfast
from holdfast import registry
from holdfast.engine import LocalExecutor
from holdfast.pipeline.ask.ask import AskSpec, ask
from holdfast.pipeline.explain.explain import ExplainSpec, explain
from holdfast.pipeline.hard.pool import JUDGED, measure
from holdfast.pipeline.jobs.execute import AT_MOST, choose_executor, process_count
from holdfast.pipeline.jobs.plan import Job, Plan, plan
from holdfast.pipeline.jobs.progress import silent
from holdfast.pipeline.specs import MineSpec
from holdfast.scenarios import parse_conditions, scenario
from holdfast.store import Parts, Run

GIB = 1 << 30
TWO = LocalExecutor(2, scriptless=True)


@pytest.mark.parametrize(
    ("given", "processes"),
    [
        ((100_000, 16, 130 * GIB, 4 * GIB), 8),
        ((100_000, 6, 130 * GIB, 4 * GIB), 3),  # two cores each
        ((100_000, 3, 130 * GIB, 4 * GIB), 1),
        ((100_000, 16, 11 * GIB, 4 * GIB), 2),  # as many as the memory holds
        ((100_000, 16, 7 * GIB, 4 * GIB), 1),
        ((100_000, 16, GIB, 4 * GIB), 1),
        ((4_999, 16, 130 * GIB, 4 * GIB), 1),  # too few rows to wait for their start
    ],
)
def test_how_many_processes(given: tuple[int, int, int, int], processes: int) -> None:
    assert process_count(*given) == processes


def test_how_many_processes_on_several_gpus_and_of_large_models() -> None:
    assert process_count(100_000, 64, 11 * GIB, 4 * GIB, gpus=4) == 8
    assert process_count(100_000, 64, 130 * GIB, 4 * GIB, gpus=2) == 16
    assert process_count(100_000, 16, 130 * GIB, 40 * GIB, most=2) == 2
    assert process_count(3_000, 16, 130 * GIB, 4 * GIB, most=4, pays=3_000) == 4


class Nothing:
    """A worker that may hold anything."""

    name = "nothing"

    def __init__(self, held: Any = None) -> None:
        self.held = held


@pytest.fixture
def owed(tmp_path: Path) -> Plan[int, None]:
    jobs: list[Job[int, None]] = [Job(number, (None,)) for number in range(6000)]
    return plan(Parts(tmp_path / "parts", JUDGED), jobs, lambda job: [str(job.item)])


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch as on a machine of 16 cores with a GPU of which 100 GiB are free."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 * GIB, 139 * GIB))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))


def chosen(owed: Plan[int, None], models: tuple[str, ...] = ("timm:resnet50",), **options: Any) -> Any:
    given: dict[str, Any] = {"worker": Nothing(), "executor": None, "device": "auto", "parameters": 25_000_000}
    return choose_executor(owed, models=models, batch=32, **given | options)


def test_many_rows_on_a_gpu_get_processes(gpu: None, owed: Plan[int, None]) -> None:
    assert chosen(owed) == chosen(owed, executor=LocalExecutor(1)) == LocalExecutor(8, scriptless=True)
    assert chosen(owed, parameters=7 * 10**9) == LocalExecutor(1)  # 56 GB each
    assert chosen(owed, parameters=5 * 10**9, most=2) == LocalExecutor(2, scriptless=True)
    assert chosen(owed, executor=LocalExecutor(3)) == LocalExecutor(3)  # which was asked for
    assert chosen(owed, device="cpu") == LocalExecutor(1)
    assert chosen(owed, pays=6001) == LocalExecutor(1)


def test_the_environment_says_how_many_at_most_and_the_fullest_gpu_how_many_fit(
    gpu: None, owed: Plan[int, None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AT_MOST, "3")
    assert chosen(owed) == LocalExecutor(3, scriptless=True)
    monkeypatch.setenv(AT_MOST, "1")
    assert chosen(owed) == LocalExecutor(1)
    monkeypatch.delenv(AT_MOST)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    free = {0: 100 * GIB, 1: 13 * GIB}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device], 139 * GIB))
    assert chosen(owed) == LocalExecutor(6, ("0", "1"), scriptless=True)  # 4.2 GiB each
    free[1] = GIB
    assert chosen(owed) == LocalExecutor(1)


def test_a_network_that_the_script_has_registered_stays_with_it(
    gpu: None, owed: Plan[int, None], monkeypatch: pytest.MonkeyPatch
) -> None:
    timm = pytest.importorskip("timm")
    entry = timm.model_entrypoint("resnet18")
    assert chosen(owed, ("timm:resnet18",)).workers == 8
    monkeypatch.setattr(entry, "__module__", "__main__")
    assert chosen(owed, ("timm:resnet18?pretrained=false",)) == LocalExecutor(1)


@pytest.fixture
def own_scenario() -> Iterator[str]:
    @scenario(id="of_this_test", family="light", summary="nothing", needs_mask=False)
    def of_this_test(image: Any, mask: Any, **_: Any) -> Any:
        return image

    yield "of_this_test"
    registry.scenarios.remove("of_this_test")


def test_what_only_this_process_has_stays_in_it(gpu: None, owed: Plan[int, None], own_scenario: str) -> None:
    here = LocalExecutor(1)
    for model in ("live:mine", "python:mine:model", "vlm+http://localhost:8000/v1#llava", "human:votes", "onnx:a.onnx"):
        assert chosen(owed, ("timm:resnet50", model)) == here
    for name in (own_scenario, "fgsm", "generated_background"):
        assert chosen(owed, conditions=parse_conditions(f"original,{name}")) == here
    assert chosen(owed, conditions=parse_conditions("original,fog@3")) == LocalExecutor(8, scriptless=True)
    assert chosen(owed, worker=Nothing(lambda: None)) == here

    class Script:
        __module__ = "__main__"

    assert chosen(owed, worker=Nothing(Script)) == here


def test_maps_of_processes_are_those_of_one(tmp_path: Path) -> None:
    models = ["embedded:resnet_rho0", "embedded:vit_rho95"]
    data, conditions = "diorama:test?n=12&context=0.95", "original,random_background"
    holdfast.evaluate(data, models=models, out=tmp_path / "run", scenarios=conditions, device="cpu")
    frames, summaries = [], []
    for name, executor in (("one", None), ("two", TWO)):
        run = Path(shutil.copytree(tmp_path / "run", tmp_path / name))
        spec = ExplainSpec(limit=8, device="cpu", batch_size=4, pictures=2)
        found = explain(run, spec, executor=executor)
        table = Run(run).details("attributions")
        rows = pd.DataFrame(table.rows().to_pylist()).sort_values(["row_id", "method"], ignore_index=True)
        frames.append(rows)
        summaries.append((found.summary.rows, dict(found.summary.trouble)))
        assert all((run / picture).is_file() for picture in rows["picture"] if picture)
    assert len(table.paths()) == 4  # two shards of each model
    pd.testing.assert_frame_equal(*frames)
    assert summaries[0] == summaries[1] == (32, {})


def test_questions_asked_by_processes_get_the_same_answers(tmp_path: Path) -> None:
    spec = AskSpec(
        "diorama:test?n=12", models=("embedded:resnet_rho0", "embedded:vit_rho95"), distractor="embedded:resnet_rho95",
        batch_size=2, device="cpu", scenarios="original,random_background",
    )  # fmt: skip
    one, summary = ask(spec, tmp_path / "one")
    two, of_processes = ask(spec, tmp_path / "two", executor=TWO)
    assert len(two.predictions.paths()) == 3 and summary.rows == of_processes.rows == 12 * 2 * 2 * 2
    assert rows_of(one) == rows_of(two)
    assert in_order(one.details("answers").rows()) == in_order(two.details("answers").rows())


def test_processes_judge_as_one_does(tmp_path: Path) -> None:
    pool = str(make_pool(tmp_path / "pool", 40))
    spec = MineSpec(
        pool, ("embedded:resnet_rho0", "embedded:vit_rho95"), ("embedded:resnet_rho95",),
        "classifier:embedded:mobilenet_rho95", device="cpu",
    )  # fmt: skip
    measure(spec, pool, tmp_path / "one", silent)
    shutil.copytree(tmp_path / "one" / "run", tmp_path / "two" / "run")  # models have answered; the oracle has not
    measure(spec, pool, tmp_path / "two", silent, executor=TWO)
    one, two = (Parts(tmp_path / name / "oracle", JUDGED) for name in ("one", "two"))
    assert len(two.paths()) == 6 and len(one.rows()) > 30
    assert_same(in_order(one.rows()), in_order(two.rows()))
