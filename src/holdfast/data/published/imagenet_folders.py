"""Test sets with a folder per ImageNet class: ImageNet-R, -A and -Sketch by WordNet id, ImageNet-V2 by index."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.core.types import ClassKeys, Collection, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import FileImage
from holdfast.data.labels import IMAGENET_OUTPUTS, imagenet_space

TITLES = {
    "imagenet-r": "ImageNet-R",
    "imagenet-a": "ImageNet-A",
    "imagenet-sketch": "ImageNet-Sketch",
    "imagenet-v2": "ImageNet-V2",
}
_WNID = re.compile(r"n\d{8}")
_INDEX = re.compile(r"\d{1,4}")
_RENDITION = re.compile(r"([a-z]+)_\d+")


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-r:DIR``, ``imagenet-a:DIR`` or ``imagenet-sketch:DIR``: ``<wnid>/…``, or one folder above that.

    The classes are those whose folders are there (200 of the first two), so that a restricted prediction is one among
    them, as these sets are scored. Of ImageNet-R, the file's name says what an image is (``art_0.jpg``): its attribute
    ``rendition``. Option: ``mask_format`` (of masks given by hand).
    """
    title = TITLES[name.scheme]
    root = _class_root(name, title, is_wnid, "named by WordNet ids such as n01443537")
    problems: list[Problem] = []
    folders = _expected(root, is_wnid, "is no WordNet id", problems)
    samples = [sample for folder in folders for sample in read_class(root, folder, folder, problems)]
    if name.scheme == "imagenet-r":
        samples = [_with_rendition(sample) for sample in samples]
    return _finished(name, root, samples, problems, masks, folders, reading.wordnet_keys(folders))


def load_v2(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-v2:DIR``: ``<index>/…`` from 0 to 999, or one folder above that; labels are WordNet ids.

    Folders are taken by their number. Sorted as text, 10 comes before 2, and nearly every label would be another's.
    Option: ``mask_format`` (of masks given by hand).
    """
    root = _class_root(name, TITLES["imagenet-v2"], _is_index, "numbered from 0 to 999")
    problems: list[Problem] = []
    folders = sorted(_expected(root, _is_index, "is no number from 0 to 999", problems), key=int)
    wnids = imagenet_space().wnids
    twice = next((second for first, second in pairwise(folders) if int(first) == int(second)), "")
    if twice:
        raise UserError(f"{str(root)!r} has two folders for class {int(twice)}; which is the right one?")
    labels = {folder: wnids[int(folder)] for folder in folders}
    samples = [sample for folder in folders for sample in read_class(root, folder, labels[folder], problems)]
    keys = {label: ClassKeys((label,), (int(folder),)) for folder, label in labels.items()}
    return _finished(name, root, samples, problems, masks, list(labels.values()), keys)


def is_wnid(folder: str) -> bool:
    """Return whether a folder has the name of an ImageNet class: n01443537."""
    return _WNID.fullmatch(folder) is not None


def _is_index(folder: str) -> bool:
    return _INDEX.fullmatch(folder) is not None and int(folder) < IMAGENET_OUTPUTS


def _class_root(name: Name, title: str, fits: Callable[[str], bool], expected: str) -> Path:
    """Return the folder that holds the class folders: the named one, or the only one below it that does."""
    reading.text_options(name, ())
    root = reading.existing(name.name, "the folder")
    if not root.is_dir():
        raise UserError(f"{str(root)!r} is not a folder")
    if any(map(fits, reading.visible_folders(root))):
        return root
    folders = [root / folder for folder in reading.visible_folders(root)]
    below = [folder for folder in folders if any(map(fits, reading.visible_folders(folder)))]
    if len(below) == 1:
        return below[0]
    if below:
        choices = ", ".join(folder.name for folder in below)
        raise UserError(f"{str(root)!r} has several test sets; name one of them: {choices}")
    raise UserError(f"{str(root)!r} is not in the {title} layout: it has no class folders {expected}")


def _expected(root: Path, fits: Callable[[str], bool], fault: str, problems: list[Problem]) -> list[str]:
    folders = reading.visible_folders(root)
    problems.extend(Problem(folder, f"the folder's name {fault}") for folder in folders if not fits(folder))
    return [folder for folder in folders if fits(folder)]


def read_class(root: Path, folder: str, label: str, problems: list[Problem]) -> list[Sample]:
    """Return the images below one folder, with ids ``folder/stem``."""
    return [
        Sample(sample_id, label, FileImage(path)) for sample_id, path in reading.images_below(root, folder, problems)
    ]


def _with_rendition(sample: Sample) -> Sample:
    match = _RENDITION.fullmatch(sample.sample_id.rpartition("/")[2])
    return Sample(sample.sample_id, sample.label, sample.image, attributes={"rendition": match[1]}) if match else sample


def _finished(
    name: Name,
    root: Path,
    samples: list[Sample],
    problems: list[Problem],
    masks: Path | None,
    classes: list[str],
    keys: dict[str, ClassKeys],
) -> Collection:
    how = reading.text_options(name, ())["mask_format"]
    return reading.finish_folder(root, samples, problems, classes=classes, keys=keys, masks=masks, format=how)
