"""Decoding of stored images to RGB arrays.

One decoder, Pillow, reads every format: on JPEG it is within a few per cent of OpenCV, says when a file is cut short,
and never writes to stderr. What OpenCV's bundled libjpeg prints about damaged files cannot be turned off.
"""

from __future__ import annotations

import io
import os
import struct
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL import ImageOps, TiffImagePlugin, WebPImagePlugin

from holdfast.core.errors import HoldfastError, MachineError, SampleError, machine_trouble
from holdfast.core.fingerprint import array_sha256, bytes_sha256
from holdfast.core.places import address, read_object
from holdfast.core.types import DEFAULT_MAX_PIXELS, Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The only parsers that get untrusted bytes; some of Pillow's others start programs."""

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".dcm"}
)
"""Suffixes of FORMATS and of DICOM, in either case."""

ORIENTATION = 0x0112
"""The EXIF tag."""

# Odd but readable files make Pillow warn (malformed EXIF, say); here a file is readable or it is a SampleError. Done
# once: warnings.catch_warnings for every image is not safe in threads and makes other modules repeat their warnings.
warnings.filterwarnings("ignore", module=r"PIL\.")

Pillow.preinit()  # registers all of FORMATS but these two, which register on import
assert TiffImagePlugin.TiffImageFile.format in FORMATS and WebPImagePlugin.WebPImageFile.format in FORMATS


def decode_image(data: bytes, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
    """Return stored bytes as HWC uint8 RGB, upright.

    Greyscale, CMYK, palette, 16-bit (its high byte), EXIF-rotated and animated files (their first frame) are normal;
    transparency is composited over white; DICOM is seen through its window. The size is checked before any pixel is
    decoded.
    Raises SampleError: the bytes are not an image, an incomplete one, or one of more than ``max_pixels``.
    """
    return over_white(decode_image_with_alpha(data, max_pixels=max_pixels))


def decode_image_with_alpha(data: bytes, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
    """Return the image like ``decode_image``, but as RGBA if the file has transparency."""
    from holdfast.data import native  # which decodes with this module

    if native.is_native_only(data):
        return native.eight_bits(*native.decode_native(data, max_pixels=max_pixels))
    return _to_array(load_upright(open_header(data), max_pixels=max_pixels))


def over_white(image: Image) -> Image:
    """Return RGB as it is, and RGBA composited over white, exact where alpha is 0 or 255."""
    if image.shape[2] == 3:
        return image
    alpha = image[..., 3:].astype(np.uint16)
    colour = image[..., :3] * alpha + 255 * (255 - alpha)
    return ((colour + 127) // 255).astype(np.uint8)


def load_upright(picture: Pillow.Image, *, max_pixels: int) -> Pillow.Image:
    """Return the first frame of a header, decoded and turned as EXIF says, in the file's mode."""
    check_size(*picture.size, max_pixels=max_pixels)
    if picture.format == "TIFF":
        _refuse_pages(picture)
    try:
        picture.load()
        if picture.getexif().get(ORIENTATION, 1) != 1:
            picture = ImageOps.exif_transpose(picture)
        return picture
    except MemoryError:
        raise MachineError(
            f"memory ran out with an image of {picture.width} × {picture.height} pixels; use fewer --workers, or leave "
            "out large images with a lower --max-pixels"
        ) from None
    except Exception as error:  # decoders of untrusted bytes raise nearly anything
        raise SampleError(f"the image is cut short or damaged ({reason(error)})") from error


def _refuse_pages(picture: Pillow.Image) -> None:
    """Raise SampleError for a TIFF of several pages; smaller copies of its first page do not count."""
    try:
        picture.seek(1)
        reduced = picture.tag_v2.get(254, 0) & 1  # type: ignore[attr-defined]
        picture.seek(0)
    except EOFError:
        return
    except Exception as error:  # decoders of untrusted bytes raise nearly anything
        raise SampleError(f"the image is cut short or damaged ({reason(error)})") from error
    if not reduced:
        raise SampleError("the TIFF has several pages; store each as a file of its own")


def open_header(data: bytes) -> Pillow.Image:
    """Return the file's header; no pixel is decoded yet.

    Pillow.open would do the same, but it refuses large images by a limit of its own, which --max-pixels must rule.
    """
    if not data:
        raise SampleError("the image file is empty (0 bytes)")
    start = data[:16]
    recognised = False
    for name in FORMATS:
        if name not in Pillow.OPEN:  # a Pillow built without it
            continue
        factory, accepts = Pillow.OPEN[name]
        if accepts is not None and accepts(start) is not True:
            continue
        recognised = True
        try:
            return factory(io.BytesIO(data), "")
        except (SyntaxError, IndexError, TypeError, KeyError, struct.error):  # how plugins say "not mine"
            continue
        except Exception as error:
            raise SampleError(f"the image is cut short or damaged ({reason(error)})") from error
    if recognised:
        raise SampleError("the image is cut short or damaged (its header makes no sense)")
    raise SampleError(f"the file is not an image Holdfast can read ({', '.join(FORMATS)})")


def check_size(width: int, height: int, *, max_pixels: int) -> None:
    """Refuse an image that would decode to more than ``max_pixels``."""
    if width * height > max_pixels:
        raise SampleError(
            f"the image is {width} × {height} = {width * height:,} pixels, above --max-pixels {max_pixels:,}"
        )
    if width < 1 or height < 1:
        raise SampleError(f"the image is {width} × {height} pixels: there is nothing in it")


def reason(error: Exception) -> str:
    """Return what a decoder said, without its full stop."""
    return str(error).strip().rstrip(".") or type(error).__name__


def _to_array(picture: Pillow.Image) -> Image:
    """Return HWC uint8, RGB or RGBA, writeable."""
    mode = picture.mode
    if mode == "RGB" and "transparency" not in picture.info:
        return _rgb_array(picture)
    if mode == "L" and "transparency" not in picture.info:
        return cv2.cvtColor(np.asarray(picture), cv2.COLOR_GRAY2RGB).view(np.uint8)
    if mode == "F" or mode.startswith("I"):
        return cv2.cvtColor(to_eight_bits(np.asarray(picture)), cv2.COLOR_GRAY2RGB).view(np.uint8)
    if picture.has_transparency_data:
        return np.array(picture.convert("RGBA"))
    return _rgb_array(picture.convert("RGB"))


def _rgb_array(picture: Pillow.Image) -> Image:
    # Pillow keeps RGB in four bytes and can lend them: a fifth of the decoding time of a small JPEG saved.
    try:
        lent: NDArray[np.uint8] = pa.array(picture).values.to_numpy(zero_copy_only=True)
    except (TypeError, ValueError, pa.ArrowException):  # an older Pillow, or an image in several blocks of memory
        return np.array(picture)
    rgb: Image = cv2.cvtColor(lent.reshape(picture.height, picture.width, 4), cv2.COLOR_RGBA2RGB).view(np.uint8)
    return rgb


def to_eight_bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return greyscale of more bits as uint8: the high byte of 16-bit integers, floats of 0..1 times 255."""
    if values.dtype.kind == "f":
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise SampleError("the image holds floating-point values outside 0..1; store it with 8 or 16 bits")
        scaled: NDArray[np.uint8] = np.rint(values * 255).astype(np.uint8)
        return scaled
    if values.min() < 0 or values.max() > 0xFFFF:
        raise SampleError("the image holds 32-bit integers; store it with 8 or 16 bits")
    return (values.astype(np.uint16) >> 8).astype(np.uint8)


def read_file(path: str | Path) -> bytes:
    """Return a file's bytes; a SampleError names the file if it cannot be read."""
    if address(path):
        return read_object(str(path))
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (Path costs more than a small file takes to read)
            return file.read()
    except OSError as error:
        raise _unreadable(path, error) from error


def read_range(path: str | Path, offset: int, size: int) -> bytes:
    """Return ``size`` bytes of a file from ``offset`` on; SampleError if there are fewer."""
    try:
        if address(path):
            data = read_object(str(path), offset, offset + size) if size else b""
        else:
            with Path(path).open("rb") as file:
                file.seek(offset)
                data = file.read(size)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) != size:
        raise SampleError(f"{Path(path).name} ends inside this member; the archive is cut short")
    return data


def _unreadable(path: str | Path, error: OSError) -> HoldfastError:
    reason = os.strerror(error.errno).lower() if error.errno else "input/output error"
    kind = MachineError if machine_trouble(error) else SampleError
    return kind(f"{Path(path).name} cannot be read: {reason}")


class EncodedImage:
    """Base of images that are kept as the bytes of a file; subclasses say where these bytes are."""

    __slots__ = ()

    def read(self) -> bytes:
        """Return the stored bytes."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return the SHA-256 of the stored bytes."""
        return bytes_sha256(self.read())

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """Decode to HWC uint8 RGB."""
        return decode_image(self.read(), max_pixels=max_pixels)


@dataclass(frozen=True, slots=True)
class InFile:
    """A file's bytes."""

    path: str | Path

    def read(self) -> bytes:
        """Return the stored bytes."""
        return read_file(self.path)


@dataclass(frozen=True, slots=True)
class InTar:
    """A range of bytes of an uncompressed tar; nothing is extracted."""

    path: str | Path
    offset: int
    size: int

    def read(self) -> bytes:
        """Return the stored bytes."""
        return read_range(self.path, self.offset, self.size)


@dataclass(frozen=True, slots=True)
class FileImage(InFile, EncodedImage):
    """An image file."""


@dataclass(frozen=True, slots=True)
class TarImage(InTar, EncodedImage):
    """An image inside a tar."""


@dataclass(frozen=True, slots=True)
class PublishedImage(EncodedImage):
    """An image file of a published benchmark; reading fails if its bytes are not the published ones."""

    path: str | Path
    sha256: str

    def read(self) -> bytes:
        """Return the stored bytes."""
        data = read_file(self.path)
        if bytes_sha256(data) != self.sha256:
            raise SampleError(f"{Path(self.path).name} has changed since it was published: its SHA-256 is another")
        return data


@dataclass(frozen=True, slots=True)
class BytesImage(EncodedImage):
    """An image file's bytes, held in memory."""

    data: bytes = field(repr=False)

    def read(self) -> bytes:
        """Return the stored bytes."""
        return self.data


@dataclass(frozen=True, slots=True, eq=False)
class ArrayImage:
    """Pixels that are decoded already: HW (grey), HWC RGB or RGBA, uint8. ``load`` returns a fresh RGB array."""

    array: NDArray[np.uint8] = field(repr=False)

    def fingerprint(self) -> str:
        """Return the SHA-256 of type, shape and values."""
        return array_sha256(self.array)

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """Return HWC uint8 RGB."""
        array = self.array
        if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
            raise SampleError(f"an image is HW, RGB or RGBA uint8, this is {array.dtype} of shape {array.shape}")
        check_size(array.shape[1], array.shape[0], max_pixels=max_pixels)
        if array.ndim == 2:
            return np.repeat(array[..., None], 3, axis=2)
        return over_white(array) if array.shape[2] == 4 else array.copy()
