"""Longer ways through S3: killed and gone on with elsewhere, every verb, many workers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import s3fs
from safetensors.numpy import load_file

import holdfast
from commands import HOLDFAST, run
from holdfast.data import load_collection
from holdfast.store import Run, fetched
from object_store import objects, upload
from shapes import make_photos

Table = Callable[..., list[dict[str, object]]]


@pytest.mark.slow
def test_kill_9_and_go_on_elsewhere(
    server: s3fs.S3FileSystem, toy_models: str, tmp_path: Path, table_of: Table, elsewhere: Callable[[], None]
) -> None:
    many = make_photos(tmp_path / "many", 16)
    upload(server, many, "bucket/many")
    model = f"{toy_models}:colour?name=colour"
    whole = holdfast.evaluate(many, models=model, scenarios="all", out=tmp_path / "cut").run.rows().num_rows
    words = ["eval", "s3://bucket/many", "--scenarios", "all", "--out", "s3://bucket/cut", "-q", "--batch-size", "1"]
    slow = [*HOLDFAST, *words, "--models", model.replace("colour?", "slow?"), "--workers", "2"]
    with subprocess.Popen(slow) as process:
        while not any("part-" in name for name in objects(server, "bucket/cut")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    elsewhere()
    kept = Run.open("s3://bucket/cut").rows().num_rows
    assert 0 < kept < whole
    assert f"{whole - kept} made, {kept} there already" in run(*words, "--models", model).stdout
    elsewhere()
    assert table_of(Run.open("s3://bucket/cut")) == table_of(Run.open(tmp_path / "cut"))


def tensors(models: Path) -> dict[str, dict[str, bytes]]:
    """The weights of each model; the order of a file's metadata is not its own."""
    return {
        path.relative_to(models).as_posix(): {name: one.tobytes() for name, one in load_file(path).items()}
        for path in models.rglob("model.safetensors")
    }


OFTEN = "from holdfast.store import remote; remote._SENDING = 0.05; from holdfast.cli.main import main; main()"
"""The command, sending what long work has left so far not once a minute but at once."""


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on_elsewhere_from_its_checkpoint(
    server: s3fs.S3FileSystem, pictures: Path, tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    words = ["--architectures", "timm:resnet18", "--folds", "2", "--scenarios", "original", "--size", "32"]
    words += ["--epochs", "12", "--device", "cpu", "--quiet"]
    remote_words = ["train", "s3://bucket/photos", *words, "--out", "s3://bucket/trained"]
    with subprocess.Popen([sys.executable, "-c", OFTEN, *remote_words]) as process:
        while not (left := [name for name in objects(server, "bucket/trained") if "/epoch-" in name]):
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert any(name.endswith("weights.safetensors") for name in left)
    elsewhere()
    run(*remote_words)
    names = objects(server, "bucket/trained")
    # What was deleted here is deleted there, but for what was on its way to the server when its sender was killed.
    assert not [name for name in names if "/epoch-" in name and name.endswith("state.pt")]
    run("train", pictures, *words, "--out", tmp_path / "trained")
    elsewhere()
    weights = tensors(tmp_path / "trained" / "models")
    assert len(weights) == 2 and weights == tensors(fetched("s3://bucket/trained") / "models")
    assert "0 rows made" in run(*remote_words).stdout


@pytest.mark.slow
def test_walks_and_pools_in_s3(
    server: s3fs.S3FileSystem, tmp_path: Path, table_of: Table, elsewhere: Callable[[], None]
) -> None:
    words = ["perturb", "diorama:test?n=2", "--models", "embedded:resnet_rho0", "--generator", "pixel:", "-q"]
    words += ["--oracle", "clip:embedded", "--steps", "2", "--step-size", "0.004", "--keep-images"]
    run(*words, "--out", tmp_path / "walked")
    run(*words, "--out", "s3://bucket/walked")
    elsewhere()
    assert table_of(Run.open("s3://bucket/walked")) == table_of(Run.open(tmp_path / "walked"))
    local = {path.relative_to(tmp_path / "walked").as_posix() for path in (tmp_path / "walked").rglob("*.png")}
    assert local and local <= set(objects(server, "bucket/walked"))

    words = ["generate", "--generator", "embedded:", "--limit", "24", "-q"]
    run(*words, "--out", tmp_path / "pool")
    run(*words, "--out", "s3://bucket/pool")
    here, there = load_collection(str(tmp_path / "pool")), load_collection("s3://bucket/pool")
    assert [one.image.fingerprint() for one in there.samples] == [one.image.fingerprint() for one in here.samples]
    elsewhere()
    assert "0 images made, 24 there already" in run(*words, "--out", "s3://bucket/pool").stdout

    words = ["--surrogates", "embedded:resnet_rho95,embedded:mobilenet_rho95", "--targets", "embedded:vit_rho95", "-q"]
    words += ["--oracle", "clip:embedded", "--again", "0"]
    run("mine", tmp_path / "pool", *words, "--out", tmp_path / "hard")
    run("mine", "s3://bucket/pool", *words, "--out", "s3://bucket/hard")
    files = {
        path.relative_to(tmp_path / "hard").as_posix() for path in (tmp_path / "hard").rglob("*") if path.is_file()
    }
    assert {name for name in files if ".lock" not in name} == set(objects(server, "bucket/hard"))


@pytest.mark.slow
def test_on_ray(
    server: s3fs.S3FileSystem,
    pictures: Path,
    toy_models: str,
    tmp_path: Path,
    table_of: Table,
    elsewhere: Callable[[], None],
) -> None:
    model = f"{toy_models}:colour"
    local = holdfast.evaluate(pictures, models=model, scenarios="all", out=tmp_path / "rayed")
    words = ["eval", "s3://bucket/photos", "--models", model, "--scenarios", "all", "--out", "s3://bucket/rayed", "-q"]
    run(*words, "--engine", "ray", "--workers", "2")
    elsewhere()
    assert table_of(Run.open("s3://bucket/rayed")) == table_of(local.run)
    words = ["synth", "s3://bucket/photos", "--scenarios", "original,grey", "--out", "s3://bucket/rayed-images", "-q"]
    assert "12 made" in run(*words, "--engine", "ray", "--workers", "2").stdout
    assert len(load_collection("s3://bucket/rayed-images").samples) == 12
