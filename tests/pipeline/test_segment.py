"""``holdfast segment``: a segmenter whose ways are known, small networks trained on two folds, and what goes wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from killed import kill_in_training, weight_hashes
from safetensors.torch import load_file
from typer.testing import CliRunner

import holdfast
from holdfast import registry
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.core.types import LabelSpace
from holdfast.models import load_segmenter
from shapes import CLASSES, draw

COLOURS = {"disc": (220, 40, 40), "square": (40, 220, 40), "cross": (40, 40, 220)}
FPN = "smp:FPN@tu-resnet18?channels=8/8/16/16&layers=1/1/1/1&decoder_segmentation_channels=32"
VIT = "hf:upernet@vit?hidden_size=16&layers=4&heads=2&patch=8&decoder=16"
SMALL = {"size": 64, "batch_size": 6, "device": "cpu"}


class ByColour:
    """Knows the colour of every class: right wherever the object is, and whatever is behind it."""

    fingerprint = "by colour"

    def __init__(self, labels: tuple[str, ...] = ("sky", *CLASSES, "chair"), fails_on: int = -1) -> None:
        self.name = "known:colour"
        self.labels = LabelSpace(labels)
        self.fails_on = fails_on

    def segment(self, images: list[np.ndarray]) -> list[np.ndarray]:
        maps = []
        for image in images:
            made = np.zeros(image.shape[:2], np.uint8)
            for name, colour in COLOURS.items():
                near = np.abs(image.astype(int) - np.array(colour)).max(-1) < 70  # some scenarios blend
                made[near] = self.labels.names.index(name)
            if self.fails_on >= 0 and (made == self.labels.names.index("disc")).sum() == self.fails_on:
                raise RuntimeError("this one not")
            made[0, :3] = len(self.labels) - 1  # a chair in the background: nothing of ours, so background
            maps.append(made)
        return maps


def load_known(name: object, *, device: str) -> ByColour:
    return ByColour()


def load_without_background(name: object, *, device: str) -> ByColour:
    return ByColour(CLASSES)


@pytest.fixture(scope="module", autouse=True)
def known() -> None:
    for scheme, load in (("known", load_known), ("bare", load_without_background)):
        if scheme not in registry.segmenters:
            registry.segmenters.register(scheme, load, summary="for this test")


def photos(folder: Path, count: int = 6) -> Path:
    """Square images, so that nothing is resized."""
    for label in CLASSES:
        for index in range(count):
            image, mask = draw(label, index, 64, 64)
            for tree, picture in (("images", image), ("masks", mask)):
                path = folder / tree / label / f"{index}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(path), picture)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos(tmp_path_factory.mktemp("segment") / "photos")


def frame_of(results: holdfast.Results) -> pd.DataFrame:
    frame = results.rows().to_pandas()
    text = ["task", "model", "trained_on", "condition", "label", "status", "protocol"]
    return frame.astype(dict.fromkeys(text, str))


def test_where_the_object_moves_the_truth_moves(data: Path, tmp_path: Path) -> None:
    scenarios = "original,shift_object@2,random_background@moved,segmented"
    run = holdfast.segment(data, models="known:colour", scenarios=scenarios, size=64, out=tmp_path / "run")
    found = run.segments(resamples=20).set_index("condition")
    assert (found["miou"] > 0.95).all() and (found["boundary_f"] > 0.95).all()
    assert (found["n"] == 18).all()
    rows = frame_of(run)
    assert set(rows["task"]) == {"segment"} and set(rows["protocol"]) == {"argmax@64"}
    assert rows["correct"].all() and (rows["prediction"].astype(str) == rows["label"]).all()
    moved = pq.read_table(next((tmp_path / "run" / "details" / "segments").glob("part-*.parquet")))
    assert set(moved["class"].to_pylist()) == {"background", *CLASSES}
    again = holdfast.segment(data, models="known:colour", scenarios=scenarios, size=64, out=tmp_path / "run")
    assert frame_of(again)["row_id"].tolist() == rows["row_id"].tolist()
    assert len(list((tmp_path / "run" / "segments").glob("*.png"))) == 3 * 4


def test_a_changed_mask_replaces_its_rows(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", 2)
    options = {"models": "known:colour", "scenarios": "original", "size": 64, "out": tmp_path / "run"}
    before = frame_of(holdfast.segment(data, **options))
    mask = data / "masks" / "disc" / "0.png"
    cv2.imwrite(str(mask), np.flipud(cv2.imread(str(mask), 0)))
    run = holdfast.segment(data, **options)
    after = frame_of(run)
    assert len(after) == len(before) == 6
    assert len(set(after["row_id"]) & set(before["row_id"])) == 5
    assert run.segments(resamples=5)["miou"].iloc[0] < 0.97
    details = pq.read_table(tmp_path / "run" / "details" / "segments")["row_id"].to_pylist()
    assert set(details) == set(after["row_id"])


def test_one_picture_that_fails_is_a_row(data: Path, tmp_path: Path) -> None:
    _, mask = draw("disc", 2, 64, 64)
    bad = ByColour(fails_on=int((mask > 0).sum()))
    registry.segmenters.register("failing", lambda name, *, device: bad, summary="for this test")
    run = holdfast.segment(data, models="failing:x", scenarios="original", size=64, out=tmp_path / "run")
    rows = frame_of(run)
    failed = rows[rows["status"] == "error"]
    assert failed["error"].unique().tolist() == ["RuntimeError: this one not"] and "disc/2" in set(failed["sample_id"])
    assert len(rows) == 18 and run.segments(resamples=5)["n"].iloc[0] == 18 - len(failed)


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> holdfast.Results:
    out = tmp_path_factory.mktemp("segmented") / "run"
    return holdfast.segment(
        data, architectures=[FPN, VIT], scenarios="original,grey,random_background@moved", folds=2, epochs=1, out=out,
        validation=0.3, **SMALL,
    )  # fmt: skip


def test_every_photo_is_segmented_by_models_that_never_saw_it(trained: holdfast.Results) -> None:
    rows = frame_of(trained)
    assert set(rows["error"].dropna()) == set() and set(rows["model"]) == {FPN, VIT}
    each = rows.groupby(["model", "trained_on", "condition"])["sample_id"].agg(["size", "nunique"])
    assert (each == 18).all().all() and len(each) == 2 * 5
    jobs = pq.read_table(trained.path / "jobs.parquet").to_pandas()
    assert len(jobs) == 12 and set(jobs["task"].astype(str)) == {"segment"} and (jobs["validation"] >= 0).all()
    curves = pq.read_table(trained.path / "curves").to_pandas()
    assert curves["miou"].notna().all() and curves["accuracy"].isna().all()
    assert set(curves["split"].astype(str)) == {"train", "validation"}
    found = trained.segments(resamples=20)
    assert len(found) == 10 and found["drop"].notna().sum() == 8


def overlaps(results: holdfast.Results, rows: pd.DataFrame) -> pd.Series:
    """Intersections by sample and class, of some rows."""
    details = pq.read_table(results.path / "details" / "segments").to_pandas().astype({"class": str})
    return details.merge(rows, on="row_id").set_index(["sample_id", "class"])["intersection"]


@pytest.mark.parametrize(("network", "name"), [(FPN, "smp:FPN@{}"), (VIT, "hf:{}")])
def test_the_saved_model_is_the_one_that_was_tested(
    trained: holdfast.Results, data: Path, tmp_path: Path, network: str, name: str
) -> None:
    jobs = pq.read_table(trained.path / "jobs.parquet").to_pandas().astype({"model": str, "trained_on": str})
    (job,) = jobs[(jobs["model"] == network) & (jobs["trained_on"] == "grey") & (jobs["fold"] == 0)]["job"]
    folder = trained.path / "models" / Path(*str(job).rsplit("--", 2))
    assert load_segmenter(name.format(folder), device="cpu").labels.names == ("background", *CLASSES)
    assert name.format("FOLDER") in (folder / "README.md").read_text()
    run = holdfast.segment(data, models=[name.format(folder)], scenarios="grey", out=tmp_path / "run", **SMALL)
    rows = frame_of(trained)
    theirs = overlaps(trained, rows[(rows["model"] == network) & (rows["trained_on"] == "grey") & (rows["fold"] == 0)])
    assert len(theirs) >= 18
    assert overlaps(run, frame_of(run)).loc[theirs.index].tolist() == theirs.tolist()


def test_pictures_that_do_not_fit_into_memory_are_made_anew(data: Path, tmp_path: Path) -> None:
    options = {"architectures": [FPN], "scenarios": "original", "folds": 1, "epochs": 2, "recipe": "paper", **SMALL}
    held = holdfast.segment(data, out=tmp_path / "held", **options)
    made = holdfast.segment(data, out=tmp_path / "made", memory=1e-9, **options)
    assert overlaps(held, frame_of(held)).equals(overlaps(made, frame_of(made)))


def test_torchvision_and_weights_of_others_are_trained(data: Path, tmp_path: Path) -> None:
    names = ["torchvision:lraspp_mobilenet_v3_large", "embedded:unet?pretrained=true"]
    run = holdfast.segment(
        data, architectures=names, scenarios="original", folds=1, epochs=1, out=tmp_path / "run", **SMALL
    )
    rows = frame_of(run)
    assert set(rows["error"].dropna()) == set() and set(rows["model"]) == set(names)
    folders = {one.parent for one in (tmp_path / "run" / "models").rglob("README.md")}
    (vision,) = (one for one in folders if "torchvision" in one.parts[-3])
    assert (
        load_segmenter(f"torchvision:lraspp_mobilenet_v3_large@{vision}", device="cpu").labels.names[0] == "background"
    )
    (drawn,) = folders - {vision}
    begun = load_segmenter("embedded:unet", device="cpu").module.state_dict()
    ended = load_file(drawn / "model.safetensors")
    kept = [name for name in ended if ended[name].shape == begun[name].shape and name.endswith("weight")]
    far = [float((ended[name] - begun[name]).abs().mean() / begun[name].abs().mean()) for name in kept]
    assert np.median(far) < 0.5  # one epoch moves weights a little; random ones would be nowhere near


def test_going_on_trains_nothing_twice_and_the_same_again(trained: holdfast.Results, data: Path) -> None:
    files = sorted((trained.path / "models").rglob("model.safetensors"))
    before = {file: (file.stat().st_mtime_ns, load_file(file)) for file in files}
    frame = frame_of(trained).astype({"model": str, "trained_on": str}).set_index("row_id")
    rows = frame["correct"]
    own = frame["model"].str.contains("FPN") & (frame["trained_on"] == "grey") & (frame["fold"] == 0)
    lost = next(file for file in files if "FPN" in str(file) and file.parts[-3:-1] == ("grey", "fold-0"))
    (lost.parent / "README.md").unlink()  # a folder without its card is unfinished
    assert trained.run.predictions.drop_ids(list(frame.index[own])) > 0
    again = holdfast.segment(
        data, architectures=[FPN, VIT], scenarios="original,grey,random_background@moved", folds=2, epochs=1,
        out=trained.path, validation=0.3, **SMALL,
    )  # fmt: skip
    assert frame_of(again).set_index("row_id")["correct"].sort_index().equals(rows.sort_index())
    for file, (_, weights) in before.items():
        assert all(torch.equal(tensor, weights[name]) for name, tensor in load_file(file).items())
    assert [file for file in files if file.stat().st_mtime_ns != before[file][0]] == [lost]


@pytest.mark.slow
def test_kill_9_and_rerun_end_in_the_same_counts(data: Path, tmp_path: Path, table_of) -> None:
    asked = [
        "segment", str(data), "--architectures", FPN, "--scenarios", "original", "--folds", "1", "--epochs", "12",
        "--size", "64", "--batch-size", "6", "--validation", "0.3", "--device", "cpu", "-q",
    ]  # fmt: skip
    settings = {"architectures": FPN, "scenarios": "original", "folds": 1, "epochs": 12, "validation": 0.3, **SMALL}
    whole = holdfast.segment(data, out=tmp_path / "whole", **settings)
    (folder,) = (one.parent.relative_to(whole.path / "models") for one in (whole.path / "models").rglob("README.md"))
    checkpoints = tmp_path / "killed" / "jobs" / folder / "checkpoints"
    kept = kill_in_training([*asked, "--out", str(tmp_path / "killed")], checkpoints, 3)
    assert 3 <= int(kept.name[-5:]) < 12 and not (tmp_path / "killed" / "models").exists()
    killed = holdfast.segment(data, out=tmp_path / "killed", **settings)
    assert weight_hashes(killed.path) == weight_hashes(whole.path) and len(weight_hashes(whole.path)) == 1
    assert table_of(killed) == table_of(whole) and killed.rows().num_rows > 0
    assert overlaps(killed, frame_of(killed)).sort_index().equals(overlaps(whole, frame_of(whole)).sort_index())
    columns = ["epoch", "split", "loss", "miou"]
    assert pq.read_table(killed.path / "curves", columns=columns) == pq.read_table(
        whole.path / "curves", columns=columns
    )


def test_the_report_has_tables_pictures_and_curves(trained: holdfast.Results, tmp_path: Path) -> None:
    page = trained.report(tmp_path / "report", resamples=50).read_text()
    assert "Mean IoU under original" in page and "IoU ~ model + scenario + class" in page
    assert page.count("data:image/png;base64") >= 6
    assert "12 trainings" in page and "no rows at all" not in page
    table = pd.read_csv(tmp_path / "report" / "tables" / "segmentation.csv")
    assert len(table) == 2 * 6 and {"miou", "miou_low", "boundary_f", "drop"} <= set(table.columns)
    quality = pd.read_csv(tmp_path / "report" / "tables" / "segmentation_regression_quality.csv")
    assert quality["measure"].str.contains("Normality").sum() == 4
    drawn = ("segmentation", "segmentation_classes", "segmentation_coefficients", "segmentation_residuals")
    for figure in (*drawn, "segmentation_curves"):
        assert (tmp_path / "report" / "figures" / f"{figure}.svg").is_file()


def test_a_training_that_diverges_is_an_error_with_a_report(data: Path, tmp_path: Path) -> None:
    options = {"scenarios": "original", "folds": 1, "epochs": 2, "out": tmp_path / "run", "recipe": "paper"}
    with pytest.raises(UserError, match=r"gave no answer at all: 3 errors, the first: .*lower the learning rate"):
        holdfast.segment(data, architectures=[FPN], rate=1e30, **options, **SMALL)
    run = holdfast.open_run(tmp_path / "run")
    rows = frame_of(run)
    assert set(rows["status"]) == {"error"} and rows["error"].str.contains("learning rate").all()
    assert "Trainings that failed" in run.report(resamples=5).read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "one of them"),
        ({"models": "known:colour", "architectures": FPN}, "not both"),
        ({"models": "bare:x"}, "no output for the background"),
        ({"models": "nothing:x"}, "segmenter scheme"),
        ({"models": "unet"}, "scheme:name"),
        ({"models": "known:colour,known:colour"}, "share the name"),
        ({"models": "known:colour", "scenarios": "only_background"}, "nothing to segment"),
        ({"architectures": "timm:resnet18"}, "smp:"),
        ({"architectures": "smp:FPN"}, "smp:ARCHITECTURE@ENCODER"),
        ({"architectures": "smp:FPM@resnet18"}, "did you mean FPN"),
        ({"architectures": "smp:FPN@resnet81"}, "encoder"),
        ({"architectures": "smp:UPerNet@tu-vit_tiny_patch16_224"}, "hf:upernet@vit"),
        ({"architectures": "hf:upernet@vot"}, "did you mean"),
        ({"architectures": "hf:upernet@swin?layers=2"}, "no option of hf: is called 'layers'"),
        ({"architectures": "torchvision:fcn_resnet51"}, "did you mean"),
        ({"architectures": FPN, "folds": 7}, "at least 7 images"),
    ],
)
def test_mistakes(data: Path, tmp_path: Path, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        holdfast.segment(data, out=tmp_path / "run", **{"scenarios": "original", "folds": 2, **SMALL, **options})


def test_masks_and_names_are_needed(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", 2)
    shutil.copytree(data / "images", tmp_path / "bare")
    with pytest.raises(UserError, match="needs masks"):
        holdfast.segment(tmp_path / "bare", models="known:colour", scenarios="original", out=tmp_path / "run")
    (data / "images" / "disc").rename(data / "images" / "background")
    (data / "masks" / "disc").rename(data / "masks" / "background")
    with pytest.raises(UserError, match="rename it"):
        holdfast.segment(data, models="known:colour", scenarios="original", out=tmp_path / "run")


def test_the_command_line(data: Path, tmp_path: Path) -> None:
    asked = ["segment", str(data), "--models", "known:colour", "--scenarios", "original,grey", "--size", "64"]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "mean IoU" in done.output and "36 rows made" in done.output
