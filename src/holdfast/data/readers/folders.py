"""Folders of images: a class-per-folder tree, and MNIST, CIFAR10 and ImageNet as torchvision keeps them on disk.

A tree is ``<class>/*.jpg``, with ``masks/<class>/*.png`` in parallel if there are masks. Nothing is downloaded.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.names import Name, unknown
from holdfast.core.places import last_name, resolved
from holdfast.core.types import ClassKeys, Collection, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import IMAGE_SUFFIXES, ArrayImage, FileImage
from holdfast.data.reading import attach_masks, existing, finish, text_options, wordnet_keys

_MASK_FOLDER = "masks"
_SPLITS = frozenset({"train", "val", "valid", "validation", "test"})


def load_folder(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``folder:DIR``.

    The tree is DIR/images/<class>/… (with DIR/masks/<class>/… found by itself) or DIR/<class>/…; folders below a
    class are part of the id, not of the class. If all top folders are called train, val or test, they are splits.
    A sample's id is ``class/stem``; files whose stems are equal keep their suffix in it. Options: ``label`` (the class
    of images that are in no class folder), ``mask_format`` (see ``decode_mask``).
    """
    options = reading.text_options(name, ("label",))
    root = reading.existing(name.name, "the folder")
    if not root.is_dir():
        raise UserError(f"{str(root)!r} is not a folder")
    images, own_masks = _image_and_mask_roots(root)
    mask_root = masks or (own_masks if own_masks.is_dir() else None)
    problems: list[Problem] = []
    samples, classes = read_tree(images, problems, loose_label=options.get("label", ""))
    if not samples:
        raise _nothing_found(images, problems)
    return reading.finish_folder(
        root, samples, problems, classes=classes, keys=reading.wordnet_keys(classes), masks=mask_root,
        format=options["mask_format"], required=masks is not None,
    )  # fmt: skip


def _image_and_mask_roots(root: Path) -> tuple[Path, Path]:
    for candidate in reading.IMAGE_FOLDERS:
        images = root / candidate
        if images.is_dir() and reading.visible_folders(images):
            return images, root / _MASK_FOLDER
    if last_name(root) in reading.IMAGE_FOLDERS:
        return root, resolved(root).parent / _MASK_FOLDER
    return root, root / _MASK_FOLDER


def read_tree(root: Path, problems: list[Problem], *, loose_label: str = "") -> tuple[list[Sample], list[str]]:
    """Return the samples of a class-per-folder tree in order of their ids, and all class folders."""
    folders = [folder for folder in reading.visible_folders(root, problems) if folder != _MASK_FOLDER]
    are_splits = _SPLITS.issuperset(folders) and all(reading.visible_folders(root / folder) for folder in folders)
    splits = folders if are_splits else []
    samples: list[Sample] = []
    classes: set[str] = set()
    for split in splits or [""]:
        for label in reading.visible_folders(root / split, problems) if split else folders:
            classes.add(label)
            below = reading.images_below(root, f"{split}/{label}" if split else label, problems)
            samples += [Sample(sample_id, label, FileImage(path), split=split) for sample_id, path in below]
    loose = _loose_images(root)
    if loose and loose_label:
        classes.add(loose_label)
        ids = reading.unique_ids([reading.without_suffix(file) for file in loose], loose)
        samples += [
            Sample(sample_id, loose_label, FileImage(f"{root}/{file}"))
            for sample_id, file in zip(ids, loose, strict=True)
        ]
    elif samples:
        problems.extend(Problem(file, "the image is in no class folder") for file in loose)
    return sorted(samples, key=lambda sample: sample.sample_id), sorted(classes)


def _loose_images(root: Path) -> list[str]:
    return [name for name in reading.visible_files(root) if Path(name).suffix.lower() in IMAGE_SUFFIXES]


def _nothing_found(root: Path, problems: list[Problem]) -> UserError:
    if _loose_images(root):
        return UserError(
            f"the images in {str(root)!r} are in no class folder; move them to {root.name}/<class>/, or give them "
            f"one class with folder:{root}?label=NAME"
        )
    if not any(root.iterdir()):
        return UserError(f"the folder {str(root)!r} is empty")
    passed_over = f" ({problems[0].message})" if problems else ""
    return UserError(f"no image files in {str(root)!r}{passed_over}; expected {root.name}/<class>/*.jpg or .png")


_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def load_torchvision(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``torchvision:NAME?root=DIR&split=SPLIT`` for mnist, cifar10 (train, test) and imagenet (train, val).

    DIR is what torchvision calls root. CIFAR10's files are pickles: torchvision compares them with their published
    checksums before it opens them, so only the real ones are ever unpickled. Options: ``root``, ``split`` (test or val
    by default), ``mask_format``.
    """
    options = text_options(name, ("root", "split"))
    if name.name not in _READERS:
        raise unknown("torchvision dataset", name.name, _READERS)
    read, splits = _READERS[name.name]
    split = options.get("split", splits[-1])
    if split not in splits:
        raise unknown(f"split of {name.name}", split, splits)
    if "root" not in options:
        raise UserError(f"torchvision:{name.name} needs its folder: torchvision:{name.name}?root=DIR")
    root = existing(options["root"], "the root folder")
    collection = read(name.name, root, split)
    if masks is None:
        return collection
    masked = attach_masks(collection.samples, masks, format=options["mask_format"])
    return dataclasses.replace(collection, samples=tuple(masked))


def _from_arrays(name: str, root: Path, split: str) -> Collection:
    """Return MNIST or CIFAR10; every image is a view of one array, copied only when it is asked for."""
    import torchvision.datasets

    try:
        dataset = getattr(torchvision.datasets, name.upper())(str(root), train=split == "train", download=False)
    except (RuntimeError, OSError, ValueError, AssertionError, EOFError) as error:
        reason = str(error).partition(" You can use download")[0].strip().rstrip(".")
        raise UserError(
            f"{name} cannot be read from {str(root)!r}: {reason or 'its files are damaged'}; "
            "it is never downloaded, put torchvision's files there"
        ) from error
    classes, keys = list(dataset.classes), dict[str, ClassKeys]()
    if name == "mnist":
        classes = [str(digit) for digit in range(10)]
        keys = {str(digit): ClassKeys(labels=(word,)) for digit, word in enumerate(_DIGITS)}
    problems: list[Problem] = []
    samples = []
    for number, (image, target) in enumerate(zip(np.asarray(dataset.data), map(int, dataset.targets), strict=True)):
        sample_id = f"{split}/{number:05d}"
        if 0 <= target < len(classes):
            samples.append(Sample(sample_id, classes[target], ArrayImage(image), split=split))
        else:
            problems.append(Problem(sample_id, f"the label {target} is none of the {len(classes)} classes"))
    return finish(name, samples, problems, where=f"{name} ({split})", classes=classes, keys=keys)


def _imagenet(name: str, root: Path, split: str) -> Collection:
    """Return the collection of ``root/<split>/<wnid>/…``; names come from ``meta.bin``, else from the WordNet ids."""
    folder = root / split
    if not folder.is_dir():
        raise UserError(f"imagenet needs the unpacked folder {str(folder)!r}, one folder per WordNet id in it")
    problems: list[Problem] = []
    unsplit, wnids = read_tree(folder, problems)
    names = _imagenet_names(root, wnids)
    keys = {names[wnid]: key for wnid, key in wordnet_keys(wnids).items()}
    if len(wnids) == 1000:  # only then is a folder's place its index
        keys = {names[wnid]: ClassKeys((wnid,), (index,)) for index, wnid in enumerate(wnids)}
    samples = [
        dataclasses.replace(
            sample,
            sample_id=f"{split}/{sample.sample_id}",
            source_id=f"{split}/{sample.sample_id}",
            label=names[sample.label],
            split=split,
        )
        for sample in unsplit
    ]
    labels = [names[wnid] for wnid in wnids]
    return finish(name, samples, problems, where=repr(str(folder)), classes=labels, keys=keys)


def _imagenet_names(root: Path, wnids: Sequence[str]) -> dict[str, str]:
    """Return the first synonym of each WordNet id, with the id behind it if two classes share one."""
    if not (root / "meta.bin").is_file():
        return {wnid: wnid for wnid in wnids}
    from torchvision.datasets.imagenet import load_meta_file

    try:
        synonyms = load_meta_file(str(root))[0]  # torch.load with weights_only=True
        first = {wnid: str(synonyms[wnid][0]) if wnid in synonyms else wnid for wnid in wnids}
    except Exception as error:  # a damaged or hostile file fails in many ways
        raise UserError(f"torchvision's {str(root / 'meta.bin')!r} cannot be read: {error}") from error
    uses = Counter(first.values())
    return {wnid: label if uses[label] == 1 else f"{label} ({wnid})" for wnid, label in first.items()}


_READERS: dict[str, tuple[Callable[[str, Path, str], Collection], tuple[str, ...]]] = {
    "mnist": (_from_arrays, ("train", "test")),
    "cifar10": (_from_arrays, ("train", "test")),
    "imagenet": (_imagenet, ("train", "val")),
}
