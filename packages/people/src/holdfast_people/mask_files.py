"""Masks of many images in one COCO file, and which of its entries is whose."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.types import Mask, MaskSource
from holdfast.data.masks import CocoMask
from holdfast.data.readers.annotations import parse_coco, record_id

MAX_BYTES = 512 << 20
"""Limit for a file."""


@dataclass(frozen=True, slots=True)
class MaskEntry:
    """The masks that a file has for one image."""

    path: str  # the image's path as the file has it, with forward slashes; never opened, only compared
    size: tuple[int, int] | None  # (height, width) of the image, or None if the file does not say
    masks: Mapping[str, MaskSource]  # by class; several objects of a class are united. Empty if nothing was drawn
    notes: tuple[str, ...] = ()  # what was left out, in words

    def load(self, label: str, height: int, width: int) -> Mask:
        """Return the mask of a class, HW; of everything in the image if the file does not know the class.

        Raises SampleError for another size, or a mask that cannot be read.
        """
        if self.size is not None and self.size != (height, width):
            own_size = f"{self.size[1]} × {self.size[0]}"
            raise SampleError(f"the mask is for an image of {own_size} pixels, this one has {width} × {height}")
        if label in self.masks:
            return self.masks[label].load(height, width)
        mask = np.zeros((height, width), np.bool_)
        for source in self.masks.values():
            mask |= source.load(height, width)
        return mask


def read_mask_file(path: Path) -> list[MaskEntry]:
    """Read a COCO file; UserError if it is not one."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{str(path)!r} is larger than {MAX_BYTES >> 20} MiB; split it")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    try:
        return _coco_entries(json.loads(data))
    except UserError as error:
        raise UserError(f"{path.name}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path.name} is not readable JSON: {error}") from error


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
    parts with it, the name at least; if two share as many, that with the same suffix, and else it is neither's. The
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
