"""Studies on a folder of the user's own images: what they are asked of, and what their pages say."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from holdfast import api, registry
from holdfast.core.errors import UserError
from holdfast.data import load_collection
from holdfast.data.writers import encode_image, encode_mask
from holdfast_studies.study import run_study

MODELS = "models=embedded:resnet_rho95,embedded:resnet_rho0"
TAKES_DATA = {
    "transfer", "start", "step-size", "generator-swap", "oracle-swap", "oracle-attack", "robust-training", "metrics",
    "prompts", "masks", "ximagenet12", "adversarial-training", "augmentation", "greyscale", "heads",
    "realism",
}  # fmt: skip


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen images of four classes, larger than drawn scenes and not square, with masks and a label file."""
    folder = tmp_path_factory.mktemp("photos")
    names = {}
    for place, sample in enumerate(load_collection("diorama:test?n=48&context=0.9").samples):
        if place % 12 >= 4:
            continue
        image = sample.image.load().repeat(2, axis=0).repeat(3, axis=1)
        assert sample.mask is not None
        mask = sample.mask.load(64, 64).repeat(2, axis=0).repeat(3, axis=1)
        own = f"my {sample.label}"
        names[own] = sample.label
        for kind, content in (("images", encode_image(image)), ("masks", encode_mask(mask))):
            file = folder / kind / own / f"{place}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    keys = load_collection("diorama:test?n=12").keys
    lines = [f"{own},{keys[label].wnids[0]}" for own, label in names.items()]
    (folder / "labels.csv").write_text("\n".join(["class,wnid", *lines]) + "\n")
    return folder


def said(photos: Path, *more: str) -> list[str]:
    return [f"data={photos / 'images'}", f"labels={photos / 'labels.csv'}", MODELS, *more]


def table(out: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(out / "results" / f"{name}.parquet")


def test_every_study_whose_question_makes_sense_takes_data() -> None:
    takes = {
        name for name in registry.studies if "data" in {one.name for one in registry.studies.get(name).settings}
    }  # fmt: skip
    assert takes == TAKES_DATA


def test_transfer_walks_the_users_images(photos: Path, tmp_path: Path) -> None:
    assignments = said(photos, "oracle=classifier:embedded:mobilenet_rho95", "step_size=0.02")
    page = run_study("transfer", tmp_path, assignments=assignments, quick=True, device="cpu").read_text("utf8")
    assert "Drawn scenes: the truth is known" not in page and "A rehearsal" in page
    rows = api.open_run(tmp_path / "runs" / "walks").run.rows(["sample_id", "label"]).to_pandas()
    assert rows["sample_id"].nunique() == 12 and rows["label"].astype(str).str.startswith("my ").all()
    assert set(table(tmp_path, "made-against-one-shown-to-all")["n"]) == {12}


def test_oracle_attack_keeps_the_shape_of_the_users_images(photos: Path, tmp_path: Path) -> None:
    assignments = said(photos, "oracle=classifier:embedded:mobilenet_rho95", "scenes=16")
    page = run_study("oracle-attack", tmp_path, assignments=assignments, quick=True, device="cpu").read_text("utf8")
    assert "Drawn scenes: the truth is known" not in page
    ends = table(tmp_path, "how-many-were-led-astray")
    assert set(ends["scenes"]) == {16} and len(ends) == 3


def test_embedded_parts_on_other_images_are_named(photos: Path, tmp_path: Path) -> None:
    small = ["generator=embedded:tiny", "steps=1", "models=embedded:resnet_rho0"]
    assignments = said(photos, "oracle=classifier:embedded:mobilenet_rho95", *small)
    page = run_study("start", tmp_path, assignments=assignments, quick=True, device="cpu").read_text("utf8")
    assert "Made for drawn scenes and used on other images here: generator embedded:tiny." in page


def test_drawn_is_a_name_for_drawn_scenes(tmp_path: Path) -> None:
    assignments = ["data=drawn", MODELS, "steps=1"]
    page = run_study("oracle-attack", tmp_path, assignments=assignments, quick=True, device="cpu").read_text("utf8")
    assert "Drawn scenes: the truth is known" in page


def test_small_models_are_trained_on_one_part_of_the_users_images_and_walked_on_the_other(
    photos: Path, tmp_path: Path
) -> None:
    mine = said(photos, f"masks={photos / 'masks'}", "oracle=classifier:embedded:mobilenet_rho95", "models=trained")
    page = run_study("greyscale", tmp_path, assignments=mine, quick=True, device="cpu").read_text("utf8")
    assert "Drawn scenes: the truth is known" not in page
    parts = {part: sorted((tmp_path / "work" / "parts" / part / "images").rglob("*.png")) for part in ("train", "test")}
    sources = {part: {file.resolve() for file in files} for part, files in parts.items()}
    assert len(sources["train"]) == 12 and len(sources["test"]) == 4 and not sources["train"] & sources["test"]
    facts = json.loads((tmp_path / "models" / "grey-seed0" / "config.json").read_text())
    assert facts["num_classes"] == 4 and all(name.startswith("my ") for name in facts["label_names"])
    assert facts["holdfast"]["data"].startswith("12 images of the user's data (")
    rows = api.open_run(tmp_path / "runs" / "walks").run.rows(["sample_id", "model"]).to_pandas()
    assert rows["sample_id"].nunique() == 4 and set(rows["model"].astype(str)) == {"plain-seed0", "grey-seed0"}
    assert (table(tmp_path, "with-and-without-colour")["n"] == 4).all()


def test_models_of_ones_own_stand_for_ways_of_training(photos: Path, tmp_path: Path) -> None:
    mine = said(photos, "oracle=classifier:embedded:mobilenet_rho95", "heads=4,1")
    run_study("heads", tmp_path, assignments=mine, quick=True, device="cpu")
    frame = table(tmp_path, "fmr-against-heads")
    assert list(frame["heads"]) == [1, 4] and not (tmp_path / "models").exists()
    named = table(tmp_path, "every-model").set_index("training")["model"]
    assert named["heads4"] == "embedded:resnet_rho95" and named["heads1"] == "embedded:resnet_rho0"
    with pytest.raises(UserError, match="name a model for each of the 3 ways"):
        run_study("heads", tmp_path / "b", assignments=[*mine, "heads=1,2,4"], quick=True, device="cpu")


@pytest.mark.parametrize("study", ["adversarial-training", "robust-training", "augmentation"])
@pytest.mark.slow
def test_other_studies_that_train_take_images_without_masks(study: str, photos: Path, tmp_path: Path) -> None:
    mine = said(photos, "oracle=classifier:embedded:mobilenet_rho95", "step_size=0.02")
    mine = [text for text in mine if text != MODELS] + (["ways=plain,augmix"] if study == "robust-training" else [])
    page = run_study(study, tmp_path, assignments=mine, quick=True, device="cpu").read_text("utf8")
    assert "Drawn scenes: the truth is known" not in page and "test images" in page
