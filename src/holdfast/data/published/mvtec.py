"""The MVTec AD layout: ``<category>/{train,test}/<defect>/…`` and ``<category>/ground_truth/<defect>/…_mask.png``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.core.types import Collection, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import FileImage
from holdfast.data.masks import FileMask
from holdfast.registry import unknown

GOOD, DEFECTIVE = "good", "defective"
SPLITS = ("train", "test")
LABELS = ("defect", "state", "category")
TRUTH = "ground_truth"


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``mvtec:DIR``: the whole set, or one of its categories.

    A mask marks the defect, so good images have none. Options: ``labels``: what an image is to be recognised as, its
    ``defect`` (with the category before it where there are several; the default), its ``state`` (good or defective) or
    its ``category``; ``categories`` (a comma list); ``mask_format`` (of masks given by hand). Its training images are
    all good: their split is ``train``, the others' ``test``.
    """
    options = reading.text_options(name, ("labels", "categories"))
    by = options.get("labels", LABELS[0])
    if by not in LABELS:
        raise unknown("way to label mvtec:", by, LABELS)
    root = reading.existing(name.name, "the folder")
    places = _categories(root)
    if not places:
        raise UserError(
            f"{str(root)!r} is not in the MVTec AD layout: neither it nor a folder in it has test and ground_truth"
        )
    wanted = reading.chosen(options.get("categories", ""), places, f"category in {str(root)!r}")
    problems: list[Problem] = []
    samples = [sample for category in wanted for sample in _read(places[category], category, problems)]
    samples = [_labelled(sample, by, several=len(wanted) > 1) for sample in samples]
    return reading.finish_folder(root, samples, problems, masks=masks, format=options["mask_format"])


def matches(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    folders = reading.visible_folders(root)
    return _is_category(root) or (bool(folders) and all(_is_category(root / folder) for folder in folders))


def _is_category(folder: Path) -> bool:
    return (folder / "test").is_dir() and (folder / TRUTH).is_dir()


def _categories(root: Path) -> dict[str, Path]:
    if _is_category(root):
        return {reading.collection_name(root): root}
    return (
        {folder: root / folder for folder in reading.visible_folders(root) if _is_category(root / folder)}
        if root.is_dir()
        else {}
    )


def _read(place: Path, category: str, problems: list[Problem]) -> list[Sample]:
    samples = []
    for split in SPLITS:
        if not (place / split).is_dir():
            problems.append(Problem(f"{category}/{split}", "the folder is missing"))
            continue
        for defect in reading.visible_folders(place / split):
            for stem, path in reading.images_below(place / split, defect, problems):
                sample_id = f"{category}/{split}/{stem}"
                file = path.removeprefix(f"{place}/{split}/{defect}/")
                mask = place / TRUTH / defect / f"{reading.without_suffix(file)}_mask.png"
                if defect != GOOD and not mask.is_file():
                    problems.append(Problem(sample_id, f"there is no {TRUTH}/{defect}/{mask.name}: it has no mask"))
                samples.append(
                    Sample(
                        sample_id,
                        defect,
                        FileImage(path),
                        FileMask(mask, "grey") if defect != GOOD and mask.is_file() else None,
                        split=split,
                        attributes={"category": category, "defect": defect},
                    )
                )
    return samples


def _labelled(sample: Sample, by: str, *, several: bool) -> Sample:
    category, defect = sample.attributes["category"], sample.attributes["defect"]
    if by == "category":
        return replace(sample, label=category)
    if by == "state":
        return replace(sample, label=GOOD if defect == GOOD else DEFECTIVE)
    return replace(sample, label=f"{category} {defect}") if several else sample
