"""A class-per-folder tree: ``<class>/*.jpg``, with ``masks/<class>/*.png`` in parallel where there are masks."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.core.places import last_name, resolved
from holdfast.core.types import Collection, Problem, Sample
from holdfast.data.images import IMAGE_SUFFIXES, FileImage
from holdfast.data.reading import (
    attach_masks,
    existing,
    finish,
    text_options,
    unique_ids,
    visible_files,
    visible_folders,
    walk_images,
    without_suffix,
    wordnet_keys,
)

_IMAGE_FOLDERS = ("images", "image")
_MASK_FOLDER = "masks"
_SPLITS = frozenset({"train", "val", "valid", "validation", "test"})


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``folder:DIR``.

    The tree is DIR/images/<class>/… (with DIR/masks/<class>/… found by itself) or DIR/<class>/…; folders below a
    class are part of the id, not of the class. Where all top folders are called train, val or test, they are splits.
    A sample's id is ``class/stem``; files whose stems are equal keep their suffix in it. Options: ``label`` (the class
    of images that lie in no class folder), ``mask_format`` (see ``decode_mask``).
    """
    options = text_options(name, ("label", "mask_format"))
    root = existing(name.name, "the folder")
    if not root.is_dir():
        raise UserError(f"{str(root)!r} is not a folder")
    images, found_masks = _image_and_mask_roots(root)
    problems: list[Problem] = []
    samples, classes = read_tree(images, problems, loose_label=options.get("label", ""))
    if not samples:
        raise _nothing_found(images, problems)
    mask_root = masks or found_masks
    if mask_root is not None:
        samples = attach_masks(
            samples, mask_root, format=options.get("mask_format", "auto"), required=masks is not None
        )
    return finish(
        collection_name(root), samples, problems, where=repr(str(root)), classes=classes, keys=wordnet_keys(classes)
    )


def collection_name(root: Path) -> str:
    """Return a collection's name: the folder's own name, which survives moving it."""
    folder = resolved(root)
    return last_name(folder.parent if last_name(folder) in _IMAGE_FOLDERS else folder) or "images"


def _image_and_mask_roots(root: Path) -> tuple[Path, Path | None]:
    for candidate in _IMAGE_FOLDERS:
        images = root / candidate
        if images.is_dir() and visible_folders(images):
            return images, _folder_or_none(root / _MASK_FOLDER)
    if last_name(root) in _IMAGE_FOLDERS:
        return root, _folder_or_none(resolved(root).parent / _MASK_FOLDER)
    return root, _folder_or_none(root / _MASK_FOLDER)


def _folder_or_none(path: Path) -> Path | None:
    return path if path.is_dir() else None


def read_tree(root: Path, problems: list[Problem], *, loose_label: str = "") -> tuple[list[Sample], list[str]]:
    """Return the samples of a class-per-folder tree in order of their ids, and all class folders."""
    folders = [folder for folder in visible_folders(root) if folder != _MASK_FOLDER]
    splits = (
        folders if folders and _SPLITS.issuperset(folders) and all(visible_folders(root / f) for f in folders) else []
    )
    samples: list[Sample] = []
    classes: set[str] = set()
    for split in splits or [""]:
        for label in visible_folders(root / split) if split else folders:
            classes.add(label)
            samples += _read_class(root, f"{split}/{label}" if split else label, label, split, problems)
    loose = _loose_images(root)
    if loose and loose_label:
        classes.add(loose_label)
        ids = unique_ids([without_suffix(file) for file in loose], loose)
        samples += [
            Sample(sample_id, loose_label, FileImage(f"{root}/{file}"))
            for sample_id, file in zip(ids, loose, strict=True)
        ]
    elif samples:
        problems.extend(Problem(file, "the image lies in no class folder") for file in loose)
    return sorted(samples, key=lambda sample: sample.sample_id), sorted(classes)


def _read_class(root: Path, folder: str, label: str, split: str, problems: list[Problem]) -> list[Sample]:
    files = [f"{folder}/{relative}" for relative in walk_images(root / folder, problems)]
    ids = unique_ids([without_suffix(file) for file in files], files)
    return [
        Sample(sample_id, label, FileImage(f"{root}/{file}"), split=split)
        for sample_id, file in zip(ids, files, strict=True)
    ]


def _loose_images(root: Path) -> list[str]:
    return [name for name in visible_files(root) if Path(name).suffix.lower() in IMAGE_SUFFIXES]


def _nothing_found(root: Path, problems: list[Problem]) -> UserError:
    if _loose_images(root):
        return UserError(
            f"the images in {str(root)!r} lie in no class folder; move them to {root.name}/<class>/, or give them "
            f"one class with folder:{root}?label=NAME"
        )
    if not any(root.iterdir()):
        return UserError(f"the folder {str(root)!r} is empty")
    passed_over = f" ({problems[0].message})" if problems else ""
    return UserError(f"no image files in {str(root)!r}{passed_over}; expected {root.name}/<class>/*.jpg or .png")
