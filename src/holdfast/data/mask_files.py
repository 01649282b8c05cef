"""Files with the masks of many images: COCO instances and V7 Darwin JSON."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.types import MaskSource
from holdfast.data.darwin import MaskEntry, is_darwin, parse_darwin
from holdfast.data.masks import CocoMask
from holdfast.data.readers.annotations import parse_coco, record_id

MAX_BYTES = 512 << 20
"""Limit for one JSON file."""

MAX_FILES = 100_000
"""Limit for a folder."""


def read_mask_files(path: Path) -> list[MaskEntry]:
    """Read a COCO file, a Darwin file, or a folder of Darwin files; which one it is shows in the content."""
    if not path.is_dir():
        return parse_mask_file(_bytes(path), name=path.name)
    entries: list[MaskEntry] = []
    hidden = re.compile(r"(^|/)\.")  # V7's exports keep properties in .v7/
    files = sorted(file for file in path.rglob("*.json") if not hidden.search(file.relative_to(path).as_posix()))
    if len(files) > MAX_FILES:
        raise UserError(f"{str(path)!r} holds more than {MAX_FILES} files; take it in by parts")
    for file in files:
        entries += parse_mask_file(_bytes(file), name=file.relative_to(path).as_posix())
    if not entries:
        raise UserError(f"there is no .json file with masks in {str(path)!r}")
    return entries


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{str(path)!r} is larger than {MAX_BYTES >> 20} MiB; take it in by parts")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error


def parse_mask_file(data: bytes, *, name: str = "the file") -> list[MaskEntry]:
    """Return the entries of a COCO or Darwin file's content; UserError where it is neither."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is not readable JSON: {error}") from error
    try:
        if is_darwin(content) and not isinstance(content.get("images"), list):
            return [parse_darwin(content)]
        return _coco_entries(content)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def _coco_entries(content: Any) -> list[MaskEntry]:
    images, annotations, categories, _ = parse_coco(content)
    shapes: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    without: dict[str, int] = defaultdict(int)
    for annotation in annotations:
        image, label = record_id(annotation, "image_id"), categories.get(record_id(annotation, "category_id"))
        if label is None or not annotation.get("segmentation"):
            without[image] += 1
        else:
            shapes[image][label].append(annotation["segmentation"])
    entries = []
    for record in images:
        image = record_id(record, "id")
        height: Any = record.get("height")
        width: Any = record.get("width")
        sized = type(height) is int and type(width) is int and height > 0 and width > 0
        notes = []
        masks: dict[str, MaskSource] = {}
        if sized:
            masks = {label: CocoMask(tuple(parts), height, width) for label, parts in sorted(shapes[image].items())}
        elif shapes[image]:
            notes.append("objects of an image without height and width left out")
        if without[image]:
            notes.append(f"{without[image]} annotation(s) without an outline or a category left out")
        path = PurePosixPath(str(record.get("file_name") or "").replace("\\", "/")).as_posix()
        entries.append(MaskEntry(path, (height, width) if sized else None, masks, tuple(notes)))
    return entries


def match_entries(entries: Iterable[MaskEntry], paths: Sequence[str]) -> tuple[dict[int, MaskEntry], list[str]]:
    """Return which entry belongs to which image (by place), and the paths of entries without an image.

    The folders need not be the same: an entry is that of the image whose path, less its suffix, shares most of its last
    parts with it, the name at least; where two share as many, that with the same suffix, and else it is neither's. The
    later of two entries for an image counts.
    """
    by_name: dict[str, list[int]] = defaultdict(list)
    parts = [_parts(path) for path in paths]
    for place, part in enumerate(parts):
        if part:
            by_name[part[-1]].append(place)
    matched: dict[int, MaskEntry] = {}
    unknown: list[str] = []
    for entry in entries:
        wanted = _parts(entry.path)
        places = by_name.get(wanted[-1], []) if wanted else []
        ends = {place: zip(parts[place][::-1], wanted[::-1], strict=False) for place in places}
        shared = {place: len([*takewhile(lambda pair: pair[0] == pair[1], pairs)]) for place, pairs in ends.items()}
        most = max(shared.values(), default=0)
        best = [place for place in places if shared[place] == most]
        if len(best) > 1:
            best = [place for place in best if PurePosixPath(paths[place]).suffix == PurePosixPath(entry.path).suffix]
        if len(best) == 1:
            matched[best[0]] = entry
        else:
            unknown.append(entry.path)
    return matched, unknown


def _parts(path: str) -> tuple[str, ...]:
    return PurePosixPath(os.path.splitext(path.replace("\\", "/"))[0].strip("/")).parts  # noqa: PTH122
