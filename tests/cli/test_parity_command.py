"""``holdfast compare --parity`` from images to exit code, with two models whose flips are known; ``--sidecar``."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import pytest

import holdfast
from commands import run
from shapes import make_photos

MODELS = """
import numpy as np

CLASSES = ("cross", "disc", "square")

def answers(images, turned):
    # The shape's colour says its class; a turned model names the next class where the first pixel is dark.
    rows = np.zeros((len(images), 3), np.float32)
    for place, image in enumerate(images):
        colours = [((image == colour).all(2)).sum() for colour in ((40, 40, 220), (220, 40, 40), (40, 220, 40))]
        rows[place, (int(np.argmax(colours)) + (turned and image[0, 0].mean() < 135)) % 3] = 1
    return rows

def old(images): return answers(images, False)
def new(images): return answers(images, True)
def named(images): return answers(images, False)
old.labels = new.labels = CLASSES
named.labels = ("a", "b", "c")
"""


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parity_models.py").write_text(MODELS)
    return make_photos(tmp_path / "photos", 8)


def test_parity_counts_the_flips_shows_them_and_exits_by_its_verdict(photos: Path, tmp_path: Path) -> None:
    corners = [cv2.imread(str(file))[0, 0].mean() for file in sorted(photos.glob("images/*/*.png"))]
    flips = sum(corner < 135 for corner in corners)
    assert 0 < flips < len(corners)
    words = [
        "compare",
        "python:parity_models:old",
        "python:parity_models:new",
        "--parity",
        photos / "images",
        "--out",
        tmp_path / "run",
    ]
    options = ["--masks", photos / "masks", "--scenarios", "original,random_background", "--quiet"]
    done = run(*words, *options, "--margin", "0.01", code=1)
    assert re.search(rf"original\s+24\s+{flips} ", done.stdout), done.stdout
    page = (tmp_path / "run" / "parity" / "index.html").read_text()
    assert page.count("data:image/jpeg") >= min(flips, 12) and "Is it still the same model?" in page
    answer = holdfast.parity(
        "python:parity_models:old", "python:parity_models:old?name=copy", photos / "images", masks=photos / "masks",
        scenarios="original", margin=0.2, out=tmp_path / "same", progress=lambda *_: None,
    )  # fmt: skip
    assert answer.result.verdict == "equivalent" and answer.result.flips.empty
    assert list(answer.costs["model"]) == ["python:parity_models:old", "copy"]
    assert answer.costs["milliseconds"].gt(0).all()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("python:parity_models:old", "python:parity_models:named", "call their outputs differently"),
        ("python:parity_models:old", "python:parity_models:old", "both models are called"),
        ("embedded:boxes_rho0", "python:parity_models:old", "is a detector"),
        ("python:parity_models:old", "onnx:none.onnx", "there is no ONNX file"),
    ],
)
def test_models_that_cannot_be_compared_are_a_sentence(old: str, new: str, sentence: str, photos: Path) -> None:
    done = run("compare", old, new, "--parity", photos / "images", "--out", "run", code=2)
    assert sentence in done.stderr and done.stderr.count("\n") == 1


def test_sidecar_is_for_files(photos: Path) -> None:

    done = run("compare", "python:parity_models:old", "--sidecar", code=2)
    assert "must be the file of an exported model" in done.stderr
