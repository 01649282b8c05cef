"""Write images and masks: single files, WebDataset shards, Parquet for Hugging Face ``datasets``, COCO instances.

Everything is written under a temporary name in the same folder and renamed, so that a killed run leaves whole files
or none.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.errors import SampleError, UserError, raise_machine_trouble
from holdfast.core.files import safe_part, whole_file
from holdfast.core.fingerprint import bytes_sha256, canonical_json, fingerprint
from holdfast.core.types import Image, Mask, Sample
from holdfast.data.images import IMAGE_SUFFIXES, open_header
from holdfast.data.reading import InsideRoot

ImageFormat = Literal["png", "jpeg"]

# Measured on 500 × 375 images, one core: OpenCV's defaults 7.6 ms, 308 KB; these 6.2 ms, 283 KB. Huffman coding alone
# takes 5.0 ms, 295 KB, but spends a bit on every byte of the flat areas that cut-outs consist of.
_PNG = (
    cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE, cv2.IMWRITE_PNG_FILTER,
    cv2.IMWRITE_PNG_FILTER_AVG,
)  # fmt: skip
# Runs of equal bytes need no filter: against OpenCV's defaults half the size and two thirds of the time.
_MASK_PNG = (
    cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE, cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE
)  # fmt: skip
_ROW_GROUP = 100  # rows; small, so that readers of images can go straight to some of them

File = tuple[Mapping[str, Any], bytes, bytes]
"""Facts (JSON values with ``sample_id`` and ``path``), the encoded image, and the encoded mask or None."""


def encode_image(image: Image, *, format: ImageFormat = "png", quality: int = 95) -> bytes:
    """Return an image as a file's bytes. RGBA is always PNG: JPEG has no alpha."""
    if image.ndim != 3 or image.shape[2] not in (3, 4) or image.dtype != np.uint8:
        raise ValueError(f"an image must be HWC uint8 with 3 or 4 channels, not {image.dtype} {image.shape}")
    if image.shape[2] == 4:
        return _encoded(".png", cv2.cvtColor(image, cv2.COLOR_RGBA2BGRA), _PNG)
    swapped = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    if format == "png":
        return _encoded(".png", swapped, _PNG)
    if format == "jpeg":
        return _encoded(".jpg", swapped, (cv2.IMWRITE_JPEG_QUALITY, quality))
    raise UserError(f"the format of images must be png or jpeg, not {format!r}")


def encode_mask(mask: Mask) -> bytes:
    """Return a mask as an 8-bit greyscale PNG of 0 and 255.

    One bit a pixel would save a kilobyte and a tenth of a millisecond, but readers then disagree on 1 and 255.
    """
    return _encoded(".png", mask.view(np.uint8) * np.uint8(255), _MASK_PNG)


def _encoded(suffix: str, pixels: Any, options: Sequence[int]) -> bytes:
    done, data = cv2.imencode(suffix, pixels, list(options))
    if not done:
        raise ValueError(f"OpenCV cannot encode {pixels.shape} as {suffix}")
    return data.tobytes()


def shard_key(sample_id: str) -> str:
    """Return an id as a WebDataset key: dots end a key there, so they become %2E (and % becomes %25)."""
    return sample_id.replace("%", "%25").replace(".", "%2E")


def write_tar_shard(path: Path, files: Iterable[File]) -> int:
    """Write a WebDataset tar of ``key.png`` (or ``.jpg``), ``key.mask.png``, ``key.json``; returns the number of keys.

    Equal files give equal bytes: no times, users or groups are stored.
    """
    seen: set[str] = set()
    with whole_file(path) as temporary, tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as archive:
        for facts, image, mask in files:
            key = shard_key(facts["sample_id"])
            if key in seen or not key.strip("/"):
                raise UserError(f"the sample id {facts['sample_id']!r} is empty or occurs twice in {path.name}")
            seen.add(key)
            parts = {Path(facts["path"]).suffix: image, ".mask.png": mask, ".json": canonical_json(facts).encode()}
            for suffix, data in parts.items():
                if data:
                    member = tarfile.TarInfo(key + suffix)
                    member.size, member.mode = len(data), 0o644
                    archive.addfile(member, io.BytesIO(data))
    return len(seen)


def tar_images(path: Path) -> dict[str, bytes]:
    """Return the encoded images by sample id of a tar of ``write_tar_shard``; empty if it is unreadable."""
    images: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                key, _, extension = member.name.partition(".")
                if member.isfile() and extension in ("png", "jpg") and (file := archive.extractfile(member)):
                    images[unquote(key)] = file.read()
    except (OSError, tarfile.TarError) as error:
        raise_machine_trouble(error)
        return {}
    return images


def write_parquet_shard(path: Path, files: Sequence[File], classes: Sequence[str] = ()) -> int:
    """Write a Parquet file that the ``datasets`` library opens, with ``image`` and ``mask`` as its Image feature.

    The facts are the other columns. ``label`` is text, or a ClassLabel if the classes are given.
    """
    facts = [dict(file[0]) for file in files]
    if classes:
        numbers = {label: number for number, label in enumerate(classes)}
        facts = [row | {"label": numbers[row["label"]]} for row in facts]
    columns = pa.Table.from_pylist(facts)
    encoded = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = [{"bytes": image, "path": Path(row["path"]).name} for row, (_, image, _) in zip(facts, files, strict=True)]
    masks = [{"bytes": mask, "path": None} if mask else None for _, _, mask in files]
    table = pa.table({"image": pa.array(images, encoded), "mask": pa.array(masks, encoded)})
    features: dict[str, dict[str, Any]] = {"image": {"_type": "Image"}, "mask": {"_type": "Image"}}
    for name, column in zip(columns.column_names, columns.columns, strict=True):
        if pa.types.is_null(column.type):  # nothing in this shard, but perhaps in the next: all must have one schema
            column = column.cast(pa.string())
        table = table.append_column(name, column)
        kind = {"double": "float64", "float": "float32"}.get(str(column.type), str(column.type))
        features[name] = {"dtype": kind, "_type": "Value"}
    if classes:
        features["label"] = {"names": list(classes), "_type": "ClassLabel"}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    with whole_file(path) as temporary:
        pq.write_table(table, temporary, row_group_size=_ROW_GROUP)
    return len(files)


def mask_rle(mask: Mask) -> str:
    """Return a mask as COCO's compressed run lengths (the ``counts``), a short text for tables."""
    from pycocotools import mask as coco_mask

    by_columns: Any = cv2.transpose(mask.view(np.uint8))  # four times as fast as np.asfortranarray
    counts: bytes = coco_mask.encode(by_columns.T)["counts"]
    return counts.decode("ascii")


def coco_document(rows: Iterable[Mapping[str, Any]], classes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON object that pycocotools reads. Ids count from 1; an empty mask has no annotation.

    Rows have ``path``, ``label``, ``height``, ``width``, ``mask_rle`` and perhaps ``licence``; ``classes`` are the
    categories in order, or else those of the rows, sorted.
    """
    rows = list(rows)
    return {name: list(entries) for name, entries in _sections(lambda: rows, classes).items()}


def coco_text(rows: Callable[[], Iterable[Mapping[str, Any]]]) -> Iterator[str]:
    """Return the canonical JSON of ``coco_document`` in pieces, so that memory holds one image at a time.

    ``rows`` begins with the first row whenever it is called.
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
            raise UserError(f"the class {row['label']!r} of {row['path']} is not a class of the dataset")
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


def published_paths(samples: Mapping[str, Sample]) -> dict[str, str]:
    """Return ``condition/class/id.png`` for every image of a published set, with only safe characters."""
    paths: dict[str, str] = {}
    taken: set[str] = set()
    for name, sample in samples.items():
        own = "/".join(safe_part(part) for part in (sample.condition, sample.label, name.rpartition("/")[2]))
        own += f"-{fingerprint(name)[:8]}" if own in taken else ""
        taken.add(own)
        paths[name] = own + _suffix(sample)
    return paths


def _suffix(sample: Sample) -> str:
    """Return the suffix of the image's file, or that of its format if it is in a tar or Parquet file."""
    own = Path(str(getattr(sample.image, "path", ""))).suffix.lower()
    if own in IMAGE_SUFFIXES:
        return own
    with suppress(SampleError):  # which is reported when it is copied
        if hasattr(sample.image, "read"):
            return f".{open_header(sample.image.read()).format}".lower()
    return ".png"


def unchanged_file(sample: Sample, content: str) -> bytes | None:
    """Return an image's file, a drawn scene's as PNG; None if its fingerprint is no longer ``content``."""
    if hasattr(sample.image, "read"):
        data: bytes = sample.image.read()
        return data if bytes_sha256(data) == content else None
    return encode_image(sample.image.load()) if sample.image.fingerprint() == content else None


def remove_published(out: Path, paths: Iterable[str]) -> None:
    """Remove files of an earlier set below ``out``, and the folders that are empty without them."""
    inside = InsideRoot(out)
    for path in paths:
        with suppress(SampleError):  # no longer there, or a list that someone changed leads elsewhere
            stale = Path(inside.file(path))
            stale.unlink()
            for folder in stale.parents:
                if folder == out.resolve() or any(folder.iterdir()):
                    break
                folder.rmdir()


def manifest_cell(value: Any) -> Any:
    """Return a value for a cell of a manifest: lists and tables as JSON."""
    return value if value is None or isinstance(value, (str, int, float)) else canonical_json(value)


def manifest_table(rows: Sequence[Mapping[str, Any]], first: Sequence[str], last: Sequence[str]) -> pa.Table:
    """Return the rows of a manifest: the ``first`` columns, what else rows have, the ``last`` columns."""
    between = dict.fromkeys(key for row in rows for key in row if key not in (*first, *last))
    return pa.table({key: [row.get(key) for row in rows] for key in (*first, *between, *last)})
