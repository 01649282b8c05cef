from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image as PillowImage

from holdfast.core.errors import UserError
from holdfast.core.files import unfinished, whole_file, write_atomic
from holdfast.core.fingerprint import canonical_json
from holdfast.core.types import Mask
from holdfast.data.writers import (
    File,
    coco_document,
    coco_text,
    encode_image,
    encode_mask,
    mask_rle,
    shard_key,
    tar_images,
    write_parquet_shard,
    write_tar_shard,
)

SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 12))


def decoded(data: bytes) -> np.ndarray:
    return np.asarray(PillowImage.open(io.BytesIO(data)))


@given(SHAPES, st.sampled_from([3, 4]), st.sampled_from(["png", "jpeg"]), st.integers(0, 2**32 - 1))
def test_png_keeps_every_value(shape: tuple[int, int], channels: int, format, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (*shape, channels), np.uint8)
    data = encode_image(image, format=format)
    is_png = data.startswith(b"\x89PNG")
    assert is_png == (format == "png" or channels == 4)
    if is_png:
        assert (decoded(data) == image).all()


def test_jpeg_is_close_and_quality_counts() -> None:
    rows, columns = np.mgrid[:60, :80]
    image = np.stack([rows * 4, columns * 3, (rows + columns) * 1], axis=2).astype(np.uint8)
    fine, coarse = (encode_image(image, format="jpeg", quality=quality) for quality in (95, 30))
    assert len(coarse) < len(fine)
    assert np.abs(decoded(fine).astype(int) - image).max() < 12


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 2), np.uint8)]
)
def test_other_arrays_are_refused(image: np.ndarray) -> None:
    with pytest.raises(ValueError, match="HWC uint8"):
        encode_image(image)


def test_other_formats_are_refused() -> None:
    with pytest.raises(UserError, match="png or jpeg, not 'gif'"):
        encode_image(np.zeros((4, 4, 3), np.uint8), format="gif")  # type: ignore[arg-type]


@given(hnp.arrays(np.bool_, SHAPES))
def test_masks_are_0_and_255(mask: Mask) -> None:
    pixels = decoded(encode_mask(mask))
    assert pixels.dtype == np.uint8
    assert (pixels == mask * 255).all()


def test_atomic_writes_make_folders_replace_and_leave_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / ("x" * 250 + ".png")
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as temporary:
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unwritable_place_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        write_atomic(tmp_path / "file" / "x.png", b"data")
    (tmp_path / "taken" / "inside").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path / "taken", b"data")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "taken"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.core.files._OWN", "fixed")
    monkeypatch.setattr("holdfast.core.files._COUNTER", iter([7]))
    Path(f"{unfinished(tmp_path / 'x')}fixed-{os.getpid()}-7").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write_atomic(tmp_path / "x", b"data")
    assert not list(tmp_path.iterdir())


def files() -> list[File]:
    made: list[File] = []
    for number, label in enumerate(["dog", "cat", "dog"]):
        image = np.full((20 + number, 30, 3), number * 50, np.uint8)
        mask = np.zeros(image.shape[:2], np.bool_)
        mask[5:10, 3 : 8 + number] = True
        sample_id = f"red/{label}/a.b%{number}"
        facts = {
            "path": f"red/{label}/{number}.png", "sample_id": sample_id, "label": label, "seed": 2**60 + number,
            "score": number / 2, "error": None, "height": 20 + number, "width": 30, "licence": "CC0" if number else "",
        }  # fmt: skip
        made.append((facts, encode_image(image), encode_mask(mask) if number else b""))
    return made


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_tar_shards_are_read_by_webdataset(tmp_path: Path) -> None:
    import webdataset

    path = tmp_path / "shard-000000.tar"
    assert write_tar_shard(path, iter(files())) == 3
    read = list(webdataset.WebDataset(str(path), shardshuffle=False, empty_check=False))
    gc.collect()  # it leaves the file open: warned of here, not in some later test
    assert [item["__key__"] for item in read] == [shard_key(facts["sample_id"]) for facts, _, _ in files()]
    for item, (facts, image, mask) in zip(read, files(), strict=True):
        assert item["png"] == image
        assert item.get("mask.png", b"") == mask
        assert json.loads(item["json"]) == facts
    assert tar_images(path) == {facts["sample_id"]: image for facts, image, _ in files()}


def test_tar_shards_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("one.tar", "two.tar"):
        write_tar_shard(tmp_path / name, files())
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as archive:
        assert {(m.mtime, m.uid, m.gid, m.uname, m.mode) for m in archive} == {(0, 0, 0, "", 0o644)}


def test_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="occurs twice"):
        write_tar_shard(tmp_path / "x.tar", files() * 2)
    assert not list(tmp_path.iterdir())


@given(st.lists(st.text("ab.%/2E5", max_size=6), unique=True))
def test_keys_stay_apart_and_have_no_dot(ids: list[str]) -> None:
    keys = [shard_key(one) for one in ids]
    assert len(set(keys)) == len(ids)
    assert not any("." in key for key in keys)


def test_a_broken_tar_has_no_images(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"no tar at all")
    assert tar_images(tmp_path / "x.tar") == {}
    assert tar_images(tmp_path / "absent.tar") == {}


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    yield tmp_path / "cache"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("classes", [(), ("cat", "dog")])
def test_parquet_is_opened_by_datasets(tmp_path: Path, offline: Path, classes: tuple[str, ...]) -> None:
    import datasets

    for number, chosen in enumerate([files()[:1], files()[1:]]):  # the first shard has no mask and no licence
        write_parquet_shard(tmp_path / f"data-{number}.parquet", chosen, classes)
    names = [str(tmp_path / f"data-{number}.parquet") for number in range(2)]
    read = datasets.load_dataset("parquet", data_files=names, cache_dir=str(offline), split="train")
    assert isinstance(read.features["image"], datasets.Image)
    assert isinstance(read.features["mask"], datasets.Image)
    assert isinstance(read.features["label"], datasets.ClassLabel) == bool(classes)
    assert len(read) == 3
    for row, (facts, image, mask) in zip(read, files(), strict=True):
        assert (np.asarray(row["image"]) == decoded(image)).all()
        assert (row["mask"] is None) == (not mask)
        assert row["mask"] is None or (np.asarray(row["mask"]) == decoded(mask)).all()
        assert (classes[row["label"]] if classes else row["label"]) == facts["label"]
        assert {key: row[key] for key in ("sample_id", "seed", "score", "error", "licence")} == {
            key: facts[key] for key in ("sample_id", "seed", "score", "error", "licence")
        }


def coco_rows(masks: list[Mask], labels: list[str]) -> list[dict[str, object]]:
    return [
        {
            "path": f"{n}.png",
            "label": label,
            "height": mask.shape[0],
            "width": mask.shape[1],
            "mask_rle": mask_rle(mask),
        }
        for n, (mask, label) in enumerate(zip(masks, labels, strict=True))
    ]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # in pycocotools' decoder
@given(st.lists(st.tuples(hnp.arrays(np.bool_, SHAPES), st.sampled_from("abc")), max_size=4))
def test_coco_is_read_by_pycocotools(tmp_path_factory: pytest.TempPathFactory, drawn) -> None:
    from pycocotools.coco import COCO

    masks, labels = [mask for mask, _ in drawn], [label for _, label in drawn]
    path = tmp_path_factory.mktemp("coco") / "instances.json"
    path.write_text(json.dumps(coco_document(coco_rows(masks, labels))))
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
        coco = COCO(str(path))
    assert [image["file_name"] for image in coco.loadImgs(coco.getImgIds())] == [f"{n}.png" for n in range(len(masks))]
    for number, (mask, label) in enumerate(zip(masks, labels, strict=True), 1):
        found = coco.loadAnns(coco.getAnnIds(imgIds=[number]))
        assert len(found) == mask.any()
        for annotation in found:
            assert (coco.annToMask(annotation) == mask).all()
            assert coco.loadCats(annotation["category_id"])[0]["name"] == label
            assert annotation["area"] == mask.sum()
            assert annotation["bbox"] == list(cv2.boundingRect(mask.astype(np.uint8)))


def test_coco_keeps_the_order_of_classes_and_the_licences() -> None:
    rows = coco_rows([np.ones((2, 2), np.bool_)] * 2, ["b", "a"])
    rows[1]["licence"] = "CC0"
    document = coco_document(rows, ["b", "a", "c"])
    assert [category["name"] for category in document["categories"]] == ["b", "a", "c"]
    assert document["licenses"] == [{"id": 1, "name": "CC0"}]
    assert [image.get("license") for image in document["images"]] == [None, 1]
    assert "".join(coco_text(lambda: rows)) == canonical_json(coco_document(rows))
    assert "".join(coco_text(lambda: [])) == canonical_json(coco_document([]))
    with pytest.raises(UserError, match=r"class 'b' of 0\.png"):
        coco_document(rows, ["a"])
