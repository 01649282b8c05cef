"""Masks as COCO instances JSON, one object per image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import cv2
import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.core.types import Mask


def mask_rle(mask: Mask) -> str:
    """Return a mask as COCO's compressed run lengths (the ``counts``), a short text for tables."""
    from pycocotools import mask as coco_mask

    by_columns: Any = cv2.transpose(mask.view(np.uint8))  # four times as fast as np.asfortranarray
    counts: bytes = coco_mask.encode(by_columns.T)["counts"]
    return counts.decode("ascii")


def coco_document(rows: Iterable[Mapping[str, Any]], classes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON object that pycocotools reads. Ids count from 1; an empty mask has no annotation.

    Args:
        rows: Each with ``path``, ``label``, ``height``, ``width``, ``mask_rle`` and perhaps ``licence``.
        classes: The categories in order; those of the rows, sorted, where none are given.
    """
    rows = list(rows)
    return {name: list(entries) for name, entries in _sections(lambda: rows, classes).items()}


def coco_text(rows: Callable[[], Iterable[Mapping[str, Any]]]) -> Iterator[str]:
    """Return the canonical JSON of ``coco_document`` in pieces, so that memory holds one image at a time.

    Args:
        rows: Begins with the first row whenever it is called.
    """
    between = "{"
    for name, entries in sorted(_sections(rows).items()):
        yield f'{between}"{name}":['
        for number, entry in enumerate(entries):
            yield ("," if number else "") + canonical_json(entry)
        between = "],"
    yield "]}"


def _sections(
    rows: Callable[[], Iterable[Mapping[str, Any]]], classes: Sequence[str] = ()
) -> dict[str, Iterable[dict[str, Any]]]:
    """Return the lists of the document, each entry made when it is needed."""
    labels, named = set(), set()
    for row in rows():
        labels.add(row["label"])
        named.add(row.get("licence") or "")
        if classes and row["label"] not in classes:
            raise UserError(f"the class {row['label']!r} of {row['path']} is not among the dataset's classes")
    categories = {label: number for number, label in enumerate(list(classes) or sorted(labels), 1)}
    licences = {name: number for number, name in enumerate(sorted(named - {""}), 1)}
    return {
        "images": (_image(number, row, licences) for number, row in enumerate(rows(), 1)),
        "annotations": _annotations(rows, categories),
        "categories": [{"id": number, "name": label} for label, number in categories.items()],
        "licenses": [{"id": number, "name": name} for name, number in licences.items()],
    }


def _image(number: int, row: Mapping[str, Any], licences: Mapping[str, int]) -> dict[str, Any]:
    image = {"id": number, "file_name": row["path"], "height": row["height"], "width": row["width"]}
    return image | ({"license": licences[row["licence"]]} if row.get("licence") else {})


def _annotations(
    rows: Callable[[], Iterable[Mapping[str, Any]]], categories: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    count = 0
    for number, row in enumerate(rows(), 1):
        area, box = _area_and_box(row["mask_rle"], row["height"], row["width"])
        if not area:
            continue
        count += 1
        yield {
            "id": count,
            "image_id": number,
            "category_id": categories[row["label"]],
            "segmentation": {"size": [row["height"], row["width"]], "counts": row["mask_rle"]},
            "area": area,
            "bbox": list(box),
            "iscrowd": 0,
        }


@lru_cache(maxsize=1 << 16)  # most conditions leave the foreground where it is
def _area_and_box(counts: str, height: int, width: int) -> tuple[int, tuple[float, ...]]:
    """Return the number of pixels, and their left, top, width and height."""
    from pycocotools import mask as coco_mask

    segmentation = {"size": [height, width], "counts": counts}
    return int(coco_mask.area(segmentation)), tuple(float(side) for side in coco_mask.toBbox(segmentation))
