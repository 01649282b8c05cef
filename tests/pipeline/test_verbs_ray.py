"""perturb, eval --fast, generate, mine, train and segment on a real Ray cluster, also where workers are killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import psutil
import pyarrow.parquet as pq
import pytest
from drawn_pool import ORACLE, SURROGATES, TARGET, make_pool
from killed import weight_hashes
from sharded_world import assert_same, in_order, pictures, rows_of

from holdfast.engine import Executor, open_executor
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.generate.generate import GenerateSpec, generate
from holdfast.pipeline.hard.mine import mine
from holdfast.pipeline.hard.pool import MineSpec
from holdfast.pipeline.segment.segment import SegmentSpec, segment
from holdfast.pipeline.specs import PerturbSpec, WalkOptions
from holdfast.pipeline.train.plan import TrainSpec
from holdfast.pipeline.train.train import train
from holdfast.pipeline.walk.perturb import perturb
from holdfast.store import Run
from ray_cluster import ray_cluster
from shapes import make_photos

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ray() -> Iterator[Executor]:
    with ray_cluster(nodes=2) as cluster:
        executor = open_executor("ray", address=cluster.address, workers=2)
        yield executor
        executor.close()


def work_processes() -> list[psutil.Process]:
    """Processes of this cluster that hold work."""
    found = []
    for one in psutil.Process().children(recursive=True):
        try:
            if any("MapWorker" in word or "_Worker" in word for word in one.cmdline()):
                found.append(one)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@contextmanager
def killing_a_worker(ready: Callable[[], bool]) -> Iterator[None]:
    """Send SIGKILL to the worker that has computed most, once something is there; someone must have been killed."""
    killed: list[int] = []

    def wait() -> None:
        end = time.monotonic() + 300
        while not ready() and time.monotonic() < end:
            time.sleep(0.02)
        busiest = max(work_processes(), key=lambda one: sum(one.cpu_times()[:2]))
        os.kill(busiest.pid, signal.SIGKILL)
        killed.append(busiest.pid)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield
    thread.join(10)
    assert killed and not psutil.pid_exists(killed[0])


def walks(scenes: int, steps: int) -> PerturbSpec:
    return PerturbSpec(
        f"diorama:test?n={scenes}", models=("embedded:resnet_rho0", "embedded:mobilenet_rho95"), generator="pixel:",
        oracle="classifier:embedded:resnet_rho95", keep_images=True, frames=2, device="cpu",
        walk=WalkOptions(steps=steps, step_size=0.02, batch_size=1, deterministic=True),
    )  # fmt: skip


def test_walks_also_where_a_worker_is_killed(ray: Executor, tmp_path: Path) -> None:
    spec = walks(scenes=16, steps=6)
    one, _ = perturb(spec, tmp_path / "one")
    done = tmp_path / "other" / "predictions"
    with killing_a_worker(lambda: any(done.glob("part-*.parquet"))):
        other, _ = perturb(spec, tmp_path / "other", executor=ray)
    assert_same(rows_of(one), rows_of(other))
    for ours, theirs in ((one.details(name), other.details(name)) for name in ("walks", "frames", "latents")):
        assert_same(in_order(ours.rows()), in_order(theirs.rows()))
    assert pictures(one.path) == pictures(other.path)


def test_one_pass_also_where_a_worker_is_killed(ray: Executor, tmp_path: Path) -> None:
    spec = EvaluateSpec(
        "diorama:test?n=240", models=("embedded:resnet_rho95", "embedded:vit_rho95"), scenarios="static", fast=True,
        device="cpu",
    )  # fmt: skip
    one, _ = evaluate(spec, tmp_path / "one")
    done = tmp_path / "other" / "predictions"
    with killing_a_worker(lambda: any(done.glob("part-*.parquet"))):
        other, summary = evaluate(spec, tmp_path / "other", executor=ray)
    assert summary.rows == 240 * 13 * 2
    assert_same(rows_of(one), rows_of(other))


def test_images(ray: Executor, tmp_path: Path) -> None:
    spec = GenerateSpec("embedded:?steps=2", limit=48, batch_size=4, device="cpu")
    generate(spec, tmp_path / "one")
    generate(spec, tmp_path / "other", executor=ray)
    assert pictures(tmp_path / "one") == pictures(tmp_path / "other") and len(pictures(tmp_path / "one")) == 48
    tables = [
        pq.read_table(tmp_path / out / "manifest.parquet").drop_columns(["seconds", "made_at"])
        for out in ("one", "other")
    ]
    assert tables[0] == tables[1]


def test_mining(ray: Executor, tmp_path: Path) -> None:
    pool = make_pool(tmp_path / "pool", 240)
    spec = MineSpec(
        str(pool), SURROGATES, (TARGET,), ORACLE, at_least=2, use=2, again=0, least_images=1, batch_size=16,
        device="cpu",
    )  # fmt: skip
    one = mine(spec, tmp_path / "one")
    other = mine(spec, tmp_path / "other", executor=ray)
    assert one.images == other.images > 0
    for name in ("manifest.parquet", "mining/selection.parquet"):
        pd.testing.assert_frame_equal(*(pd.read_parquet(tmp_path / out / name) for out in ("one", "other")), atol=1e-4)
    answers = [rows_of(Run.open(path / "mining" / "run")) for path in (one.path, other.path)]
    assert_same(*answers)


def test_training_also_where_a_worker_is_killed(ray: Executor, tmp_path: Path) -> None:
    spec = TrainSpec(
        str(make_photos(tmp_path / "photos", 16)), architectures=("timm:test_resnet",), scenarios="original,grey",
        folds=2, epochs=12, size=64, batch_size=4, device="cpu",
    )  # fmt: skip
    one, _ = train(spec, tmp_path / "one")
    jobs = tmp_path / "other" / "jobs"
    with killing_a_worker(lambda: any(jobs.rglob("epoch-00003"))):
        other, _ = train(spec, tmp_path / "other", executor=ray)
    assert weight_hashes(one.path / "models") == weight_hashes(other.path / "models")
    assert_same(rows_of(one), rows_of(other))
    tables = [
        pq.read_table(run.path / "jobs.parquet").drop_columns(["seconds"]).sort_by("job").to_pylist()
        for run in (one, other)
    ]
    assert tables[0] == tables[1] and len(tables[0]) == 4


def test_segmenters(ray: Executor, tmp_path: Path) -> None:
    spec = SegmentSpec("diorama:test?n=24", models=("embedded:unet",), scenarios="original,grey", size=64, device="cpu")
    one, _ = segment(spec, tmp_path / "one")
    other, _ = segment(spec, tmp_path / "other", executor=ray)
    assert_same(rows_of(one), rows_of(other))
    assert pictures(one.path) == pictures(other.path)
