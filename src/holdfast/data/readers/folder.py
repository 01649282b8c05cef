"""A class-per-folder tree: ``<class>/*.jpg``, with ``masks/<class>/*.png`` in parallel where there are masks."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.core.places import last_name, resolved
from holdfast.core.types import Collection, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import IMAGE_SUFFIXES, FileImage

_MASK_FOLDER = "masks"
_SPLITS = frozenset({"train", "val", "valid", "validation", "test"})


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``folder:DIR``.

    The tree is DIR/images/<class>/… (with DIR/masks/<class>/… found by itself) or DIR/<class>/…; folders below a
    class are part of the id, not of the class. Where all top folders are called train, val or test, they are splits.
    A sample's id is ``class/stem``; files whose stems are equal keep their suffix in it. Options: ``label`` (the class
    of images that lie in no class folder), ``mask_format`` (see ``decode_mask``).
    """
    options = reading.text_options(name, ("label",))
    root = reading.existing(name.name, "the folder")
    if not root.is_dir():
        raise UserError(f"{str(root)!r} is not a folder")
    images, own_masks = _image_and_mask_roots(root)
    problems: list[Problem] = []
    samples, classes = read_tree(images, problems, loose_label=options.get("label", ""))
    if not samples:
        raise _nothing_found(images, problems)
    return reading.finish_folder(
        root, samples, problems, classes=classes, keys=reading.wordnet_keys(classes), masks=masks or own_masks,
        format=options["mask_format"], required=masks is not None,
    )  # fmt: skip


def _image_and_mask_roots(root: Path) -> tuple[Path, Path | None]:
    for candidate in reading.IMAGE_FOLDERS:
        images = root / candidate
        if images.is_dir() and reading.visible_folders(images):
            return images, _folder_or_none(root / _MASK_FOLDER)
    if last_name(root) in reading.IMAGE_FOLDERS:
        return root, _folder_or_none(resolved(root).parent / _MASK_FOLDER)
    return root, _folder_or_none(root / _MASK_FOLDER)


def _folder_or_none(path: Path) -> Path | None:
    return path if path.is_dir() else None


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
        problems.extend(Problem(file, "the image lies in no class folder") for file in loose)
    return sorted(samples, key=lambda sample: sample.sample_id), sorted(classes)


def _loose_images(root: Path) -> list[str]:
    return [name for name in reading.visible_files(root) if Path(name).suffix.lower() in IMAGE_SUFFIXES]


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
