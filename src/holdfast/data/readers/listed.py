"""Images that a list names: a CSV or Parquet manifest, such as that of ``holdfast synth``, and WebDataset's shards.

Shards are indexed in place: an image is a range of bytes of a tar, nothing is extracted.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.errors import SampleError, UserError, raise_machine_trouble
from holdfast.core.names import Name
from holdfast.core.places import address, last_name, place, resolved
from holdfast.core.schema import newer_version
from holdfast.core.types import ORIGINAL, Collection, ImageSource, MaskSource, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import IMAGE_SUFFIXES, FileImage, PublishedImage, TarImage, read_range
from holdfast.data.masks import FileMask, TarMask

REQUIRED = ("path", "label")
_RENAMED = {"scenario": "condition", "mask_path": "mask", "license": "licence"}
_KNOWN = frozenset({"path", "label", "mask", "sample_id", "source_id", "split", "fold", "kind", "condition", "licence"})


def load_manifest(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``manifest:FILE.csv`` (or .tsv, .parquet).

    Columns: ``path`` and ``label``; if there, ``mask`` (or mask_path), ``sample_id``, ``source_id``, ``split``,
    ``fold``, ``kind``, ``condition`` (or scenario), ``licence``, ``published_sha256`` (a file with another hash is an
    error); all others become attributes. Paths are relative to
    the manifest's folder and must stay in it. Options: ``root`` (another folder for the paths), ``mask_format``,
    ``separator`` (of labels, if an image has several).
    """
    options = reading.text_options(name, ("root", "separator"))
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
            samples.append(_manifest_sample(sample_id, row, inside, options["mask_format"]))
        except SampleError as error:
            problems.append(Problem(sample_id or f"row {number}", f"row {number}: {error}"))
    samples = reading.without_repeats(samples, problems)
    title = file.stem if file.stem != "manifest" else last_name(resolved(file).parent)
    keys = reading.wordnet_keys({sample.label for sample in samples})
    return reading.finish(
        title, samples, problems, where=f"the manifest {str(file)!r}", keys=keys, masks=masks,
        format=options["mask_format"], separator=options.get("separator", ""),
    )  # fmt: skip


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows under their canonical column names, without empty cells."""
    columns, rows = read_table(file, "the manifest")
    named = {_RENAMED.get(column, column) for column in columns}
    missing = [column for column in REQUIRED if column not in named]
    if missing:
        raise UserError(
            f"the manifest {str(file)!r} has no column {' or '.join(map(repr, missing))}; "
            f"its columns are {', '.join(columns) or 'none'}"
        )
    return [canonical(row) for row in rows]


_PHOTO_COLUMNS = ("sample_id", "source_id", "path", "id", "image", "file_name", "filename", "file")


class AttributeTable:
    """Attributes of images from a CSV, TSV or Parquet file whose column path or id (or the like) names the image."""

    def __init__(self, path: str | Path) -> None:
        self.file = reading.existing(path, "the file of attributes")
        columns, rows = read_table(self.file, "the file of attributes")
        key = next((name for name in _PHOTO_COLUMNS if name in columns), None)
        if key is None:
            raise UserError(
                f"the file of attributes {str(path)!r} needs a column that names the image, one of "
                f"{', '.join(_PHOTO_COLUMNS)}; its columns are {', '.join(columns) or 'none'}"
            )
        self._rows: dict[str, dict[str, Any]] = {}
        for line, row in enumerate(map(canonical, rows), start=2):
            name = reading.without_suffix(str(row.pop(key, "")))
            if self._rows.setdefault(name, row) != row:
                raise UserError(f"the file of attributes {str(path)!r}, line {line}: {name!r} is there twice")

    def of(self, *names: str) -> dict[str, Any]:
        """Return the attributes of the image that has one of these ids, or a file of that name in a folder."""
        for name in names:
            short = reading.without_suffix(name)
            for known in (name, short, PurePosixPath(short).name):
                if known and known in self._rows:
                    return self._rows[known]
        return {}


def read_table(file: Path, what: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns and rows of a CSV, TSV or Parquet file; UserError if it cannot be read."""
    try:
        if file.suffix.lower() == ".parquet":
            return _read_parquet(file)
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, delimiter="\t" if file.suffix.lower() == ".tsv" else ",", strict=True)
            rows = list(reader)
            return [column.strip() for column in reader.fieldnames or ()], rows
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise UserError(f"{what} {str(file)!r} cannot be read: {error}") from error


def _read_parquet(file: Path) -> tuple[list[str], list[dict[str, Any]]]:
    # Nested and binary columns (embedded images, say) are of no use here and may be larger than memory.
    heavy = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    with file.open("rb") as stream:
        table = pq.ParquetFile(stream)
        if newer := newer_version(table.metadata.metadata):
            raise UserError(f"{file} {newer}")
        plain = [column.name for column in table.schema_arrow if not any(is_kind(column.type) for is_kind in heavy)]
        return plain, table.read(columns=plain).to_pylist()


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


def _manifest_sample(sample_id: str, row: Mapping[str, Any], inside: reading.InsideRoot, mask_format: str) -> Sample:
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


_MASK_NAMES = ("mask", "seg")
_LABEL_LIMIT = 1 << 20  # bytes; a label file beyond this is not one
_SHARD_LIMIT = 100_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


@dataclass(frozen=True, slots=True)
class _Group:
    """The members of a shard that share a key: (offset, size) by extension."""

    shard: Path
    key: str
    members: dict[str, tuple[int, int]] = field(default_factory=dict)


def load_webdataset(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``webdataset:shards-{000..003}.tar``, one .tar, or a folder of them.

    A key's members: an image (jpg, png, webp, …); a label in ``cls`` (an index or a name), ``json`` (``label`` and the
    manifest's other columns) or ``txt``; if there, a mask in ``mask.png`` or ``seg.png``. Keys are ids, unless
    the json has a ``sample_id``; keys used in several shards carry their shard's name. Options: ``classes`` (a file
    with a class name a line, for integer labels), ``mask_format``.
    """
    options = reading.text_options(name, ("classes",))
    classes = _class_names(options["classes"]) if "classes" in options else None
    problems: list[Problem] = []
    groups = [group for shard in shards(name.name) for group in _index(shard, problems)]
    ids = reading.unique_ids([group.key for group in groups], [f"{group.shard.stem}/{group.key}" for group in groups])
    samples = []
    for key, group in zip(ids, groups, strict=True):
        try:
            samples.append(_shard_sample(key, group, classes, options["mask_format"]))
        except SampleError as error:
            problems.append(Problem(key, str(error)))
    samples = reading.without_repeats(samples, problems)
    labels = [
        *(classes or ()),
        *sorted(
            {sample.label for sample in samples},
            key=lambda label: (not _is_index(label), int(label) if _is_index(label) else 0, label),
        ),
    ]
    return reading.finish(
        _title(name.name), samples, problems, where=f"the shards {name.name!r}", classes=labels,
        keys=reading.wordnet_keys(labels), masks=masks, format=options["mask_format"],
    )  # fmt: skip


def shards(pattern: str) -> list[Path]:
    """Return the shard files that a path, a folder or a brace pattern names; all must exist."""
    if _BRACES.search(pattern) and not place(pattern).exists():
        return [reading.existing(path, "the shard") for path in expand_braces(pattern)]
    path = reading.existing(pattern, "the shard")
    if not path.is_dir():
        return [path]
    tar_files = sorted(path.glob("*.tar"))
    if not tar_files:
        raise UserError(f"no .tar file in {pattern!r}")
    return tar_files


def expand_braces(pattern: str) -> list[str]:
    """Return every path of ``a-{000..003}.tar`` or ``{a,b}.tar``, in order."""
    parts = _BRACES.split(pattern)  # text and brace contents in turn
    choices = [[part] if index % 2 == 0 else _alternatives(part) for index, part in enumerate(parts)]
    paths = list(itertools.islice(itertools.product(*choices), _SHARD_LIMIT + 1))
    if len(paths) > _SHARD_LIMIT:
        raise UserError(f"{pattern!r} names more than {_SHARD_LIMIT:,} shards")
    return ["".join(path) for path in paths]


def _alternatives(content: str) -> Sequence[str]:
    numbers = _RANGE.fullmatch(content)
    if not numbers:
        return content.split(",")
    first, last = numbers.groups()
    if int(last) < int(first):
        raise UserError(f"the range {{{content}}} runs backwards")
    if int(last) - int(first) >= _SHARD_LIMIT:
        raise UserError(f"the range {{{content}}} names more than {_SHARD_LIMIT:,} shards")
    width = len(first) if first.startswith("0") else 0
    return [str(number).zfill(width) for number in range(int(first), int(last) + 1)]


def _title(pattern: str) -> str:
    name = PurePosixPath(pattern).name.removesuffix(".tar")
    return _BRACES.sub("", name).strip("-_. ") or last_name(resolved(place(pattern)).parent)


def _index(shard: Path, problems: list[Problem]) -> Iterator[_Group]:
    """Return the shard's groups in order; a damaged shard gives what came before the damage, and a problem."""
    group: _Group | None = None
    try:
        with shard.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if not member.isreg() or member.issparse() or path.name.startswith("."):
                    continue
                stem, _, extension = path.name.partition(".")
                key = (path.parent / stem).as_posix().lstrip("/")
                if group is None or group.key != key:
                    if group is not None:
                        yield group
                    group = _Group(shard, key)
                group.members[extension.lower()] = (member.offset_data, member.size)
    except (tarfile.TarError, OSError, ValueError) as error:
        raise_machine_trouble(error)
        problems.append(Problem(shard.name, f"the shard is damaged or not an uncompressed tar ({error})"))
    if group is not None:
        yield group


def _shard_sample(key: str, group: _Group, classes: Sequence[str] | None, mask_format: str) -> Sample:
    image = next((member for member in group.members if f".{member}" in IMAGE_SUFFIXES), None)
    if image is None:
        raise SampleError(f"there is no image under this key, only {', '.join(group.members)}")
    mask: MaskSource | None = None
    for extension, span in group.members.items():
        kind, _, suffix = extension.partition(".")
        if kind in _MASK_NAMES and f".{suffix}" in IMAGE_SUFFIXES:
            mask = TarMask(address(group.shard) or group.shard, *span, mask_format)
            break
    row = _row(group, classes)
    return Sample(
        str(row.get("sample_id", key)),
        image=TarImage(address(group.shard) or group.shard, *group.members[image]),
        mask=mask,
        **sample_fields(row),
    )


def _row(group: _Group, classes: Sequence[str] | None) -> dict[str, Any]:
    """Return the label members as a row of a manifest."""
    row: dict[str, Any] = {}
    if "json" in group.members:
        try:
            content = json.loads(_text(group, "json"))
        except (ValueError, RecursionError):
            raise SampleError("its .json member is not JSON") from None
        row = canonical(content) if isinstance(content, dict) else {}
        row.pop("path", None)
        row.pop("mask", None)
    for extension in ("cls", "txt"):
        if extension in group.members and (extension == "cls" or "label" not in row):
            row["label"] = _text(group, extension).strip()
    if "label" not in row or row["label"] == "":
        raise SampleError("there is no label: neither .cls, nor .txt, nor label in .json")
    if classes is not None and _is_index(str(row["label"])):
        index = int(row["label"])
        if index >= len(classes):
            raise SampleError(f"the label {index} is beyond the {len(classes)} names of the classes file")
        row["label"] = classes[index]
    return row


def _text(group: _Group, extension: str) -> str:
    offset, size = group.members[extension]
    if size > _LABEL_LIMIT:
        raise SampleError(f"its .{extension} member of {size:,} bytes is not a label")
    try:
        return read_range(group.shard, offset, size).decode()
    except UnicodeDecodeError:
        raise SampleError(f"its .{extension} member is not text") from None


def _class_names(path: str) -> list[str]:
    file = reading.existing(path, "the classes file")
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            names = [row[0].strip() for row in csv.reader(stream, delimiter="\t") if row and row[0].strip()]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"the classes file {path!r} cannot be read: {error}") from error
    if len(set(names)) != len(names):
        raise UserError(f"the classes file {path!r} names a class twice; keep one of each")
    return names


def _is_index(label: str) -> bool:
    return label.isascii() and label.isdigit() and len(label) < 10
