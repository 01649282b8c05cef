"""Collections from what a user types (``scheme:name`` or a plain path), and their seeded, stratified splits and folds.

All renderings of one image (``source_id``) stay together in splits. Who goes where depends on the seed, the ids and the
labels, never on the order of the samples. A source whose samples bear several labels counts for its most frequent one
(of equally frequent ones, the alphabetically first).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import cast

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import seed_from
from holdfast.core.names import Name, options_name, parse_name, write_options
from holdfast.core.places import address, forget_listings, place
from holdfast.core.types import Collection, Sample
from holdfast.data.published.imagenet_sets import is_imagenet_c, is_imagenet_d, is_objectnet
from holdfast.data.published.masked_sets import is_imagenet_9, is_mvtec, is_ximagenet12
from holdfast.data.readers import huggingface
from holdfast.data.readers.listed import AttributeTable, expand_braces
from holdfast.data.reading import existing, visible_folders

_SYNTH_MANIFEST = "manifest.parquet"  # what holdfast synth leaves in its folder knows more than the folders do
_BY_SUFFIX = {".json": "coco", ".csv": "manifest", ".tsv": "manifest", ".parquet": "manifest", ".tar": "webdataset"}

_LAYOUTS = {
    "ximagenet12": is_ximagenet12,
    "imagenet-d": is_imagenet_d,
    "imagenet-c": is_imagenet_c,
    "imagenet-9": is_imagenet_9,
    "objectnet": is_objectnet,
    "mvtec": is_mvtec,
    "huggingface": huggingface.matches,
}
"""Layouts that a folder's contents show."""


def load_collection(text: str, *, masks: str | Path | None = None) -> Collection:
    """Read a dataset by name (``coco:FILE?images=DIR``) or by plain path, whose kind is then seen from the path.

    Args:
        text: ``scheme:name?option=value`` or a path.
        masks: a folder of mask files that bear the samples' ids; it replaces masks that the dataset has itself.

    Raises:
        UserError: there is nothing, or nothing usable, or it is of no known kind.

    Returns:
        The samples, with their labels and masks.

    Examples:
        >>> len(holdfast.load_collection("diorama:test?n=12"))
        12
    """
    name = _parse(text)
    if name.scheme:
        if not name.name:
            raise UserError(f"{text!r} names no dataset; write {name.scheme}:PATH")
    else:
        scheme, path = _guess(name.name)
        name = replace(name, scheme=scheme, name=path, tag="")
    mask_root = None
    if masks is not None:
        mask_root = existing(masks, "the mask folder")
        if not mask_root.is_dir():
            raise UserError(f"masks must be a folder, and {str(mask_root)!r} is not one")
    return cast(Collection, registry.data.get(name.scheme)(name, masks=mask_root))


def with_attributes(collection: Collection, path: str | Path) -> Collection:
    """Return the collection with further attributes of its samples from a table; see ``AttributeTable``."""
    table = AttributeTable(path)
    added = [table.of(sample.sample_id, sample.source_id) for sample in collection.samples]
    if not any(added):
        first = collection.samples[0].sample_id if collection.samples else ""
        raise UserError(f"no row of {str(path)!r} names an image of {collection.name}, whose first one is {first!r}")
    samples = [
        replace(sample, attributes={**sample.attributes, **own}) if own else sample
        for sample, own in zip(collection.samples, added, strict=True)
    ]
    return replace(collection, samples=tuple(samples))


def box_data(boxes: str, images: str) -> str:
    """Return the name of the data that a file or folder of boxes and a folder of images are, together."""
    path = existing(boxes, "the file of boxes")
    if path.is_dir():
        scheme = "voc" if any(path.glob("*.xml")) or (path / "Annotations").is_dir() else "yolo"
    else:
        scheme = {".json": "coco", ".csv": "boxes", ".tsv": "boxes"}.get(path.suffix.lower(), "")
    if not scheme:
        raise UserError(f"boxes must be a COCO file, a CSV, or a folder of YOLO or VOC files, not {boxes!r}")
    return f"{scheme}:{boxes}{write_options({'images': images})}"


def _parse(text: str) -> Name:
    if not text.strip():
        raise UserError("the dataset's name is empty")
    if address(text):
        url, _, options = text.partition("?")
        forget_listings(address(url))
        return options_name("", address(url), "", options)
    if Path(text).expanduser().exists():  # a path may hold any character, our own punctuation among them
        return Name("", text)
    name = parse_name(text, tagged=False)
    if address(name.name):
        forget_listings(address(name.name))
    return name


def _guess(path: str) -> tuple[str, str]:
    """Return the scheme and the path that a plain path means."""
    if "{" in path and not place(path).exists():
        first = PurePosixPath(expand_braces(path)[0])
        if first.suffix.lower() == ".tar":
            return "webdataset", path
    existing_path = existing(path, "the dataset")
    if not existing_path.is_dir():
        scheme = _BY_SUFFIX.get(existing_path.suffix.lower())
        if scheme is None:
            raise UserError(
                f"what kind of dataset {path!r} is cannot be seen from its name; write SCHEME:{path} "
                f"(schemes: {', '.join(registry.data)})"
            )
        embedded = existing_path.suffix.lower() == ".parquet" and huggingface.matches(existing_path)
        return "huggingface" if embedded else scheme, path
    if not visible_folders(existing_path) and any(existing_path.glob("*.tar")):
        return "webdataset", path
    if (existing_path / _SYNTH_MANIFEST).is_file():
        if any(existing_path.glob("*.tar")):
            return "webdataset", path
        if any(existing_path.glob("data-*.parquet")):
            return "huggingface", path
        return "manifest", str(existing_path / _SYNTH_MANIFEST)
    recognised = (scheme for scheme, is_layout in _LAYOUTS.items() if is_layout(existing_path))
    return next(recognised, "folder"), path


TRAIN, TEST = "train", "test"


def stratified_split(samples: Sequence[Sample], *, test_fraction: float = 0.2, seed: int = 0) -> tuple[Sample, ...]:
    """Return the samples, in their order, with ``split`` set to ``train`` or ``test``.

    Of a class with n sources, n × ``test_fraction`` go to test, rounded to the nearest whole number, halves up; but at
    least one and at most n − 1 if n is two or more, so that such a class is in both. A single source is for
    training.
    """
    if not 0 < test_fraction < 1:
        raise UserError(f"the test fraction must be between 0 and 1, not {test_fraction}")
    tested: set[str] = set()
    for sources in _shuffled_by_class(samples, "split", seed).values():
        wanted = int((len(sources) * Decimal(str(test_fraction))).to_integral_value(ROUND_HALF_UP))
        tested.update(sources[: min(max(wanted, 1), len(sources) - 1)])
    return tuple(replace(sample, split=TEST if sample.source_id in tested else TRAIN) for sample in samples)


def stratified_folds(samples: Sequence[Sample], *, folds: int, seed: int = 0) -> tuple[Sample, ...]:
    """Return the samples, in their order, with ``fold`` set to 0 … folds − 1.

    Each class is spread evenly: its numbers of sources in two folds differ by at most one, and so do the folds'
    totals. A class with fewer sources than folds is an error, as it would be missing from some.
    """
    if folds < 2:
        raise UserError(f"cross-validation needs at least 2 folds, not {folds}")
    by_class = _shuffled_by_class(samples, "fold", seed)
    scarce = [f"{label} ({len(sources)})" for label, sources in by_class.items() if len(sources) < folds]
    if scarce:
        raise UserError(f"{folds} folds need at least {folds} images of each class; too few of {', '.join(scarce)}")
    # Dealt like cards, class after class, so that the remainders of the classes do not all fall to the first folds.
    dealt = {source: place % folds for place, source in enumerate(chain.from_iterable(by_class.values()))}
    return tuple(replace(sample, fold=dealt[sample.source_id]) for sample in samples)


def _shuffled_by_class(samples: Sequence[Sample], purpose: str, seed: int) -> dict[str, list[str]]:
    """Return the sources of each class in an order drawn from the seed; classes in alphabetical order."""
    labels: dict[str, str] = {}
    pairs = ((sample.source_id, sample.label) for sample in samples)
    mixed = {source for source, label in pairs if labels.setdefault(source, label) != label}
    counts = Counter((sample.source_id, sample.label) for sample in samples if sample.source_id in mixed)
    # The most frequent label comes last and stays; of equally frequent ones the alphabetically first.
    labels |= sorted(sorted(counts, reverse=True), key=lambda pair: counts[pair])
    by_class: defaultdict[str, list[str]] = defaultdict(list)
    for source, label in labels.items():
        by_class[label].append(source)
    return {
        label: sorted(by_class[label], key=lambda source: (seed_from(purpose, seed, source), source))
        for label in sorted(by_class)
    }
