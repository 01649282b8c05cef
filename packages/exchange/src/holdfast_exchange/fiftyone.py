"""Write a folder that FiftyOne reads: ``fo.Dataset.from_dir(DIR, dataset_type=fo.types.FiftyOneDataset)``.

``data/`` has the images, ``fields/mask/`` the masks, ``samples.json`` and ``metadata.json`` what is known of them.
FiftyOne itself is not needed to write it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import canonical_json, fingerprint
from holdfast.core.names import condition_names
from holdfast.core.types import ORIGINAL
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.tasks import DETECTION
from holdfast_evidence.export.private import free_name
from holdfast_evidence.export.subject import ExportedPicture, ExportSubject, pictures, plain, slug

VERSION = "1.0.0"  # of FiftyOne's own documents; newer ones bring them up to date when they read them
_FIELDS = "fiftyone.core.fields"
OBJECTS = "objects"
"""The field of true boxes, in an export of detectors."""

_SAMPLE_TEXTS = {
    "sample_id": "name of the image, as in Holdfast's table",
    "source_id": "name of the source image",
    "split": "part of the dataset",
    "condition": "original, or what was done to the image before",
    "licence": "as the dataset states it",
    "attributes": "whatever else the dataset says, as JSON",
}

_KEYS = (
    "sample_id", "model", "trained_on", "condition", "variant", "parameters", "protocol", "status", "row_id",
)  # fmt: skip

Answers = dict[str, dict[str, Any]]  # field → FiftyOne's document, of one sample


@dataclass(frozen=True)
class Answered:
    """One field of answers: of which model, on images under which condition."""

    field: str
    model: str
    trained_on: str
    condition: str
    protocol: str

    def in_words(self) -> str:
        """Return the field in words."""
        trained = f", trained on {self.trained_on}" if self.trained_on else ""
        asked = f", {self.protocol}" if self.protocol != "argmax" else ""
        return f"{self.model}{trained} under {self.condition}{asked}"


def write_fiftyone(subject: ExportSubject, folder: Path, progress: Progress = silent) -> list[str]:
    """Write the folder and return notes for the user."""
    fields, answers = _answers(subject.rows) if subject.rows is not None else ([], {})
    boxed, boxes = _boxes(subject)
    left_out: list[str] = []
    count = masks = 0
    (folder / "data").mkdir()
    with (folder / "samples.json").open("w", encoding="utf8") as file:
        file.write('{"samples": [')
        for number, picture in enumerate(pictures(subject, left_out, progress)):
            path = f"data/{number:06d}{picture.suffix}"
            mask = f"fields/mask/{number:06d}.png" if picture.mask else ""
            write_atomic(folder / path, picture.image)
            if mask:
                write_atomic(folder / mask, picture.mask)
            document = _sample(picture, number, path, mask) | answers.get(picture.sample.sample_id, {})
            for field, of_field in boxes.get(picture.sample.sample_id, {}).items():
                document[field] = _detections(picture, field, of_field)
            file.write((",\n" if number else "\n") + json.dumps(document, allow_nan=False))
            count, masks = count + 1, masks + bool(mask)
        file.write("\n]}\n")
    if not count:
        first = f" (first: {left_out[0]})" if left_out else ""
        raise UserError(f"none of the {len(subject.samples)} images can be read{first}")
    write_atomic(
        folder / "metadata.json", json.dumps(_metadata(subject, fields, boxed), indent=1, allow_nan=False).encode()
    )
    return [f"{count} samples, {masks} masks, {len(fields) + len(boxed)} fields of answers", *left_out]


def _answers(rows: pa.Table) -> tuple[list[Answered], dict[str, Answers]]:
    """Return the fields, and sample → its answers. Rows without an answer (errors, segments) leave fields empty."""
    columns = ("prediction", "confidence", "correct", "prediction_restricted", "confidence_restricted")
    answered = [row for row in rows.select([*_KEYS, *columns]).to_pylist() if row["prediction"] is not None]
    fields, field_of = _fields_of(answered)
    answers: dict[str, Answers] = {}
    for row in (row for row in answered if row["row_id"] in field_of):
        answers.setdefault(row["sample_id"], {})[field_of[row["row_id"]]] = _label(
            "Classification", row["row_id"], label=row["prediction"], confidence=_finite(row["confidence"]),
            correct=row["correct"], restricted=row["prediction_restricted"],
            restricted_confidence=_finite(row["confidence_restricted"]),
        )  # fmt: skip
    return fields, answers


def _fields_of(rows: Iterable[Mapping[str, Any]]) -> tuple[list[Answered], dict[str, str]]:
    """Return a field for each model, training, condition and protocol, and the field of each row that is ok, by id."""
    fine = [row for row in rows if row["status"] == "ok"]
    names = condition_names(map(_kind, fine))
    keys = {
        row["row_id"]: (row["model"], row["trained_on"] or "", names[_kind(row)], row["protocol"] or "argmax")
        for row in fine
    }
    taken = {*_SAMPLE_TEXTS, "id", "filepath", "tags", "metadata", "ground_truth", "mask", "fold", OBJECTS}
    fields = {key: Answered(_free(key, taken), *key) for key in sorted(set(keys.values()))}
    return list(fields.values()), {row_id: fields[key].field for row_id, key in keys.items()}


def _boxes(subject: ExportSubject) -> tuple[list[Answered], dict[str, dict[str, list[dict[str, Any]]]]]:
    """Return the fields of detectors, and sample → field → boxes: true ones, and predictions at the threshold."""
    if subject.run is None or subject.rows is None or not (subject.run.path / "details" / "images").is_dir():
        return [], {}
    rows = subject.rows.select(_KEYS).to_pylist()
    fields, field_of = _fields_of(row | {"protocol": ""} for row in rows)
    sample_of = {row["row_id"]: row["sample_id"] for row in rows if row["row_id"] in field_of}
    boxes: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row_id, sample in sample_of.items():
        boxes.setdefault(sample, {})[field_of[row_id]] = []
    tables = {name: subject.run.details(name).rows() for name in DETECTION.tables}
    images = tables["images"]
    thresholds = dict(zip(images["row_id"].to_pylist(), images["threshold"].to_pylist(), strict=True))
    for row in tables["detections"].to_pylist():
        if row["row_id"] in field_of and row["score"] >= (thresholds.get(row["row_id"]) or 0):
            boxes[sample_of[row["row_id"]]][field_of[row["row_id"]]].append(row)
    source_rows: dict[str, str] = {}  # sample → the row of an original whose objects are taken
    for row in tables["objects"].to_pylist():
        if row["row_id"] in field_of and row["condition"] == ORIGINAL and row["status"] != "invalid":
            sample = sample_of[row["row_id"]]
            if source_rows.setdefault(sample, row["row_id"]) == row["row_id"]:
                boxes[sample].setdefault(OBJECTS, []).append(row)
    return fields, boxes


def _detections(picture: ExportedPicture, field: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return boxes as FiftyOne has them: left, top, width and height as shares of the image."""
    name, documents = picture.sample.sample_id, []
    for number, row in enumerate(rows):
        x1, y1, x2, y2 = (float(row[corner]) for corner in ("x1", "y1", "x2", "y2"))
        box = [x1 / picture.width, y1 / picture.height, (x2 - x1) / picture.width, (y2 - y1) / picture.height]
        more = {"confidence": _finite(row["score"])} if field != OBJECTS else {"iscrowd": bool(row["crowd"])}
        documents.append(
            _label("Detection", name, field, str(number), attributes={}, label=plain(row["label"]), bounding_box=box)
            | more
        )
    return {"_cls": "Detections", "detections": documents}


def _finite(value: float | None) -> float | None:
    """Return the number, or None if it is not finite: JSON has no such numbers."""
    return value if value is not None and math.isfinite(value) else None


def _kind(row: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return row["condition"], row["variant"], row["parameters"]


def _free(key: tuple[str, str, str, str], taken: set[str]) -> str:
    """Return a free field name of letters, digits and underscores; names that collide get a number."""
    model, trained_on, condition, protocol = key
    parts = [model, f"on_{trained_on}" if trained_on else "", condition, "" if protocol == "argmax" else protocol]
    base = "p_" * parts[0][:1].isdigit() + "__".join(slug(part, 40) for part in parts if part)
    return free_name(base, taken)


def _identity(*what: str) -> dict[str, str]:
    """Return an id in MongoDB's form that follows from what it names, so that two exports are the same."""
    return {"$oid": fingerprint(list(what))[:24]}


def _label(kind: str, *what: str, **values: Any) -> dict[str, Any]:
    return {"_id": _identity(kind, *what), "_cls": kind, "tags": [], **values}


def _sample(picture: ExportedPicture, number: int, path: str, mask: str) -> dict[str, Any]:
    sample, place = picture.sample, str(number)
    document = {
        "_id": _identity("sample", place, sample.sample_id),
        "filepath": path,
        "tags": [plain(sample.split)] if sample.split else [],
        "metadata": {
            "_cls": "ImageMetadata", "size_bytes": len(picture.image),
            "mime_type": "image/jpeg" if picture.suffix == ".jpg" else "image/png", "width": picture.width,
            "height": picture.height, "num_channels": 3,
        },
        "_media_type": "image",
        "_rand": int(fingerprint(sample.sample_id)[:8], 16) / 16**8,
        "sample_id": sample.sample_id,
        "source_id": sample.source_id,
        "split": plain(sample.split),
        "condition": plain(sample.condition),
        "licence": sample.licence,
        # as text: FiftyOne takes names such as "$date" inside a document for values of its database
        "attributes": canonical_json(dict(sample.attributes)),
        "fold": sample.fold,
        "ground_truth": _label("Classification", "truth", place, sample.sample_id, label=sample.label),
    }  # fmt: skip
    if mask:
        document["mask"] = _label("Segmentation", "mask", place, sample.sample_id, mask_path=mask)
    return document


def _metadata(subject: ExportSubject, fields: list[Answered], boxed: list[Answered]) -> dict[str, Any]:
    from_holdfast = {
        "name": subject.name,
        "dataset": subject.dataset,
        "holdfast": subject.holdfast,
        "made": subject.created,
        "licences": [{"licence": name, "images": count} for name, count in sorted(subject.licences.items())],
        "predictions": [asdict(field) for field in (*fields, *boxed)],
    }
    return {
        "_id": _identity("dataset", subject.name),
        "name": subject.name,
        "slug": slug(subject.name).lower(),
        "version": VERSION,
        "persistent": False,
        "media_type": "image",
        "tags": ["holdfast"],
        "info": from_holdfast,
        "app_config": {"grid_media_field": "filepath", "media_fields": ["filepath"], "modal_media_field": "filepath"},
        "classes": {"ground_truth": list(subject.classes)},
        "default_classes": list(subject.classes),
        "mask_targets": {"mask": {"255": "object"}},
        "default_mask_targets": {},
        "sample_fields": [*_schema(fields), *_box_schema(boxed)],
        **{name: [] for name in ("frame_fields", "saved_views", "workspaces")},
        **{name: {} for name in ("annotation_runs", "brain_methods", "evaluations", "runs")},
    }


def _schema(fields: list[Answered]) -> Iterator[dict[str, Any]]:
    """Return the fields of a sample, the built-in ones first."""
    yield _field("id", "ObjectId", stored="_id")
    yield _field("filepath", "String")
    yield _field("tags", "List", of="String")
    yield _embedded("metadata", "metadata.ImageMetadata", {
        "size_bytes": "Int", "mime_type": "String", "width": "Int", "height": "Int", "num_channels": "Int",
    })  # fmt: skip
    yield _field("created_at", "DateTime", read_only=True)
    yield _field("last_modified_at", "DateTime", read_only=True)
    yield _field("_media_type", "String")
    yield _field("_rand", "Float")
    yield _field("_dataset_id", "ObjectId")
    for name, words in _SAMPLE_TEXTS.items():
        yield _field(name, "String", about=words)
    yield _field("fold", "Int", about="fold of the cross-validation, -1 without one")
    answer = {"label": "String", "confidence": "Float", "logits": "Vector"}
    yield _embedded("ground_truth", "labels.Classification", answer, about="the true class")
    yield _embedded(
        "mask", "labels.Segmentation", {"mask": "Array", "mask_path": "String"}, about="255 on the object"
    )  # fmt: skip
    more = {"correct": "Boolean", "restricted": "String", "restricted_confidence": "Float"}
    for field in fields:
        yield _embedded(field.field, "labels.Classification", answer | more, about=field.in_words())


def _box_schema(boxed: list[Answered]) -> Iterator[dict[str, Any]]:
    """Return the fields of true and predicted boxes."""
    truth = [(OBJECTS, "the true objects", "iscrowd", "Boolean")] if boxed else []
    answered = [(field.field, f"{field.in_words()}, at its threshold", "confidence", "Float") for field in boxed]
    for name, words, more, kind in (*truth, *answered):
        inner = _embedded("detections", "labels.Detection", {"label": "String", more: kind})
        inner["fields"] += [_field("attributes", "Dict"), _field("bounding_box", "List", of="Float")]
        inner |= {"ftype": f"{_FIELDS}.ListField", "subfield": f"{_FIELDS}.EmbeddedDocumentField"}
        yield _field(name, "EmbeddedDocument", about=words) | {
            "embedded_doc_type": "fiftyone.core.labels.Detections", "fields": [inner],
        }  # fmt: skip


def _embedded(name: str, document: str, inner: Mapping[str, str], about: str | None = None) -> dict[str, Any]:
    fields = [_field(name, kind) for name, kind in inner.items()]
    if document.startswith("labels."):
        fields = [_field("id", "ObjectId", stored="_id"), _field("tags", "List", of="String"), *fields]
    return _field(name, "EmbeddedDocument", about=about) | {
        "embedded_doc_type": f"fiftyone.core.{document}", "fields": fields,
    }  # fmt: skip


def _field(
    name: str, kind: str, *, stored: str = "", of: str = "", about: str | None = None, read_only: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "ftype": f"{_FIELDS}.{kind}Field",
        "embedded_doc_type": None,
        "subfield": f"{_FIELDS}.{of}Field" if of else None,
        "fields": [],
        "db_field": stored or name,
        "description": about,
        "info": None,
        "read_only": read_only,
    }
