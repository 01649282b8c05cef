"""The ImageNet-9 layout (backgrounds challenge): ``<variant>/val/<00_dog … 08_fish>/…`` and ``fg_mask/val/…npy``."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.names import Name
from holdfast.core.types import ORIGINAL, ClassKeys, Collection, Mask, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import FileImage, read_file
from holdfast.data.labels import IMAGENET_OUTPUTS

CLASSES = (
    *("dog", "bird", "wheeled vehicle", "reptile", "carnivore", "insect", "musical instrument", "primate", "fish"),
)
"""Classes in the order of the numbers with which their folders begin."""

VARIANTS = {
    "original": ORIGINAL,
    "mixed_same": "same_class_background",
    "mixed_rand": "random_background",
    "mixed_next": "mixed_next",
    "only_fg": "segmented",
    "no_fg": "no_fg",
    "only_bg_t": "only_background",
    "only_bg_b": "only_bg_b",
}
"""Variant → condition: ours where the recipe is, so that the background's effect and the verdict come by themselves.

``mixed_next`` takes the background from the next class, ``no_fg`` leaves a black silhouette, ``only_bg_b`` a black box.
"""

MAPPING = "in_to_in9.json"
_WITH_OBJECT = frozenset({"original", "mixed_same", "mixed_rand", "mixed_next", "only_fg"})
_FOLDER = re.compile(r"0([0-8])_.+")
_MIXED = re.compile(r"fg_(n\d{8}_\d+)_bg_(n\d{8}_\d+)")


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-9:DIR``: the nine classes and every variant beside ``original``.

    An original's id is ``class folder/stem``, a variant's ``variant/class folder/stem`` with the photo of its
    foreground as source and that of its background as donor. Masks are those of ``fg_mask``, where the object is in
    the picture. Which of ImageNet's outputs mean which class, the release's ``in_to_in9.json`` says, in DIR or beside
    it; without it, only models with these nine outputs can be tested. Options: ``variants`` (a comma list of the
    published names), ``mapping`` (that file, if it lies elsewhere), ``mask_format`` (of masks given by hand).
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
        root, samples, problems, classes=CLASSES, keys=keys, masks=masks, format=options["mask_format"],
        by_source=True, fits=lambda sample: sample.attributes["published_as"] in _WITH_OBJECT,
    )  # fmt: skip


def matches(root: Path) -> bool:
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
            samples.append(_sample(root, variant, folder, CLASSES[int(number[1])], stem, path))
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
            raise SampleError(f"the mask {Path(self.path).name} is no NumPy array: {error}") from error
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
        type(number) is not int or not -1 <= number < len(CLASSES) or not 0 <= output < IMAGENET_OUTPUTS
        for output, number in numbers.items()
    ):
        raise UserError(f"{mapping_file.name} is not ImageNet-9's mapping: it should lead from 0…999 to -1…8")
    return {
        label: ClassKeys(imagenet_indices=tuple(sorted(index for index, other in numbers.items() if other == number)))
        for number, label in enumerate(CLASSES)
    }
