"""Write a dataset folder that ``datasets.load_dataset(FOLDER)`` reads and that can be pushed to the hub as it is.

Two configurations: ``predictions``, the one table, and ``images``, with masks, if images are exported.
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

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import canonical_json, fingerprint
from holdfast.data.writers import File, write_parquet_shard
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast_evidence.export.columns import TABLES
from holdfast_evidence.export.subject import ExportSubject, pictures, plain, rendered

SPLIT = "test"
"""Of both configurations: these are measurements, nothing to train on. The dataset's own splits are a column."""

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
    """Write the images; return their number by class, and under "" the number of those with a mask."""
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
        task_categories=list(dict.fromkeys(registry.tasks.get(task).hub for task in registry.tasks if task in asked)),
        tags=["robustness", "holdfast"],
        configs=[
            {"config_name": name, "data_files": [{"split": SPLIT, "path": f"{name}/*.parquet"}]}
            | ({"default": True} if number == 0 else {})
            for number, name in enumerate(configurations)
        ],
        dataset_info=list(configurations.values()),
    )
    values: dict[str, Any] = {"rows": subject.rows, "classes": None}
    if subject.rows is not None:
        meanings = next(kind for kind in TABLES if kind.place == "predictions").meanings
        values |= {
            "by_column": {
                name: sorted(Counter(subject.rows[name].to_pylist()).items())
                for name in ("model", "condition", "status")
            },
            "columns": [(field.name, _kind(field.type), meanings[field.name]) for field in subject.rows.schema],
            "models": len(pc.unique(subject.rows["model"])),
            # of the row ids, which stand for everything that was measured
            "fingerprint": fingerprint(sorted(subject.rows["row_id"].to_pylist())),
        }
    if "images" in configurations:
        values |= {"classes": sorted((name, count) for name, count in counts.items() if name), "masks": counts[""]}
    return rendered(
        "dataset_card.md.j2", subject=subject, metadata=data.to_yaml(), licences=sorted(subject.licences.items()),
        left_out=left_out, listed=_LISTED, **values,
    )  # fmt: skip


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return "list of text"
    return "text" if pa.types.is_string(kind) or pa.types.is_dictionary(kind) else str(kind)
