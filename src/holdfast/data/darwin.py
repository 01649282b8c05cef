"""V7's Darwin JSON 2.0: one file per image, objects as polygons or as a layer of run lengths.

Polygons are drawn as V7's own darwin-py draws them: corners rounded to pixels, the outline part of the object, and what
an even number of paths encloses left out. So holes are further paths along the pixels around them.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.types import DEFAULT_MAX_PIXELS, Mask, MaskSource
from holdfast.data.images import check_size

SCHEMA = "https://darwin-public.s3.eu-west-1.amazonaws.com/darwin_json/2.0/schema.json"  # a name, never fetched
SLOT = "0"
MAX_POINTS = 2_000_000
"""Limit for all polygons of a file together."""

_NAMESPACE = uuid.UUID("6f6b3a52-5c1e-5d7b-9a52-0c52f1f3a7d1")  # ours: the same mask gets the same id every time
_Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DarwinMask:
    """The union of polygons (each several closed paths of x, y) and of layers of run lengths."""

    polygons: tuple[Any, ...] = field(repr=False)
    layers: tuple[Any, ...] = field(repr=False)

    def fingerprint(self) -> str:
        """Return the SHA-256 of polygons and layers."""
        return fingerprint([self.polygons, self.layers])

    def load(self, height: int, width: int) -> Mask:
        """Return the mask drawn on an image of this size."""
        check_size(width, height, max_pixels=DEFAULT_MAX_PIXELS)
        mask = np.zeros((height, width), np.bool_)
        for paths in self.polygons:
            mask |= draw_paths(paths, height, width)
        for values, runs, labels in self.layers:
            if sum(runs) != height * width:
                raise SampleError(f"the mask's run lengths do not add up to {width} × {height} pixels")
            mask |= np.repeat(np.isin(values, labels), runs).reshape(height, width)
        return mask


@dataclass(frozen=True, slots=True)
class MaskEntry:
    """What a file with masks says of one image."""

    path: str  # the image's path as the file has it, with forward slashes; never opened, only compared
    size: tuple[int, int] | None  # (height, width) of the image, or None where the file does not say
    masks: Mapping[str, MaskSource]  # by class; a class's several objects are united. Empty where nothing was drawn
    notes: tuple[str, ...] = ()  # what was left out, in words

    def load(self, label: str, height: int, width: int) -> Mask:
        """Return the mask of a class, HW; of everything in the image where the file does not know the class.

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


def draw_paths(paths: Iterable[Iterable[tuple[float, float]]], height: int, width: int) -> Mask:
    """Return closed paths of x, y as a mask HW: outlines, and what an odd number of paths encloses."""
    last = np.array([width - 1, height - 1])
    corners = [np.clip(np.rint(np.asarray(path, np.float64)), 0, last).astype(np.int32) for path in paths]
    drawn = np.zeros((height, width), np.uint8)
    if corners:
        cv2.fillPoly(drawn, corners, (1,))
    return drawn.astype(np.bool_)


def trace_paths(mask: Mask) -> list[list[tuple[int, int]]]:
    """Return closed paths of corners x, y that ``draw_paths`` turns into exactly the same mask."""
    contours, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    paths = [[(int(x), int(y)) for x, y in contour[:, 0]] for contour in contours]
    # Single pixels and lines: V7 leaves out paths of fewer than three points.
    return [path + path[:1] * (3 - len(path)) for path in paths]


def darwin_document(path: str, label: str, mask: Mask, *, dataset: str = "") -> dict[str, Any]:
    """Return the JSON object of one image with its mask; without an annotation where it is empty."""
    where = PurePosixPath(path)
    folder = "/" if where.parent == PurePosixPath(".") else f"/{where.parent.as_posix().strip('/')}"
    height, width = mask.shape
    item: dict[str, Any] = {
        "name": where.name,
        "path": folder,
        "slots": [
            {
                "type": "image",
                "slot_name": SLOT,
                "width": width,
                "height": height,
                "source_files": [{"file_name": where.name, "url": ""}],
            }
        ],
    }
    if dataset:
        item["source_info"] = {"dataset": {"name": dataset, "slug": dataset.lower().replace(" ", "-")}}
    annotations = []
    if mask.any():
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        left, top = int(columns[0]), int(rows[0])
        annotations.append(
            {
                "id": str(uuid.uuid5(_NAMESPACE, f"{path}\n{label}")),
                "name": label,
                "slot_names": [SLOT],
                "polygon": {"paths": [[{"x": x, "y": y} for x, y in path] for path in trace_paths(mask)]},
                "bounding_box": {"x": left, "y": top, "w": int(columns[-1]) - left, "h": int(rows[-1]) - top},
            }
        )
    return {"version": "2.0", "schema_ref": SCHEMA, "item": item, "annotations": annotations}


def is_darwin(content: Any) -> bool:
    """Return whether a JSON value looks like a Darwin file, of any version."""
    return isinstance(content, Mapping) and "annotations" in content and ("item" in content or "image" in content)


def parse_darwin(content: Any) -> MaskEntry:
    """Return the annotations of a Darwin file's JSON; UserError where it is none."""
    if not is_darwin(content):
        raise UserError("this is no Darwin JSON: it has no item and no annotations")
    item, annotations = content.get("item"), content["annotations"]
    if content.get("version") != "2.0" or not isinstance(item, Mapping):
        raise UserError("this is not Darwin JSON 2.0; export it from V7 as Darwin JSON 2.0")
    if not isinstance(annotations, list) or not all(isinstance(annotation, Mapping) for annotation in annotations):
        raise UserError("the annotations of this Darwin JSON are no list")
    slot = _slot(item)
    notes: Counter[str] = Counter()
    polygons: dict[str, list[Any]] = defaultdict(list)
    labels: dict[str, str] = {}  # of masks, by id
    layers = []
    points = 0
    for annotation in annotations:
        names = annotation.get("slot_names") or [slot.get("slot_name")]
        if not isinstance(names, list) or slot.get("slot_name") not in names:
            notes["annotation(s) of other slots"] += 1
        elif "frames" in annotation:
            notes["annotation(s) of video frames"] += 1
        elif isinstance(annotation.get("polygon"), Mapping):
            paths = _paths(annotation["polygon"])
            points += sum(len(path) for path in paths)
            if points > MAX_POINTS:
                raise UserError(f"this Darwin JSON has more than {MAX_POINTS} points")
            polygons[_label(annotation)].append(paths)
        elif "mask" in annotation:
            labels[str(annotation.get("id"))] = _label(annotation)
        elif isinstance(annotation.get("raster_layer"), Mapping):
            layers.append(_layer(annotation["raster_layer"]))
        else:
            kinds = sorted(
                set(annotation) - {"id", "name", "slot_names", "properties", "annotators", "reviewers", "ranges"}
            )
            notes[f"{(kinds or ['annotation'])[0]}(s) without an outline"] += 1
    masks = _by_label(polygons, labels, layers)
    return MaskEntry(
        _path(item), _size(slot), masks, tuple(f"{count} {what} left out" for what, count in sorted(notes.items()))
    )


def _slot(item: _Record) -> _Record:
    """Return the first slot that shows an image; files made for import may have none."""
    slots: Any = item.get("slots") or [{"type": "image", "slot_name": SLOT}]
    if not isinstance(slots, list) or not all(isinstance(slot, Mapping) for slot in slots):
        raise UserError("the slots of this Darwin JSON are no list")
    first: _Record
    for first in slots:
        if first.get("type", "image") == "image":
            return first
    raise UserError(f"this Darwin JSON is of a {slots[0].get('type')}, not of an image")


def _size(slot: _Record) -> tuple[int, int] | None:
    height, width = slot.get("height"), slot.get("width")
    if height is None or width is None:
        return None
    if type(height) is not int or type(width) is not int or height < 1 or width < 1:
        raise UserError(f"this Darwin JSON says that its image is {width!r:.40} × {height!r:.40} pixels")
    try:
        check_size(width, height, max_pixels=DEFAULT_MAX_PIXELS)
    except SampleError as error:
        raise UserError(str(error)) from error
    return height, width


def _path(item: _Record) -> str:
    name, folder = item.get("name"), item.get("path") or "/"
    if not isinstance(name, str) or not isinstance(folder, str):
        raise UserError("this Darwin JSON does not name its image")
    path = PurePosixPath(f"{folder.strip('/')}/{name}".replace("\\", "/").lstrip("/"))
    if ".." in path.parts or not path.name or "\0" in name + folder:
        raise UserError(f"this Darwin JSON names its image {name!r:.80} in {folder!r:.80}, which is no path")
    return path.as_posix()


def _label(annotation: _Record) -> str:
    name = annotation.get("name")
    if not isinstance(name, str) or not name.strip():
        raise UserError("an annotation of this Darwin JSON has no class")
    return name.strip()


def _paths(polygon: _Record) -> tuple[tuple[tuple[float, float], ...], ...]:
    paths = polygon.get("paths")
    if paths is None and isinstance(polygon.get("path"), list):
        paths = [polygon["path"]]
    if not isinstance(paths, list) or not all(isinstance(path, list) for path in paths):
        raise UserError("a polygon of this Darwin JSON has no paths")
    return tuple(tuple(_point(point) for point in path) for path in paths if path)


def _point(point: Any) -> tuple[float, float]:
    if isinstance(point, Mapping):
        x: Any = point.get("x")
        y: Any = point.get("y")
        # Beyond 2²⁴ pixels a corner means nothing, and a rasteriser may not take it.
        if all(type(value) in (int, float) and abs(value) <= 1 << 24 for value in (x, y)):
            return float(x), float(y)
    raise UserError(f"a polygon of this Darwin JSON has the point {point!r:.80}")


def _layer(layer: _Record) -> tuple[NDArray[np.int64], NDArray[np.int64], Mapping[str, Any]]:
    """Return values and run lengths along the rows, and the value of each mask."""
    runs, mapping = layer.get("dense_rle"), layer.get("mask_annotation_ids_mapping")
    good = isinstance(runs, list) and len(runs) % 2 == 0 and isinstance(mapping, Mapping)
    if not good or not all(type(run) is int and 0 <= run <= DEFAULT_MAX_PIXELS for run in runs or ()):
        raise UserError("a raster layer of this Darwin JSON has no run lengths that can be read")
    pairs = np.asarray(runs, np.int64).reshape(-1, 2)
    if int(pairs[:, 1].sum()) > DEFAULT_MAX_PIXELS:
        raise UserError(f"a raster layer of this Darwin JSON has more than {DEFAULT_MAX_PIXELS} pixels")
    return pairs[:, 0], pairs[:, 1], {str(key): value for key, value in (mapping or {}).items()}


def _by_label(
    polygons: Mapping[str, list[Any]],
    labels: Mapping[str, str],
    layers: Iterable[tuple[NDArray[np.int64], NDArray[np.int64], Mapping[str, Any]]],
) -> dict[str, DarwinMask]:
    """Return polygons and the parts of the raster layers, by class."""
    parts: dict[str, list[Any]] = defaultdict(list)
    for values, runs, mapping in layers:
        of: dict[str, list[int]] = defaultdict(list)
        for identity, value in mapping.items():
            if identity not in labels:
                raise UserError("a raster layer of this Darwin JSON speaks of a mask that is not there")
            if type(value) is not int:
                raise UserError("a raster layer of this Darwin JSON numbers a mask by something else than a number")
            of[labels[identity]].append(value)
        for label, numbers in of.items():
            parts[label].append((values.tolist(), runs.tolist(), sorted(numbers)))
    classes = sorted({*polygons, *parts})
    return {label: DarwinMask(tuple(polygons.get(label, ())), tuple(parts.get(label, ()))) for label in classes}
