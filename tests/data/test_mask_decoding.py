"""Masks of every stored kind to HW bool."""

from __future__ import annotations

import io
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from pycocotools import mask as coco

from holdfast.core.errors import SampleError, UserError
from holdfast.data.masks import ArrayMask, CocoMask, FileMask, TarMask, decode_coco, decode_mask

MASKS = hnp.arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 12)))
TOP = np.repeat([[True], [True], [False], [False]], 5, axis=1)
COLOURS = [0, 0, 0, 128, 0, 0, 0, 128, 0] + [7, 8, 9] * 252 + [224, 224, 192]  # as Pascal VOC's palette


def saved(picture: Image.Image, format: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, format, **options)
    return stream.getvalue()


def grey(values: np.ndarray, **options: object) -> bytes:
    return saved(Image.fromarray(values), **options)


def palette(indices: np.ndarray, colours: list[int]) -> bytes:
    picture = Image.fromarray(indices.astype(np.uint8), "P")
    picture.putpalette(colours)
    return saved(picture)


@settings(max_examples=60, deadline=None)
@given(
    MASKS,
    st.sampled_from(
        [
            lambda m: grey(m * np.uint8(255)),
            lambda m: grey(m * np.uint8(1)),
            lambda m: grey(m),
            lambda m: grey(m * np.uint16(65535)),
            lambda m: grey(np.dstack([m * np.uint8(255)] * 3)),
            lambda m: grey(np.dstack([m * np.uint8(255), m * np.uint8(0), m * np.uint8(0)])),
            lambda m: grey(np.dstack([m * np.uint8(128), m * np.uint8(0), m * np.uint8(0)])),
            lambda m: palette(m * 1, COLOURS),
            lambda m: palette(m * 2, COLOURS),
            lambda m: palette(~m * 1, [255, 255, 255, 0, 0, 0]),
            lambda m: palette(~m * 1, [255, 0, 0, 0, 0, 0]),
            lambda m: palette(m * 255, [value for value in range(256) for _ in range(3)]),
        ]
    ),
)
def test_round_trip_through_every_kind(mask, encode):
    np.testing.assert_array_equal(decode_mask(encode(mask), size=mask.shape), mask)


@settings(deadline=None)
@given(MASKS)
def test_round_trip_through_alpha(mask):
    rgba = np.dstack([np.full((*mask.shape, 3), 200, np.uint8), mask * np.uint8(255)])
    np.testing.assert_array_equal(decode_mask(grey(rgba), format="alpha"), mask)
    if not mask.all():  # an opaque image says nothing about alpha
        np.testing.assert_array_equal(decode_mask(grey(rgba)), mask)


def test_grey_is_cut_at_128_when_it_reaches_that_far():
    values = np.array([[0, 1, 127, 128, 254, 255]], np.uint8)
    assert decode_mask(grey(values)).tolist() == [[False, False, False, True, True, True]]
    assert decode_mask(grey(values[:, :3])).tolist() == [[False, True, True]]
    assert decode_mask(grey(np.array([[0, 300, 32767, 32768]], np.uint16))).tolist() == [[False, False, False, True]]


def test_void_is_background_in_palettes_and_on_request_in_grey():
    indices = np.array([[0, 1, 2, 255]], np.uint8)
    assert decode_mask(palette(indices, COLOURS)).tolist() == [[False, True, True, False]]
    assert decode_mask(grey(indices), format="index").tolist() == [[False, True, True, False]]
    assert decode_mask(grey(indices)).tolist() == [[False, False, False, True]]


def test_jpeg_masks_survive_their_noise():
    large = np.kron(TOP, np.ones((16, 16), bool))
    np.testing.assert_array_equal(decode_mask(grey(large * np.uint8(255), format="JPEG", quality=60)), large)
    assert not decode_mask(grey(np.full((16, 16), 2, np.uint8), format="JPEG")).any()
    red = np.dstack([large * np.uint8(255), large * np.uint8(0), large * np.uint8(0)])
    assert (decode_mask(grey(red, format="JPEG", quality=95), format="red") == large).mean() > 0.97


def test_red_on_a_coloured_picture_needs_the_format():
    picture = np.full((4, 5, 3), (40, 200, 90), np.uint8)
    picture[:2] = (255, 0, 0)
    np.testing.assert_array_equal(decode_mask(grey(picture), format="red"), TOP)
    with pytest.raises(SampleError, match="colours other than red on black"):
        decode_mask(grey(picture))


def test_empty_and_full_masks_are_legal():
    assert not decode_mask(grey(np.zeros((3, 4), np.uint8))).any()
    assert decode_mask(grey(np.full((3, 4), 255, np.uint8))).all()
    assert not decode_mask(grey(np.zeros((3, 4, 4), np.uint8))).any()


def test_bad_masks_say_what_is_wrong(tmp_path):
    file = tmp_path / "m.png"
    file.write_bytes(grey(TOP * np.uint8(255)))
    with pytest.raises(SampleError, match="the mask is 5 × 4 pixels, its image 6 × 4"):
        FileMask(file).load(4, 6)
    with pytest.raises(SampleError, match="the mask is 5 × 4 pixels, its image 4 × 5"):
        FileMask(file).load(5, 4)
    with pytest.raises(SampleError, match="the mask is cut short"):
        decode_mask(file.read_bytes()[:50])
    with pytest.raises(SampleError, match="--max-pixels 19"):
        decode_mask(file.read_bytes(), max_pixels=19)
    with pytest.raises(SampleError, match="no such file"):
        FileMask(tmp_path / "none.png").load(4, 5)
    with pytest.raises(SampleError, match="alpha channel, but"):
        FileMask(file, "alpha").load(4, 5)
    with pytest.raises(SampleError, match="index mask"):
        decode_mask(grey(np.zeros((3, 4, 3), np.uint8)), format="index")
    with pytest.raises(UserError, match="mask formats are"):
        decode_mask(b"", format="reed")


def test_sources_pickle_and_know_how_they_are_read(tmp_path):
    data = grey(TOP * np.uint8(255))
    (tmp_path / "m.png").write_bytes(data)
    (tmp_path / "m.tar").write_bytes(b"12345" + data)
    for source in (FileMask(tmp_path / "m.png"), TarMask(tmp_path / "m.tar", 5, len(data))):
        again = pickle.loads(pickle.dumps(source))
        assert again == source and again.fingerprint() == FileMask(tmp_path / "m.png").fingerprint()
        np.testing.assert_array_equal(again.load(4, 5), TOP)
    assert FileMask(tmp_path / "m.png", "grey").fingerprint() != FileMask(tmp_path / "m.png").fingerprint()
    kept = ArrayMask(TOP.copy())
    kept.load(4, 5)[:] = False
    np.testing.assert_array_equal(kept.load(4, 5), TOP)
    with pytest.raises(SampleError, match="its image"):
        kept.load(5, 4)
    with pytest.raises(SampleError, match="HW bool"):
        ArrayMask(np.zeros((2, 2), np.uint8)).load(2, 2)  # type: ignore[arg-type]


@settings(deadline=None)
@given(MASKS)
def test_run_lengths_agree_with_pycocotools(mask):
    height, width = mask.shape
    compressed = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    as_json = {"size": compressed["size"], "counts": compressed["counts"].decode()}
    np.testing.assert_array_equal(decode_coco(as_json, height, width), mask)
    np.testing.assert_array_equal(decode_coco(compressed, height, width), mask)
    flat = mask.ravel(order="F").astype(int)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flat]))).tolist()
    counts = np.diff([0, *edges, flat.size]).tolist()
    plain = {"size": [height, width], "counts": counts}
    np.testing.assert_array_equal(decode_coco(plain, height, width), mask)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pycocotools' own, under NumPy 2
        reference = coco.decode(coco.frPyObjects(plain, height, width))
    np.testing.assert_array_equal(reference.astype(bool), mask)


def test_large_run_lengths_use_several_characters():
    mask = np.zeros((300, 400), bool)
    mask[40:250, 30:377] = True
    mask[100:120, 50:60] = False
    compressed = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    np.testing.assert_array_equal(decode_coco(compressed, 300, 400), mask)


def test_polygons_and_several_instances_are_merged():
    box = [1.0, 1.0, 4.0, 1.0, 4.0, 3.0, 1.0, 3.0]
    expected = np.zeros((6, 8), bool)
    expected[1:3, 1:4] = True
    np.testing.assert_array_equal(decode_coco([box], 6, 8), expected)
    rle = {"size": [6, 8], "counts": [42, 6]}
    merged = CocoMask(([box], rle), 6, 8)
    expected[:, 7] = True
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(merged)).load(6, 8), expected)
    assert merged.fingerprint() != CocoMask(([box],), 6, 8).fingerprint()
    assert not CocoMask(([],), 6, 8).load(6, 8).any()
    with pytest.raises(SampleError, match="its image"):
        merged.load(8, 6)


@pytest.mark.parametrize(
    ("segmentation", "sentence"),
    [
        ([[1, 2, 3, 4]], "three x, y pairs"),
        ([[1, 2, 3, 4, 5, 6, 7]], "three x, y pairs"),
        ([["a", 2, 3, 4, 5, 6]], "not a number"),
        ([[10**400, 2, 3, 4, 5, 6]], "not a number"),
        ([[1e9, 2, 3, 4, 5, 6]], "far outside"),
        ([[float("nan"), 2, 3, 4, 5, 6]], "far outside"),
        ([7], "three x, y pairs"),
        ("text", "neither"),
        (7, "neither"),
        ({"size": [6, 8], "counts": [40]}, "do not add up"),
        ({"size": [6, 8], "counts": [60, -12]}, "do not add up"),
        ({"size": [6, 8], "counts": [24.0, 24.0]}, "do not add up"),
        ({"size": [6, 8]}, "do not add up"),
        ({"size": [8, 6], "counts": [48]}, "for size"),
        ({"size": [6, 8], "counts": "P"}, "cut short"),
        ({"size": [6, 8], "counts": "\x01"}, "damaged"),
        ({"size": [6, 8], "counts": "o" * 50}, "damaged"),
        ({"size": [6, 8], "counts": "11"}, "do not add up"),
    ],
)
def test_hostile_segmentations_are_sample_errors(segmentation, sentence):
    with pytest.raises(SampleError, match=sentence):
        decode_coco(segmentation, 6, 8)


def test_infinite_numbers_have_no_fingerprint():
    with pytest.raises(SampleError, match="not a number"):
        CocoMask(([[float("inf")] * 6],), 6, 8).fingerprint()
