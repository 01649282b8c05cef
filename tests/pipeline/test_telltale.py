"""``holdfast study telltale``: three kinds of every image, no image on both sides, and a page with both controls."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from tiny_pipelines import save_pipeline
from typer.testing import CliRunner

from holdfast import api
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.pipeline.jobs.progress import silent
from holdfast.pipeline.telltale import TelltaleSpec, _read, telltale
from holdfast.stats.trained import CONTROL, GENERATED, JPEG, KINDS, PASTED, accuracies, confusion
from holdfast_studies.telltale import study_telltale
from shapes import make_photos

SMALL = {"architectures": ("timm:test_resnet",), "size": 32, "batch_size": 8, "device": "cpu", "folds": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("shapes") / "photos", 6)


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = save_pipeline(tmp_path_factory.mktemp("pipeline") / "text", "text")
    return f"diffusers:{folder}?steps=2&size=32"


@pytest.fixture(scope="module")
def results(data: Path, generator: str, tmp_path_factory: pytest.TempPathFactory) -> api.Results:
    out = tmp_path_factory.mktemp("detected") / "run"
    return study_telltale(data, generator=generator, epochs=12, rate=0.005, out=out, **SMALL)


def test_every_photo_has_all_three_kinds_and_is_tested_once(results: api.Results) -> None:
    rows = results.rows().to_pandas().astype({"condition": str, "label": str, "task": str, "trained_on": str})
    assert (rows["status"].astype(str) == "ok").all() and set(rows["task"]) == {"classify"}
    shown = rows.groupby(["condition", "label"])["source_id"].agg(["size", "nunique"])
    assert set(shown.index) == {(name, kind) for name in ("original", JPEG) for kind in KINDS} | {(CONTROL, PASTED)}
    photos = shown["size"].iloc[0]
    assert (shown == photos).all(axis=None) and photos >= 12
    assert rows.groupby("source_id")["fold"].nunique().max() == 1
    lent = rows["donor_id"].notna()
    assert (lent == (rows["label"] == PASTED)).all()  # pasted images say whose background they have
    folds = rows.groupby("source_id")["fold"].first()
    assert (rows.loc[lent, "donor_id"].map(folds) == rows.loc[lent, "fold"]).all()
    left_out = [text for text in results.run.samples()["problem"].to_pylist() if text]
    assert len(left_out) == 18 - photos and all("left out of all three kinds" in text for text in left_out)


def test_noise_behind_an_object_is_told_from_flat_colours(results: api.Results) -> None:
    frame = confusion(results.counts).set_index(["label", "prediction"])
    assert frame.loc[(GENERATED, GENERATED), "share"] > 0.7  # random weights paint noise: anyone can tell
    assert accuracies(results.counts)["accuracy"].iloc[0] > 1 / 3


def test_the_page_and_the_report_of_the_run(results: api.Results, tmp_path: Path) -> None:
    page = (results.path / "report" / "index.html").read_text()
    for text in ("74.9 %", "78.8 %", "70.9 %", "nothing follows from the difference", "traces of the making"):
        assert text in page
    again = results.report(tmp_path / "again")
    assert "Can a network distinguish generated backgrounds from real ones?" in again.read_text()
    table = pd.read_csv(tmp_path / "again" / "tables" / "confusion.csv")
    assert table.groupby("label")["share"].sum().tolist() == pytest.approx([1, 1, 1])
    for name in ("confusion_1", "reliability", "curves_loss"):
        assert (tmp_path / "again" / "figures" / f"{name}.svg").is_file()


def test_a_second_run_paints_and_trains_nothing(results: api.Results, data: Path, generator: str) -> None:
    painted = {file: file.stat().st_mtime_ns for file in (results.path / "painted").iterdir()}
    spec = TelltaleSpec(str(data), generator=generator, epochs=12, rate=0.005, **SMALL)
    _, summary = telltale(spec, results.path)
    assert summary.rows == 0 and summary.already == results.rows().num_rows
    assert painted == {file: file.stat().st_mtime_ns for file in (results.path / "painted").iterdir()}


def test_backgrounds_are_borrowed_within_the_fold(data: Path, generator: str, tmp_path: Path) -> None:
    api.synth(data, out=tmp_path / "synth", scenarios=GENERATED, generator=generator, device="cpu")
    spec = TelltaleSpec(str(data), generated=str(tmp_path / "synth"), **SMALL)
    found = _read(spec, out=tmp_path / "run", progress=silent)
    assert found.classes == KINDS
    own = {sample.source_id: sample.fold for sample in found.samples}
    labels = Counter((sample.label, sample.condition) for sample in found.samples)
    assert labels[PASTED, "original"] == labels[GENERATED, "original"] == labels["original", "original"]
    pasted = [sample for sample in found.samples if sample.label == PASTED]
    for sample in pasted:
        lenders = {own[lender.source_id] for lender in sample.image.pool.samples}
        assert lenders == {sample.fold}
    assert not (tmp_path / "run" / "painted").exists()  # they were given
    object_of = {sample.source_id: sample.attributes["object"] for sample in found.samples}
    folds = pd.DataFrame({"fold": own, "object": object_of}).groupby(["object", "fold"]).size()
    assert folds.max() - folds.min() <= 1  # objects are spread evenly, too


def test_what_is_refused(data: Path, generator: str, tmp_path: Path) -> None:
    for options, message in (
        ({}, "name one of them"),
        ({"generator": generator, "generated": "x"}, "not both"),
        ({"generated": str(data)}, f"no image that shows {GENERATED}"),
        ({"generator": generator, "backgrounds": str(data)}, "within each fold"),
        ({"generator": generator, "workers": 2}, "one process"),
        ({"generator": generator, "architectures": ("timm:no_such_net",)}, "no_such_net"),
    ):
        with pytest.raises(UserError, match=message):
            telltale(TelltaleSpec(str(data), **SMALL | options), tmp_path / "run")
    shutil.copytree(data / "images", tmp_path / "alone")
    with pytest.raises(UserError, match="need masks"):
        telltale(TelltaleSpec(str(tmp_path / "alone"), generator=generator, **SMALL), tmp_path / "bare")


def test_the_command_line(data: Path, results: api.Results, generator: str) -> None:
    asked = [
        "study",
        "telltale",
        str(data),
        "--generator",
        generator,
        "--architectures",
        "timm:test_resnet",
        "--size",
        "32",
    ]
    asked += ["--batch-size", "8", "--epochs", "12", "--rate", "0.005", "--folds", "2", "--device", "cpu"]
    done = CliRunner().invoke(app, [*asked, "--out", str(results.path), "-q"])
    assert done.exit_code == 0, done.output
    assert "chance is 33.3 %" in done.output and done.output.strip().endswith("index.html")
