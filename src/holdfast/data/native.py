"""Images at their native depth (16-bit PNG and TIFF, DICOM, arrays of many bands), and their 8-bit RGB.

Pillow says whether a file is whole, as for every other image; OpenCV then reads the 16 bits that Pillow drops.
"""

from __future__ import annotations

import functools
import io
import math
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError, missing_extra
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.types import DEFAULT_MAX_PIXELS, Image, ImageSource
from holdfast.data import images

Bands = NDArray[Any]
"""HWC, uint8 or uint16; greyscale has three equal bands."""

Window = tuple[float, float] | None
"""The native values that become 0 and 255; None stands for the high byte of 16 bits."""

MOST_BANDS = 128  # what OpenCV takes
_DEFLATED = b"1.2.840.10008.1.2.1.99"
_SIGNED = 1 << 15  # added to signed values of DICOM, so that the darkest is 0


def is_native_only(data: bytes) -> bool:
    """Return whether stored bytes are of a format that Pillow does not read: DICOM or NumPy's."""
    return data[128:132] == b"DICM" or data[:6] == b"\x93NUMPY"


def decode_native(data: bytes, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> tuple[Bands, Window]:
    """Return stored bytes at native depth, and how they become 8 bits; a file of 8 bits as ``decode_image`` has it."""
    if data[128:132] == b"DICM":
        return _decode_dicom(data, max_pixels)
    if data[:6] == b"\x93NUMPY":
        return _decode_array(data, max_pixels), None
    header = images.open_header(data)
    if bits_of(data, header) != 16:
        return images.decode_image(data, max_pixels=max_pixels), None
    upright = images.load_upright(header, max_pixels=max_pixels)
    values: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if values is None or values.dtype != np.uint16 or (values.ndim == 3 and values.shape[2] != 3):
        raise SampleError("16 bits are read as greyscale and RGB; store the image without transparency and compression")
    if values.shape[:2] != (upright.height, upright.width) or header.getexif().get(images.ORIENTATION, 1) != 1:
        raise SampleError("EXIF says that this 16-bit image is turned; store it upright")
    return _three_bands(values) if values.ndim == 2 else np.ascontiguousarray(values[..., ::-1]), None


def bits_of(data: bytes, header: Any) -> int:
    """Return how many bits a channel of a PNG or TIFF file has; 16 for others that Pillow reads as whole numbers."""
    if header.format == "PNG":
        return data[24]  # where its header has the depth
    if header.format == "TIFF":
        bits: Any = header.tag_v2.get(258, (8,))
        return int(max(bits if isinstance(bits, tuple) else (bits,)))
    return 16 if header.mode.startswith("I") else 8


def eight_bits(pixels: Bands, window: Window = None) -> Image:
    """Return the 8-bit RGB of native pixels: their first three bands, scaled by the window or cut to the high byte."""
    pixels = pixels[..., :3] if pixels.shape[2] >= 3 else _three_bands(pixels[..., 0])
    if window is not None:
        low, high = window
        share = np.clip((pixels.astype(np.float32) - np.float32(low)) / np.float32(high - low), 0, 1)
        return np.asarray(np.rint(share * 255), np.uint8)
    return np.ascontiguousarray(pixels if pixels.dtype == np.uint8 else (pixels >> 8).astype(np.uint8))


def encode_native(pixels: Bands) -> tuple[bytes, str]:
    """Return pixels as a file without loss, and its suffix: PNG of one or three bands, NumPy's format of others."""
    if pixels.shape[2] == 3:
        grey = bool((pixels == pixels[..., :1]).all())
        return cv2.imencode(".png", pixels[..., 0] if grey else pixels[..., ::-1])[1].tobytes(), "png"
    file = io.BytesIO()
    np.save(file, pixels, allow_pickle=False)
    return file.getvalue(), "npy"


@dataclass(frozen=True, slots=True)
class NativeImage:
    """An image that loads at its native depth. Its fingerprint differs from that of the 8-bit image."""

    source: ImageSource

    @property
    def path(self) -> Any:
        """Return where the file is, "" if it is not a file."""
        return getattr(self.source, "path", "")

    def fingerprint(self) -> str:
        """Return a hash of the content and of the depth."""
        return bytes_sha256(f"native {self.source.fingerprint()}".encode())

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Bands:
        """Return HWC uint8 or uint16."""
        if not isinstance(self.source, images.EncodedImage):
            return self.source.load(max_pixels=max_pixels)
        return decode_native(self.source.read(), max_pixels=max_pixels)[0]

    def for_models(self, pixels: Bands) -> Image:
        """Return pixels made from this image as the 8-bit RGB that models take."""
        source: Any = self.source
        return eight_bits(pixels, _facts(source)[0])

    def meaning(self) -> str:
        """Return what its values stand for, "" if no header says so; values of another meaning do not mix."""
        source: Any = self.source
        return _facts(source)[1]


@functools.lru_cache(maxsize=4096)
def _facts(source: Any) -> tuple[Window, str]:
    data = source.read() if isinstance(source, images.EncodedImage) else b""
    return _dicom_facts(_dicom_header(data)) if data[128:132] == b"DICM" else (None, "")


def _three_bands(grey: Bands) -> Bands:
    return np.repeat(grey[..., None], 3, axis=2)


def _decode_array(data: bytes, max_pixels: int) -> Bands:
    """Return an array in NumPy's file format; nothing is unpickled."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
    except Exception as error:  # untrusted bytes
        raise SampleError(f"the array is cut short or damaged ({error})") from error
    if dtype not in (np.uint8, np.uint16) or len(shape) not in (2, 3) or by_columns:
        raise SampleError(f"an array is (height, width, bands) of uint8 or uint16, this is {dtype} of shape {shape}")
    images.check_size(shape[1], shape[0], max_pixels=max_pixels)
    bands = shape[2] if len(shape) == 3 else 1
    if not 1 <= bands <= MOST_BANDS or len(data) - file.tell() != math.prod(shape) * dtype.itemsize:
        raise SampleError(f"the array is cut short, or its {bands} bands are not 1 to {MOST_BANDS}")
    pixels = np.frombuffer(data, dtype, offset=file.tell()).reshape(*shape[:2], bands)
    return _three_bands(pixels[..., 0]) if bands == 1 else pixels.copy()


def _dicom_header(data: bytes, *, whole: bool = False) -> Any:
    """Return a DICOM file's header, with its pixels if they are wanted."""
    try:
        import pydicom
    except ModuleNotFoundError as error:
        raise UserError(missing_extra(error)) from error
    if _DEFLATED in data[132:4096]:
        raise SampleError("the DICOM file is deflated as a whole, so its size is not known before; store it without")
    pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE
    try:
        header: Any = pydicom.dcmread(io.BytesIO(data), stop_before_pixels=not whole)
        int(header.Rows), int(header.Columns), int(header.get("NumberOfFrames") or 1)
    except Exception as error:  # untrusted bytes
        raise SampleError(f"the DICOM file is cut short or damaged ({images.reason(error)})") from error
    return header


def _decode_dicom(data: bytes, max_pixels: int) -> tuple[Bands, Window]:
    header = _dicom_header(data)
    images.check_size(int(header.Columns), int(header.Rows), max_pixels=max_pixels)
    frames, kind = int(header.get("NumberOfFrames") or 1), str(header.get("PhotometricInterpretation"))
    if frames > 1:
        raise SampleError(f"the DICOM file has {frames} frames; store each as a file of its own")
    if header.get("BitsAllocated") not in (8, 16) or kind == "PALETTE COLOR":
        raise SampleError(
            f"DICOM is read with 8 or 16 bits and without palette, this has {header.get('BitsAllocated')}"
        )
    window, _ = _dicom_facts(header)
    try:
        pixels: Any = _dicom_header(data, whole=True).pixel_array
    except Exception as error:  # untrusted bytes
        raise SampleError(f"the DICOM file is cut short or damaged ({images.reason(error)})") from error
    if kind == "MONOCHROME1":  # stored the other way round; from here on bright is high
        low, high = _stored_range(header)
        pixels = (low + high - np.clip(pixels.astype(np.int32), low, high)).astype(pixels.dtype)
    if pixels.dtype.kind == "i":
        pixels = (pixels.astype(np.int32) + _SIGNED).astype(np.uint16)
    return _three_bands(pixels) if pixels.ndim == 2 else pixels.copy(), window


def _dicom_facts(header: Any) -> tuple[Window, str]:
    """Return a DICOM file's window, and what its values stand for; SampleError if a number is none."""
    try:
        kind, window = str(header.get("PhotometricInterpretation")), _dicom_window(header)
        if header.get("SamplesPerPixel", 1) != 1:
            return window, "" if kind == "RGB" else kind
        top = f" below {_stored_range(header)[1]}" if kind == "MONOCHROME1" else ""
        slope, intercept = float(header.get("RescaleSlope") or 1), float(header.get("RescaleIntercept") or 0)
        return window, f"{kind}{top}, sign {bool(header.get('PixelRepresentation'))}, {slope:g} x + {intercept:g}"
    except SampleError:
        raise
    except Exception as error:  # untrusted numbers
        raise SampleError(f"a number in the header of the DICOM file is damaged ({images.reason(error)})") from error


def _stored_range(header: Any) -> tuple[int, int]:
    """Return the smallest and the largest value of a DICOM file's stored bits."""
    bits = int(header.get("BitsStored") or 16)
    if not 1 <= bits <= 16:
        raise SampleError(f"the DICOM file says that it stores {bits} bits; 1 to 16 are read")
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if header.get("PixelRepresentation") else (0, (1 << bits) - 1)


def _dicom_window(header: Any) -> Window:
    """Return the stored values that become 0 and 255: the file's first window, else all values of its bits."""
    if header.get("SamplesPerPixel", 1) != 1:
        return None
    slope, intercept = float(header.get("RescaleSlope") or 1), float(header.get("RescaleIntercept") or 0)
    centre, width = (np.atleast_1d(header.get(name) or 0)[0] for name in ("WindowCenter", "WindowWidth"))
    least, most = low, high = _stored_range(header)
    if float(width) > 1:  # DICOM's linear function of a window, PS3.3 C.11.2.1.2
        if (function := header.get("VOILUTFunction") or "LINEAR") != "LINEAR":
            raise SampleError(f"the window of the DICOM file is {function}; only LINEAR windows are applied")
        ends = (float(centre) - 0.5 - (float(width) - 1) / 2, float(centre) - 0.5 + (float(width) - 1) / 2)
        low, high = ((end - intercept) / slope for end in ends)  # type: ignore[assignment]
    if header.get("PhotometricInterpretation") == "MONOCHROME1":
        low, high = least + most - high, least + most - low
    low, high = (end + (_SIGNED if header.get("PixelRepresentation") else 0) for end in (low, high))
    if not math.isfinite(low) or not math.isfinite(high) or low == high:
        raise SampleError("the window of the DICOM file makes no sense")
    return low, high
