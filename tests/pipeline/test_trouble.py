"""What must end a command instead of becoming rows: full disks, models that exit, mistakes of the user."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import holdfast
from commands import run
from holdfast.cli.main import app
from holdfast.core.errors import HoldfastError, MachineError, UserError
from holdfast.pipeline.train.plan import TrainSpec
from holdfast.pipeline.train.train import train
from holdfast.store import Run
from shapes import make_photos

MODELS = """
import errno, os, sys
import numpy as np
from holdfast.core.errors import UserError


class Model:
    labels = ("cross", "disc", "square")

    def __init__(self, trouble=None, after=0):
        self.trouble, self.left = trouble, after

    def predict(self, images):
        for image in images:
            self.left -= 1
            if self.trouble and self.left < 0:
                self.trouble()
        return np.full((len(images), 3), 1 / 3, np.float32)


def leaves():
    sys.exit()


def leave(images):
    sys.exit(0)


leave.labels = ("background", *Model.labels)

def fills():
    raise OSError(errno.ENOSPC, "No space left on device")


def wrong():
    raise UserError("the labels file does not fit these weights")


def breaks():
    if not os.environ.get("MENDED"):
        raise ValueError("an odd image")


good, leaving, filling, mistaken = Model(), Model(leaves, 6), Model(fills, 6), Model(wrong, 6)
broken, broken_too, odd = Model(breaks, 0), Model(breaks, 0), Model(breaks, 11)
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "troubled_models.py").write_text(MODELS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.delitem(sys.modules, "troubled_models", raising=False)
    return "python:troubled_models"


def _statuses(out: Path) -> list[tuple[str, str, str]]:
    rows = Run.open(out).rows(["model", "condition", "status"]).to_pylist()
    return sorted((row["model"], row["condition"], row["status"]) for row in rows)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_model_that_exits_fails_the_command(workers: str, models: str, photos: Path, tmp_path: Path) -> None:
    words = ["eval", photos, "--models", f"{models}:leaving", "--scenarios", "original", "--batch-size", "2"]
    ended = run(*words, "--workers", workers, "--out", tmp_path / "run", "-q", code=1)
    assert "called sys.exit()" in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        "segment PHOTOS --models MODELS:leave --scenarios original",
        "perturb diorama:test?n=2 --models embedded:vit_rho95 --generator gan:left_at_import:g --oracle clip:embedded",
        "ask PHOTOS --models MODELS:leaving --questions full_list",
        "check MODELS:leaving PHOTOS",
    ],
)
def test_whatever_plug_in_exits_fails_the_command(words: str, models: str, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "modules" / "left_at_import.py").write_text("import sys\nsys.exit(0)\n")
    asked = words.replace("PHOTOS", str(photos)).replace("MODELS", models).split()
    ended = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "out"), "-q"])
    assert isinstance(ended.exception, HoldfastError) and "called sys.exit()" in str(ended.exception)


def test_a_full_disk_inside_a_model_is_no_row(models: str, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="disk is full"):
        holdfast.evaluate(photos, models=f"{models}:filling", scenarios="original", out=tmp_path / "run")
    assert not Run(tmp_path / "run").rows().num_rows


def test_a_user_error_inside_a_model_is_no_row(models: str, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the labels file does not fit"):
        holdfast.evaluate(photos, models=f"{models}:mistaken", scenarios="original", out=tmp_path / "run")
    assert not Run(tmp_path / "run").rows().num_rows


def test_retrying_leaves_errors_of_other_models_and_conditions(
    models: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    both = f"{models}:broken,{models}:broken_too"
    with pytest.raises(UserError, match="gave no answer at all"):
        holdfast.evaluate(photos, models=both, scenarios="original,grey", out=out)
    before = _statuses(out)
    assert len(before) == 48 and {status for *_, status in before} == {"error"}
    monkeypatch.setenv("MENDED", "yes")
    holdfast.evaluate(photos, models=f"{models}:broken", scenarios="original", out=out, retry_errors=True)
    mended = (f"{models}:broken", "original")
    assert _statuses(out) == sorted((*key, "ok" if tuple(key) == mended else "error") for *key, _ in before)


def test_a_model_that_never_answers_ends_the_command_with_its_error(models: str, photos: Path, tmp_path: Path) -> None:
    words = ["eval", photos, "--models", f"{models}:good,{models}:broken", "--scenarios", "original"]
    for _ in range(2):  # the second time all rows are stored already
        ended = run(*words, "--out", tmp_path / "run", "-q", code=2)
        last = ended.stderr.strip().splitlines()[-1]
        assert "troubled_models:broken gave no answer at all: 12 errors, the first: ValueError: an odd image" in last
        assert "troubled_models:good" not in last
    assert len(_statuses(tmp_path / "run")) == 24


def test_a_model_whose_first_hundred_answers_fail_alike_is_not_asked_further(
    models: str, photos: Path, tmp_path: Path
) -> None:
    words = ["eval", photos, "--models", f"{models}:broken", "--scenarios", "all", "--batch-size", "8"]
    assert "failed on its first 104 images in the same way" in run(*words, "--out", tmp_path / "run", code=2).stderr
    stored = _statuses(tmp_path / "run")
    assert len(stored) == 104 and {status for *_, status in stored} == {"error"}


WEIGHTED = """
import numpy as np

class Model:
    labels = ("cross", "disc", "square")

    def __init__(self, weights):
        self.weights = weights

    def predict(self, images):
        return np.repeat(np.asarray(self.weights)[None], len(images), 0)

seen = Model(np.load("weights.npy"))
unseen = Model(tuple(np.load("weights.npy").tolist()))
"""


def test_a_model_with_new_weights_is_asked_again_and_one_that_hides_them_is_named(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("weighted.py").write_text(WEIGHTED)
    words = ["eval", str(photos), "--models", "python:weighted:seen,python:weighted:unseen", "--scenarios", "original"]
    answers = []
    for best in (0, 1):
        np.save("weights.npy", np.eye(3)[best])
        monkeypatch.delitem(sys.modules, "weighted", raising=False)
        ended = run(*words, "--out", "run", "-q")
        rows = Run.open(Path("run")).rows(["model", "prediction"]).to_pylist()
        answers.append({row["model"]: row["prediction"] for row in rows})
    assert [kept["python:weighted:seen"] for kept in answers] == ["cross", "disc"]
    assert [kept["python:weighted:unseen"] for kept in answers] == ["cross", "cross"]
    assert "12 made, 12 there already" in ended.stdout
    assert "python:weighted:unseen: stored answers were kept" in ended.stdout
    assert "python:weighted:seen: stored" not in ended.stdout


def test_the_last_line_tells_rows_with_errors_apart(models: str, photos: Path, tmp_path: Path) -> None:
    words = ["eval", photos, "--models", f"{models}:odd", "--scenarios", "original", "--batch-size", "1"]
    assert "11 made, 1 error, 0 there already" in run(*words, "--out", tmp_path / "run", "-q").stdout
    assert "0 made, 12 there already" in run(*words, "--out", tmp_path / "run", "-q").stdout
    (photos / "images" / "disc" / "0.png").write_bytes(b"no image")
    made = run("synth", photos, "--scenarios", "original", "--out", tmp_path / "synth", "--workers", 1, "-q").stdout
    assert "11 made, 1 error, 0 there already" in made


SMALL: dict[str, Any] = {"size": 32, "batch_size": 8, "device": "cpu", "folds": 2, "epochs": 2}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2300k", "tmpfs", str(mount)], capture_output=True
    ).returncode:
        pytest.skip("a full disk needs the right to mount one")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_training_on_a_full_disk_ends_and_goes_on_later(tmp_path: Path, small_disk: Path) -> None:
    photos, out = make_photos(tmp_path / "shapes", 6), small_disk / "run"
    spec = TrainSpec(str(photos), architectures=("timm:test_resnet",), scenarios="original", **SMALL)
    with pytest.raises(MachineError, match="disk is full"):
        train(spec, out)
    assert not Run(out).rows().num_rows, "no row says that there was no space"
    subprocess.run(["mount", "-o", "remount,size=60m", str(small_disk)], check=True)
    done, summary = train(spec, out)
    assert (summary.rows, summary.errors) == (18, 0)
    assert set(done.rows(["status"])["status"].to_pylist()) == {"ok"}


DIES = """
import os, signal, sys
from holdfast.pipeline.train.fitting import Fit
from holdfast.pipeline.train.plan import TrainSpec
from holdfast.pipeline.train.train import train

write = Fit.write


def write_and_die(self, *given):
    write(self, *given)
    os.kill(os.getpid(), signal.SIGKILL)


Fit.write = write_and_die
train(eval(sys.argv[1]), __import__("pathlib").Path(sys.argv[2]))
"""


def test_a_training_killed_after_its_model_has_its_curve(tmp_path: Path) -> None:
    photos, out = make_photos(tmp_path / "shapes", 6), tmp_path / "run"
    spec = TrainSpec(str(photos), architectures=("timm:test_resnet",), scenarios="original", **SMALL)
    assert subprocess.run([sys.executable, "-c", DIES, repr(spec), str(out)]).returncode == -signal.SIGKILL
    assert len(list((out / "models").rglob("README.md"))) == 1
    train(spec, out)
    curves = pq.read_table(out / "curves").to_pandas()
    assert sorted(set(zip(curves["fold"], curves["epoch"], strict=True))) == [(0, 1), (0, 2), (1, 1), (1, 2)]


SMALLEST = "--size 32 --folds 2 --epochs 1 --batch-size 4 --device cpu"
OUT_OF_NOTHING = {
    "synth": "synth {photos} --scenarios original,grey",
    "mask": "mask {photos} --with grabcut",
    "ask": "ask {photos} --models embedded:resnet_rho0 --distractor embedded:vit_rho95",
    "segment": "segment {photos} --models embedded:unet --scenarios original",
    "segment trained": f"segment {{photos}} --architectures smp:FPN@resnet18 --scenarios original {SMALLEST}",
    "train": f"train {{photos}} --architectures timm:test_resnet --scenarios original {SMALLEST}",
}


@pytest.mark.parametrize("verb", OUT_OF_NOTHING)
def test_nothing_made_is_no_success(verb: str, photos: Path, tmp_path: Path) -> None:
    for tree in ("images", "masks"):  # classes that the embedded networks know
        for old, new in (("cross", "lizard"), ("disc", "crayfish"), ("square", "green lizard")):
            (photos / tree / old).rename(photos / tree / new)
    for path in photos.rglob("images/*/*.png"):
        path.write_bytes(b"no image")
    for _ in range(2):  # also if all of it is stored already
        said = run(*OUT_OF_NOTHING[verb].format(photos=photos).split(), "--out", tmp_path / "out", "-q", code=2)
        assert re.search(
            r"(could be made|no answer at all): \d+ errors, the first: .*(is not an image|no class)", said.stderr
        )


def test_near_duplicates_of_nothing_are_no_success(photos: Path) -> None:
    for path in photos.rglob("images/*/*.png"):
        path.write_bytes(b"no image")
    assert "none of the 12 images of" in run("data", "duplicates", photos / "images", photos / "masks", code=2).stderr


@pytest.mark.parametrize("to", ["elsewhere", "nowhere"])
def test_an_output_folder_that_goes_away_in_the_middle(to: str, photos: Path, tmp_path: Path) -> None:
    out, gone = tmp_path / "out", []

    def progress(step: str, done: int, total: int) -> None:
        if step == "synth" and 0 < done < total and not gone:
            gone.append(shutil.move(out, tmp_path / "moved") if to == "elsewhere" else shutil.rmtree(out))

    spec = {"scenarios": "original,grey", "workers": 1}
    with pytest.raises(HoldfastError, match=r"was removed or moved while .* run the same command again"):
        holdfast.synth(photos, out=out, progress=progress, **spec)
    assert gone
    holdfast.synth(photos, out=out, **spec)
    holdfast.synth(photos, out=tmp_path / "whole", **spec)
    names = [sorted(p.relative_to(f).as_posix() for p in f.rglob("*.png")) for f in (out, tmp_path / "whole")]
    assert names[0] == names[1] and (out / "spec.json").is_file()
