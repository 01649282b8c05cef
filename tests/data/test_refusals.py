"""Label files that do not fit, outputs without names, lists whose images are elsewhere: errors say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commands import run
from holdfast.core.errors import UserError
from holdfast.core.types import ClassKeys, LabelSpace
from holdfast.data import load_collection
from holdfast.data.labels import map_labels


def _eval(photos: Path, model: str, labels: Path, out: Path) -> str:
    words = ["--models", model, "--labels", labels, "--scenarios", "original", "--out", out]
    return run("eval", photos, *words, code=2).stderr


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("Disc,disc", "no class of the dataset is called 'Disc'; did you mean disc?"),
        ("sqare,square", "did you mean square?"),
        ("disc,disk", "class 'disc' lists 'disk', which is not an output of the model; nearest: disc"),
        ("disc,zebra", "outputs are called cross, disc, square"),
    ],
)
def test_a_label_row_that_matches_nothing_is_an_error(
    row: str, said: str, photos: Path, toy_models: str, tmp_path: Path
) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(f"class,label\n{row}\n")
    assert said in _eval(photos, f"{toy_models}:colour", file, tmp_path / "out")


def test_keys_of_a_dataset_itself_may_match_nothing() -> None:
    space = LabelSpace(("0", "cat"))
    assert map_labels(["0"], {"0": ClassKeys(labels=("zero",))}, space).members == ((0,),)
    with pytest.raises(UserError, match="'zero', which is not an output"):
        map_labels(["0"], {"0": ClassKeys(labels=("zero",), required=True)}, space)


def test_outputs_without_names_are_to_be_named() -> None:
    with pytest.raises(UserError, match=r"3 outputs have no names: .* MODEL\?labels=names\.txt"):
        map_labels(["dog"], {}, LabelSpace(("0", "1", "2")))


def test_coco_names_the_option_that_it_has(tmp_path: Path) -> None:
    images = [{"id": 1, "file_name": "../elsewhere/1.png", "height": 4, "width": 4}]
    listed = {
        "images": images,
        "annotations": [{"image_id": 1, "category_id": 1}],
        "categories": [{"id": 1, "name": "a"}],
    }
    (tmp_path / "list.json").write_text(json.dumps(listed))
    with pytest.raises(UserError) as caught:
        load_collection(str(tmp_path / "list.json"))
    assert "?images=DIR" in str(caught.value) and "?root" not in str(caught.value)


def test_void_is_neither_object_nor_background(tmp_path: Path, write_png) -> None:
    mask = np.zeros((8, 8), np.uint8)
    mask[1:7, 1:7] = 255
    mask[2:6, 2:6] = 1
    for label in ("cat", "dog"):
        write_png(tmp_path / "images" / label / "1.png", np.full((8, 8, 3), 90, np.uint8))
        write_png(tmp_path / "masks" / label / "1.png", np.where(mask == 255, 7, mask).astype(np.uint8))
    name = f"{tmp_path}?void=7"
    assert load_collection(name).samples[0].mask.load(8, 8).sum() == 16
    write_png(tmp_path / "masks" / "cat" / "1.png", mask)
    ring, inside = load_collection(str(tmp_path)), load_collection(f"{tmp_path}?void=255")
    assert ring.samples[0].mask.load(8, 8).sum() == 20
    assert inside.samples[0].mask.load(8, 8).sum() == 16
    for wrong in ("void=0", "void=256", "void=x", "void=255&mask_format=red"):
        with pytest.raises(UserError, match="from 1 to 255"):
            load_collection(f"{tmp_path}?{wrong}")


@pytest.fixture
def write_png():
    """Write pixels as a PNG."""
    from PIL import Image

    def write(path: Path, pixels: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)

    return write
