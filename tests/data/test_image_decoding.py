"""Whatever a file holds, an image is HWC uint8 RGB, upright, or a SampleError."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from holdfast.core.errors import SampleError
from holdfast.data.images import (
    ArrayImage,
    BytesImage,
    FileImage,
    TarImage,
    decode_image,
    decode_image_with_alpha,
    over_white,
)

RNG = np.random.default_rng(0)
PICTURE = RNG.integers(0, 256, (9, 13, 3), np.uint8)
SMOOTH = cv2.resize(RNG.integers(0, 256, (4, 5, 3), np.uint8), (60, 40), interpolation=cv2.INTER_CUBIC)


def saved(picture: Image.Image, format: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, format, **options)
    return stream.getvalue()


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_come_back_exactly(format):
    decoded = decode_image(saved(Image.fromarray(PICTURE), format))
    assert decoded.dtype == np.uint8 and decoded.flags.writeable and decoded.flags.c_contiguous
    np.testing.assert_array_equal(decoded, PICTURE)


def test_lossless_webp_comes_back_exactly():
    np.testing.assert_array_equal(decode_image(saved(Image.fromarray(PICTURE), "WEBP", lossless=True)), PICTURE)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"optimize": True}])
def test_jpeg_agrees_with_opencv(options):
    data = saved(Image.fromarray(SMOOTH), "JPEG", quality=92, **options)
    reference = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert np.abs(decode_image(data).astype(int) - reference).max() <= 1


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_greyscale_is_repeated_in_three_channels(format):
    grey = SMOOTH[..., 0]
    decoded = decode_image(saved(Image.fromarray(grey), format, **({"quality": 100} if format == "JPEG" else {})))
    assert decoded.shape == (40, 60, 3)
    assert (decoded == decoded[..., :1]).all()
    assert np.abs(decoded[..., 0].astype(int) - grey).max() <= (3 if format == "JPEG" else 0)


def test_cmyk_jpeg_has_the_right_colours():
    red = Image.new("RGB", (16, 16), (250, 10, 10)).convert("CMYK")
    decoded = decode_image(saved(red, "JPEG", quality=100))
    assert np.abs(decoded.astype(int) - (250, 10, 10)).max() < 12


def test_palette_one_bit_and_grey_alpha():
    palette = Image.fromarray(PICTURE).quantize(16)
    np.testing.assert_array_equal(decode_image(saved(palette)), np.asarray(palette.convert("RGB")))
    bits = RNG.integers(0, 2, (5, 7)).astype(bool)
    np.testing.assert_array_equal(decode_image(saved(Image.fromarray(bits)))[..., 0], bits * np.uint8(255))
    grey_alpha = np.dstack([PICTURE[..., 0], np.full((9, 13), 255, np.uint8)])
    np.testing.assert_array_equal(decode_image(saved(Image.fromarray(grey_alpha, "LA")))[..., 1], PICTURE[..., 0])


def test_sixteen_bits_keep_their_high_byte():
    deep = RNG.integers(0, 65536, (6, 5), np.uint16)
    for format in ("PNG", "TIFF"):
        np.testing.assert_array_equal(decode_image(saved(Image.fromarray(deep), format))[..., 2], deep >> 8)
    colour = RNG.integers(0, 65536, (6, 5, 3), np.uint16)
    data = cv2.imencode(".png", colour)[1].tobytes()
    np.testing.assert_array_equal(decode_image(data), (colour >> 8)[..., ::-1])


def test_floating_point_within_and_outside_its_range():
    values = np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5)
    decoded = decode_image(saved(Image.fromarray(values), "TIFF"))
    np.testing.assert_array_equal(decoded[..., 0], np.rint(values * 255))
    with pytest.raises(SampleError, match="floating-point"):
        decode_image(saved(Image.fromarray(values * 2), "TIFF"))
    with pytest.raises(SampleError, match="32-bit"):
        decode_image(saved(Image.fromarray(np.full((2, 2), 1 << 20, np.int32)), "TIFF"))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_applied(orientation, format):
    turned = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
        8: np.rot90,
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    quality = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}.get(format, {})
    decoded = decode_image(saved(Image.fromarray(SMOOTH), format, exif=exif, **quality))
    expected = turned(SMOOTH)
    assert decoded.shape == expected.shape
    assert np.abs(decoded.astype(int) - expected).mean() < (4 if format == "JPEG" else 1e-9)


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP"])
def test_animations_give_their_first_frame(format):
    frames = [Image.new("RGB", (8, 6), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    options = {"lossless": True} if format == "WEBP" else {}
    decoded = decode_image(saved(frames[0], format, save_all=True, append_images=frames[1:], **options))
    np.testing.assert_array_equal(decoded, np.full((6, 8, 3), (255, 0, 0)))


def test_transparency_is_seen_over_white_and_can_be_had():
    rgba = np.zeros((2, 3, 4), np.uint8)
    rgba[0] = (10, 20, 30, 255)
    rgba[1] = (10, 20, 30, 0)
    rgba[1, 0] = (100, 100, 100, 51)
    data = saved(Image.fromarray(rgba))
    seen = decode_image(data)
    assert seen[0].tolist() == [[10, 20, 30]] * 3
    assert seen[1].tolist() == [[224, 224, 224], [255, 255, 255], [255, 255, 255]]
    np.testing.assert_array_equal(decode_image_with_alpha(data), rgba)
    assert decode_image_with_alpha(saved(Image.fromarray(PICTURE))).shape[2] == 3


def test_transparent_gif_and_palette_png_are_seen_over_white():
    indices = Image.fromarray(np.array([[0, 1], [1, 0]], np.uint8), "P")
    indices.putpalette([255, 0, 0, 0, 0, 255])
    for format in ("GIF", "PNG"):
        decoded = decode_image(saved(indices, format, transparency=0))
        assert decoded.tolist() == [[[255, 255, 255], [0, 0, 255]], [[0, 0, 255], [255, 255, 255]]]


@given(st.integers(0, 255), st.integers(0, 255))
def test_compositing_is_the_rounded_mean(colour, alpha):
    pixel = np.array([[[colour, colour, colour, alpha]]], np.uint8)
    exact = (colour * alpha + 255 * (255 - alpha)) / 255
    assert abs(int(over_white(pixel)[0, 0, 0]) - exact) <= 0.5


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_truncated_files_are_sample_errors(format, share):
    data = saved(Image.fromarray(RNG.integers(0, 256, (64, 64, 3), np.uint8)), format)
    with pytest.raises(SampleError, match=r"cut short or damaged|not an image"):
        decode_image(data[: int(len(data) * share)])


def test_progressive_jpeg_cut_after_its_first_scan():
    data = saved(Image.fromarray(SMOOTH), "JPEG", progressive=True)
    with pytest.raises(SampleError, match="cut short"):
        decode_image(data[: len(data) * 3 // 4])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "empty \\(0 bytes\\)"),
        (b"this is a text file somebody called photo.jpg\n" * 9, "not an image"),
        (b"\xff\xd8\xff", "header makes no sense"),
        (b"GIF89a" + b"\xff" * 30, "cut short or damaged"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (b"<svg xmlns='x'/>", "not an image"),
    ],
)
def test_what_is_no_image_says_so(data, sentence):
    with pytest.raises(SampleError, match=sentence):
        decode_image(data)


def bomb(width: int, height: int) -> bytes:
    """A valid PNG header of any size over almost no data."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def test_bombs_are_refused_by_their_header():
    with pytest.raises(SampleError, match=r"30000 × 30000 = 900,000,000 pixels, above --max-pixels 100,000,000"):
        decode_image(bomb(30_000, 30_000))
    with pytest.raises(SampleError, match="--max-pixels 116"):
        decode_image(saved(Image.fromarray(PICTURE)), max_pixels=116)
    assert decode_image(saved(Image.fromarray(PICTURE)), max_pixels=117).shape == (9, 13, 3)


def test_our_limit_rules_not_pillows(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert decode_image(saved(Image.fromarray(PICTURE))).shape == (9, 13, 3)


def test_pillow_neither_warns_nor_prints(tmp_path):
    exif = b"Exif\0\0" + b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 9) + b"\x12\x01\x03\0" * 3
    damaged = bytearray(saved(Image.fromarray(SMOOTH), "JPEG"))
    middle = len(damaged) * 2 // 3
    damaged[middle : middle + 40] = bytes(40)
    (tmp_path / "exif.jpg").write_bytes(saved(Image.fromarray(SMOOTH), "JPEG", exif=exif))
    (tmp_path / "damaged.jpg").write_bytes(damaged)
    code = (
        "import sys; from pathlib import Path; from holdfast.data.images import *; from holdfast.core.errors import *\n"
        "for name in sys.argv[1:]:\n"
        "    try: decode_image(Path(name).read_bytes())\n"
        "    except SampleError: pass\n"
    )
    files = [str(tmp_path / "exif.jpg"), str(tmp_path / "damaged.jpg")]
    done = subprocess.run([sys.executable, "-W", "always", "-c", code, *files], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with warnings.catch_warnings(), pytest.warns(UserWarning):  # the file does make Pillow warn
        warnings.simplefilter("always")
        with Image.open(files[0]) as picture:
            picture.getexif()


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0"]),
)
def test_arbitrary_bytes_never_raise_anything_else(rest, magic):
    try:
        image = decode_image(magic + rest, max_pixels=10_000)
    except SampleError as error:
        assert "\n" not in str(error)
    else:
        assert image.ndim == 3 and image.dtype == np.uint8


def test_sources_pickle_load_and_hash_their_stored_bytes(tmp_path):
    data = saved(Image.fromarray(PICTURE))
    (tmp_path / "a.png").write_bytes(data)
    (tmp_path / "b.bin").write_bytes(b"x" * 7 + data + b"y" * 9)
    sources = [FileImage(tmp_path / "a.png"), TarImage(str(tmp_path / "b.bin"), 7, len(data)), BytesImage(data)]
    for source in sources:
        again = pickle.loads(pickle.dumps(source))
        assert again == source
        assert again.fingerprint() == hashlib.sha256(data).hexdigest()
        np.testing.assert_array_equal(again.load(), PICTURE)


def test_array_images_load_copies_in_rgb():
    source = ArrayImage(PICTURE)
    loaded = source.load()
    loaded[:] = 0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(source)).load(), PICTURE)
    np.testing.assert_array_equal(ArrayImage(PICTURE[..., 0]).load()[..., 2], PICTURE[..., 0])
    assert ArrayImage(PICTURE).fingerprint() != ArrayImage(PICTURE[::-1]).fingerprint()
    with pytest.raises(SampleError, match="--max-pixels"):
        source.load(max_pixels=5)
    with pytest.raises(SampleError, match="uint8"):
        ArrayImage(PICTURE.astype(np.float32)).load()


def test_files_that_vanished_are_sample_errors_without_the_machines_paths(tmp_path):
    for source in (FileImage(tmp_path / "gone.png"), TarImage(tmp_path / "gone.tar", 0, 5)):
        for call in (source.fingerprint, source.load):
            with pytest.raises(SampleError, match=r"gone.* cannot be read: no such file") as caught:
                call()
            assert str(tmp_path) not in str(caught.value)
    (tmp_path / "short.tar").write_bytes(b"abc")
    with pytest.raises(SampleError, match="cut short"):
        TarImage(tmp_path / "short.tar", 1, 5).load()
    with pytest.raises(SampleError, match="is a directory"):
        FileImage(Path(tmp_path)).load()
