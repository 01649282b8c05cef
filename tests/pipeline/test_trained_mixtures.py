"""Training with crops, and on all scenarios but one: images, jobs, rows, report, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torchvision.transforms.functional as transforms
from PIL import Image

import holdfast
from commands import run
from holdfast.core.errors import UserError
from holdfast.pipeline.train.pictures import cropped
from holdfast.pipeline.train.plan import TrainSpec, mixed
from holdfast.scenarios import parse_conditions
from shapes import make_photos

SMALL = {"size": 32, "batch_size": 8, "device": "cpu", "epochs": 1, "folds": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("shapes") / "photos", 8)


def test_a_crop_is_that_of_torchvision() -> None:
    image = np.random.default_rng(0).integers(0, 256, (50, 90, 3), np.uint8)
    larger = transforms.resize(Image.fromarray(image), 36, transforms.InterpolationMode.BILINEAR)
    assert np.array_equal(cropped(image, 32, 36), np.asarray(transforms.center_crop(larger, 32)))
    paper = TrainSpec("d", recipe="paper")
    cropping = TrainSpec("d", recipe="paper", crop=True)
    assert cropping.settled().scaled == 256 and paper.settled().scaled == 0


def test_crops_are_trained_and_answer_as_in_the_test(data: Path, tmp_path: Path) -> None:
    trained = holdfast.train(
        data, architectures=["timm:test_resnet"], scenarios="original,grey", train_on="original", crop=True,
        out=tmp_path / "crops", **SMALL,
    )  # fmt: skip
    rows = trained.rows().to_pandas()
    assert (rows["status"] == "ok").all()
    folder = trained.path / "models" / "timm-test_resnet" / "original" / "fold-0"
    stated = json.loads((folder / "config.json").read_text())["pretrained_cfg"]
    assert (stated["crop_pct"], stated["crop_mode"]) == (0.875, "center")
    again = holdfast.evaluate(
        data, models=[f"local-dir:{folder}"], scenarios="original,grey", out=tmp_path / "eval", device="cpu"
    ).rows().to_pandas()  # fmt: skip
    mine = rows[rows["fold"] == 0].set_index(["sample_id", "condition"])["confidence"]
    theirs = again.set_index(["sample_id", "condition"])["confidence"].loc[mine.index]
    assert mine.to_numpy() == pytest.approx(theirs.to_numpy(), abs=1e-4)


def test_segmenters_are_trained_with_crops(data: Path, tmp_path: Path) -> None:
    network = "smp:FPN@tu-resnet18?channels=8/8/16/16&layers=1/1/1/1&decoder_segmentation_channels=32"
    trained = holdfast.segment(
        data, architectures=[network], scenarios="original", crop=True, out=tmp_path / "run",
        **{**SMALL, "size": 64, "folds": 1},
    )  # fmt: skip
    rows = trained.rows().to_pandas()
    assert (rows["status"] == "ok").all() and set(rows["protocol"].astype(str)) == {"argmax@64-crop"}


def test_a_mixture_shows_every_photo_once_and_never_the_one_left_out(data: Path) -> None:
    samples = holdfast.load_collection(str(data)).samples
    others = parse_conditions("original,grey,red")
    shown = mixed(samples, others, seed=0)
    assert [sample.source_id for sample, _ in shown] == [sample.source_id for sample in samples]
    assert {condition.scenario for _, condition in shown} == {"original", "grey", "red"}
    assert shown == mixed(samples, others, seed=0) != mixed(samples, others, seed=1)


def test_all_but_one_is_tested_on_the_scenario_it_never_saw(data: Path, tmp_path: Path) -> None:
    options = {"architectures": ["timm:test_resnet"], "scenarios": "original,grey,red", **SMALL}
    trained = holdfast.train(data, train_on="all-but-one", out=tmp_path / "run", **options)
    rows = trained.rows().to_pandas().astype({"trained_on": str, "condition": str})
    assert (rows["status"] == "ok").all()
    pairs = set(zip(rows["trained_on"], rows["condition"], strict=True))
    assert pairs == {("original", name) for name in ("original", "grey", "red")} | {
        ("all but grey", "grey"),
        ("all but red", "red"),
    }
    # The trainings on originals are those of any other run: they keep their ids.
    plain = holdfast.train(data, train_on="original", out=tmp_path / "plain", **options).rows().to_pandas()
    same = rows[rows["trained_on"] == "original"]
    assert set(plain["row_id"]) == set(same["row_id"])
    text = trained.report(tmp_path / "report", resamples=100).read_text()
    table = pd.read_csv(tmp_path / "report" / "tables" / "trained_without.csv").set_index("condition")
    unseen = rows[rows["trained_on"] == "all but grey"].groupby("label", observed=True)["correct"].mean().mean()
    assert table.loc["grey", "within"] == pytest.approx(unseen) and "never seen before its test" in text
    assert not (tmp_path / "report" / "tables" / "trained_within.csv").exists()


def test_mixtures_need_three_scenarios(data: Path, tmp_path: Path) -> None:
    words = ("train", data, "--architectures", "timm:test_resnet", "--train-on", "all-but-one", "--out", tmp_path / "x")
    assert "three scenarios" in " ".join(run(*words, "--scenarios", "original,grey", code=2).stderr.split())
    with pytest.raises(UserError, match="all-but-one"):
        holdfast.segment(data, architectures=["smp:FPN"], train_on="all-but-one", out=tmp_path / "y")
    assert TrainSpec(data="d", architectures=("a",)).settled().crop is False
