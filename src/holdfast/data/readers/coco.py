"""COCO instances JSON: an image's label is the category of its largest instance."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import Name
from holdfast.core.places import last_name, resolved
from holdfast.core.types import Collection, Problem, Sample
from holdfast.data import reading
from holdfast.data.boxes import ListedObjects, coco_objects
from holdfast.data.images import FileImage
from holdfast.data.masks import CocoMask

_Record = Mapping[str, Any]


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``coco:FILE.json``.

    The label is the category of the largest instance (crowds decide only where there is nothing else), the mask the
    union of all instances of that category. Images are looked for in the JSON's folder and the one above it, in
    ``images/``, and in the folder that the JSON is named after (instances_val2017.json: val2017). Options: ``images``
    (their folder), ``mask_format`` (of files given as masks).
    """
    options = reading.text_options(name, ("images",))
    file = reading.existing(name.name, "the COCO file")
    images, annotations, categories, licences = _read(file)
    root = reading.existing(options["images"], "the image folder") if "images" in options else _image_root(file, images)
    instances: dict[str, list[_Record]] = defaultdict(list)
    for annotation in annotations:
        instances[record_id(annotation, "image_id")].append(annotation)
    inside = reading.InsideRoot(root, "images")
    problems: list[Problem] = []
    samples, empty = [], []
    names = [str(image.get("file_name") or "") for image in images]
    ids = reading.unique_ids([reading.without_suffix(name) for name in names], names)
    for sample_id, image in zip(ids, images, strict=True):
        own = instances[record_id(image, "id")]
        try:
            samples.append(_sample(sample_id, image, own, categories, licences, inside))
        except SampleError as error:
            problems.append(Problem(sample_id or f"image {image.get('id')}", str(error)))
            if not own and (path := _file(image, inside)):
                empty.append(Sample(sample_id, "", FileImage(path), objects=ListedObjects(())))
    samples = reading.without_repeats(samples, problems)
    title = file.stem if file.stem not in ("annotations", "instances") else last_name(resolved(file).parent)
    collection = reading.finish(
        title, samples, problems, classes=categories.values(),
        where=f"the COCO file {str(file)!r} (images are looked for in {str(root)!r}; ?images=DIR names another folder)",
        masks=masks, format=options["mask_format"],
    )  # fmt: skip
    used = {record_id(annotation, "category_id") for annotation in annotations}
    classes = dict.fromkeys(name for key, name in categories.items() if key in used)
    return replace(collection, empty=tuple(empty), object_classes=tuple(classes))


def _file(image: _Record, inside: reading.InsideRoot) -> str:
    try:
        return inside.file(str(image.get("file_name") or ""))
    except SampleError:
        return ""


def _read(file: Path) -> tuple[list[_Record], list[_Record], dict[str, str], dict[str, str]]:
    """Return images, annotations, category names by id and licence names by id."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{str(file)!r} is not readable JSON: {error}") from error
    try:
        return parse_coco(content)
    except UserError as error:
        raise UserError(f"{str(file)!r} {error}") from error


def parse_coco(content: Any) -> tuple[list[_Record], list[_Record], dict[str, str], dict[str, str]]:
    """Return images, annotations, category names by id and licence names by id of COCO's JSON; see ``record_id``."""
    parts = [
        content.get(part) if isinstance(content, dict) else None for part in ("images", "annotations", "categories")
    ]
    if not all(isinstance(part, list) and all(isinstance(record, dict) for record in part) for part in parts):
        raise UserError("is not a COCO instances file: it needs the lists images, annotations, categories")
    images, annotations, categories = parts
    assert images is not None and annotations is not None and categories is not None
    names = {record_id(category, "id"): str(category.get("name", category.get("id"))) for category in categories}
    given = content.get("licenses") or ()
    licences = {
        record_id(licence, "id"): str(licence.get("name", "")) for licence in given if isinstance(licence, dict)
    }
    return images, annotations, dict(sorted(names.items())), licences


def record_id(record: _Record, field: str) -> str:
    """Return an id as text that sorts like a number; JSON may hold any type."""
    return str(record.get(field)).rjust(20)


def _image_root(file: Path, images: Sequence[_Record]) -> Path:
    """Return the first likely folder that holds one of the first images; else the JSON's own folder."""
    split = file.stem.removeprefix("instances_")
    here, above = file.parent, resolved(file).parent.parent
    names = [str(image.get("file_name") or "") for image in images[:20]]
    for folder in (
        here,
        here / "images",
        here / split,
        above,
        above / "images",
        above / split,
        above / "images" / split,
    ):
        if any(name and (folder / name).is_file() for name in names):
            return folder
    return here


def _sample(
    sample_id: str,
    image: _Record,
    instances: Sequence[_Record],
    categories: Mapping[str, str],
    licences: Mapping[str, str],
    inside: reading.InsideRoot,
) -> Sample:
    path = inside.file(str(image.get("file_name") or ""))
    known = [instance for instance in instances if record_id(instance, "category_id") in categories]
    if not known:
        raise SampleError("the image has no instance of a known category")
    largest = max(known, key=lambda instance: (not instance.get("iscrowd"), _area(instance)))
    category = record_id(largest, "category_id")
    height, width = image.get("height"), image.get("width")
    shapes = tuple(
        annotation["segmentation"]
        for annotation in known
        if record_id(annotation, "category_id") == category and annotation.get("segmentation")
    )
    mask = None
    if shapes:
        if not (isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0):
            raise SampleError("the image has instances, but no height and width")
        mask = CocoMask(shapes, height, width)
    licence = licences.get(record_id(image, "license"), "")
    objects = ListedObjects(coco_objects(instances, categories, lambda each: record_id(each, "category_id")))
    return Sample(sample_id, categories[category], FileImage(path), mask, licence=licence, objects=objects)


def _area(instance: _Record) -> float:
    """Return the stated area, or that of the box; 0 where neither is valid."""
    box = instance.get("bbox")
    width, height = box[2:] if isinstance(box, list) and len(box) == 4 else (0, 0)
    for size, other in ((instance.get("area", "none"), 1), (width, height)):
        try:
            area = float(size) * float(other)
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(area):
            return area
    return 0.0
