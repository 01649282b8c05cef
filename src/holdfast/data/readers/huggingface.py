"""Hugging Face dataset folders, read with PyArrow: Parquet files that hold images, and ``save_to_disk`` folders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from holdfast.core.errors import SampleError, UserError, raise_machine_trouble
from holdfast.core.names import Name, unknown
from holdfast.core.places import address, place, shown
from holdfast.core.types import Collection, ImageSource, MaskSource, Problem, Sample
from holdfast.data import reading
from holdfast.data.images import EncodedImage, FileImage
from holdfast.data.masks import EncodedMask
from holdfast.data.readers.listed import canonical, sample_fields

_LABELS = ("label", "labels", "class", "category", "fine_label")
_SPLIT = re.compile(r"(train|test|val|valid|validation)(?=[-.]|$)")
_NO_DATA = frozenset({"manifest.parquet", "samples.parquet"})
_DICT, _STATE = "dataset_dict.json", "state.json"


@dataclass(frozen=True, slots=True)
class InCell:
    """The bytes in a cell of a Parquet or Arrow file: a row of one of its groups."""

    path: str
    group: int
    row: int
    column: str

    def read(self) -> bytes:
        """Return the stored bytes."""
        return _cell(self.path, self.group, self.row, self.column)


@dataclass(frozen=True, slots=True)
class CellImage(InCell, EncodedImage):
    """An image in a cell."""


@dataclass(frozen=True, slots=True)
class CellMask(InCell, EncodedMask):
    """A mask in a cell."""

    format: str = "auto"


@dataclass(frozen=True)
class _Table:
    """A file of the dataset with its split."""

    file: Path
    split: str

    @property
    def schema(self) -> pa.Schema:
        with self.file.open("rb") as stream:
            if self.file.suffix == ".parquet":
                return pq.ParquetFile(stream).schema_arrow
            return pa.ipc.open_stream(stream).schema

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield the group, the row in it and the values of some columns."""
        for group, table in enumerate(_groups(self.file, columns)):
            for row, values in enumerate(table.to_pylist()):
                yield group, row, values


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Read ``huggingface:DIR``: Parquet files as the hub has them, a folder of ``save_to_disk``, or a Parquet file.

    Also what ``holdfast share export --to huggingface`` and ``synth --format parquet`` write. Images are read from
    the files when they are needed. Options: ``image``, ``mask`` and ``label`` (names of columns), ``config`` (a folder,
    if several hold images), ``mask_format``.
    """
    options = reading.text_options(name, ("image", "mask", "label", "config"))
    root = reading.existing(name.name, "the dataset")
    try:
        return _read(root, options, masks)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise UserError(f"{str(root)!r} cannot be read as a Hugging Face dataset: {error}") from error


def matches(root: Path) -> bool:
    """Return whether a folder, or a Parquet file, clearly is such a dataset."""
    try:
        if not root.is_dir():
            return _images_in(_Table(root, "").schema)
        if (root / _DICT).is_file() or ((root / _STATE).is_file() and (root / "dataset_info.json").is_file()):
            return True
        return any(True for _ in _parquet_folders(root))
    except (OSError, pa.ArrowException):
        return False


def _read(root: Path, options: Mapping[str, str], masks: Path | None) -> Collection:
    tables = list(_tables(root, options.get("config", "")))
    schema = tables[0].schema
    said = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))  # by the ``datasets`` library
    features = said.get("info", {}).get("features", {})
    image = _column(schema, options.get("image", ""), ("image", "img"), "image", pictures=True)
    mask = _column(schema, options.get("mask", ""), ("mask",), "mask", pictures=True)
    label = _column(schema, options.get("label", ""), _LABELS, "label")
    if not image or not label:
        missing = "image" if not image else "label"
        raise UserError(
            f"{str(root)!r} has no column with the {missing}s that is called so; its columns are "
            f"{', '.join(schema.names)}: name one with ?{missing}=COLUMN"
        )
    names = features[label].get("names") if isinstance(features.get(label), dict) else None
    inside, problems = reading.InsideRoot(root if root.is_dir() else root.parent), list[Problem]()
    rows: list[tuple[Sample, str]] = []
    for table in tables:
        rows += _samples(table, image, mask, label, names, inside, options["mask_format"], problems)
    ids = reading.unique_ids([sample.sample_id for sample, _ in rows], [place for _, place in rows])
    samples = reading.without_repeats(map(_renamed, (sample for sample, _ in rows), ids), problems)
    present = {sample.label for sample in samples}
    classes = [each for each in names if each in present] if names and present <= set(names) else None
    return reading.finish(
        reading.collection_name(root) if root.is_dir() else root.stem, samples, problems, where=repr(str(root)),
        classes=classes, keys=reading.wordnet_keys(present), masks=masks, format=options["mask_format"],
    )  # fmt: skip


def _renamed(sample: Sample, sample_id: str) -> Sample:
    if sample.sample_id == sample_id:
        return sample
    source = sample_id if sample.source_id == sample.sample_id else sample.source_id
    return replace(sample, sample_id=sample_id, source_id=source)


def _samples(
    table: _Table, image: str, mask: str, label: str, names: Sequence[str] | None, inside: reading.InsideRoot,
    mask_format: str, problems: list[Problem],
) -> Iterator[tuple[Sample, str]]:  # fmt: skip
    """Yield the samples of a file, each with an id that no other has."""
    schema, path = table.schema, shown(table.file)
    plain = [field.name for field in schema if not pa.types.is_nested(field.type) and not _is_picture(field.type)]
    parts = [f"{each}.path" for each in (image, mask) if each and pa.types.is_struct(schema.field(each).type)]
    embedded = True  # whether the images are in the file: else it has their paths
    if pa.types.is_struct(schema.field(image).type):
        first = next(_groups(table.file, [f"{image}.bytes"]), None)
        embedded = first is not None and len(first) > 0 and first[image][0].as_py()["bytes"] is not None
    for group, row, values in table.rows([*plain, *parts]):
        place = f"{table.split}/{table.file.stem}/{group}/{row}".lstrip("/")
        file = (values.pop(image, None) or {}).get("path") or ""
        has_mask = values.pop(mask) is not None if f"{mask}.path" in parts else bool(mask)
        value = values.pop(label)
        facts = canonical(values)
        with suppress(ValueError):
            facts = canonical(json.loads(str(facts.pop("attributes", "{}")))) | facts
        if value is not None:
            known = names and isinstance(value, int) and 0 <= value < len(names)
            facts["label"] = names[value] if names and known else str(value)
        facts.setdefault("split", table.split)
        facts.pop("path", None)
        own = str(facts.pop("sample_id", ""))
        try:
            source: ImageSource = CellImage(path, group, row, image) if embedded else FileImage(inside.file(file))
            drawn: MaskSource | None = CellMask(path, group, row, mask, mask_format) if has_mask else None
            sample = Sample(
                own or reading.without_suffix(file) or place, image=source, mask=drawn, **sample_fields(facts)
            )
            yield sample, own or place
        except SampleError as error:
            problems.append(Problem(own or place, str(error)))


def _column(schema: pa.Schema, asked: str, usual: Sequence[str], what: str, *, pictures: bool = False) -> str:
    """Return the column that was asked for, else one with a usual name; '' if there is none."""
    if asked and asked not in schema.names:
        raise unknown(f"column with the {what}s", asked, schema.names)
    fitting = [name for name in schema.names if _is_picture(schema.field(name).type) == pictures]
    return asked or next((name for name in usual if name in fitting), "")


def _is_picture(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and pa.types.is_binary(field.type) for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _images_in(schema: pa.Schema) -> bool:
    return any(pa.types.is_struct(field.type) and _is_picture(field.type) for field in schema)


def _tables(root: Path, config: str) -> Iterator[_Table]:
    if not root.is_dir():
        yield _Table(root, "")
    elif (root / _DICT).is_file():
        for split in json.loads((root / _DICT).read_text(encoding="utf-8"))["splits"]:
            yield from _arrow_files(reading.existing(root / Path(str(split)).name, "the split"), str(split))
    elif (root / _STATE).is_file():
        yield from _arrow_files(root, "")
    else:
        folders = {folder.name if folder != root else "": files for folder, files in _parquet_folders(root)}
        if not folders:
            raise UserError(f"{str(root)!r} has no Parquet file with an image column, and no {_STATE}")
        if config and config not in folders:
            raise unknown(f"folder with images in {str(root)!r}", config, folders)
        if len(folders) > 1 and not config:
            raise UserError(f"{str(root)!r} has images in several folders; name one: ?config={' or '.join(folders)}")
        for file in folders[config] if config else next(iter(folders.values())):
            split = _SPLIT.match(file.name)
            yield _Table(file, split[0] if split else "")


def _arrow_files(folder: Path, split: str) -> Iterator[_Table]:
    state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    if state.get("_indices_data_files"):
        raise UserError(f"{str(folder)!r} has an index of chosen rows; write it with flatten_indices() first")
    for listed in state["_data_files"]:
        yield _Table(folder / Path(str(listed["filename"])).name, split or str(state.get("_split") or ""))


def _parquet_folders(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield folders whose Parquet files hold images: the root, ``data``, and any other with a card next to it."""
    below = reading.visible_folders(root)
    inner = below if (root / "README.md").is_file() else [folder for folder in below if folder == "data"]
    for folder in (root, *(root / each for each in inner)):
        files = sorted(file for file in folder.glob("*.parquet") if file.name not in _NO_DATA)
        if files and _images_in(_Table(files[0], "").schema):
            yield folder, files


def _groups(file: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield tables of some columns, one per group of rows; ``image.path`` is a part of a column."""
    if file.suffix == ".parquet":
        with file.open("rb") as stream:
            opened = pq.ParquetFile(stream)
            for group in range(opened.num_row_groups):
                yield opened.read_row_group(group, columns=list(columns))
        return
    names = list(dict.fromkeys(column.partition(".")[0] for column in columns))
    for batch in _batches(shown(file)):
        whole = pa.Table.from_batches([batch]).select(names)
        for column in columns:
            name, _, part = column.partition(".")
            if part:  # without the images themselves, which would become Python objects
                cells = whole[name].combine_chunks()
                kept = pa.StructArray.from_arrays([cells.field(part)], [part], mask=cells.is_null())
                whole = whole.set_column(names.index(name), name, kept)
        yield whole


@lru_cache(maxsize=16)
def _batches(path: str) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow stream; on a disk they stay there until they are looked at."""
    source = place(path).open("rb") if address(path) else pa.memory_map(path)
    with pa.ipc.open_stream(source) as stream:
        return list(stream)


@lru_cache(maxsize=8)
def _cells(path: str, group: int, column: str) -> Any:
    """Return a column of a group of rows: neighbours are asked for one after the other."""
    if not path.endswith(".parquet"):
        return _batches(path)[group][column]
    with place(path).open("rb") as stream:
        return pq.ParquetFile(stream).read_row_group(group, columns=[column])[column].combine_chunks()


def _cell(path: str, group: int, row: int, column: str) -> bytes:
    try:
        value = _cells(path, group, column)[row].as_py()
    except (OSError, IndexError, pa.ArrowException) as error:
        raise_machine_trouble(error)
        raise SampleError(f"{Path(path).name} cannot be read: {error}") from error
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise SampleError(f"row {row} of {Path(path).name} holds no image")
    return data
