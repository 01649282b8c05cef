"""Test sets with masks in the layouts of their releases.

XIMAGENET-12 has originals, masks and a folder per scenario; ImageNet-9 (backgrounds challenge) has
``<variant>/val/<00_dog … 08_fish>/…`` and ``fg_mask/val/…npy``; MVTec AD has ``<category>/{train,test}/<defect>/…`` and
``<category>/ground_truth/<defect>/…_mask.png``.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from holdfast import registry
from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.names import Name, unknown
from holdfast.core.types import ORIGINAL, ClassKeys, Collection, Mask, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import FileImage, read_file
from holdfast.data.labels import IMAGENET_OUTPUTS
from holdfast.data.masks import FileMask

TWELVE_CLASSES = {
    "n01689811": ("lizard", 44), "n01693334": ("green lizard", 46), "n01985128": ("crayfish", 124),
    "n02066245": ("whale", 147), "n02085936": ("dog", 153), "n02119022": ("fox", 277),
    "n02607072": ("anemone fish", 393), "n02692877": ("airship", 405), "n02974003": ("car wheel", 479),
    "n02977058": ("cash machine", 480), "n02992211": ("cello", 486), "n07614500": ("ice cream", 928),
}  # fmt: skip
"""Name and ImageNet-1k index by WordNet id, in the dataset's order."""

MASK_FOLDERS = (("standard_masks", "auto"), ("masks", "red"))
"""Mask folders, best first, and how their files are read."""

_GENERATED = "generated_background"  # the one condition that is not a registered scenario
_MOVED = frozenset({"random_background", _GENERATED})  # if the original's mask need not fit


def load_ximagenet12(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``ximagenet12:DIR``: ``image/<wnid>/…`` and every scenario folder next to it.

    An original's id is ``class/stem``, a scenario image's ``condition/class/stem`` with the original as source.
    Class folders bear WordNet ids or class names; if none is one of the twelve, they are the user's own classes in
    this layout. Masks come from ``standard_masks``, else from ``masks``; they are
    joined if the scenario keeps the object in place. Options: ``conditions`` (a comma list; all by default),
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
        classes=None if own else [label for label, _ in TWELVE_CLASSES.values()],
        keys={} if own else {label: ClassKeys((wnid,), (index,)) for wnid, (label, index) in TWELVE_CLASSES.items()},
        masks=mask_folder, format=how, required=masks is not None, by_source=True,
        fits=lambda sample: sample.condition not in _MOVED,
    )  # fmt: skip


def is_ximagenet12(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    folders = set(reading.visible_folders(root))
    if "image" not in folders or not set(reading.visible_folders(root / "image")) <= TWELVE_CLASSES.keys():
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
    if folder in TWELVE_CLASSES:
        return TWELVE_CLASSES[folder][0]
    spelled = folder.lower().replace("_", " ").replace("-", " ")
    return spelled if spelled in {label for label, _ in TWELVE_CLASSES.values()} else None


def _read_condition(folder: Path, condition: str, problems: list[Problem], *, own: bool) -> Iterator[Sample]:
    for class_folder in reading.visible_folders(folder):
        label = class_folder if own else _label(class_folder)
        if label is None:
            problems.append(Problem(f"{folder.name}/{class_folder}", "the folder is none of the 12 classes"))
            continue
        for source_id, path in reading.images_below(folder, class_folder, problems):
            sample_id = source_id if condition == ORIGINAL else f"{condition}/{source_id}"
            yield Sample(sample_id, label, FileImage(path), source_id=source_id, condition=condition)


NINE_CLASSES = (
    *("dog", "bird", "wheeled vehicle", "reptile", "carnivore", "insect", "musical instrument", "primate", "fish"),
)
"""Classes in the order of the numbers with which their folders begin."""

VARIANTS = {
    "original": ORIGINAL, "mixed_same": "same_class_background", "mixed_rand": "random_background",
    "mixed_next": "mixed_next", "only_fg": "segmented", "no_fg": "no_fg", "only_bg_t": "only_background",
    "only_bg_b": "only_bg_b",
}  # fmt: skip
"""Variant → condition: ours if the recipe is, so that the background's effect and the verdict come by themselves.

``mixed_next`` takes the background from the next class, ``no_fg`` leaves a black silhouette, ``only_bg_b`` a black box.
"""

MAPPING = "in_to_in9.json"
_WITH_OBJECT = frozenset({"original", "mixed_same", "mixed_rand", "mixed_next", "only_fg"})
_FOLDER = re.compile(r"0([0-8])_.+")
_MIXED = re.compile(r"fg_(n\d{8}_\d+)_bg_(n\d{8}_\d+)")


def load_imagenet_9(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-9:DIR``: the nine classes and every variant next to ``original``.

    An original's id is ``class folder/stem``, a variant's ``variant/class folder/stem`` with the image of its
    foreground as source and that of its background as donor. Masks are those of ``fg_mask``, if the object is in
    the image. Which of ImageNet's outputs mean which class, the release's ``in_to_in9.json`` says, in DIR or next to
    it; without it, only models with these nine outputs can be tested. Options: ``variants`` (a comma list of the
    published names), ``mapping`` (that file, if it is elsewhere), ``mask_format`` (of masks given by hand).
    """
    options = reading.text_options(name, ("variants", "mapping"))
    root = reading.existing(name.name, "the folder")
    if (root / "bg_challenge").is_dir():
        root = root / "bg_challenge"
    variants = [variant for variant in VARIANTS if (root / variant / "val").is_dir()]
    if not variants:
        raise UserError(
            f"{str(root)!r} is not in the ImageNet-9 layout: it has no folder original/val or mixed_rand/val"
        )
    wanted = reading.chosen(options.get("variants", ""), variants, f"variant in {str(root)!r}")
    problems: list[Problem] = []
    samples = _with_donors([sample for variant in wanted for sample in _read_variant(root, variant, problems)])
    keys = _keys(root, options.get("mapping", ""), problems)
    return reading.finish_folder(
        root, samples, problems, classes=NINE_CLASSES, keys=keys, masks=masks, format=options["mask_format"],
        by_source=True, fits=lambda sample: sample.attributes["published_as"] in _WITH_OBJECT,
    )  # fmt: skip


def is_imagenet_9(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    return any(
        (root / variant / "val").is_dir()
        and any(map(_FOLDER.fullmatch, reading.visible_folders(root / variant / "val")))
        for variant in VARIANTS
    )


def _read_variant(root: Path, variant: str, problems: list[Problem]) -> list[Sample]:
    samples = []
    for folder in reading.visible_folders(root / variant / "val"):
        number = _FOLDER.fullmatch(folder)
        if number is None:
            problems.append(Problem(f"{variant}/val/{folder}", "the folder is none of 00_dog to 08_fish"))
            continue
        for sample_id, path in reading.images_below(root / variant / "val", folder, problems):
            stem = sample_id.removeprefix(f"{folder}/")
            samples.append(_sample(root, variant, folder, NINE_CLASSES[int(number[1])], stem, path))
    return samples


def _sample(root: Path, variant: str, folder: str, label: str, stem: str, path: str) -> Sample:
    mixed = _MIXED.fullmatch(stem)
    photo = mixed[1] if mixed else stem
    source_id = f"{folder}/{photo}"
    mask = root / "fg_mask" / "val" / folder / f"{photo}.npy"
    sample = Sample(
        source_id if variant == "original" else f"{variant}/{folder}/{stem}",
        label,
        FileImage(path),
        source_id=source_id,
        condition=VARIANTS[variant],
        attributes={"published_as": variant, **({"donor_id": mixed[2]} if mixed else {})},
    )
    return replace(sample, mask=NumpyMask(mask)) if variant in _WITH_OBJECT and mask.is_file() else sample


def _with_donors(samples: list[Sample]) -> list[Sample]:
    """Return samples with the class of the background, whose WordNet id is part of the file's name."""
    classes = {sample.source_id.rpartition("/")[2].partition("_")[0]: sample.label for sample in samples}

    def with_donor(sample: Sample) -> Sample:
        label = classes.get(str(sample.attributes.get("donor_id", "")).partition("_")[0])
        return replace(sample, attributes={**sample.attributes, "donor_label": label}) if label else sample

    return [with_donor(sample) for sample in samples]


@dataclass(frozen=True, slots=True)
class NumpyMask:
    """A mask in a ``.npy`` file: HW, not 0 on the foreground."""

    path: str | Path

    def fingerprint(self) -> str:
        """Return the SHA-256 of the stored bytes."""
        return bytes_sha256(read_file(self.path))

    def load(self, height: int, width: int) -> Mask:
        """Return HW bool of exactly this size; the header is checked first, and pickled objects are refused."""
        stream = io.BytesIO(read_file(self.path))
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, kind = read(stream)
            if shape != (height, width) or kind.kind not in "biuf":
                raise SampleError(f"the mask is {kind} of shape {shape}, its image {width} × {height} pixels")
            stream.seek(0)
            values = np.load(stream, allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise SampleError(f"the mask {Path(self.path).name} is not a NumPy array: {error}") from error
        mask: Mask = values != 0
        return mask


def _keys(root: Path, given: str, problems: list[Problem]) -> dict[str, ClassKeys]:
    file = reading.existing(given, "the mapping") if given else None
    places = [file] if file else [root / MAPPING, root.parent / MAPPING]
    mapping_file = next((place for place in places if place.is_file()), None)
    if mapping_file is None:
        problems.append(
            Problem(MAPPING, "the mapping is not here: only models with these nine outputs can be tested without it")
        )
        return {}
    try:
        mapping = json.loads(mapping_file.read_text(encoding="utf-8"))
        numbers = {int(output): number for output, number in mapping.items()}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{mapping_file.name} is not ImageNet-9's mapping: {error}") from error
    if any(
        type(number) is not int or not -1 <= number < len(NINE_CLASSES) or not 0 <= output < IMAGENET_OUTPUTS
        for output, number in numbers.items()
    ):
        raise UserError(f"{mapping_file.name} is not ImageNet-9's mapping: it should lead from 0…999 to -1…8")
    return {
        label: ClassKeys(imagenet_indices=tuple(sorted(index for index, other in numbers.items() if other == number)))
        for number, label in enumerate(NINE_CLASSES)
    }


GOOD, DEFECTIVE = "good", "defective"
SPLITS = ("train", "test")
LABELS = ("defect", "state", "category")
TRUTH = "ground_truth"


def load_mvtec(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``mvtec:DIR``: the whole set, or one of its categories.

    A mask marks the defect, so good images have none. Options: ``labels``: what an image is to be recognised as, its
    ``defect`` (with the category before it if there are several; the default), its ``state`` (good or defective) or
    its ``category``; ``categories`` (a comma list); ``mask_format`` (of masks given by hand). Its training images are
    all good: their split is ``train``, the others' ``test``.
    """
    options = reading.text_options(name, ("labels", "categories"))
    by = options.get("labels", LABELS[0])
    if by not in LABELS:
        raise unknown("way to label mvtec:", by, LABELS)
    root = reading.existing(name.name, "the folder")
    below = reading.visible_folders(root) if root.is_dir() and not _is_category(root) else []
    places = {folder: root / folder for folder in below if _is_category(root / folder)}
    if _is_category(root):
        places = {reading.collection_name(root): root}
    if not places:
        raise UserError(
            f"{str(root)!r} is not in the MVTec AD layout: neither it nor a folder in it has test and ground_truth"
        )
    wanted = reading.chosen(options.get("categories", ""), places, f"category in {str(root)!r}")
    problems: list[Problem] = []
    samples = [sample for category in wanted for sample in _read(places[category], category, problems)]
    samples = [_labelled(sample, by, several=len(wanted) > 1) for sample in samples]
    return reading.finish_folder(root, samples, problems, masks=masks, format=options["mask_format"])


def is_mvtec(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    folders = reading.visible_folders(root)
    return _is_category(root) or (bool(folders) and all(_is_category(root / folder) for folder in folders))


def _is_category(folder: Path) -> bool:
    return (folder / "test").is_dir() and (folder / TRUTH).is_dir()


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
