"""Masks as COCO instances JSON, one object an image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import cv2
import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.types import Mask


def mask_rle(mask: Mask) -> str:
    """A mask as COCO's compressed run lengths (the ``counts``): small text that a table can hold."""
    from pycocotools import mask as coco_mask

    by_columns: Any = cv2.transpose(mask.view(np.uint8))  # four times as fast as np.asfortranarray
    counts: bytes = coco_mask.encode(by_columns.T)["counts"]
    return counts.decode("ascii")


def coco_document(rows: Iterable[Mapping[str, Any]], classes: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON object that pycocotools reads. Ids count from 1; an image with an empty mask has no annotation.

    Args:
        rows: Each with ``path``, ``label``, ``height``, ``width``, ``mask_rle`` and perhaps ``licence``.
        classes: The categories in order; those of the rows, sorted, where none are given.
    """
    rows = list(rows)
    names = list(classes) or sorted({row["label"] for row in rows})
    categories = {label: number for number, label in enumerate(names, 1)}
    licences = {
        name: number for number, name in enumerate(sorted({row.get("licence") or "" for row in rows} - {""}), 1)
    }
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, row in enumerate(rows, 1):
        if row["label"] not in categories:
            raise UserError(f"the class {row['label']!r} of {row['path']} is not among the dataset's classes")
        image = {"id": number, "file_name": row["path"], "height": row["height"], "width": row["width"]}
        images.append(image | ({"license": licences[row["licence"]]} if row.get("licence") else {}))
        area, box = _area_and_box(row["mask_rle"], row["height"], row["width"])
        if area:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": categories[row["label"]],
                    "segmentation": {"size": [row["height"], row["width"]], "counts": row["mask_rle"]},
                    "area": area,
                    "bbox": list(box),
                    "iscrowd": 0,
                }
            )
    return {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": number, "name": label} for label, number in categories.items()],
        "licenses": [{"id": number, "name": name} for name, number in licences.items()],
    }


@lru_cache(maxsize=1 << 16)  # most conditions leave the foreground where it is
def _area_and_box(counts: str, height: int, width: int) -> tuple[int, tuple[float, ...]]:
    """How many pixels, and their left, top, width and height."""
    from pycocotools import mask as coco_mask

    segmentation = {"size": [height, width], "counts": counts}
    return int(coco_mask.area(segmentation)), tuple(float(side) for side in coco_mask.toBbox(segmentation))
