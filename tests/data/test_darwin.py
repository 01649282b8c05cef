from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import Mask
from holdfast.data import darwin
from holdfast.data.darwin import MaskEntry, darwin_document, draw_paths, parse_darwin, trace_paths
from holdfast.data.mask_files import parse_mask_file

PETS = Path(__file__).parents[2].parent / "shared" / "photos" / "pets12"
MASKS = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=24))
FIELDS = (
    *("x", "y", "path", "paths", "polygon", "mask", "id", "name", "raster_layer", "dense_rle", "slots", "type"),
    *("mask_annotation_ids_mapping", "width", "height"),
)
SQUARE = [{"x": 1, "y": 1}, {"x": 4, "y": 1}, {"x": 4, "y": 3}, {"x": 1, "y": 3}]


def document(*annotations: dict[str, Any], **item: Any) -> dict[str, Any]:
    """A file as V7 exports it, 8 × 6 pixels."""
    slot = {"type": "image", "slot_name": "0", "width": 8, "height": 6}
    whole = {"name": "a.jpg", "path": "/cats", "slots": [slot]} | item
    return {"version": "2.0", "item": whole, "annotations": list(annotations)}


def polygon(*paths: list[dict[str, float]], name: str = "cat", **more: Any) -> dict[str, Any]:
    return {"id": "1", "name": name, "slot_names": ["0"], "polygon": {"paths": list(paths)}} | more


def read(content: Any) -> MaskEntry:
    return parse_darwin(json.loads(json.dumps(content)))


def boxed(*parts: tuple[slice, slice]) -> Mask:
    mask = np.zeros((6, 8), np.bool_)
    for part in parts:
        mask[part] = True
    return mask


@settings(max_examples=300)
@given(MASKS)
@example(np.eye(5, dtype=np.bool_))
@example(np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], np.bool_))
def test_a_mask_comes_back_to_the_pixel(mask: Mask) -> None:
    content = json.loads(json.dumps(darwin_document("cats/a.jpg", "cat", mask)))
    item = read(content)
    assert item.path == "cats/a.jpg"
    assert item.size == mask.shape
    assert not item.notes
    if not mask.any():
        assert not item.masks
        return
    assert (item.masks["cat"].load(*mask.shape) == mask).all()
    (annotation,) = content["annotations"]
    assert all(len(path) >= 3 for path in annotation["polygon"]["paths"])
    rows, columns = np.nonzero(mask)
    box = annotation["bounding_box"]
    assert (box["x"], box["y"]) == (columns.min(), rows.min())
    assert (box["x"] + box["w"], box["y"] + box["h"]) == (columns.max(), rows.max())


@pytest.mark.skipif(not PETS.is_dir(), reason="needs the pets12 photos in ../shared")
def test_masks_of_photos_come_back_to_the_pixel() -> None:
    for path in sorted((PETS / "masks").glob("*/*.png"))[::6]:
        mask = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) > 127
        assert (draw_paths(trace_paths(mask), *mask.shape) == mask).all()


def winding_reference(paths: list[list[tuple[int, int]]], height: int, width: int) -> Mask:
    """Even-odd by counting crossings of a ray from each pixel's middle, outlines by sampling them densely."""
    mask = np.zeros((height, width), np.bool_)
    for y in range(height):
        for x in range(width):
            crossings = 0
            for path in paths:
                for (x0, y0), (x1, y1) in zip(path, path[1:] + path[:1], strict=True):
                    if (y0 > y) != (y1 > y) and x < x0 + (y - y0) * (x1 - x0) / (y1 - y0):
                        crossings += 1
            mask[y, x] = crossings % 2 == 1
    for path in paths:
        for (x0, y0), (x1, y1) in zip(path, path[1:] + path[:1], strict=True):
            for share in np.linspace(0, 1, 1 + 4 * max(abs(x1 - x0), abs(y1 - y0))):
                mask[round(y0 + share * (y1 - y0)), round(x0 + share * (x1 - x0))] = True
    return mask


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 11)] * 4), min_size=1, max_size=3))
def test_rectangles_follow_the_even_odd_rule(corners: list[tuple[int, int, int, int]]) -> None:
    # Straight edges, where no two rasterisers differ.
    paths = [[(a, b), (c, b), (c, d), (a, d)] for a, b, c, d in corners]
    assert (draw_paths(paths, 12, 12) == winding_reference(paths, 12, 12)).all()


def test_holes_are_further_paths() -> None:
    outer = [{"x": 0, "y": 0}, {"x": 7, "y": 0}, {"x": 7, "y": 5}, {"x": 0, "y": 5}]
    expected = np.ones((6, 8), np.bool_)
    expected[2, 2:4] = False  # the hole's outline itself belongs to the object
    assert (read(document(polygon(outer, SQUARE))).masks["cat"].load(6, 8) == expected).all()


def test_objects_of_a_class_are_united_and_classes_are_kept_apart() -> None:
    moved = [{"x": point["x"] + 3, "y": point["y"] + 2} for point in SQUARE]
    item = read(document(polygon(SQUARE), polygon(moved), polygon(moved, name=" dog ")))
    assert (item.masks["cat"].load(6, 8) == boxed(np.s_[1:4, 1:5], np.s_[3:6, 4:8])).all()
    assert (item.masks["dog"].load(6, 8) == boxed(np.s_[3:6, 4:8])).all()


def test_corners_are_rounded_and_cut_off_at_the_image() -> None:
    path = [{"x": -3.2, "y": 0.6}, {"x": 4.4, "y": 0.6}, {"x": 4.4, "y": 99.0}, {"x": -3.2, "y": 99}]
    assert (read(document(polygon(path))).masks["cat"].load(6, 8) == boxed(np.s_[1:6, 0:5])).all()


@settings(max_examples=100)
@given(hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.integers(0, 3)))
def test_raster_layers_are_read_by_rows(values: np.ndarray) -> None:
    flat = values.ravel()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(flat)) + 1, [flat.size]])
    runs = [int(one) for k in range(len(starts) - 1) for one in (flat[starts[k]], starts[k + 1] - starts[k])]
    layer = {"dense_rle": runs, "mask_annotation_ids_mapping": {"m1": 1, "m2": 2, "m3": 3}, "total_pixels": flat.size}
    masks = [{"id": f"m{k}", "name": "dog" if k == 3 else "cat", "mask": {"sparse_rle": None}} for k in (1, 2, 3)]
    slot = {"type": "image", "slot_name": "0", "height": values.shape[0], "width": values.shape[1]}
    content = document({"id": "r", "name": "__raster_layer__", "raster_layer": layer}, *masks, slots=[slot])
    item = read(content)
    assert (item.masks["cat"].load(*values.shape) == np.isin(values, (1, 2))).all()
    assert (item.masks["dog"].load(*values.shape) == (values == 3)).all()


def test_run_lengths_of_another_size_are_a_matter_of_that_image() -> None:
    layer = {"dense_rle": [0, 3, 1, 2], "mask_annotation_ids_mapping": {"m": 1}, "total_pixels": 5}
    item = read(document({"name": "x", "raster_layer": layer}, {"id": "m", "name": "cat", "mask": {}}))
    with pytest.raises(SampleError, match="add up"):
        item.masks["cat"].load(6, 8)


def test_what_has_no_outline_is_left_out_and_said() -> None:
    item = read(
        document(
            polygon(SQUARE, bounding_box={"x": 1, "y": 1, "w": 3, "h": 2}),
            {"name": "cat", "bounding_box": {"x": 1, "y": 1, "w": 3, "h": 2}},
            {"name": "cat", "tag": {}},
            {"name": "cat", "tag": {}},
            polygon(SQUARE, slot_names=["1"]),
            {"name": "cat", "frames": {"0": {}}},
        )
    )
    assert set(item.masks) == {"cat"}
    assert item.notes == (
        "1 annotation(s) of other slots left out",
        "1 annotation(s) of video frames left out",
        "1 bounding_box(s) without an outline left out",
        "2 tag(s) without an outline left out",
    )


def test_files_made_for_import_need_no_slots() -> None:
    content = {"version": "2.0", "item": {"name": "a.jpg", "path": "/"}, "annotations": [polygon(SQUARE)]}
    item = read(content)
    assert item.size is None
    assert item.path == "a.jpg"
    assert item.masks["cat"].load(6, 8).sum() == 12


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "no Darwin JSON"),
        ({"annotations": []}, "no Darwin JSON"),
        ({"image": {}, "annotations": []}, "Darwin JSON 2.0"),
        (document() | {"version": "1.0"}, "Darwin JSON 2.0"),
        (document() | {"annotations": {}}, "no list"),
        (document() | {"annotations": [3]}, "no list"),
        (document(slots=[{"type": "video", "slot_name": "0"}]), "of a video"),
        (document(slots=[3]), "no list"),
        (document(slots=[{"type": "image", "width": 10**6, "height": 10**6}]), "pixels"),
        (document(slots=[{"type": "image", "width": -1, "height": 4}]), "-1 × 4"),
        (document(name=None), "does not name"),
        (document(path="/../../etc", name="passwd"), "no path"),
        (document(name="../a.jpg"), "no path"),
        (document(name="..\\a.jpg"), "no path"),
        (document(name="a\0.jpg"), "no path"),
        (document(polygon(SQUARE, name="")), "no class"),
        (document(polygon(SQUARE, polygon={})), "no paths"),
        (document(polygon([{"x": 1}])), "the point"),
        (document(polygon([{"x": 1, "y": "1"}])), "the point"),
        (document(polygon([{"x": 1, "y": 1e300}])), "the point"),
        (document(polygon([{"x": 1, "y": float("nan")}])), "the point"),
        (document(polygon([{"x": True, "y": 1}])), "the point"),
        (
            document({"name": "x", "raster_layer": {"dense_rle": "1", "mask_annotation_ids_mapping": {}}}),
            "raster layer",
        ),
        (
            document({"name": "x", "raster_layer": {"dense_rle": [1], "mask_annotation_ids_mapping": {}}}),
            "raster layer",
        ),
        (
            document({"name": "x", "raster_layer": {"dense_rle": [0, 10**7] * 99, "mask_annotation_ids_mapping": {}}}),
            "pixels",
        ),
        (
            document({"name": "x", "raster_layer": {"dense_rle": [], "mask_annotation_ids_mapping": {"a": 1}}}),
            "not there",
        ),
    ],
)
def test_damaged_files_say_what_is_wrong(content: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read(content)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe\xff", b"[" * 100_000, b"1" * 10_000])
def test_what_is_no_json_says_so(data: bytes) -> None:
    with pytest.raises(UserError, match="JSON"):
        parse_mask_file(data)


def test_there_is_a_limit_to_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darwin, "MAX_POINTS", 7)
    assert read(document(polygon(SQUARE))).masks
    with pytest.raises(UserError, match="more than 7 points"):
        read(document(polygon(SQUARE), polygon(SQUARE)))


@settings(max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
        max_leaves=12,
    )
)
def test_no_json_breaks_the_reader(value: Any) -> None:
    for content in (
        value,
        document() | {"annotations": [value]},
        document(polygon(SQUARE, polygon=value)),
        document({"name": "x", "raster_layer": value}, {"id": "m", "name": "cat", "mask": value}),
        document() | {"item": value},
        document(slots=[value]),
    ):
        try:
            item = darwin.parse_darwin(content)
            for mask in item.masks.values():
                mask.load(6, 8)
                mask.fingerprint()
        except (UserError, SampleError):
            continue


def test_ids_and_fingerprints_repeat() -> None:
    first = darwin_document("cats/a.jpg", "cat", boxed(np.s_[1:3, 1:3]), dataset="My cats")
    assert first == darwin_document("cats/a.jpg", "cat", boxed(np.s_[1:3, 1:3]), dataset="My cats")
    assert first["item"]["source_info"]["dataset"]["slug"] == "my-cats"
    one, other = read(document(polygon(SQUARE))), read(document(polygon(SQUARE, SQUARE)))
    assert one.masks["cat"].fingerprint() != other.masks["cat"].fingerprint()
