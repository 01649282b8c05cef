"""The XIMAGENET-12 folder layout: originals, masks, and a folder per scenario."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.core.types import ORIGINAL, ClassKeys, Collection, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import FileImage

CLASSES = {
    "n01689811": ("lizard", 44),
    "n01693334": ("green lizard", 46),
    "n01985128": ("crayfish", 124),
    "n02066245": ("whale", 147),
    "n02085936": ("dog", 153),
    "n02119022": ("fox", 277),
    "n02607072": ("anemone fish", 393),
    "n02692877": ("airship", 405),
    "n02974003": ("car wheel", 479),
    "n02977058": ("cash machine", 480),
    "n02992211": ("cello", 486),
    "n07614500": ("ice cream", 928),
}
"""Name and ImageNet-1k index by WordNet id, in the dataset's order."""

MASK_FOLDERS = (("standard_masks", "auto"), ("masks", "red"))
"""Mask folders, best first, and how their files are read."""

_GENERATED = "generated_background"  # the one condition that is no registered scenario
_MOVED = frozenset({"random_background", _GENERATED})  # where the original's mask need not fit


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``ximagenet12:DIR``: ``image/<wnid>/…`` and every scenario folder beside it.

    An original's id is ``class/stem``, a scenario image's ``condition/class/stem`` with the original as source.
    Class folders bear WordNet ids or class names; where none is one of the twelve, they are the user's own classes in
    this layout. Masks come from ``standard_masks``, else from ``masks``; they are
    joined where the scenario keeps the object in place. Options: ``conditions`` (a comma list; all by default),
    ``mask_format`` (of masks given by hand).
    """
    options = reading.text_options(name, ("conditions",))
    root = reading.existing(name.name, "the folder")
    if not (root / "image").is_dir():
        raise UserError(f"{str(root)!r} is not in the XIMAGENET-12 layout: it has no folder image/")
    folders = _condition_folders(root)
    wanted = reading.chosen(options.get("conditions", ""), folders.values(), f"condition in {str(root)!r}")
    own = not any(_label(folder) for folder in reading.visible_folders(root / "image"))
    problems: list[Problem] = []
    samples: dict[str, Sample] = {}
    for folder, condition in folders.items():
        if condition in wanted:
            for sample in _read_condition(root / folder, condition, problems, own=own):
                samples.setdefault(sample.sample_id, sample)  # two folders may hold one condition; the first counts
    own_masks = next(((root / folder, how) for folder, how in MASK_FOLDERS if (root / folder).is_dir()), None)
    mask_folder, how = (masks, options["mask_format"]) if masks is not None else own_masks or (None, "")
    return reading.finish_folder(
        root, list(samples.values()), problems,
        classes=None if own else [label for label, _ in CLASSES.values()],
        keys={} if own else {label: ClassKeys((wnid,), (index,)) for wnid, (label, index) in CLASSES.items()},
        masks=mask_folder, format=how, required=masks is not None, by_source=True,
        fits=lambda sample: sample.condition not in _MOVED,
    )  # fmt: skip


def matches(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    folders = set(reading.visible_folders(root))
    if "image" not in folders or not set(reading.visible_folders(root / "image")) <= CLASSES.keys():
        return False
    return "standard_masks" in folders or len(_condition_folders(root)) > 1


def _condition_folders(root: Path) -> dict[str, str]:
    """Return the condition of each folder, originals first; folder names are aliases of our scenarios."""
    folders = {"image": ORIGINAL}
    for folder in reading.visible_folders(root):
        if folder == _GENERATED:
            folders[folder] = _GENERATED
        elif folder in registry.scenarios:
            folders[folder] = registry.scenarios.entry(folder).name
    return folders


def _label(folder: str) -> str | None:
    if folder in CLASSES:
        return CLASSES[folder][0]
    spelled = folder.lower().replace("_", " ").replace("-", " ")
    return spelled if spelled in {label for label, _ in CLASSES.values()} else None


def _read_condition(folder: Path, condition: str, problems: list[Problem], *, own: bool) -> Iterator[Sample]:
    for class_folder in reading.visible_folders(folder):
        label = class_folder if own else _label(class_folder)
        if label is None:
            problems.append(Problem(f"{folder.name}/{class_folder}", "the folder is none of the 12 classes"))
            continue
        for source_id, path in reading.images_below(folder, class_folder, problems):
            sample_id = source_id if condition == ORIGINAL else f"{condition}/{source_id}"
            yield Sample(sample_id, label, FileImage(path), source_id=source_id, condition=condition)
