"""The ObjectNet layout: ``images/<class>/….png`` with a red border, and ``mappings/`` to ImageNet's classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.names import Name
from holdfast.core.types import DEFAULT_MAX_PIXELS, Collection, Image, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import decode_image, read_file
from holdfast.data.nuisances import objectnet_folders, read_categories

LICENCE = "ObjectNet: CC BY 4.0, never to be tuned on, images on the web only with their red border"
BORDER = 1
_LARGEST_BORDER = 64


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``objectnet:DIR``: the 113 of its 313 classes that ImageNet has.

    Which folder is which class and which outputs mean it, the release's ``mappings`` say. The red border by which
    ObjectNet is told apart is cut off (a pixel on every side; JPEG copies smear it: ``?border=2``). Options:
    ``border``, ``mask_format`` (of masks given by hand, which have the size without the border).
    """
    options = reading.text_options(name, ("border",))
    border = options.get("border", str(BORDER))
    if not border.isdecimal() or int(border) > _LARGEST_BORDER:
        raise UserError(f"border of objectnet: is a whole number of pixels from 0 to {_LARGEST_BORDER}, not {border!r}")
    root = reading.existing(name.name, "the folder")
    images = root / "images"
    if not images.is_dir() or not (root / "mappings").is_dir():
        raise UserError(f"{str(root)!r} is not in the ObjectNet layout: it should have the folders images and mappings")
    categories = {category.name: category for category in read_categories(root)}
    labels = objectnet_folders(root)
    problems: list[Problem] = []
    samples: list[Sample] = []
    elsewhere = 0
    for folder in reading.visible_folders(images):
        label = labels.get(folder)
        if label is None:
            problems.append(Problem(f"images/{folder}", "folder_to_objectnet_label.json does not know the folder"))
        elif label not in categories:
            elsewhere += 1
        else:
            samples += [
                Sample(sample_id, label, BorderedImage(path, int(border)), licence=LICENCE)
                for sample_id, path in reading.images_below(images, folder, problems)
            ]
    if elsewhere:
        problems.append(Problem("images", f"{elsewhere} class(es) that ImageNet does not have were passed over"))
    folder_classes = {labels.get(folder) for folder in reading.visible_folders(images)}
    present = {label: category.keys for label, category in categories.items() if label in folder_classes}
    return reading.finish_folder(
        root, samples, problems, classes=present, keys=present, masks=masks, format=options["mask_format"]
    )


def matches(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    return (root / "images").is_dir() and (root / "mappings" / "objectnet_to_imagenet_1k.json").is_file()


@dataclass(frozen=True, slots=True)
class BorderedImage:
    """An image file whose outermost pixels on every side are not part of the picture."""

    path: str | Path
    border: int

    def fingerprint(self) -> str:
        """Return the SHA-256 of the stored bytes and the border."""
        return bytes_sha256(read_file(self.path) + f"\0border {self.border}".encode())

    def load(self, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image:
        """Decode to HWC uint8 RGB without the border."""
        image = decode_image(read_file(self.path), max_pixels=max_pixels)
        height, width = image.shape[:2]
        if min(height, width) <= 2 * self.border:
            raise SampleError(f"the image is {width} × {height} pixels: without its border nothing is left")
        return np.ascontiguousarray(image[self.border : height - self.border, self.border : width - self.border])
