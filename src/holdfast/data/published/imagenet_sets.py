"""Test sets of ImageNet's classes in the layouts of their releases.

ImageNet-C is ``<corruption>/<severity>/<wnid>/…``, perhaps below ``noise``, ``blur`` and so on; ImageNet-D is
``<nuisance>/<category>/<id>.png`` with ``questions/<nuisance>.csv``; ImageNet-R, -A and -Sketch have a folder per
WordNet id, ImageNet-V2 one per index; ObjectNet is ``images/<class>/….png`` with a red border, and ``mappings/``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.names import Name, split_list
from holdfast.core.types import (
    CORRUPTIONS,
    DEFAULT_MAX_PIXELS,
    SPARE_CORRUPTIONS,
    ClassKeys,
    Collection,
    Image,
    Problem,
    Sample,
)
from holdfast.data import reading
from holdfast.data.images import FileImage, PublishedImage, decode_image, read_file
from holdfast.data.labels import IMAGENET_OUTPUTS, imagenet_space
from holdfast.data.nuisances import KINDS as NUISANCES
from holdfast.data.nuisances import objectnet_folders, read_categories
from holdfast.data.readers.listed import read_rows, sample_fields

PUBLISHED = CORRUPTIONS + SPARE_CORRUPTIONS
"""Conditions, which are also the ids of our own scenarios."""

ARCHIVES = ("noise", "blur", "weather", "digital", "extra")
"""Names of the published archives, which some keep as folders."""

SEVERITIES = (1, 2, 3, 4, 5)
_MOVED = "elastic_transform"  # if the original's mask does not fit


def load_imagenet_c(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-c:DIR``.

    An image's condition is its corruption, its variant ``severity_1`` to ``severity_5``, as those of our own scenarios
    are called; its source is the image (``wnid/stem``), so that all its corruptions are one cluster. Options:
    ``corruptions`` and ``severities`` (comma lists; all that are there by default), ``mask_format`` (of masks given by
    hand, which bear the images' ids and have the images' size).
    """
    options = reading.text_options(name, ("corruptions", "severities"))
    root = reading.existing(name.name, "the folder")
    folders = _corruption_folders(root)
    if not folders:
        raise UserError(
            f"{str(root)!r} is not in the ImageNet-C layout: it has none of the folders {', '.join(CORRUPTIONS[:3])}, …"
        )
    wanted = reading.chosen(options.get("corruptions", ""), folders, f"corruption in {str(root)!r}")
    text = options.get("severities", "")
    named = split_list(text)
    if not all(name in map(str, SEVERITIES) for name in named):
        raise UserError(f"severities of imagenet-c: are numbers from 1 to 5 with commas between, not {text!r}")
    severities = sorted({int(name) for name in named}) or list(SEVERITIES)
    problems: list[Problem] = []
    samples: list[Sample] = []
    classes: set[str] = set()
    for corruption in wanted:
        for severity in severities:
            folder = folders[corruption] / str(severity)
            attributes = {"variant": f"severity_{severity}"}  # one for all: there may be millions of images
            if not folder.is_dir():
                problems.append(Problem(f"{corruption}/{severity}", "the severity has no folder"))
                continue
            for wnid in reading.visible_folders(folder):
                if not is_wnid(wnid):
                    problems.append(Problem(f"{corruption}/{severity}/{wnid}", "the folder's name is not a WordNet id"))
                    continue
                classes.add(wnid)
                samples += [
                    Sample(
                        f"{corruption}/{severity}/{source_id}", wnid, FileImage(path), source_id=source_id,
                        condition=corruption, attributes=attributes,
                    )
                    for source_id, path in reading.images_below(folder, wnid, problems)
                ]  # fmt: skip
    return reading.finish_folder(
        root, samples, problems, classes=sorted(classes), keys=reading.wordnet_keys(classes), masks=masks,
        format=options["mask_format"], by_source=True, fits=lambda sample: sample.condition != _MOVED,
    )  # fmt: skip


def is_imagenet_c(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    folders = reading.visible_folders(root)
    known = {*PUBLISHED, *ARCHIVES}
    return (
        bool(folders)
        and known.issuperset(folders)
        and any(
            (folder / str(severity)).is_dir()
            for folder in _corruption_folders(root).values()
            for severity in SEVERITIES
        )
    )


def _corruption_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each corruption, in the published order."""
    places = [root, *(root / archive for archive in ARCHIVES)]
    by_corruption = {}
    for corruption in PUBLISHED:
        present = [place / corruption for place in places if (place / corruption).is_dir()]
        if present:
            by_corruption[corruption] = present[0]
    return by_corruption


_QUESTION_COLUMNS = ("gt_category", "top1_pred_cate", "top2_pred_cate")


def load_imagenet_d(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-d:DIR``.

    An image is of kind ``generated``; its condition is the kind of nuisance, its id ``nuisance/category/stem``, its
    attributes what ``questions/<nuisance>.csv`` says about it. A ``manifest.parquet`` or ``manifest.csv`` next to them
    (as ``holdfast mine`` writes it) adds its own: the nuisance, the prompt, and the hash that a file must have.
    Option: ``mask_format`` (of masks given by hand).
    """
    options = reading.text_options(name, ())
    root = reading.existing(name.name, "the folder")
    present = [nuisance for nuisance in NUISANCES if (root / nuisance).is_dir()]
    if not present:
        raise UserError(f"{str(root)!r} is not in the ImageNet-D layout: it has none of {', '.join(NUISANCES)}")
    problems: list[Problem] = []
    manifest = next((root / file for file in ("manifest.parquet", "manifest.csv") if (root / file).is_file()), None)
    facts = {str(row["path"]): row for row in read_rows(manifest) if "path" in row} if manifest else {}
    samples: list[Sample] = []
    categories: set[str] = set()
    for nuisance in present:
        questions = _questions(root / "questions" / f"{nuisance}.csv", problems)
        for category in reading.visible_folders(root / nuisance):
            entries = []
            for sample_id, path in reading.images_below(root, f"{nuisance}/{category}", problems):
                file = path.removeprefix(f"{root}/")
                known = facts.get(file, {})  # the category is the manifest's: a folder cannot bear every name
                fields = sample_fields({"label": category} | known) | {"kind": "generated", "condition": nuisance}
                fields["attributes"] = fields["attributes"] | questions.get(file, {})
                hashed = known.get("published_sha256")
                image = PublishedImage(path, str(hashed)) if hashed else FileImage(path)
                entries.append(Sample(sample_id, image=image, **fields))
            categories |= {sample.label for sample in entries} or {category}
            samples += entries
    return reading.finish_folder(
        root, samples, problems, classes=sorted(categories), masks=masks, format=options["mask_format"]
    )


def is_imagenet_d(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    folders = set(reading.visible_folders(root)) - {"mining"}
    nuisances = folders & set(NUISANCES)
    return folders == set(NUISANCES) or (bool(nuisances) and folders == nuisances | {"questions"})


def _questions(file: Path, problems: list[Problem]) -> dict[str, dict[str, Any]]:
    """Return the question file's rows by ``nuisance/category/file``; an unreadable file is a problem."""
    if not file.is_file():
        return {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, delimiter="\t")
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        problems.append(Problem(f"questions/{file.name}", f"the question file cannot be read: {error}"))
        return {}
    if "image_dir" not in (reader.fieldnames or ()):
        problems.append(Problem(f"questions/{file.name}", "the question file has no column image_dir"))
        return {}
    return {
        "/".join(PurePosixPath(str(row["image_dir"])).parts[-3:]): {
            column: row[column] for column in _QUESTION_COLUMNS if row.get(column)
        }
        for row in rows
    }


TITLES = {
    "imagenet-r": "ImageNet-R",
    "imagenet-a": "ImageNet-A",
    "imagenet-sketch": "ImageNet-Sketch",
    "imagenet-v2": "ImageNet-V2",
}
_WNID = re.compile(r"n\d{8}")
_INDEX = re.compile(r"\d{1,4}")
_RENDITION = re.compile(r"([a-z]+)_\d+")


def load_by_wnid(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-r:DIR``, ``imagenet-a:DIR`` or ``imagenet-sketch:DIR``: ``<wnid>/…``, or one folder above that.

    The classes are those whose folders are there (200 of the first two), so that a restricted prediction is one among
    them, as these sets are scored. Of ImageNet-R, the file's name says what an image is (``art_0.jpg``): its attribute
    ``rendition``. Option: ``mask_format`` (of masks given by hand).
    """
    root, mask_format = _class_root(name, is_wnid, "named by WordNet ids such as n01443537")
    problems: list[Problem] = []
    folders = _expected(root, is_wnid, "is not a WordNet id", problems)
    samples = [sample for folder in folders for sample in read_class(root, folder, folder, problems)]
    if name.scheme == "imagenet-r":
        stems = [_RENDITION.fullmatch(sample.sample_id.rpartition("/")[2]) for sample in samples]
        samples = [
            replace(sample, attributes={"rendition": stem[1]}) if stem else sample
            for sample, stem in zip(samples, stems, strict=True)
        ]
    keys = reading.wordnet_keys(folders)
    return reading.finish_folder(root, samples, problems, classes=folders, keys=keys, masks=masks, format=mask_format)


def load_v2(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-v2:DIR``: ``<index>/…`` from 0 to 999, or one folder above that; labels are WordNet ids.

    Folders are taken by their number. Sorted as text, 10 comes before 2, and nearly every label would be another's.
    Option: ``mask_format`` (of masks given by hand).
    """
    root, mask_format = _class_root(name, _is_index, "numbered from 0 to 999")
    problems: list[Problem] = []
    folders = sorted(_expected(root, _is_index, "is not a number from 0 to 999", problems), key=int)
    wnids = imagenet_space().wnids
    twice = next((second for first, second in pairwise(folders) if int(first) == int(second)), "")
    if twice:
        raise UserError(f"{str(root)!r} has two folders for class {int(twice)}; which is the right one?")
    labels = {folder: wnids[int(folder)] for folder in folders}
    samples = [sample for folder in folders for sample in read_class(root, folder, labels[folder], problems)]
    keys = {label: ClassKeys((label,), (int(folder),)) for folder, label in labels.items()}
    return reading.finish_folder(
        root, samples, problems, classes=labels.values(), keys=keys, masks=masks, format=mask_format
    )


def is_wnid(folder: str) -> bool:
    """Return whether a folder has the name of an ImageNet class: n01443537."""
    return _WNID.fullmatch(folder) is not None


def _is_index(folder: str) -> bool:
    return _INDEX.fullmatch(folder) is not None and int(folder) < IMAGENET_OUTPUTS


def _class_root(name: Name, fits: Callable[[str], bool], expected: str) -> tuple[Path, str]:
    """Return the folder that holds the class folders (the named one, or the only one below it), and the mask format."""
    mask_format = reading.text_options(name, ())["mask_format"]
    root = reading.existing(name.name, "the folder")
    if not root.is_dir():
        raise UserError(f"{str(root)!r} is not a folder")
    if any(map(fits, reading.visible_folders(root))):
        return root, mask_format
    folders = [root / folder for folder in reading.visible_folders(root)]
    below = [folder for folder in folders if any(map(fits, reading.visible_folders(folder)))]
    if len(below) == 1:
        return below[0], mask_format
    if below:
        choices = ", ".join(folder.name for folder in below)
        raise UserError(f"{str(root)!r} has several test sets; name one of them: {choices}")
    raise UserError(f"{str(root)!r} is not in the {TITLES[name.scheme]} layout: it has no class folders {expected}")


def _expected(root: Path, fits: Callable[[str], bool], fault: str, problems: list[Problem]) -> list[str]:
    folders = reading.visible_folders(root)
    problems.extend(Problem(folder, f"the folder's name {fault}") for folder in folders if not fits(folder))
    return [folder for folder in folders if fits(folder)]


def read_class(root: Path, folder: str, label: str, problems: list[Problem]) -> list[Sample]:
    """Return the images below one folder, with ids ``folder/stem``."""
    return [
        Sample(sample_id, label, FileImage(path)) for sample_id, path in reading.images_below(root, folder, problems)
    ]


LICENCE = "ObjectNet: CC BY 4.0, never to be tuned on, images on the web only with their red border"
BORDER = 1
_LARGEST_BORDER = 64


def load_objectnet(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``objectnet:DIR``: the 113 of its 313 classes that ImageNet has.

    Which folder is which class and which outputs mean it, the release's ``mappings`` say. The red border by which
    ObjectNet is distinguished is cut off (a pixel on every side; JPEG copies smear it: ``?border=2``). Options:
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


def is_objectnet(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    return (root / "images").is_dir() and (root / "mappings" / "objectnet_to_imagenet_1k.json").is_file()


@dataclass(frozen=True, slots=True)
class BorderedImage:
    """An image file with a border that is not part of its content."""

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
