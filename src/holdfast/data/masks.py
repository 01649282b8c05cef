"""Decoding of stored masks to HW bool arrays, true on the foreground."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import array_sha256, bytes_sha256, fingerprint
from holdfast.core.types import DEFAULT_MAX_PIXELS, Mask
from holdfast.data.images import InFile, InTar, check_size, load_upright, open_header

MASK_FORMATS = ("auto", "grey", "index", "alpha", "red")

VOID = 255
"""The value of "do not care" in the label maps of Pascal VOC and its heirs."""

_RED_MARGIN = 64  # how far red must lead green and blue; 128, a common export's red, leads clearly, JPEG noise does not


def decode_mask(
    data: bytes,  # an image file
    *,
    format: str = "auto",  # one of ``MASK_FORMATS``, or ``void=N``
    size: tuple[int, int] | None = None,  # (height, width) that the mask must have; checked before decoding
    max_pixels: int = DEFAULT_MAX_PIXELS,  # larger masks are refused before decoding
) -> Mask:
    """Return stored bytes as an HW bool mask.

    What counts as foreground, by ``format``:

    - ``grey``: 128 and more (32,768 of 16 bits); in a lossless file without any value that high, all but zero.
    - ``index``: every palette or grey index but 0 (background) and 255 (void).
    - ``void=N``: the same with N for void instead of 255.
    - ``alpha``: alpha of 128 and more.
    - ``red``: pixels whose red leads green and blue clearly.
    - ``auto``: alpha if some pixel is not opaque; coloured palettes as index; red on black as red; the rest as grey.
      A greyscale label map that uses 255 for void cannot be distinguished from a 0/255 mask: name ``index`` for those.
    Raises SampleError: unreadable, of another size, or of colours that no rule covers.
    """
    name, _, void = format.partition("=")
    if name not in _RULES:
        raise UserError(f"mask formats are {', '.join(MASK_FORMATS)}; {format!r} is none of them")
    try:
        picture = open_header(data)
        if size is not None:
            width, height = picture.size
            if (height, width) != size and (width, height) != size:  # EXIF may still turn it
                raise _other_size((height, width), size)
        picture = load_upright(picture, max_pixels=max_pixels)
    except SampleError as error:
        raise SampleError(str(error).replace("the image", "the mask", 1)) from error
    mask = _index(picture, int(void)) if void else _RULES[name](picture)
    if size is not None and mask.shape != size:
        raise _other_size(mask.shape, size)
    return mask


def _other_size(size: tuple[int, ...], wanted: tuple[int, int]) -> SampleError:
    return SampleError(f"the mask is {size[1]} × {size[0]} pixels, its image {wanted[1]} × {wanted[0]}")


def _auto(picture: Pillow.Image) -> Mask:
    if picture.has_transparency_data:
        alpha = _alpha_channel(picture)
        if alpha.min() < 255:
            return alpha >= 128
    if picture.mode == "P":
        return _palette(picture)
    if picture.mode in ("1", "L", "F") or picture.mode.startswith("I"):
        return _grey(picture)
    rgb = np.asarray(picture.convert("RGB"))
    if np.array_equal(rgb[..., 0], rgb[..., 1]) and np.array_equal(rgb[..., 0], rgb[..., 2]):
        return _threshold(rgb[..., 0], lossy=_lossy(picture))
    if rgb[..., 1:].max() < _RED_MARGIN:
        return _leads_in_red(rgb)
    raise SampleError(
        "the mask has colours other than red on black; store it as greyscale, palette or alpha, or name mask_format"
    )


def _palette(picture: Pillow.Image) -> Mask:
    indices = np.asarray(picture)
    used = np.unique(indices)
    colours = np.asarray(picture.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
    if used[-1] >= len(colours):  # indices without a colour: nothing but the index rule applies
        return _by_index(indices)
    shown = colours[used]
    if (shown[:, :1] == shown).all():  # a greyscale mask that an encoder packed into a palette, in any order
        return _threshold(colours[:, 0][indices], lossy=False)
    if shown[:, 1:].max() == 0:  # red on black, packed likewise
        return _leads_in_red(colours[indices])
    return _by_index(indices)


def _index(picture: Pillow.Image, void: int = VOID) -> Mask:
    if picture.mode not in ("P", "1", "L") and not picture.mode.startswith("I"):
        raise SampleError(f"an index mask is a palette or greyscale image, this one is {picture.mode}")
    return _by_index(np.asarray(picture), void)


def _by_index(indices: NDArray[Any], void: int = VOID) -> Mask:
    foreground: Mask = (indices != 0) & (indices != void)
    return foreground


def _grey(picture: Pillow.Image) -> Mask:
    lossy = _lossy(picture)
    if picture.mode in ("1", "L", "F") or picture.mode.startswith("I"):
        return _threshold(np.asarray(picture), lossy=lossy)
    return _threshold(np.asarray(picture.convert("L")), lossy=lossy)


def _threshold(values: NDArray[Any], *, lossy: bool) -> Mask:
    if values.dtype == np.bool_:
        return values.copy()
    if values.dtype.kind == "f":
        return values >= 0.5
    highest = values.max()
    if highest > 255:
        return values >= 0x8000 if highest >= 0x8000 else values > 0
    if highest >= 128 or lossy:
        return values >= 128
    return values > 0


def _lossy(picture: Pillow.Image) -> bool:
    return picture.format in ("JPEG", "MPO", "WEBP")


def _alpha(picture: Pillow.Image) -> Mask:
    if not picture.has_transparency_data:
        raise SampleError(f"the mask should be an alpha channel, but this {picture.mode} image has none")
    return _alpha_channel(picture) >= 128


def _alpha_channel(picture: Pillow.Image) -> NDArray[np.uint8]:
    return np.asarray(picture.convert("RGBA").getchannel("A"))


def _red(picture: Pillow.Image) -> Mask:
    return _leads_in_red(np.asarray(picture.convert("RGB")))


def _leads_in_red(rgb: NDArray[np.uint8]) -> Mask:
    wide = rgb.astype(np.int16)
    return wide[..., 0] - np.maximum(wide[..., 1], wide[..., 2]) >= _RED_MARGIN


_RULES: Mapping[str, Callable[[Pillow.Image], Mask]] = {
    "auto": _auto,
    "grey": _grey,
    "index": _index,
    "void": _index,
    "alpha": _alpha,
    "red": _red,
}


class EncodedMask:
    """Base of masks that are kept as the bytes of an image file; subclasses say where these bytes are."""

    __slots__ = ()
    format: str

    def read(self) -> bytes:
        """Return the stored bytes."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return the SHA-256 of bytes and format: the same bytes read by another rule are another mask."""
        data = self.read()
        return bytes_sha256(data) if self.format == "auto" else bytes_sha256(data + f"\0{self.format}".encode())

    def load(self, height: int, width: int) -> Mask:
        """Decode to HW bool of exactly this size."""
        return decode_mask(self.read(), format=self.format, size=(height, width), max_pixels=height * width)


@dataclass(frozen=True, slots=True)
class FileMask(InFile, EncodedMask):
    """A mask file."""

    format: str = "auto"


@dataclass(frozen=True, slots=True)
class TarMask(InTar, EncodedMask):
    """A mask inside a tar."""

    format: str = "auto"


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMask:
    """A mask in memory, HW bool."""

    array: Mask = field(repr=False)

    def fingerprint(self) -> str:
        """Return the SHA-256 of shape and values."""
        return array_sha256(self.array)

    def load(self, height: int, width: int) -> Mask:
        """Return a copy; SampleError for another size."""
        if self.array.dtype != np.bool_ or self.array.ndim != 2:
            raise SampleError(f"a mask is HW bool, this is {self.array.dtype} of shape {self.array.shape}")
        if self.array.shape != (height, width):
            raise _other_size(self.array.shape, (height, width))
        return self.array.copy()


@dataclass(frozen=True, slots=True)
class CocoMask:
    """The union of COCO segmentations: polygon lists, run lengths or compressed run lengths, as the JSON has them."""

    segmentations: tuple[Any, ...] = field(repr=False)
    height: int
    width: int

    def fingerprint(self) -> str:
        """Return the SHA-256 of the segmentations and their size."""
        try:
            return fingerprint([self.segmentations, self.height, self.width])
        except ValueError:  # JSON as Python reads it may hold infinities
            raise SampleError("the mask holds something that is not a number") from None

    def load(self, height: int, width: int) -> Mask:
        """Rasterise to HW bool of exactly this size."""
        if (self.height, self.width) != (height, width):
            raise _other_size((self.height, self.width), (height, width))
        check_size(width, height, max_pixels=DEFAULT_MAX_PIXELS)
        mask = np.zeros((height, width), np.bool_)
        for segmentation in self.segmentations:
            mask |= decode_coco(segmentation, height, width)
        return mask


def decode_coco(segmentation: Any, height: int, width: int) -> Mask:
    """Return one COCO segmentation (a list of polygons, or run lengths) as HW bool.

    Run lengths are decoded here rather than by pycocotools, whose C code trusts them; polygons go there checked.
    """
    if isinstance(segmentation, Mapping):
        return _decode_runs(segmentation, height, width)
    if not isinstance(segmentation, Sequence) or isinstance(segmentation, str):
        raise SampleError("the mask is neither polygons nor run lengths")
    polygons = [_checked_polygon(polygon, height, width) for polygon in segmentation]
    if not polygons:
        return np.zeros((height, width), np.bool_)
    from pycocotools import mask as coco

    return _decode_runs(coco.merge(coco.frPyObjects(polygons, height, width)), height, width)


def _checked_polygon(polygon: Any, height: int, width: int) -> list[float]:
    if not isinstance(polygon, Sequence) or isinstance(polygon, str) or len(polygon) < 6 or len(polygon) % 2:
        raise SampleError("a mask polygon is a list of at least three x, y pairs")
    try:
        points = np.asarray(polygon, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SampleError("a mask polygon holds something that is not a number") from None
    # A corner far outside would make the rasteriser walk, and reserve memory for, the whole way there.
    if points.ndim != 1 or not (np.abs(points) <= 4 * max(height, width)).all():
        raise SampleError("a mask polygon is far outside its image")
    return [float(value) for value in points]


def _decode_runs(segmentation: Mapping[str, Any], height: int, width: int) -> Mask:
    counts = segmentation.get("counts")
    if list(segmentation.get("size", ())) != [height, width]:
        raise SampleError(f"the mask's run lengths are for size {segmentation.get('size')}, not {[height, width]}")
    if isinstance(counts, (str, bytes)):
        counts = _uncompress(counts.encode() if isinstance(counts, str) else counts)
    if (
        not isinstance(counts, list)
        or not all(type(count) is int and count >= 0 for count in counts)
        or sum(counts) != height * width
    ):
        raise SampleError("the mask's run lengths do not add up to its size")
    values = np.arange(len(counts)) % 2 == 1  # runs alternate, background first, down the columns
    return np.ascontiguousarray(np.repeat(values, counts).reshape(width, height).T)


def _uncompress(text: bytes) -> list[int]:
    """Return COCO's compressed counts: five bits per character, from the third run on minus the one two before."""
    counts: list[int] = []
    value = shift = 0
    for character in text:
        bits = character - 48
        if not 0 <= bits < 64 or shift > 40:
            raise SampleError("the mask's compressed run lengths are damaged")
        value |= (bits & 0x1F) << shift
        shift += 5
        if bits & 0x20:
            continue
        if bits & 0x10:
            value -= 1 << shift  # sign extension
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = shift = 0
    if shift:
        raise SampleError("the mask's compressed run lengths are cut short")
    return counts
