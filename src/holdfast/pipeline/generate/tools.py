"""Networks that a user gives to some conditions: style transfer (``--stylist``) and inpainting (``--fill``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError, first_line
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.types import Image, Mask, Sample
from holdfast.models.runtimes.onnx import any_session, external_files
from holdfast.pipeline.donors import DonorPool, images_below
from holdfast.scenarios import Condition, Scenario
from holdfast.scenarios.base.compositing import RIM, bounding_box

_FILL = "migan:"


@lru_cache(maxsize=8)
def _session(file: Path) -> Any:
    """Return a session with one thread in an operator: images are rendered side by side, and sums keep their order."""
    return any_session(file, "cpu", threads=1)


def _asked(file: Path, given: dict[str, NDArray[Any]]) -> NDArray[Any]:
    try:
        return np.asarray(_session(file).run(None, given)[0])
    except Exception as error:  # onnxruntime's errors share no base class of their own
        raise SampleError(f"{file.name} failed: {first_line(error)}") from error


@dataclass(frozen=True)
class StyleTransfer:
    """Arbitrary style transfer in two files; it can be pickled, and each process opens its own sessions.

    ``predict`` makes a code of a style image, ``transform`` draws an image after a code; both take NHWC floats 0..1.
    """

    predict: Path
    transform: Path
    fingerprint: str

    def __call__(self, image: Image, style: Image, strength: float) -> Image:
        """Return the image between its own style (0) and the other one (1), in the image's size."""
        # The code moves, not the pixels: at 0 the network draws the image in its own style.
        code = strength * self._code(style) + (1 - strength) * self._code(image)
        content, coded = sorted(_session(self.transform).get_inputs(), key=lambda entry: entry.shape[-1] != 3)
        drawn = _asked(self.transform, {content.name: _batch(image, content), coded.name: code.astype(np.float32)})
        pixels = np.rint(np.clip(drawn[0], 0, 1) * 255).astype(np.uint8)
        return cast(Image, cv2.resize(pixels, (image.shape[1], image.shape[0]), interpolation=cv2.INTER_CUBIC))

    def _code(self, picture: Image) -> NDArray[Any]:
        (entry,) = _session(self.predict).get_inputs()
        return _asked(self.predict, {entry.name: _batch(picture, entry)})


def _batch(picture: Image, entry: Any) -> NDArray[np.float32]:
    """Return the image in the size that an input has, NHWC 0..1."""
    _, height, width, _ = entry.shape
    small = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
    return (small[None] / np.float32(255)).astype(np.float32)


@dataclass(frozen=True)
class Inpainting:
    """MI-GAN with its own cropping and pasting in one file: bytes in, bytes out, any size (NCHW)."""

    file: Path
    fingerprint: str

    def __call__(self, image: Image, mask: Mask) -> Image:
        """Return the image without the object: it and a thin rim are painted over, every other pixel is kept."""
        left, top, right, bottom = bounding_box(mask)
        rim = 2 * max(2, max(right - left, bottom - top) // RIM) + 1
        hole = cv2.dilate(mask.view(np.uint8), np.ones((rim, rim), np.uint8))
        picture, known = _session(self.file).get_inputs()
        given = {picture.name: np.ascontiguousarray(image.transpose(2, 0, 1))[None]}
        drawn = _asked(self.file, given | {known.name: ((1 - hole) * np.uint8(255))[None, None]})[0]
        if drawn.dtype != np.uint8 or drawn.shape != given[picture.name][0].shape:
            raise SampleError(f"{self.file.name} made {drawn.dtype} of shape {drawn.shape}, not an image of this size")
        return cast(Image, cv2.copyTo(np.ascontiguousarray(drawn.transpose(1, 2, 0)), hole, image.copy()))


@dataclass(frozen=True)
class Tools:
    """What a user gave; it travels with the pool of donors, and its identity is part of row ids."""

    stylist: StyleTransfer | None = None
    styles: DonorPool | None = None
    styles_fingerprint: str = ""
    filler: Inpainting | None = None

    def identity(self, definition: Scenario) -> str:
        """Return the hash of what a scenario takes of it, or ''."""
        if definition.tool == "style" and self.stylist is not None:
            return fingerprint([self.stylist.fingerprint, self.styles_fingerprint])
        return self.filler.fingerprint if definition.tool == "fill" and self.filler is not None else ""


def load_tools(spec: Any) -> Tools | None:
    """Return the networks that a command names, or None; ``spec`` has PaintSpec's options, or none of them."""
    folder, styles, fill = (getattr(spec, name, None) for name in ("stylist", "styles", "fill"))
    if not folder and not fill:
        return None
    pool, identity = None, ""
    if styles:
        samples = [
            Sample(f"styles/{name}", name.parts[0] if len(name.parts) > 1 else "", image)
            for name, image in images_below("styles", styles).items()
        ]
        pool = DonorPool(samples, max_pixels=spec.max_pixels)
        identity = pool.fingerprint({sample.sample_id: sample.image.fingerprint() for sample in samples}, {})
    return Tools(_stylist(folder) if folder else None, pool, identity, load_filler(fill or ""))


def check_tools(spec: Any, conditions: Sequence[Condition]) -> None:
    """Raise a UserError if a condition lacks its network, or a network its condition."""
    named = {condition.definition.tool: condition.scenario for condition in conditions}
    if "style" in named and not getattr(spec, "stylist", None):
        raise UserError(f"{named['style']} needs a network that stylises: --stylist FOLDER with its two ONNX files")
    for option, tool, scenarios in (
        ("stylist", "style", "stylised conditions"), ("styles", "style", "stylised conditions"),
        ("fill", "fill", "only_background and borrowed backgrounds"),
    ):  # fmt: skip
        if getattr(spec, option, None) and tool not in named:
            raise UserError(f"--{option} is for {scenarios}, which --scenarios does not name")


def _stylist(folder: str) -> StyleTransfer:
    """Return the network of a folder: of its two files, the one with two inputs draws."""
    files = sorted(Path(folder).glob("*.onnx")) if Path(folder).is_dir() else []
    if len(files) != 2:
        raise UserError(f"--stylist {folder} should be a folder with two ONNX files: one reads a style, one draws")
    digests = {file: _checked(file) for file in files}
    shapes = {file: [entry.shape for entry in _session(file).get_inputs()] for file in files}
    predict, transform = sorted(files, key=lambda file: len(shapes[file]))
    counts = [(len(shapes[file]), sum(map(_is_picture, shapes[file]))) for file in (predict, transform)]
    if counts != [(1, 1), (2, 1)]:
        raise UserError(
            f"--stylist {folder}: one file should take a style image (1×height×width×3), the other an image and its "
            "code"
        )
    return StyleTransfer(predict, transform, fingerprint(["style", digests[predict], digests[transform]]))


def _is_picture(shape: Sequence[Any]) -> bool:
    """Return whether an input takes an NHWC image of a fixed size."""
    return len(shape) == 4 and shape[3] == 3 and all(isinstance(side, int) for side in shape[1:])


def load_filler(name: str) -> Inpainting | None:
    """Return the network of ``migan:FILE``, or None if nothing is named."""
    if not name:
        return None
    file = Path(name.removeprefix(_FILL))
    if not name.startswith(_FILL) or not file.is_file():
        raise UserError(f"--fill {name} is not a network that is known: migan:FILE names an ONNX file of MI-GAN")
    digest = _checked(file)
    inputs = [(entry.type, len(entry.shape)) for entry in _session(file).get_inputs()]
    if inputs != [("tensor(uint8)", 4)] * 2:
        raise UserError(f"--fill {name}: MI-GAN's pipeline takes an image and a mask as bytes, and this file does not")
    return Inpainting(file, fingerprint(["migan", digest]))


def _checked(file: Path) -> str:
    """Return the hash of an ONNX file and of the weights next to it; UserError for weights outside its folder."""
    return fingerprint([bytes_sha256(path.read_bytes()) for path in (file, *external_files(file))])
