"""Commands with ``--engine ray`` as someone types them, and killed as machines do it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.store import Run
from ray_cluster import ray_cluster

pytestmark = pytest.mark.slow

MODEL, SCENARIOS = "embedded:mobilenet_rho95", "static"
COMMAND = [
    sys.executable, "-m", "holdfast.cli.main", "eval", "diorama:test?n=96", "--models", MODEL, "--scenarios", SCENARIOS,
    "--device", "cpu", "--batch-size", "8", "--quiet", "--engine", "ray", "--workers", "2",
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(nodes=2) as found:
        yield found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the same command makes in one process."""
    spec = EvaluateSpec("diorama:test?n=96", models=(MODEL,), scenarios=SCENARIOS, device="cpu", batch_size=8)
    run, _ = evaluate(spec, tmp_path_factory.mktemp("here") / "run")
    return comparable(run)


def comparable(run: Run) -> list[dict[str, Any]]:
    rows = run.rows(["row_id", "sample_id", "condition", "prediction", "correct", "image_sha256", "status"])
    return list(rows.sort_by("row_id").to_pylist())


def wait_for_parts(out: Path, process: subprocess.Popen[str], count: int) -> None:
    while len(list((out / "predictions").glob("part-*"))) < count:
        assert process.poll() is None, "finished before it could be killed"
        time.sleep(0.02)


def workers_of(cluster: Any) -> list[psutil.Process]:
    """The processes that evaluate."""
    folder = str(cluster.head_node.get_temp_dir_path())
    raylets = [one for one in psutil.process_iter(["cmdline"]) if folder in " ".join(one.info["cmdline"] or ())]
    children = {child.pid: child for one in raylets if one.is_running() for child in one.children(recursive=True)}
    return [child for child in children.values() if "RayActor" in (child.cmdline() or [""])[0]]


def test_a_worker_is_killed_under_eval(cluster: Any, here: list[dict[str, Any]], tmp_path: Path) -> None:
    command = [*COMMAND, "--address", cluster.address, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_for_parts(tmp_path / "run", process, 2)
        victims = workers_of(cluster)
        assert victims
        victims[0].kill()
        out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert comparable(Run.open(tmp_path / "run")) == here
    assert (out, errors) == (f"{len(here)} made, 0 there already; {tmp_path / 'run'}\n", ""), "Ray keeps quiet"


def test_the_command_is_killed_and_given_again(cluster: Any, here: list[dict[str, Any]], tmp_path: Path) -> None:
    command = [*COMMAND, "--address", cluster.address, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_for_parts(tmp_path / "run", process, 2)
        process.send_signal(signal.SIGKILL)
    done = Run.open(tmp_path / "run").rows(["row_id"]).num_rows
    assert 0 < done < len(here)
    subprocess.run(command, check=True, capture_output=True)
    assert comparable(Run.open(tmp_path / "run")) == here, "no row is missing and none is there twice"


def test_a_cluster_of_its_own_ends_with_the_command(tmp_path: Path) -> None:
    environment = os.environ | {"HOLDFAST_TEST_MARK": str(tmp_path)}
    command = [
        sys.executable, "-m", "holdfast.cli.main", "synth", "diorama:test?n=8", "--scenarios", "grey",
        "--engine", "ray", "--workers", "1:2", "--quiet", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        0, f"8 made, 0 there already; {tmp_path / 'out'}/manifest.csv\n", ""
    )  # fmt: skip
    end = time.monotonic() + 20
    while left := [one.pid for one in psutil.process_iter() if marked(one, str(tmp_path))]:
        assert time.monotonic() < end, left
        time.sleep(0.1)
    wrong = subprocess.run([*command, "--gpus", "64"], env=environment, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "--gpus 64 a worker is more than this machine has" in wrong.stderr


def marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("HOLDFAST_TEST_MARK") == mark
    except psutil.Error:
        return False
