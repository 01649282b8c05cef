"""Write a dataset folder that ``datasets.load_dataset(FOLDER)`` reads and that can be pushed to the hub as it is.

Two configurations: ``predictions``, the one table, and ``images``, with masks, where pictures go along.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import canonical_json, fingerprint
from holdfast.data.writers import File, write_parquet_shard
from holdfast.exchange.columns import TABLES
from holdfast.exchange.subject import ExportSubject, markdown, pictures, plain
from holdfast.pipeline.jobs.progress import Progress, silent

SPLIT = "test"
"""Of both configurations: these are measurements, nothing to train on. The dataset's own splits are a column."""

TASKS = {
    "classify": "image-classification", "segment": "image-segmentation", "question": "visual-question-answering",
    "detect": "object-detection",
}  # fmt: skip
"""What the hub calls them."""

_ROWS = 500_000  # of a file of predictions
_BYTES = 400 << 20  # of a file of images, about; the hub asks for less than 500 MB
_LISTED = 50  # classes or models that the card names one by one

_LICENCES = frozenset(
    {"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0",
     "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0",
     "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "pddl", "odc-by", "odbl", "unlicense",
     "gpl-3.0", "lgpl-3.0"}
)  # fmt: skip
"""Those of the hub's identifiers that images come under; any other is "other", and the card has its words."""

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"),
          (10_000_000, "1M<n<10M"))  # fmt: skip

_IMAGE_COLUMNS = {
    "image": "the picture",
    "mask": "255 on the object, 0 elsewhere; missing where there is none",
    "sample_id": "name of the picture, as in predictions",
    "source_id": "name of the photo behind it",
    "label": "its class",
    "split": "part of the dataset, if it has parts",
    "fold": "fold of the cross-validation, -1 without one",
    "kind": "static or generated",
    "condition": '"original", or what was done to it',
    "licence": "as the dataset states it",
    "attributes": "whatever else the dataset says of it, as JSON",
    "path": "a file name for it",
}


def write_huggingface(subject: ExportSubject, folder: Path, progress: Progress = silent) -> list[str]:
    """Write the dataset folder and return notes for the user."""
    left_out: list[str] = []
    configurations: dict[str, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    if subject.rows is not None:
        configurations["predictions"] = _write_predictions(subject.rows, folder / "predictions")
    if subject.samples:
        configurations["images"] = _write_images(subject, folder / "images", counts, left_out, progress)
    write_atomic(folder / "README.md", _card(subject, configurations, counts, left_out).encode())
    what = [f"{info['splits'][0]['num_examples']} {name}" for name, info in configurations.items()]
    return [", ".join(what), *left_out]


def _write_predictions(rows: pa.Table, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    # texts as texts, not codes, which the library would take for something else
    kinds = {field.name: pa.string() if pa.types.is_dictionary(field.type) else field.type for field in rows.schema}
    features = {name: _feature(kind) for name, kind in kinds.items()}
    schema = pa.schema(kinds.items(), {"huggingface": json.dumps({"info": {"features": features}})})
    size = 0
    for number, start in enumerate(range(0, len(rows), _ROWS)):
        part = rows.slice(start, _ROWS).cast(schema)
        pq.write_table(part, folder / f"{SPLIT}-{number:05d}.parquet", compression="zstd", row_group_size=50_000)
        size += part.nbytes
    return _info("predictions", folder, len(rows), size)


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):  # called List since version 4 of datasets, which knows the old name as well
        return {"feature": _feature(kind.value_type), "_type": "Sequence"}
    return {"dtype": {"float": "float32", "double": "float64"}.get(str(kind), str(kind)), "_type": "Value"}


def _write_images(
    subject: ExportSubject, folder: Path, counts: Counter[str], left_out: list[str], progress: Progress
) -> dict[str, Any]:
    """Write the pictures; return their number by class, and under "" the number of those with a mask."""
    folder.mkdir()
    shard: list[File] = []
    count = size = held = 0

    def write() -> None:
        nonlocal count, size, held
        write_parquet_shard(folder / f"{SPLIT}-{len(list(folder.iterdir())):05d}.parquet", shard, subject.classes)
        count, size, held = count + len(shard), size + held, 0
        shard.clear()

    for number, picture in enumerate(pictures(subject, left_out, progress)):
        sample = picture.sample
        facts = {
            "sample_id": sample.sample_id, "source_id": sample.source_id, "label": sample.label,
            "split": plain(sample.split), "fold": sample.fold, "kind": sample.kind,
            "condition": plain(sample.condition), "licence": sample.licence,
            "attributes": canonical_json(dict(sample.attributes)), "path": f"{number:06d}{picture.suffix}",
        }  # fmt: skip
        shard.append((facts, picture.image, picture.mask))
        counts.update([sample.label, ""] if picture.mask else [sample.label])
        held += len(picture.image) + len(picture.mask)
        if held >= _BYTES:
            write()
    if shard:
        write()
    if not count:
        raise UserError(f"none of the {len(subject.samples)} images can be read (first: {left_out[0]})")
    return _info("images", folder, count, size)


def _info(name: str, folder: Path, count: int, size: int) -> dict[str, Any]:
    """Return what the card says of a configuration, in the words of ``datasets``, with the files' own features."""
    files = sorted(folder.iterdir())
    features = json.loads(pq.read_schema(files[0]).metadata[b"huggingface"])["info"]["features"]
    return {
        "config_name": name,
        "features": [{"name": column} | _in_yaml(feature) for column, feature in features.items()],
        "splits": [{"name": SPLIT, "num_bytes": size, "num_examples": count}],
        "download_size": sum(path.stat().st_size for path in files),
        "dataset_size": size,
    }


def _in_yaml(feature: dict[str, Any]) -> dict[str, Any]:
    if feature["_type"] == "ClassLabel":
        names = {str(number): name for number, name in enumerate(feature["names"])}
        return {"dtype": {"class_label": {"names": names}}}
    if feature["_type"] == "Sequence":
        return {"sequence": feature["feature"]["dtype"]}
    return {"dtype": "image" if feature["_type"] == "Image" else feature["dtype"]}


def _card(
    subject: ExportSubject, configurations: dict[str, dict[str, Any]], counts: Counter[str], left_out: Sequence[str]
) -> str:
    from huggingface_hub import DatasetCardData

    largest = max(info["splits"][0]["num_examples"] for info in configurations.values())
    stated = {name.strip().lower().replace(" ", "-") for name in subject.licences}
    licences = set() if stated <= {""} else stated
    asked = set(pc.unique(subject.rows["task"]).to_pylist()) if subject.rows is not None else {"classify"}
    data = DatasetCardData(
        license=licences.pop() if len(licences) == 1 and licences <= _LICENCES else "other" if licences else "unknown",
        pretty_name=subject.name,
        size_categories=[next((name for most, name in _SIZES if largest < most), "n>10M")],
        task_categories=[name for task, name in TASKS.items() if task in asked],
        tags=["robustness", "holdfast"],
        configs=[
            {"config_name": name, "data_files": [{"split": SPLIT, "path": f"{name}/*.parquet"}]}
            | ({"default": True} if number == 0 else {})
            for number, name in enumerate(configurations)
        ],
        dataset_info=list(configurations.values()),
    )
    parts = [f"---\n{data.to_yaml()}\n---", f"# {markdown(subject.name)}", _about(subject)]
    if subject.rows is not None:
        parts += ["## predictions", _predictions_in_words(subject.rows)]
    if "images" in configurations:
        parts += ["## images", _images_in_words(counts, left_out)]
    parts += ["## Licence", _licence_in_words(subject.licences)]
    if subject.rows is not None:
        parts += ["## Citation", _citation(subject, subject.rows)]
    return "\n\n".join(parts) + "\n"


def _licence_in_words(stated: dict[str, int]) -> str:
    if set(stated) <= {""}:
        return "The samples state no licence. Ask where the images come from before you hand them on."
    rows = [(markdown(name) or "not stated", count) for name, count in sorted(stated.items())]
    return "As the samples state it:\n\n" + _table(("licence", "images"), rows)


def _about(subject: ExportSubject) -> str:
    if subject.rows is None:
        return f"Images of {markdown(subject.dataset)} with their masks, as Holdfast reads them."
    return (
        f"What models answered on {markdown(subject.dataset)}, on the pictures as they are and under changes of the "
        "object or of everything around it; measured with Holdfast. A row is one picture under one condition, answered "
        'by one model. Rows count only where `status` is "ok"; rows with the same `source_id` show the same photo and '
        "are not independent."
    )


def _predictions_in_words(rows: pa.Table) -> str:
    said = [f"{len(rows)} rows."]
    for name in ("model", "condition", "status"):
        counts = Counter(rows[name].to_pylist())
        listed = [(markdown(licence), count) for licence, count in sorted(counts.items())[:_LISTED]]
        said.append(_table((name, "rows"), listed) + _more(len(counts)))
    meanings = next(kind for kind in TABLES if kind.place == "predictions").meanings
    columns = [(f"`{field.name}`", _kind(field.type), meanings[field.name]) for field in rows.schema]
    return "\n\n".join([*said, _table(("column", "type", "meaning"), columns)])


def _images_in_words(counts: Counter[str], left_out: Sequence[str]) -> str:
    classes = sorted(set(counts) - {""})
    count = sum(counts[name] for name in classes)
    said = [f"{count} images of {len(classes)} classes, {counts['']} of them with a mask."]
    if left_out:
        said.append(f"{len(left_out)} could not be read whole; the first: {markdown(left_out[0])}.")
    listed = [(markdown(name), counts[name]) for name in classes[:_LISTED]]
    said.append(_table(("class", "images"), listed) + _more(len(classes)))
    said.append(_table(("column", "meaning"), [(f"`{name}`", words) for name, words in _IMAGE_COLUMNS.items()]))
    return "\n\n".join(said)


def _citation(subject: ExportSubject, rows: pa.Table) -> str:
    """Return how to cite this run: the fingerprint is of its row ids, which stand for everything that was measured."""
    digest = fingerprint(sorted(rows["row_id"].to_pylist()))
    models = len(pc.unique(rows["model"]))
    date = f", {markdown(subject.created[:10])}" if subject.created else ""
    version = f" {markdown(subject.holdfast)}" if subject.holdfast else ""
    return (
        f"Holdfast{version}, run {markdown(subject.name)}{date}: {models} models on {markdown(subject.dataset)}, "
        f"{len(rows)} rows, fingerprint `{digest}`."
    )


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return "list of text"
    return "text" if pa.types.is_string(kind) or pa.types.is_dictionary(kind) else str(kind)


def _more(count: int) -> str:
    return f"\n\n… and {count - _LISTED} more." if count > _LISTED else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
