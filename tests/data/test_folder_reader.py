"""Class-per-folder trees, with and without masks, and what is wrong with some of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import ClassKeys
from holdfast.data import load_collection

SHARED = Path(__file__).parents[2].parent / "shared"


def ids(collection):
    return [sample.sample_id for sample in collection.samples]


def test_images_and_masks_side_by_side(tmp_path, write_image, write_mask):
    for name in ("dog/b.jpg", "dog/a.jpg", "cat/puss/c.png"):
        write_image(tmp_path / "images" / name)
    write_mask(tmp_path / "masks/dog/a.png")
    write_mask(tmp_path / "masks/cat/puss/c.tif")
    for path in (tmp_path, tmp_path / "images"):
        collection = load_collection(str(path))
        assert collection.name == tmp_path.name
        assert collection.classes == ("cat", "dog")
        assert ids(collection) == ["cat/puss/c", "dog/a", "dog/b"]
        assert [sample.label for sample in collection.samples] == ["cat", "dog", "dog"]
        assert [sample.mask is not None for sample in collection.samples] == [True, True, False]
        assert all(sample.source_id == sample.sample_id for sample in collection.samples)
        assert collection.problems == ()
        assert collection.samples[1].image.load().shape == (6, 8, 3)
        assert collection.samples[1].mask.load(6, 8).sum() == 24


def test_plain_tree_with_masks_given_or_inside(tmp_path, write_image, write_mask):
    write_image(tmp_path / "data/dog/a.jpg")
    write_image(tmp_path / "data/cat/b.jpg")
    write_mask(tmp_path / "elsewhere/dog/a.png")
    collection = load_collection(str(tmp_path / "data"), masks=tmp_path / "elsewhere")
    assert {sample.sample_id: sample.mask is not None for sample in collection.samples} == {
        "cat/b": False,
        "dog/a": True,
    }
    write_mask(tmp_path / "data/masks/cat/b.png")
    collection = load_collection(str(tmp_path / "data"))
    assert collection.classes == ("cat", "dog")
    assert [sample.mask is not None for sample in collection.samples] == [True, False]


def test_given_masks_replace_found_ones_and_keep_their_format(tmp_path, write_image, write_mask):
    write_image(tmp_path / "images/dog/a.jpg")
    write_mask(tmp_path / "masks/dog/a.png")
    write_mask(tmp_path / "other/dog/a.png")
    collection = load_collection(f"folder:{tmp_path}?mask_format=grey", masks=str(tmp_path / "other"))
    assert collection.samples[0].mask.path == f"{tmp_path}/other/dog/a.png"
    assert collection.samples[0].mask.format == "grey"


def test_masks_that_match_nothing_are_a_mistake(tmp_path, write_image, write_mask):
    write_image(tmp_path / "images/dog/a.jpg")
    write_mask(tmp_path / "other/hound/a.png")
    with pytest.raises(UserError, match=r"that of 'dog/a' would be .*dog/a\.png"):
        load_collection(str(tmp_path), masks=tmp_path / "other")
    with pytest.raises(UserError, match=r"does not exist; did you mean .*other"):
        load_collection(str(tmp_path), masks=tmp_path / "othr")
    with pytest.raises(UserError, match="must be a folder"):
        load_collection(str(tmp_path), masks=tmp_path / "images/dog/a.jpg")


def test_a_mask_of_another_size_is_found_on_loading(tmp_path, write_image, write_mask):
    write_image(tmp_path / "images/dog/a.jpg")
    write_mask(tmp_path / "masks/dog/a.png", size=(7, 8))
    with pytest.raises(SampleError, match="the mask is 8 × 7 pixels, its image 8 × 6"):
        load_collection(str(tmp_path)).samples[0].mask.load(6, 8)


def test_wordnet_folders_bring_their_keys(tmp_path, write_image):
    write_image(tmp_path / "n01689811/a.jpg")
    write_image(tmp_path / "n123/a.jpg")
    assert load_collection(str(tmp_path)).keys == {"n01689811": ClassKeys(wnids=("n01689811",))}


def test_top_folders_called_train_and_val_are_splits(tmp_path, write_image, write_mask):
    write_image(tmp_path / "images/train/dog/a.jpg")
    write_image(tmp_path / "images/val/dog/a.jpg")
    write_mask(tmp_path / "masks/val/dog/a.png")
    collection = load_collection(str(tmp_path))
    assert collection.classes == ("dog",)
    assert ids(collection) == ["train/dog/a", "val/dog/a"]
    assert [sample.split for sample in collection.samples] == ["train", "val"]
    assert [sample.mask is not None for sample in collection.samples] == [False, True]


def test_classes_that_happen_to_be_called_test_stay_classes(tmp_path, write_image):
    write_image(tmp_path / "test/a.jpg")
    write_image(tmp_path / "train/a.jpg")
    assert load_collection(str(tmp_path)).classes == ("test", "train")


def test_two_files_with_one_id_keep_their_suffix(tmp_path, write_image, write_mask):
    for name in ("a.jpg", "a.png", "a.jpg.png", "b.jpg"):
        write_image(tmp_path / "images/dog" / name)
    write_mask(tmp_path / "masks/dog/a.png")
    collection = load_collection(str(tmp_path))
    assert ids(collection) == ["dog/a.jpg", "dog/a.jpg.png", "dog/a.png", "dog/b"]
    assert [Path(sample.image.path).name for sample in collection.samples] == ["a.jpg", "a.jpg.png", "a.png", "b.jpg"]
    assert [sample.mask is not None for sample in collection.samples] == [True, False, True, False]


def test_other_files_are_passed_over(tmp_path, write_image):
    write_image(tmp_path / "dog/a.JPG")
    for name in ("dog/._a.jpg", "dog/Thumbs.db", "dog/notes.txt", ".cache/x.jpg", "dog/x.heic", "dog/y.heic"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"?")
    write_image(tmp_path / "loose.jpg")
    (tmp_path / "dog/pipe.jpg").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "dog/pipe.jpg")
    collection = load_collection(str(tmp_path))
    assert ids(collection) == ["dog/a"]
    assert [(one.sample_id, one.message) for one in collection.problems] == [
        ("dog/*.heic", "2 .heic file(s) were passed over; convert them to PNG or JPEG"),
        ("loose.jpg", "the image is in no class folder"),
    ]


def test_a_class_with_no_image_is_a_problem_and_no_class(tmp_path, write_image):
    write_image(tmp_path / "dog/a.jpg")
    (tmp_path / "cat").mkdir()
    collection = load_collection(str(tmp_path))
    assert collection.classes == ("dog",)
    assert [(one.sample_id, one.message) for one in collection.problems] == [("cat", "the class 'cat' has no image")]


def test_folders_without_images_are_mistakes(tmp_path, write_image):
    with pytest.raises(UserError, match="is empty"):
        load_collection(str(tmp_path))
    (tmp_path / "dog").mkdir()
    with pytest.raises(UserError, match="no image files"):
        load_collection(str(tmp_path))
    (tmp_path / "dog/a.heic").write_bytes(b"?")
    with pytest.raises(UserError, match=r"convert them to PNG"):
        load_collection(str(tmp_path))
    write_image(tmp_path / "a.jpg")
    with pytest.raises(UserError, match="no class folder"):
        load_collection(str(tmp_path))
    with pytest.raises(UserError, match="is not a folder"):
        load_collection(f"folder:{tmp_path}/a.jpg")


def test_loose_images_can_be_given_one_class(tmp_path, write_image):
    for name in ("b.jpg", "a.jpg", "a.png"):
        write_image(tmp_path / name)
    collection = load_collection(f"folder:{tmp_path}?label=meadow")
    assert ids(collection) == ["a.jpg", "a.png", "b"]
    assert collection.classes == ("meadow",)


def test_links_form_no_ring(tmp_path, write_image):
    write_image(tmp_path / "dog/a.jpg")
    (tmp_path / "dog/ring").symlink_to(tmp_path)
    (tmp_path / "hound").symlink_to(tmp_path / "dog")
    assert ids(load_collection(str(tmp_path))) == ["dog/a", "hound/a"]


def test_a_folder_that_may_not_be_read_is_a_problem(tmp_path, write_image, monkeypatch):
    write_image(tmp_path / "dog/a.jpg")
    write_image(tmp_path / "dog/secret/b.jpg")
    scandir = os.scandir

    def guarded(path):  # chmod would not stop root
        if str(path).endswith("secret"):
            raise PermissionError(errno.EACCES, "no")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    collection = load_collection(str(tmp_path))
    assert [one.message for one in collection.problems] == ["the folder cannot be read: permission denied"]


def test_real_photos():
    if not (SHARED / "photos/pets12").is_dir():
        pytest.skip("the pets12 images are not on this machine")
    collection = load_collection(str(SHARED / "photos/pets12"))
    assert (len(collection), len(collection.classes), collection.problems) == (120, 12, ())
    for sample in collection.samples:
        height, width, _ = sample.image.load().shape
        assert 0 < sample.mask.load(height, width).mean() < 1
