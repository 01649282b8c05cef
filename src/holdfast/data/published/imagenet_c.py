"""The ImageNet-C layout: ``<corruption>/<severity>/<wnid>/…``, perhaps below ``noise``, ``blur`` and so on."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.names import Name, split_list
from holdfast.core.types import CORRUPTIONS, SPARE_CORRUPTIONS, Collection, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import FileImage
from holdfast.data.published.imagenet_folders import is_wnid

PUBLISHED = CORRUPTIONS + SPARE_CORRUPTIONS
"""Conditions, which are also the ids of our own scenarios."""

ARCHIVES = ("noise", "blur", "weather", "digital", "extra")
"""Names of the published archives, which some keep as folders."""

SEVERITIES = (1, 2, 3, 4, 5)
_MOVED = "elastic_transform"  # where the original's mask does not fit


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``imagenet-c:DIR``.

    An image's condition is its corruption, its variant ``severity_1`` to ``severity_5``, as those of our own scenarios
    are called; its source is the photo (``wnid/stem``), so that all its corruptions are one cluster. Options:
    ``corruptions`` and ``severities`` (comma lists; all that are there by default), ``mask_format`` (of masks given by
    hand, which bear the photos' ids and have the images' size).
    """
    options = reading.text_options(name, ("corruptions", "severities"))
    root = reading.existing(name.name, "the folder")
    folders = _corruption_folders(root)
    if not folders:
        raise UserError(
            f"{str(root)!r} is not in the ImageNet-C layout: it has none of the folders {', '.join(CORRUPTIONS[:3])}, …"
        )
    wanted = reading.chosen(options.get("corruptions", ""), folders, f"corruption in {str(root)!r}")
    problems: list[Problem] = []
    samples: list[Sample] = []
    classes: set[str] = set()
    for corruption in wanted:
        for severity in _severities(options.get("severities", "")):
            folder = folders[corruption] / str(severity)
            if not folder.is_dir():
                problems.append(Problem(f"{corruption}/{severity}", "the severity has no folder"))
                continue
            for wnid in reading.visible_folders(folder):
                if not is_wnid(wnid):
                    problems.append(Problem(f"{corruption}/{severity}/{wnid}", "the folder's name is no WordNet id"))
                    continue
                classes.add(wnid)
                samples += _read_class(folder, wnid, corruption, severity, problems)
    return reading.finish_folder(
        root, samples, problems, classes=sorted(classes), keys=reading.wordnet_keys(classes), masks=masks,
        format=options["mask_format"], by_source=True, fits=lambda sample: sample.condition != _MOVED,
    )  # fmt: skip


def matches(root: Path) -> bool:
    """Return whether a folder clearly has this layout."""
    folders = reading.visible_folders(root)
    known = {*PUBLISHED, *ARCHIVES}
    return bool(folders) and known.issuperset(folders) and any(map(_has_severities, _corruption_folders(root).values()))


def _has_severities(folder: Path) -> bool:
    return any((folder / str(severity)).is_dir() for severity in SEVERITIES)


def _corruption_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each corruption, in the published order."""
    places = [root, *(root / archive for archive in ARCHIVES)]
    by_corruption = {}
    for corruption in PUBLISHED:
        present = [place / corruption for place in places if (place / corruption).is_dir()]
        if present:
            by_corruption[corruption] = present[0]
    return by_corruption


def _severities(text: str) -> list[int]:
    named = split_list(text)
    if not all(name in map(str, SEVERITIES) for name in named):
        raise UserError(f"severities of imagenet-c: are numbers from 1 to 5 with commas between, not {text!r}")
    return sorted({int(name) for name in named}) or list(SEVERITIES)


def _read_class(folder: Path, wnid: str, corruption: str, severity: int, problems: list[Problem]) -> list[Sample]:
    attributes = {"variant": f"severity_{severity}"}  # one for all: there may be millions of images
    return [
        Sample(
            f"{corruption}/{severity}/{source_id}",
            wnid,
            FileImage(path),
            source_id=source_id,
            condition=corruption,
            attributes=attributes,
        )
        for source_id, path in reading.images_below(folder, wnid, problems)
    ]
