"""Real processes, stopped in the middle: nothing written is lost, and the next run ends in the same table."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import holdfast
from commands import HOLDFAST, run
from holdfast.store import Run

Table = Callable[..., list[dict[str, object]]]


def command(photos: Path, toy_models: str, out: Path, model: str = "slow") -> list[str]:
    name = f"{toy_models}:{model}?name=colour"
    return [*HOLDFAST, "eval", str(photos), "--models", name, "--scenarios", "all", "--out", str(out), "-q"]


def wait_for_parts(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    while len(list((out / "predictions").glob("part-*"))) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.fixture
def undisturbed(photos: Path, toy_models: str, tmp_path: Path, table_of: Table) -> list[dict[str, object]]:
    model = f"{toy_models}:colour?name=colour"
    return table_of(holdfast.evaluate(photos, models=model, scenarios="all", out=tmp_path / "whole").run)


def test_kill_9_and_run_again(
    photos: Path, toy_models: str, tmp_path: Path, undisturbed: list[dict[str, object]], table_of: Table
) -> None:
    out = tmp_path / "run"
    with subprocess.Popen(command(photos, toy_models, out), text=True) as process:
        wait_for_parts(out, 1, process)
        process.send_signal(signal.SIGKILL)
    kept = table_of(Run.open(out))
    assert 0 < len(kept) < len(undisturbed)
    result = run(*command(photos, toy_models, out, "colour")[len(HOLDFAST) :])
    assert f"{len(undisturbed) - len(kept)} made, {len(kept)} there already" in result.stdout
    assert table_of(Run.open(out)) == undisturbed


def heed_ctrl_c() -> None:
    """A shell starts what runs in its background deaf to Ctrl-C, and the tests may run there."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_is_one_sentence_and_keeps_what_is_done(photos: Path, toy_models: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command(photos, toy_models, out), text=True, stdout=pipe, stderr=pipe, preexec_fn=heed_ctrl_c
    ) as process:
        wait_for_parts(out, 1, process)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.strip() == "holdfast: stopped; run the same command again to continue"
    assert Run.open(out).rows().num_rows > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(mount)], capture_output=True)
    if done.returncode:
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(f"cannot mount a small disk: {done.stderr.decode()}")
        pytest.skip("a full disk needs the right to mount one")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(
    photos: Path, tmp_path: Path, small_disk: Path
) -> None:
    synth = [*HOLDFAST, "synth", str(photos), "--out", str(small_disk / "out"), "--workers", "1", "-q"]
    first = subprocess.run(synth, capture_output=True, text=True)
    assert first.returncode == 1
    assert first.stderr.startswith("holdfast: the disk is full")
    assert "Traceback" not in first.stderr
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    second = run(*synth[len(HOLDFAST) :])
    assert "made" in second.stdout
    made = {path.relative_to(small_disk / "out") for path in (small_disk / "out").rglob("*.png")}
    whole = tmp_path / "whole"
    holdfast.synth(photos, out=whole, workers=1)
    assert made == {path.relative_to(whole) for path in whole.rglob("*.png")}
    assert not list((small_disk / "out").rglob(".unfinished*"))
    for path in made:
        assert (small_disk / "out" / path).read_bytes() == (whole / path).read_bytes()


def test_explain_on_a_full_disk_makes_the_other_maps_when_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    data = tmp_path / "run"
    holdfast.evaluate("diorama:test?n=12", models="embedded:resnet_rho0", scenarios="original,grey", out=data)
    shutil.copytree(data, small_disk / "run")
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "other").write_bytes(bytes(free - 60_000))
    explain = ["explain", str(small_disk / "run"), "--pictures", "12", "-q"]
    first = subprocess.run([*HOLDFAST, *explain], capture_output=True, text=True)
    assert first.returncode == 1 and first.stderr.startswith("holdfast: the disk is full"), first.stderr
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    run(*explain)
    maps = pq.read_table(small_disk / "run" / "details" / "attributions").to_pylist()
    assert [row["status"] for row in maps] == ["ok"] * 24
    assert all((small_disk / "run" / row["picture"]).is_file() for row in maps)


def test_synth_survives_kill_9(photos: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    synth = [*HOLDFAST, "synth", str(photos), "--workers", "2", "-q", "--out"]
    with subprocess.Popen([*synth, str(out)], text=True, start_new_session=True) as process:
        while not list(out.rglob("*/disc/*.png")) and process.poll() is None:
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
    run(*synth[len(HOLDFAST) :], out)
    holdfast.synth(photos, out=whole, workers=1)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*.png"))
    assert files == sorted(path.relative_to(out) for path in out.rglob("*.png"))
    for path in [*files, Path("manifest.csv")]:
        assert (out / path).read_bytes() == (whole / path).read_bytes(), path


def test_ctrl_c_with_workers_is_one_sentence_and_leaves_no_process(photos: Path, tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    words = [*HOLDFAST, "synth", str(photos), "--out", str(tmp_path / "out"), "--scenarios", "all", "--workers", "2"]
    with subprocess.Popen(
        words, text=True, stdout=pipe, stderr=pipe, start_new_session=True, preexec_fn=heed_ctrl_c
    ) as process:
        while not (tmp_path / "out" / "spec.json").exists():  # the workers are about to start
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=60)  # workers that live on would hold the pipe open
    assert process.returncode == 130
    assert stderr.strip() == "holdfast: stopped; run the same command again to continue"
