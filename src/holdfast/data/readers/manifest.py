"""A CSV or Parquet list of images, one row each, such as the manifest of ``holdfast synth``."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.errors import SampleError, UserError
from holdfast.core.names import Name
from holdfast.core.places import last_name, resolved
from holdfast.core.types import ORIGINAL, Collection, ImageSource, MaskSource, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import FileImage, PublishedImage
from holdfast.data.masks import FileMask

REQUIRED = ("path", "label")
_RENAMED = {"scenario": "condition", "mask_path": "mask", "license": "licence"}
_KNOWN = frozenset({"path", "label", "mask", "sample_id", "source_id", "split", "fold", "kind", "condition", "licence"})


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``manifest:FILE.csv`` (or .tsv, .parquet).

    Columns: ``path`` and ``label``; where there, ``mask`` (or mask_path), ``sample_id``, ``source_id``, ``split``,
    ``fold``, ``kind``, ``condition`` (or scenario), ``licence``, ``published_sha256`` (a file with another hash is an
    error); all others become attributes. Paths are relative to
    the manifest's folder and must stay in it. Options: ``root`` (another folder for the paths), ``mask_format``.
    """
    options = reading.text_options(name, ("root",))
    file = reading.existing(name.name, "the manifest")
    root = reading.existing(options["root"], "the root folder") if "root" in options else file.parent
    rows = read_rows(file)
    inside = reading.InsideRoot(root)
    problems: list[Problem] = []
    short = [str(row.get("sample_id") or reading.without_suffix(str(row.get("path") or ""))) for row in rows]
    full = [str(row.get("sample_id") or row.get("path") or "") for row in rows]
    samples = []
    for number, (sample_id, row) in enumerate(zip(reading.unique_ids(short, full), rows, strict=True), start=1):
        if row.get("status", "ok") != "ok":
            # A row of synth's that stands for no image. Without its number, so that equal reasons are counted together.
            problems.append(
                Problem(sample_id or f"row {number}", f"{row['status']}: {row.get('error', '')}".strip(": "))
            )
            continue
        try:
            samples.append(_sample(sample_id, row, inside, options["mask_format"]))
        except SampleError as error:
            problems.append(Problem(sample_id or f"row {number}", f"row {number}: {error}"))
    samples = reading.without_repeats(samples, problems)
    title = file.stem if file.stem != "manifest" else last_name(resolved(file).parent)
    keys = reading.wordnet_keys({sample.label for sample in samples})
    return reading.finish(
        title, samples, problems, where=f"the manifest {str(file)!r}", keys=keys, masks=masks,
        format=options["mask_format"],
    )  # fmt: skip


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows under their canonical column names, without empty cells."""
    try:
        columns, rows = _read_parquet(file) if file.suffix.lower() == ".parquet" else _read_csv(file)
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise UserError(f"the manifest {str(file)!r} cannot be read: {error}") from error
    named = {_RENAMED.get(column, column) for column in columns}
    missing = [column for column in REQUIRED if column not in named]
    if missing:
        raise UserError(
            f"the manifest {str(file)!r} has no column {' or '.join(map(repr, missing))}; "
            f"its columns are {', '.join(columns) or 'none'}"
        )
    return [canonical(row) for row in rows]


def _read_csv(file: Path) -> tuple[list[str], Iterable[Mapping[str, Any]]]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t" if file.suffix.lower() == ".tsv" else ",", strict=True)
        rows = list(reader)
        return [column.strip() for column in reader.fieldnames or ()], rows


def _read_parquet(file: Path) -> tuple[list[str], Iterable[Mapping[str, Any]]]:
    with file.open("rb") as stream:
        return _read_columns(pq.ParquetFile(stream))


def _read_columns(file: pq.ParquetFile) -> tuple[list[str], Iterable[Mapping[str, Any]]]:
    # Nested and binary columns (embedded images, say) are of no use here and may be larger than memory.
    heavy = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    plain = [column.name for column in file.schema_arrow if not any(is_kind(column.type) for is_kind in heavy)]
    return plain, file.read(columns=plain).to_pylist()


def canonical(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row under canonical names with JSON values, without empty values and NaN."""
    plain: dict[str, Any] = {}
    for column, value in row.items():
        if not isinstance(column, str) or value is None or value == "":
            continue
        if isinstance(value, float) and not math.isfinite(value):
            continue
        key = _RENAMED.get(column.strip(), column.strip())
        plain.setdefault(key, value if isinstance(value, (str, int, float, bool)) else str(value))
    return plain


def sample_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of ``Sample`` in a canonical row, except image, mask and id."""
    if "label" not in row:
        raise SampleError("there is no label")
    try:
        fold = int(row.get("fold", -1))
        if not -1 <= fold < 2**31:
            raise ValueError
    except ValueError:
        raise SampleError(f"the fold {row['fold']!r} is not a whole number from 0 up") from None
    return {
        "label": str(row["label"]).strip(),
        "source_id": str(row.get("source_id", "")),
        "split": str(row.get("split", "")),
        "fold": fold,
        "kind": str(row.get("kind", "static")),
        "condition": str(row.get("condition", ORIGINAL)),
        "licence": str(row.get("licence", "")),
        "attributes": {key: value for key, value in row.items() if key not in _KNOWN},
    }


def _sample(sample_id: str, row: Mapping[str, Any], inside: reading.InsideRoot, mask_format: str) -> Sample:
    if "path" not in row:
        raise SampleError("there is no path")
    fields = sample_fields(row)
    mask: MaskSource | None = None
    if "mask" in row:
        mask = FileMask(inside.file(str(row["mask"])), mask_format)
    path = inside.file(str(row["path"]))
    hashed = row.get("published_sha256")
    image: ImageSource = PublishedImage(path, str(hashed)) if hashed else FileImage(path)
    return Sample(sample_id, image=image, mask=mask, **fields)
