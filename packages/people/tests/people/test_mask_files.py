from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import Mask
from holdfast.data.writers import coco_document, mask_rle
from holdfast_people import mask_files
from holdfast_people.mask_files import MaskEntry, match_entries, read_mask_file

MASKS = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=16))


def row(path: str, label: str, mask: Mask) -> dict[str, Any]:
    return {"path": path, "label": label, "height": mask.shape[0], "width": mask.shape[1], "mask_rle": mask_rle(mask)}


def parse(content: Any) -> list[MaskEntry]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(content, file)
        file.flush()
        return read_mask_file(Path(file.name))


def entry(path: str) -> MaskEntry:
    return MaskEntry(path, None, {})


@settings(max_examples=100, deadline=None)
@given(st.lists(MASKS, min_size=1, max_size=3))
def test_coco_comes_back_to_the_pixel(masks: list[Mask]) -> None:
    rows = [row(f"cats/{number}.jpg", "cat", mask) for number, mask in enumerate(masks)]
    entries = parse(coco_document(rows))
    assert [one.path for one in entries] == [one["path"] for one in rows]
    for one, mask in zip(entries, masks, strict=True):
        assert one.size == mask.shape
        assert (one.load("cat", *mask.shape) == mask).all()
        assert bool(one.masks) == mask.any()


def test_polygons_and_both_kinds_of_run_lengths_are_united() -> None:
    def annotation(category: int, segmentation: Any) -> dict[str, Any]:
        return {"image_id": 7, "category_id": category, "segmentation": segmentation}

    bar = np.zeros((6, 8), np.bool_)
    bar[:, 0] = True
    content = {
        "images": [{"id": 7, "file_name": "a.jpg", "height": 6, "width": 8}],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
        "annotations": [
            annotation(1, [[2, 1, 5, 1, 5, 3, 2, 3]]),
            annotation(1, {"size": [6, 8], "counts": [42, 6]}),  # the last column, plainly
            annotation(1, {"size": [6, 8], "counts": mask_rle(bar)}),  # the first, compressed
            annotation(2, {"size": [6, 8], "counts": [24, 1, 23]}),
            annotation(9, [[2, 1, 5, 1, 5, 3, 2, 3]]),
            annotation(1, []),
        ],
    }
    (one,) = parse(content)
    cat = np.zeros((6, 8), np.bool_)
    cat[1:3, 2:5] = cat[:, 7] = cat[:, 0] = True
    assert (one.load("cat", 6, 8) == cat).all()
    assert one.load("dog", 6, 8).sum() == 1
    everything = cat.copy()
    everything[0, 4] = True
    assert (one.load("bird", 6, 8) == everything).all()
    assert one.notes == ("2 annotation(s) without an outline or a category left out",)
    with pytest.raises(SampleError, match="8 × 6 pixels, this one has 9 × 6"):
        one.load("cat", 6, 9)


def test_images_without_a_size_are_said() -> None:
    image = {"id": 1, "file_name": "a.jpg"}
    annotation = {"image_id": 1, "category_id": 1, "segmentation": [[0, 0, 1, 0, 1, 1]]}
    (one,) = parse({"images": [image], "annotations": [annotation], "categories": [{"id": 1, "name": "cat"}]})
    assert not one.masks
    assert one.notes == ("objects of an image without height and width left out",)


def test_what_is_no_coco_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(UserError, match=r"a\.json: is not a COCO instances file"):
        read_mask_file(tmp_path / "a.json")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_mask_file(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        read_mask_file(tmp_path / "nowhere.json")
    with pytest.raises(UserError, match=r"b\.json is not readable JSON"):
        read_mask_file(tmp_path / "b.json")
    monkeypatch.setattr(mask_files, "MAX_BYTES", 1)
    with pytest.raises(UserError, match="larger than"):
        read_mask_file(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("cats/a.jpg", 0),
        ("photos/cats/a.jpg", 0),
        ("dogs/a.jpg", 1),
        ("a.jpg", None),  # of two folders
        ("b.jpg", 2),
        ("cats\\b.jpg", 2),
        ("c.png", 4),  # c.jpg next to c.png
        ("c.gif", None),
        ("d.jpg", None),
        ("", None),
        ("../cats/a.jpg", 0),
        ("/cats/a.jpg", 0),
    ],
)
def test_entries_find_their_image(path: str, place: int | None) -> None:
    images = ["cats/a.jpg", "dogs/a.jpg", "dogs/deep/b.png", "x/c.jpg", "x/c.png"]
    matched, unknown = match_entries([entry(path)], images)
    assert matched == ({} if place is None else {place: entry(path)})
    assert unknown == ([path] if place is None else [])
