"""Studies on a folder of the user's own images: what they are asked of, and what their pages say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from holdfast import api, registry
from holdfast.data import load_collection
from holdfast.data.writers import encode_image, encode_mask
from holdfast.studies.study import run_study

MODELS = "models=embedded:resnet_rho95,embedded:resnet_rho0"
TAKES_DATA = {
    "transfer", "start", "step-size", "generator-swap", "oracle-swap", "oracle-attack", "robust-training", "metrics",
    "prompts", "masks", "ximagenet12",
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
    assert "Known-truth world" not in page and "A rehearsal" in page
    rows = api.open_run(tmp_path / "runs" / "walks").rows(["sample_id", "label"]).to_pandas()
    assert rows["sample_id"].nunique() == 12 and rows["label"].astype(str).str.startswith("my ").all()
    assert set(table(tmp_path, "made-against-one-shown-to-all")["n"]) == {12}


def test_oracle_attack_keeps_the_shape_of_the_users_images(photos: Path, tmp_path: Path) -> None:
    assignments = said(photos, "oracle=classifier:embedded:mobilenet_rho95", "scenes=16")
    page = run_study("oracle-attack", tmp_path, assignments=assignments, quick=True, device="cpu").read_text("utf8")
    assert "Known-truth world" not in page
    ends = table(tmp_path, "how-many-were-led-astray")
    assert set(ends["scenes"]) == {16} and len(ends) == 3


def test_embedded_parts_on_other_images_are_named(photos: Path, tmp_path: Path) -> None:
    assignments = said(photos, "oracle=classifier:embedded:mobilenet_rho95", "generator=embedded:vqgan", "steps=1")
    page = run_study("start", tmp_path, assignments=assignments, quick=True, device="cpu").read_text("utf8")
    assert "Made for drawn scenes and used on other images here: generator embedded:vqgan." in page


def test_drawn_is_a_name_for_drawn_scenes(tmp_path: Path) -> None:
    assignments = ["data=drawn", MODELS, "steps=1"]
    page = run_study("oracle-attack", tmp_path, assignments=assignments, quick=True, device="cpu").read_text("utf8")
    assert "Known-truth world" in page
