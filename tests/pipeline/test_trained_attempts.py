"""Two live attempts at one training job on one folder, as after a network that was cut: both end, in the same model."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from killed import weight_hashes
from sharded_world import assert_same, rows_of

from holdfast.pipeline.train.plan import TrainSpec
from holdfast.pipeline.train.train import train
from shapes import make_photos


def attempt(work: Callable[[Any], Any], shard: Any, answers: Any) -> None:
    answers.put(work(shard))


class Twice:
    """Every shard is done by two processes at the same time; ``company`` says what happens to the first meanwhile."""

    width = 1
    shares_memory = False
    remote = True

    def __init__(self, company: Callable[[BaseProcess, BaseProcess], None]) -> None:
        self.company = company

    def map(self, work: Callable[[Any], Any], shards: Iterable[Any]) -> Iterator[Any]:
        context = multiprocessing.get_context("spawn")
        for shard in shards:
            answers = context.Queue()
            first, second = (context.Process(target=attempt, args=(work, shard, answers)) for _ in range(2))
            try:
                first.start()
                self.company(first, second)
                for one in (first, second):
                    one.join(120)
                    assert one.exitcode == 0
            finally:
                for one in (first, second):
                    if one.pid is not None:
                        one.kill()
            found = [answers.get(timeout=60) for _ in range(2)]
            assert found[0].rows == found[1].rows and not found[0].trouble and not found[1].trouble
            yield found[0]

    def close(self) -> None:
        pass


def until(reached: Callable[[], object], process: BaseProcess) -> None:
    while not reached():
        assert process.is_alive(), "it ended by itself"
        time.sleep(0.001)


def half_written(checkpoints: Path) -> set[str]:
    """The files of a checkpoint that is being written; none if it gets its name while it is looked at."""
    try:
        return {one.name for one in checkpoints.glob(".unfinished-*/*")}
    except FileNotFoundError:
        return set()


def stop_while_writing(process: BaseProcess, checkpoints: Path) -> None:
    """Send SIGSTOP so that half a checkpoint is there, from the third epoch on."""
    assert process.pid is not None
    until(lambda: any(one.name >= "epoch-00003" for one in checkpoints.glob("epoch-*")), process)
    while True:
        until(lambda: half_written(checkpoints), process)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.05)
        names = half_written(checkpoints)
        if names and "state.pt" not in names:
            return
        os.kill(process.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> TrainSpec:
    photos = make_photos(tmp_path_factory.mktemp("attempts") / "photos", 8)
    return TrainSpec(
        str(photos), architectures=("timm:test_resnet",), scenarios="original", folds=1, epochs=40, size=32,
        batch_size=8, device="cpu",
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(spec: TrainSpec, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train(spec, tmp_path_factory.mktemp("undisturbed") / "run")[0]


@pytest.mark.slow
@pytest.mark.parametrize("asleep", [True, False])
def test_both_attempts_end_in_the_same_model(asleep: bool, spec: TrainSpec, undisturbed: Any, tmp_path: Path) -> None:
    """The first sleeps in the middle of a checkpoint until the second has ended, or both are at it all the time."""
    job = tmp_path / "run" / "jobs" / "timm-test_resnet" / "original" / "fold-0"

    def company(first: BaseProcess, second: BaseProcess) -> None:
        if not asleep:
            until(lambda: any((job / "checkpoints").glob("epoch-*")), first)
            second.start()
            return
        stop_while_writing(first, job / "checkpoints")
        second.start()
        second.join(120)
        assert second.exitcode == 0 and first.pid is not None
        os.kill(first.pid, signal.SIGCONT)

    run, _ = train(spec, tmp_path / "run", executor=Twice(company))
    assert weight_hashes(run.path / "models") == weight_hashes(undisturbed.path / "models")
    assert_same(rows_of(run), rows_of(undisturbed))
    columns = ["job", "epoch", "split", "loss", "accuracy"]
    assert pq.read_table(run.path / "curves", columns=columns) == pq.read_table(
        undisturbed.path / "curves", columns=columns
    )
    assert [one.name for one in job.iterdir()] == ["job.json"], "no checkpoints are left"
