"""Hugging Face folders, as ``datasets`` and Holdfast's own export write them."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from commands import run
from holdfast.core.errors import SampleError, UserError
from holdfast.data import load_collection
from holdfast.data.inventory import take_inventory

FEATURES = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "fox"])}


def _pixels(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (9, 12, 3), np.uint8)


def _dataset(count: int = 5, first: int = 0) -> datasets.Dataset:
    rows = {
        "image": [Image.fromarray(_pixels(first + number)) for number in range(count)],
        "label": [number % 2 for number in range(count)],
    }
    return datasets.Dataset.from_dict(rows, features=datasets.Features(FEATURES))


def _check(path: Path, count: int = 5) -> None:
    collection = load_collection(str(path))
    assert collection.classes == ("cat", "dog") and len(collection) == count
    assert [sample.label for sample in collection.samples[:2]] == ["cat", "dog"]
    copied = pickle.loads(pickle.dumps(collection.samples[3].image))
    assert np.array_equal(copied.load(), _pixels(3))
    assert not collection.problems


def test_a_folder_of_save_to_disk(tmp_path: Path) -> None:
    _dataset().save_to_disk(str(tmp_path / "saved"))
    _check(tmp_path / "saved")


def test_a_folder_of_save_to_disk_in_many_pieces(tmp_path: Path) -> None:
    _dataset(7).save_to_disk(str(tmp_path / "saved"), num_shards=3)
    collection = load_collection(str(tmp_path / "saved"))
    for number, sample in enumerate(collection.samples):
        assert np.array_equal(sample.image.load(), _pixels(number))
    assert len({sample.sample_id for sample in collection.samples}) == 7


def test_splits_of_save_to_disk(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"train": _dataset(4), "test": _dataset(2, first=10)})
    both.save_to_disk(str(tmp_path / "saved"))
    collection = load_collection(str(tmp_path / "saved"))
    assert [sample.split for sample in collection.samples] == ["train"] * 4 + ["test"] * 2
    assert len({sample.sample_id for sample in collection.samples}) == 6
    assert np.array_equal(collection.samples[5].image.load(), _pixels(11))


def test_parquet_files_as_the_hub_has_them(tmp_path: Path) -> None:
    folder = tmp_path / "set" / "data"
    folder.mkdir(parents=True)
    _dataset().to_parquet(str(folder / "test-00000-of-00001.parquet"))
    _check(tmp_path / "set")
    assert {sample.split for sample in load_collection(str(tmp_path / "set")).samples} == {"test"}
    _check(folder / "test-00000-of-00001.parquet")


def test_names_and_columns_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    encoded = [(tmp_path / f"{number}.png") for number in range(2)]
    for number, path in enumerate(encoded):
        Image.fromarray(_pixels(number)).save(path)
    cells = [{"bytes": path.read_bytes(), "path": "same.png"} for path in encoded]
    pq.write_table(pa.table({"photo": cells, "animal": ["cat", "dog"]}), tmp_path / "set" / "part.parquet")
    with pytest.raises(UserError, match=r"columns are photo, animal: name one with \?image=COLUMN"):
        load_collection(str(tmp_path / "set"))
    collection = load_collection(f"{tmp_path / 'set'}?image=photo&label=animal")
    assert [sample.label for sample in collection.samples] == ["cat", "dog"]
    assert len({sample.sample_id for sample in collection.samples}) == 2
    with pytest.raises(UserError, match="did you mean photo"):
        load_collection(f"{tmp_path / 'set'}?image=foto&label=animal")


def test_pictures_that_lie_beside_the_file(tmp_path: Path) -> None:
    Image.fromarray(_pixels(1)).save(tmp_path / "one.png")
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    paths = ["one.png", "../outside.png"]
    cells = pa.array([{"bytes": None, "path": path} for path in paths], kind)
    pq.write_table(pa.table({"image": cells, "label": ["cat", "cat"]}), tmp_path / "test.parquet")
    collection = load_collection(str(tmp_path / "test.parquet"))
    assert [sample.sample_id for sample in collection.samples] == ["one"]
    assert "outside the dataset" in collection.problems[0].message


def test_our_own_export_comes_back_whole(photos: Path, tmp_path: Path) -> None:
    run("share", "export", photos, "--to", "huggingface", "--out", tmp_path / "out")
    first, again = load_collection(str(photos)), load_collection(str(tmp_path / "out"))
    assert again.classes == first.classes
    returned = {sample.sample_id: sample for sample in again.samples}
    assert returned.keys() == {sample.sample_id for sample in first.samples}
    for sample in first.samples:
        image = sample.image.load()
        assert np.array_equal(returned[sample.sample_id].image.load(), image)
        assert returned[sample.sample_id].label == sample.label
        size = image.shape[:2]
        assert np.array_equal(returned[sample.sample_id].mask.load(*size), sample.mask.load(*size))
    assert take_inventory(again).findings == ()


def test_a_missing_mask_stays_missing(photos: Path, tmp_path: Path) -> None:
    lost = sorted((photos / "masks" / "disc").iterdir())[0]
    lost.unlink()
    run("share", "export", photos, "--to", "huggingface", "--out", tmp_path / "out")
    bare = [sample.sample_id for sample in load_collection(str(tmp_path / "out")).samples if sample.mask is None]
    assert bare == [f"disc/{lost.stem}"]


def test_eval_and_synth_read_what_synth_and_export_wrote(photos: Path, toy_models: str, tmp_path: Path) -> None:
    run("share", "export", photos, "--to", "huggingface", "--out", tmp_path / "out")
    run("synth", photos, "--scenarios", "grey", "--format", "parquet", "--workers", 1, "--out", tmp_path / "grey")
    for folder, scenarios in (("out", "original,segmented"), ("grey", "original")):
        words = ["--models", f"{toy_models}:colour", "--scenarios", scenarios, "--out", tmp_path / f"run-{folder}"]
        said = run("eval", tmp_path / folder, *words)
        assert f"{24 if folder == 'out' else 12} made" in said.stdout


def test_damage_is_said_in_a_sentence(tmp_path: Path) -> None:
    _dataset().save_to_disk(str(tmp_path / "saved"))
    shutil.copytree(tmp_path / "saved", tmp_path / "cut")
    file = next((tmp_path / "cut").glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(UserError, match="cannot be read as a Hugging Face dataset"):
        load_collection(str(tmp_path / "cut"))
    state = json.loads((tmp_path / "saved" / "state.json").read_text())
    state["_data_files"] = [{"filename": "../../../etc/passwd"}]
    (tmp_path / "saved" / "state.json").write_text(json.dumps(state))
    with pytest.raises(UserError, match="cannot be read as a Hugging Face dataset"):
        load_collection(str(tmp_path / "saved"))


def test_a_cell_without_a_picture_is_trouble_of_one_row(tmp_path: Path) -> None:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    Image.fromarray(_pixels(1)).save(tmp_path / "one.png")
    cells = pa.array([{"bytes": (tmp_path / "one.png").read_bytes(), "path": "a.png"}, None], kind)
    pq.write_table(pa.table({"image": cells, "label": ["cat", "cat"]}), tmp_path / "test.parquet")
    samples = load_collection(str(tmp_path / "test.parquet")).samples
    assert samples[0].image.load().shape == (9, 12, 3)
    with pytest.raises(SampleError, match="holds no image"):
        samples[1].image.load()
