"""Boxes and outlines next to images: COCO instances, YOLO text files, Pascal VOC's XML, a CSV with a row per box."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import Name
from holdfast.core.places import last_name, resolved
from holdfast.core.types import Collection, Problem, Sample
from holdfast.data import reading
from holdfast.data.boxes import (
    CORNERS,
    SHARES,
    SIZED,
    ListedObject,
    ListedObjects,
    coco_objects,
    largest_label,
    unique_objects,
)
from holdfast.data.images import FileImage
from holdfast.data.masks import CocoMask
from holdfast.data.readers.listed import canonical, read_table

_Record = Mapping[str, Any]
_COCO_FIELDS = frozenset({"id", "file_name", "width", "height", "licence", "flickr_url", "coco_url"})
"""Fields of an image's record that say nothing of the scene; all others are attributes."""


def load_coco(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``coco:FILE.json``.

    The label is the category of the largest instance (crowds decide only if there is nothing else), the mask the
    union of all instances of that category. Images are looked for in the JSON's folder and the one above it, in
    ``images/``, and in the folder that the JSON is named after (instances_val2017.json: val2017). Options: ``images``
    (their folder), ``mask_format`` (of files given as masks), ``separator`` (an image has all its categories as labels,
    and the mask is the union of all instances). Further fields of an image's record are attributes.
    """
    options = reading.text_options(name, ("images", "separator"))
    file = reading.existing(name.name, "the COCO file")
    images, annotations, categories, licences = _read_coco(file)
    root = reading.existing(options["images"], "the image folder") if "images" in options else _image_root(file, images)
    instances: dict[str, list[_Record]] = defaultdict(list)
    for annotation in annotations:
        instances[record_id(annotation, "image_id")].append(annotation)
    inside, separator = reading.InsideRoot(root, "images"), options.get("separator", "")
    problems: list[Problem] = []
    samples, empty = [], []
    names = [str(image.get("file_name") or "") for image in images]
    ids = reading.unique_ids([reading.without_suffix(name) for name in names], names)
    for sample_id, image in zip(ids, images, strict=True):
        own = instances[record_id(image, "id")]
        try:
            samples.append(_coco_sample(sample_id, image, own, categories, licences, inside, separator))
        except SampleError as error:
            problems.append(Problem(sample_id or f"image {image.get('id')}", str(error)))
            if not own:
                with suppress(SampleError):
                    path = inside.file(str(image.get("file_name") or ""))
                    empty.append(Sample(sample_id, "", FileImage(path), objects=ListedObjects(())))
    samples = reading.without_repeats(samples, problems)
    title = file.stem if file.stem not in ("annotations", "instances") else last_name(resolved(file).parent)
    used = {record_id(annotation, "category_id") for annotation in annotations}
    return reading.finish(
        title, samples, problems, classes=() if separator else categories.values(),
        where=f"the COCO file {str(file)!r} (images are looked for in {str(root)!r}; ?images=DIR names another folder)",
        masks=masks, format=options["mask_format"], empty=empty, separator=separator,
        object_classes=dict.fromkeys(name for key, name in categories.items() if key in used),
    )  # fmt: skip


def _read_coco(file: Path) -> tuple[list[_Record], list[_Record], dict[str, str], dict[str, str]]:
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
    usable = [licence for licence in given if isinstance(licence, dict)]
    licences = {record_id(licence, "id"): str(licence.get("name", "")) for licence in usable}
    return images, annotations, dict(sorted(names.items())), licences


def record_id(record: _Record, field: str) -> str:
    """Return an id as text that sorts like a number; JSON may hold any type."""
    return str(record.get(field)).rjust(20)


def _image_root(file: Path, images: Sequence[_Record]) -> Path:
    """Return the first likely folder that holds one of the first images; else the JSON's own folder."""
    split = file.stem.removeprefix("instances_")
    here, above = file.parent, resolved(file).parent.parent
    names = [str(image.get("file_name") or "") for image in images[:20]]
    parts = ("", "images", split)
    for folder in (*(here / part for part in parts), *(above / part for part in parts), above / "images" / split):
        if any(name and (folder / name).is_file() for name in names):
            return folder
    return here


def _coco_sample(
    sample_id: str,
    image: _Record,
    instances: Sequence[_Record],
    categories: Mapping[str, str],
    licences: Mapping[str, str],
    inside: reading.InsideRoot,
    separator: str,
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
        if (separator or record_id(annotation, "category_id") == category) and annotation.get("segmentation")
    )
    mask = stated = None
    if isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0:
        stated = height, width
    if shapes:
        if stated is None:
            raise SampleError("the image has instances, but no height and width")
        mask = CocoMask(shapes, *stated)
    licence = licences.get(record_id(image, "license"), "")
    objects = ListedObjects(coco_objects(instances, categories, lambda each: record_id(each, "category_id")), stated)
    attributes = {key: value for key, value in canonical(image).items() if key not in _COCO_FIELDS}
    label = categories[category]
    if separator:
        label = separator.join(sorted({categories[record_id(instance, "category_id")] for instance in known}))
    return Sample(sample_id, label, FileImage(path), mask, licence=licence, objects=objects, attributes=attributes)


def _area(instance: _Record) -> float:
    """Return the stated area, or that of the box; 0 if neither is valid."""
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


LARGEST_FILE = 20_000_000
"""Bytes of one annotation file."""

_IMAGE_COLUMNS = ("image", "path", "filename", "file_name", "file")
_LABEL_COLUMNS = ("label", "class", "class_name", "category", "name")
_CORNER_COLUMNS = (("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"), ("left", "top", "right", "bottom"))
_SIZE_COLUMNS = (("x", "y", "width", "height"), ("x", "y", "w", "h"))


def load_csv(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``boxes:FILE.csv``: a row per box.

    Columns: the file (image, path or filename), the class (label or class), and x1, y1, x2, y2 (or xmin …), or x, y,
    width, height, in pixels; if there, ``id`` and ``crowd``. A row with an image and nothing else is an image
    without objects. Option: ``images`` (the images' folder; by default the CSV's).
    """
    options = reading.text_options(name, ("images",))
    file = reading.existing(name.name, "the file of boxes")
    table = read_table(file, "the file of boxes")[1]
    rows = [{(key or "").strip(): value for key, value in row.items()} for row in table]
    columns = list(rows[0]) if rows else []
    image, label = (_present(columns, names, file) for names in (_IMAGE_COLUMNS, _LABEL_COLUMNS))
    corners = next((names for names in (*_CORNER_COLUMNS, *_SIZE_COLUMNS) if set(names) <= set(columns)), None)
    if corners is None:
        raise UserError(
            f"{file.name} has no columns x1, y1, x2, y2 or x, y, width, height; it has {', '.join(columns)}"
        )
    form = SIZED if corners in _SIZE_COLUMNS else CORNERS
    listed: dict[str, list[ListedObject]] = {}
    for place, row in enumerate(rows):
        own = listed.setdefault(str(row.get(image) or ""), [])
        if any((row.get(column) or "").strip() for column in (label, *corners)):
            crowd = (row.get("crowd") or row.get("iscrowd") or "").strip().lower() in ("1", "true", "yes")
            values = tuple(_number(row.get(column)) for column in corners)
            own.append(ListedObject(row.get("id") or f"r{place}", (row.get(label) or "").strip(), values, form, crowd))
    root = reading.existing(options["images"], "the image folder") if "images" in options else file.parent
    return _collection(file.stem, root, listed, masks, options["mask_format"])


def load_yolo(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``yolo:FOLDER``: ``labels/**/NAME.txt`` next to ``images/**/NAME.jpg``, classes in data.yaml or classes.txt.

    A line is a class number and the middle, width and height of a box as shares of the image, or a polygon. An
    image without a file, or with an empty one, has no objects. Options: ``images``, ``names`` (a file of classes).
    """
    options = reading.text_options(name, ("images", "names"))
    folder = reading.existing(name.name, "the YOLO folder")
    labels = folder / "labels" if (folder / "labels").is_dir() else folder
    stated = folder / "images" if (folder / "images").is_dir() else folder
    root = reading.existing(options["images"], "the image folder") if "images" in options else stated
    classes = _yolo_names(Path(options["names"]) if "names" in options else None, folder, labels)
    listed = {}
    for relative in reading.walk_images(root, []):
        file = labels / f"{reading.without_suffix(relative)}.txt"
        lines = [line.split() for line in _text(file).splitlines() if line.strip()] if file.is_file() else []
        listed[relative] = [_yolo_object(place, parts, classes) for place, parts in enumerate(lines)]
    return _collection(reading.collection_name(folder), root, listed, masks, options["mask_format"], order=classes)


def load_voc(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``voc:FOLDER``: Pascal VOC's ``Annotations/*.xml`` with images in ``JPEGImages``. Option: ``images``.

    Objects that are marked as difficult count as a crowd: neither right nor wrong.
    """
    options = reading.text_options(name, ("images",))
    folder = reading.existing(name.name, "the VOC folder")
    annotations = folder / "Annotations" if (folder / "Annotations").is_dir() else folder
    stated = folder / "JPEGImages" if (folder / "JPEGImages").is_dir() else folder
    root = reading.existing(options["images"], "the image folder") if "images" in options else stated
    listed: dict[str, list[ListedObject]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    problems = []
    for file in sorted(annotations.glob("*.xml")):
        try:
            picture, size, objects = _voc_objects(file)
        except SampleError as error:
            problems.append(Problem(file.stem, str(error)))
            continue
        listed.setdefault(picture, []).extend(objects)
        if size is not None:
            sizes[picture] = size
    if not listed:
        first = f"; {problems[0].sample_id}: {problems[0].message}" if problems else ""
        raise UserError(f"no usable Pascal VOC file in {str(annotations)!r}: give the annotations' folder{first}")
    title = reading.collection_name(folder)
    return _collection(title, root, listed, masks, options["mask_format"], problems=problems, sizes=sizes)


def _collection(
    title: str,
    root: Path,
    listed: Mapping[str, Iterable[ListedObject]],
    masks: Path | None,
    mask_format: str,
    *,
    order: Iterable[str] = (),
    problems: Iterable[Problem] = (),
    sizes: Mapping[str, tuple[int, int]] | None = None,
) -> Collection:
    """Return the images with their objects; an image's label is the class of its largest object."""
    inside = reading.InsideRoot(root, "images")
    samples: list[Sample] = []
    empty: list[Sample] = []
    trouble, names, with_label = list(problems), list(listed), list[str]()
    for sample_id, name in zip(reading.unique_ids([*map(reading.without_suffix, names)], names), names, strict=True):
        try:
            path = inside.file(name)
        except SampleError as error:
            trouble.append(Problem(sample_id or "a box without an image", str(error)))
            continue
        objects = unique_objects(listed[name])
        label = largest_label(objects)
        sample = Sample(sample_id, label, FileImage(path), objects=ListedObjects(objects, (sizes or {}).get(name)))
        (samples if label else empty).append(sample)
        with_label += [name] if label else []
    present = {each.label for name in with_label for each in listed[name] if each.label}
    classes = [*(name for name in order if name in present), *sorted(present - set(order))]
    return reading.finish(
        title, samples, trouble, where=repr(str(root)), masks=masks, format=mask_format, empty=empty,
        object_classes=classes,
    )  # fmt: skip


def _present(columns: Iterable[str], names: Iterable[str], file: Path) -> str:
    known = list(columns)
    for name in names:
        if name in known:
            return name
    raise UserError(f"{file.name} needs one of the columns {', '.join(names)}; it has {', '.join(known) or 'none'}")


def _number(text: Any) -> Any:
    """Return a cell as a number; text that is none stays, and is refused when the box is checked."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return str(text)


def _text(file: Path) -> str:
    if file.stat().st_size > LARGEST_FILE:
        raise UserError(f"{file.name} is too large for a file of boxes ({file.stat().st_size:,} bytes)")
    return file.read_text(encoding="utf-8-sig", errors="replace")


def _yolo_names(given: Path | None, folder: Path, labels: Path) -> list[str]:
    candidates = [given] if given else [
        *(folder / name for name in ("data.yaml", "dataset.yaml", "classes.txt", "obj.names")), labels / "classes.txt",
    ]  # fmt: skip
    for file in candidates:
        if file.is_file():
            return _from_yaml(file) if file.suffix in (".yaml", ".yml") else _text(file).split("\n")[: 10**5]
    raise UserError(f"{str(folder)!r} names no classes: it needs data.yaml or classes.txt, or ?names=FILE")


def _from_yaml(file: Path) -> list[str]:
    """Return the entry ``names`` of a YOLO data file: a list in one line or several, or numbers with their names."""
    text = _text(file)
    if inline := re.search(r"^names:[ \t]*\[(.*?)\]", text, re.M | re.S):
        return [_unquoted(each) for each in inline[1].split(",") if each.strip()]
    block = re.search(r"^names:[ \t]*(?:#.*)?\n((?:[ \t]*(?:-|\d+:)[^\n]*\n?|[ \t]*(?:#[^\n]*)?\n)+)", text, re.M)
    entries = re.findall(r"^[ \t]*(?:-|(\d{1,5}):)[ \t]*(.+?)[ \t]*(?:#.*)?$", block[1], re.M) if block else []
    if braces := re.search(r"^names:[ \t]*\{(.*?)\}", text, re.M | re.S):  # {0: fox, 1: dog}
        entries = re.findall(r"(?:^|,)\s*['\"]?(\d{1,5})['\"]?[ \t]*:\s*('[^']*'|\"[^\"]*\"|[^,\s][^,]*)", braces[1])
    if not entries:
        raise UserError(f"{file.name} has no list of names")
    numbered = {int(number) if number else place: _unquoted(name) for place, (number, name) in enumerate(entries)}
    return [numbered.get(place, "") for place in range(max(numbered) + 1)]


def _unquoted(text: str) -> str:
    return text.strip().strip("'\"")


def _yolo_object(place: int, parts: list[str], classes: list[str]) -> ListedObject:
    number = parts[0]
    known = number.isdecimal() and int(number) < len(classes) and bool(classes[int(number)].strip())
    label = classes[int(number)].strip() if known else ""
    problem = "" if known else f"the class {number!r} is not in the list of names"
    values = tuple(_number(part) for part in parts[1:])
    if len(values) >= 6 and len(values) % 2 == 0 and all(isinstance(value, float) for value in values):
        xs, ys = values[0::2], values[1::2]
        box = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2, max(xs) - min(xs), max(ys) - min(ys)
        return ListedObject(f"l{place}", label, box, SHARES, segmentation=values, problem=problem)
    return ListedObject(f"l{place}", label, values[:4] if len(values) == 5 else values, SHARES, problem=problem)


def _voc_objects(file: Path) -> tuple[str, tuple[int, int] | None, list[ListedObject]]:
    """Return the image's name, its height and width if the file states them, and its objects."""
    text = _text(file)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities may unfold to gigabytes
        raise SampleError("the XML declares entities, which is refused")
    try:
        tree = ElementTree.fromstring(text)  # noqa: S314  (no entities, and of limited size)
    except ElementTree.ParseError as error:
        raise SampleError(f"the XML cannot be read: {error}") from error
    objects = []
    for place, entry in enumerate(tree.iter("object")):
        box = entry.find("bndbox")
        values: tuple[Any, ...] = ()
        if box is not None:
            values = tuple(_number(box.findtext(tag)) for tag in ("xmin", "ymin", "xmax", "ymax"))
        numbers = [value for value in values if isinstance(value, float)]
        if len(numbers) == 4:  # VOC counts pixels from 1 and includes the last
            values = numbers[0] - 1, numbers[1] - 1, numbers[2], numbers[3]
        hard = (entry.findtext("difficult") or "0").strip() == "1"
        objects.append(ListedObject(f"o{place}", (entry.findtext("name") or "").strip(), values, CORNERS, hard))
    sides = [(tree.findtext(f"size/{side}") or "").strip() for side in ("height", "width")]
    height, width = (int(side) if re.fullmatch("[0-9]{1,6}", side) else 0 for side in sides)
    name = (tree.findtext("filename") or f"{file.stem}.jpg").strip()
    return name, (height, width) if height and width else None, objects
