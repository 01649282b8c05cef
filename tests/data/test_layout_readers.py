"""The XIMAGENET-12 and ImageNet-D layouts."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import UserError
from holdfast.core.types import ClassKeys
from holdfast.data import load_collection

PRINTED = """0 lizard n01689811 44 · 1 green lizard n01693334 46 · 2 crayfish n01985128 124 · 3 whale n02066245 147 ·
4 dog n02085936 153 · 5 fox n02119022 277 · 6 anemone fish n02607072 393 · 7 airship n02692877 405 ·
8 car wheel n02974003 479 · 9 cash machine n02977058 480 · 10 cello n02992211 486 · 11 ice cream n07614500 928"""


def write_red_mask(path):
    array = np.zeros((6, 8, 3), np.uint8)
    array[:3, :, 0] = 255
    path.parent.mkdir(parents=True)
    Image.fromarray(array).save(path)


@pytest.fixture
def ximagenet(tmp_path, write_image):
    for folder in (
        "image",
        "image_r",
        "combine",
        "segmented_image_transparent",
        "transparent_img",
        "generated_background",
    ):
        write_image(tmp_path / folder / "n01693334/p1.png")
    write_image(tmp_path / "image/n02085936/p2.png")
    write_image(tmp_path / "image_r/n02085936/p2.png")
    return tmp_path


def by_id(collection):
    return {sample.sample_id: sample for sample in collection.samples}


def test_scenario_folders_are_conditions_of_one_source(ximagenet, write_mask):
    write_red_mask(ximagenet / "masks/n01693334/p1.png")
    collection = load_collection(f"ximagenet12:{ximagenet}")
    assert collection.classes == ("green lizard", "dog")
    assert collection.keys == {
        "green lizard": ClassKeys(("n01693334",), (46,)),
        "dog": ClassKeys(("n02085936",), (153,)),
    }
    samples = by_id(collection)
    assert list(samples)[:2] == ["n01693334/p1", "n02085936/p2"]
    assert {one: sample.condition for one, sample in samples.items()} == {
        "n01693334/p1": "original",
        "n02085936/p2": "original",
        "red/n01693334/p1": "red",
        "red/n02085936/p2": "red",
        "random_background/n01693334/p1": "random_background",
        "transparent/n01693334/p1": "transparent",
        "generated_background/n01693334/p1": "generated_background",
    }
    assert {sample.source_id for sample in samples.values()} == {"n01693334/p1", "n02085936/p2"}
    assert samples["red/n01693334/p1"].label == "green lizard"
    masked = {one for one, sample in samples.items() if sample.mask is not None}
    assert masked == {"n01693334/p1", "red/n01693334/p1", "transparent/n01693334/p1"}
    assert samples["red/n01693334/p1"].mask.load(6, 8).sum() == 24
    assert len(collection.problems) == 10  # the ten classes without an image


def test_standard_masks_are_preferred_and_the_layout_is_recognised(ximagenet, write_mask):
    write_red_mask(ximagenet / "masks/n02085936/p2.png")
    write_mask(ximagenet / "standard_masks/n01693334/p1.png")
    samples = by_id(load_collection(str(ximagenet)))
    assert samples["n01693334/p1"].mask.load(6, 8).sum() == 24
    assert samples["n02085936/p2"].mask is None


def test_conditions_can_be_chosen(ximagenet):
    collection = load_collection(f"ximagenet12:{ximagenet}?conditions=original,red")
    assert {sample.condition for sample in collection.samples} == {"original", "red"}
    with pytest.raises(UserError, match="called 'rde'; did you mean red"):
        load_collection(f"ximagenet12:{ximagenet}?conditions=rde")


def test_class_folders_may_bear_names(tmp_path, write_image):
    write_image(tmp_path / "image/green_lizard/a.jpg")
    write_image(tmp_path / "image/Ice Cream/a.jpg")
    write_image(tmp_path / "image/tractor/a.jpg")
    write_image(tmp_path / "image_g/green_lizard/a.jpg")
    collection = load_collection(f"ximagenet12:{tmp_path}")
    assert collection.classes == ("green lizard", "ice cream")
    assert by_id(collection)["green/green_lizard/a"].source_id == "green_lizard/a"
    assert any(one.sample_id == "image/tractor" and "none of the 12" in one.message for one in collection.problems)


def test_masks_by_hand_bear_the_originals_names(ximagenet, tmp_path, write_mask):
    write_mask(tmp_path / "m/n02085936/p2.png")
    samples = by_id(load_collection(f"ximagenet12:{ximagenet}", masks=tmp_path / "m"))
    assert samples["red/n02085936/p2"].mask is not None and samples["n01693334/p1"].mask is None


def test_the_twelve_classes_are_the_printed_ones(tmp_path, write_image):
    printed = [entry.split(maxsplit=1)[1].rsplit(maxsplit=2) for entry in PRINTED.split("·")]
    for _, wnid, _ in printed:
        write_image(tmp_path / "image" / wnid / "a.png")
    collection = load_collection(f"ximagenet12:{tmp_path}")
    assert collection.classes == tuple(name for name, _, _ in printed)
    assert collection.keys == {name: ClassKeys((wnid,), (int(index),)) for name, wnid, index in printed}


@pytest.mark.parametrize(
    ("folder", "condition"),
    [
        ("blur_background", "blur_background"),
        ("blur_object", "blur_object"),
        ("image_r", "red"),
        ("image_g", "green"),
        ("image_b", "blue"),
        ("image_grey", "grey"),
        ("image_rainbow", "rainbow"),
        ("segmented_image", "segmented"),
        ("segmented_image_transparent", "transparent"),
        ("transparent_img", "transparent"),
        ("combine", "random_background"),
        ("generated_background", "generated_background"),
        ("bright_background", "bright_background"),
        ("bright_object", "bright_object"),
    ],
)
def test_every_folder_of_the_dataset_is_known(tmp_path, write_image, folder, condition):
    write_image(tmp_path / "image/n02085936/a.png")
    write_image(tmp_path / folder / "n02085936/a.png")
    collection = load_collection(f"ximagenet12:{tmp_path}?conditions={condition}")
    assert [sample.sample_id for sample in collection.samples] == [f"{condition}/n02085936/a"]


@pytest.fixture
def imagenet_d(tmp_path, write_image):
    for name in ("background/acorn/01.png", "background/mug/07.png", "texture/mug/01.png", "material/mug/01.png"):
        write_image(tmp_path / name)
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions/background.csv").write_text(
        "image_dir\tgt_category\ttop1_pred_cate\ttop2_pred_cate\n"
        "./ImageNet-D/background/mug/07.png\tmug\tcup\tbowl\nbackground/none/1.png\tx\ty\tz\n"
    )
    return tmp_path


def test_imagenet_d_layout(imagenet_d):
    collection = load_collection(str(imagenet_d))
    assert collection.classes == ("acorn", "mug") and collection.problems == ()
    samples = by_id(collection)
    assert list(samples) == ["background/acorn/01", "background/mug/07", "texture/mug/01", "material/mug/01"]
    assert {sample.kind for sample in samples.values()} == {"generated"}
    assert [sample.condition for sample in samples.values()] == ["background", "background", "texture", "material"]
    assert samples["background/mug/07"].attributes == {
        "gt_category": "mug",
        "top1_pred_cate": "cup",
        "top2_pred_cate": "bowl",
    }
    assert samples["texture/mug/01"].attributes == {}


@pytest.mark.parametrize("content", [b"path\tx\n1\t2\n", b"\xff\xfe\x00"])
def test_unusable_question_files_are_problems(imagenet_d, content):
    (imagenet_d / "questions/background.csv").write_bytes(content)
    collection = load_collection(f"imagenet-d:{imagenet_d}")
    assert len(collection) == 4
    assert [one.sample_id for one in collection.problems] == ["questions/background.csv"]


def test_imagenet_d_masks_by_hand(imagenet_d, write_mask):
    write_mask(imagenet_d / "m/texture/mug/01.png")
    samples = by_id(load_collection(f"imagenet-d:{imagenet_d}", masks=imagenet_d / "m"))
    assert samples["texture/mug/01"].mask is not None and samples["material/mug/01"].mask is None
