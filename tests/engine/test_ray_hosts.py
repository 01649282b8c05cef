"""A cluster of machines that share no network card, disk or process, as docs/cluster.md says to start one."""

from __future__ import annotations

import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.store import Run
from ray_hosts import Host, hosts, why_not

REASON = why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.timeout(900),  # Ray takes more than a minute to notice that a machine does not answer
]

DATA, MODEL, SCENARIOS = "diorama:test?n=240", "embedded:mobilenet_rho95", "static"
EVAL = ["holdfast", "eval", "--models", MODEL, "--scenarios", SCENARIOS, "--device", "cpu", "--batch-size", "8"]
RAY = ["--quiet", "--engine", "ray", "--address", "auto", "--workers", "2"]
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def cluster(folder: Path) -> Iterator[list[Host]]:
    """A machine for a store and three of a Ray cluster, of which the head does no work."""
    with hosts(folder, "store", "alpha", "beta", "gamma") as made:
        _, alpha, *others = made
        start(alpha, "--head", "--port", "6379", "--num-cpus", "0", "--include-dashboard", "false")
        for other in others:
            start(other, "--address", "alpha:6379", "--num-cpus", "1")
        yield made


def start(host: Host, *options: str) -> None:
    done = host.run("ray", "start", "--object-store-memory", str(80 << 20), *options, environment=TOKEN)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    with cluster(tmp_path_factory.mktemp("machines")) as made:
        yield made


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the same command makes in one process."""
    spec = EvaluateSpec(DATA, models=(MODEL,), scenarios=SCENARIOS, device="cpu", batch_size=8)
    run, _ = evaluate(spec, tmp_path_factory.mktemp("here") / "run")
    return comparable(run.path)


def comparable(path: Path) -> list[dict[str, Any]]:
    rows = Run.open(path).rows(["row_id", "sample_id", "condition", "prediction", "image_sha256", "status"])
    return list(rows.sort_by("row_id").to_pylist())


def test_a_bucket_is_all_they_share(machines: list[Host], here: list[dict[str, Any]], tmp_path: Path) -> None:
    store, alpha, beta, gamma = machines
    with store.start("moto_server", "-H", "0.0.0.0", "-p", "5000", stderr=subprocess.DEVNULL) as server:
        try:
            give_credentials(alpha)
            made = alpha.run("python", "-c", MAKE_BUCKET)
            assert made.returncode == 0, made.stderr
            command = [*EVAL, DATA, *RAY, "--out", "s3://bucket/run"]
            missing = alpha.run(*command, environment=TOKEN)
            assert missing.returncode == 2
            assert re.search(r"no credentials for s3://bucket.* \(so says the worker on (beta|gamma)\)", missing.stderr)
            give_credentials(beta)
            give_credentials(gamma)
            done = alpha.run(*command, environment=TOKEN)
            assert done.returncode == 0, done.stderr
            fetched = alpha.run(
                "python", "-c", "import s3fs; s3fs.S3FileSystem().get('bucket/run', '/mnt/shared/run', recursive=True)"
            )
            assert fetched.returncode == 0, fetched.stderr
        finally:
            for process in psutil.Process(server.pid).children():  # what nsenter has started there
                process.kill()
    assert comparable(store.shared / "run") == here


MAKE_BUCKET = """
import time, s3fs
while True:
    try:
        s3fs.S3FileSystem().mkdir("bucket")
        break
    except OSError:  # it does not listen yet
        time.sleep(0.1)
"""


def give_credentials(host: Host) -> None:
    """As on a machine of a cloud: in a file of its own."""
    folder = host.disk / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text("[default]\naws_access_key_id = someone\naws_secret_access_key = secret\n")
    (folder / "config").write_text("[default]\nregion = us-east-1\nendpoint_url = http://store:5000\n")


def test_images_and_folders_that_only_the_first_machine_has(machines: list[Host]) -> None:
    alpha = machines[1]
    made = alpha.run("holdfast", "synth", "diorama:test?n=8", "--scenarios", "original", "--out", "photos", "--quiet")
    assert made.returncode == 0, made.stderr
    elsewhere = alpha.run(*EVAL, "photos/manifest.csv", *RAY, "--out", "/mnt/shared/elsewhere", environment=TOKEN)
    assert elsewhere.returncode == 2
    assert re.search(r"the worker on (beta|gamma) does not see /mnt/disk/photos/.*same path", elsewhere.stderr)
    own = alpha.run(*EVAL, DATA, *RAY, "--out", "/mnt/disk/run", environment=TOKEN)
    assert own.returncode == 2
    assert re.search(r"the worker on (beta|gamma) does not see /mnt/disk/run", own.stderr)


def test_a_machine_is_cut_off(here: list[dict[str, Any]], tmp_path: Path) -> None:
    with cluster(tmp_path) as (_, alpha, _, gamma):
        out = alpha.shared / "run"
        with begun(alpha, out) as process:
            gamma.cut_off()
            assert process.wait() == 0
        assert comparable(out) == here


def test_the_command_is_given_again_when_its_machine_is_lost(here: list[dict[str, Any]], tmp_path: Path) -> None:
    with cluster(tmp_path) as (_, alpha, beta, _):
        out = alpha.shared / "run"
        with begun(beta, out):
            beta.lose()
        left = len(list((out / "predictions").glob("part-*")))
        missed = alpha.run("python", "-c", WAIT_UNTIL_MISSED, environment=TOKEN)
        assert missed.returncode == 0, missed.stderr
        again = alpha.run(*EVAL, DATA, *RAY, "--out", "/mnt/shared/run", environment=TOKEN)
        assert again.returncode == 0, again.stderr
        assert left > 0 and comparable(out) == here, "no row is missing and none is there twice"


# Ray Data has actors for the whole cluster next to its first command; until they are missed, the next command asks
# them.
WAIT_UNTIL_MISSED = """
import time, ray
ray.init("auto", log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) > 2:
    time.sleep(1)
"""


@contextmanager
def begun(host: Host, out: Path) -> Iterator[subprocess.Popen[str]]:
    """A run from its fourth piece of thirty on; its output goes to a file, as no one may be there to read it."""
    with (
        (out.parent / "log").open("w") as log,
        host.start(*EVAL, DATA, *RAY, "--out", "/mnt/shared/run", environment=TOKEN, stdout=log, stderr=log) as process,
    ):
        while len(list((out / "predictions").glob("part-*"))) < 4:
            assert process.poll() is None, (out.parent / "log").read_text()
            time.sleep(0.02)
        assert process.poll() is None, "finished before anything could happen to it"
        yield process
