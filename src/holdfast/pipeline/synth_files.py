"""What ``synth`` leaves on disk besides the images: manifest, COCO files, tar and Parquet shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from holdfast.core.files import whole_file
from holdfast.core.fingerprint import bytes_sha256
from holdfast.data.writers import coco_text, tar_images, write_atomic, write_parquet_shard, write_tar_shard
from holdfast.pipeline.progress import Progress
from holdfast.store import Parts
from holdfast.store.stored_ids import StoredIds

SHARD_FORMATS = ("webdataset", "parquet")

MANIFEST = pa.schema(
    [
        ("path", pa.string()),
        ("mask_path", pa.string()),
        ("mask_sha256", pa.string()),
        ("sample_id", pa.string()),
        ("source_id", pa.string()),
        ("label", pa.string()),
        ("kind", pa.string()),
        ("scenario", pa.string()),
        ("variant", pa.string()),
        ("parameters", pa.string()),
        ("donor_id", pa.string()),
        ("donor_label", pa.string()),
        ("donor_unmasked", pa.bool_()),
        ("prompt", pa.string()),
        ("cut_words", pa.string()),  # of the prompt, which the generator did not read
        ("asked_background", pa.string()),  # the kind of background the prompt names, where it is drawn from a list
        ("generator", pa.string()),
        ("generator_fingerprint", pa.string()),
        ("image_seed", pa.int64()),  # what the generator started from
        ("attempt", pa.int32()),  # 1 where the first picture was blank
        ("oracle", pa.string()),
        ("oracle_accepted", pa.bool_()),
        ("oracle_score", pa.float32()),
        ("oracle_margin", pa.float32()),
        ("oracle_saw", pa.string()),
        ("people_votes", pa.int32()),  # of a picture that went to people (--review)
        ("people_yes", pa.int32()),
        ("seed", pa.int64()),
        ("sha256", pa.string()),  # of the encoded image
        ("height", pa.int32()),
        ("width", pa.int32()),
        ("licence", pa.string()),
        ("split", pa.string()),
        ("fold", pa.int32()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("shard", pa.int32()),
        ("mask_rle", pa.string()),
        ("row_id", pa.string()),
    ]
)
DETAILS = (
    "donor_id", "donor_label", "donor_unmasked", "prompt", "cut_words", "asked_background", "generator",
    "generator_fingerprint", "image_seed", "attempt", "oracle", "oracle_accepted", "oracle_score", "oracle_margin",
    "oracle_saw",
)  # fmt: skip
"""The columns that a scenario fills."""

_INTERNAL = ["shard", "mask_rle", "row_id"]
_FOUND = ["row_id", "sample_id", "shard"]
_COCO = ["path", "label", "height", "width", "mask_rle", "licence"]

AT_ONCE = 200_000
"""Rows of the manifest that are held at a time; of a larger one, those of a condition."""

# Tells datasets.load_dataset(folder) which of the files are the dataset; it would take manifest and COCO files, too.
_DATASET_CARD = b"""---
configs:
- config_name: default
  data_files: data-*.parquet
---
Made by `holdfast synth`; `manifest.csv` lists every image.
"""


def shard_path(out: Path, format: str, number: int) -> Path:
    """The file of a tar or Parquet shard."""
    return out / (f"shard-{number:06d}.tar" if format == "webdataset" else f"data-{number:06d}.parquet")


def write_shard(out: Path, format: str, number: int, files: list[tuple[dict[str, Any], bytes, bytes]]) -> None:
    """Write the images of one shard, with their masks and facts beside them."""
    write = write_tar_shard if format == "webdataset" else write_parquet_shard
    facts = [({k: v for k, v in row.items() if k not in _INTERNAL}, image, mask) for row, image, mask in files]
    write(shard_path(out, format, number), facts)


def finish(out: Path, parts: Parts, format: str) -> None:
    """Gather the parts into ``manifest.parquet``, ``manifest.csv`` and a COCO file a condition.

    A large table is gone through a condition at a time, so that memory holds no more of it.
    """
    public = pa.schema([field for field in MANIFEST if field.name not in _INTERNAL])
    with (
        whole_file(out / "manifest.parquet") as as_parquet,
        whole_file(out / "manifest.csv") as as_csv,
        pq.ParquetWriter(as_parquet, public, compression="zstd") as parquet,
        pacsv.CSVWriter(as_csv, public) as csv,
    ):
        for table in _by_condition(parts):
            shown = table.drop_columns(_INTERNAL).cast(public)
            parquet.write_table(shown)
            csv.write_table(shown)
            _write_coco(out, table)
    if format == "parquet":
        write_atomic(out / "README.md", _DATASET_CARD)


def _by_condition(parts: Parts) -> Iterator[pa.Table]:
    """All rows, by condition and id: in one table, or one a condition where there are many."""
    data, order = parts.dataset(), [("scenario", "ascending"), ("variant", "ascending"), ("sample_id", "ascending")]
    if data.count_rows() <= AT_ONCE:
        yield data.to_table().sort_by(order)
        return
    keys = ["scenario", "variant"]
    found = {tuple(row.values()) for batch in data.to_batches(columns=keys)
             for row in pa.table(batch).group_by(keys).aggregate([]).to_pylist()}  # fmt: skip
    for scenario, variant in sorted(found):
        here = (pc.field("scenario") == scenario) & (pc.field("variant") == variant)
        yield data.to_table(filter=here).sort_by("sample_id")


def _write_coco(out: Path, table: pa.Table) -> None:
    drawn = table.select(_COCO).filter(pc.and_(pc.equal(table["status"], "ok"), pc.is_valid(table["mask_rle"])))
    folders = pc.list_element(pc.split_pattern(drawn["path"], "/", max_splits=1), 0)
    for folder in pc.unique(folders).to_pylist():
        rows = partial(_a_few_at_a_time, drawn.filter(pc.equal(folders, folder)))
        with whole_file(out / "coco" / f"{folder}.json") as path, path.open("w", encoding="utf8") as file:
            file.writelines(coco_text(rows))


def _a_few_at_a_time(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table; as Python's objects they would take ten times its memory."""
    for batch in table.to_batches(max_chunksize=1000):
        yield from batch.to_pylist()


def broken_rows(out: Path, format: str, parts: Parts, progress: Progress) -> list[str]:
    """Hash every file against the manifest and forget the rows that do not hold, so that they are made again.

    A shard in which anything is wrong goes as a whole: it cannot be mended in place.
    """
    columns = ["row_id", "sample_id", "path", "sha256", "mask_path", "mask_sha256", "status", "shard"]
    rows = [row for row in parts.rows(columns).to_pylist() if row["status"] == "ok"]
    progress("verify", 0, len(rows))
    broken = []
    check = _shard_holds(out, format) if format in SHARD_FORMATS else _files_hold(out)
    for done, row in enumerate(sorted(rows, key=lambda row: row["shard"]), start=1):
        if not check(row):
            broken.append(row)
        progress("verify", done, len(rows))
    return [row["sample_id"] for row in _forget(out, format, parts, rows, broken)]


def drop_superseded(out: Path, format: str, parts: Parts, ids: Iterable[Sequence[str]], names: Iterable[str]) -> None:
    """Forget renderings that a planned one of the same name replaces: image, mask, seed or donors have changed.

    Clears away shards that nothing records as well: a killed run may have left one.

    Args:
        out: The folder that ``synth`` writes to.
        format: As in ``--format``.
        parts: The manifest so far.
        ids: The ids of all planned rows, a few at a time; gone through where there are rows at all.
        names: The ``sample_id`` of every planned rendering; gone through where there are rows that are not planned.
    """
    strange = _not_planned(parts, ids)
    stale = [row for name in names for row in strange.pop(name, ())] if strange else []
    if format not in SHARD_FORMATS:
        _forget(out, format, parts, [], stale)
        return
    spoiled = pc.field("shard").isin(pa.array({row["shard"] for row in stale}, pa.int32()))
    _forget(out, format, parts, parts.dataset().to_table(columns=_FOUND, filter=spoiled).to_pylist(), stale)
    kept = {shard_path(out, format, number) for number in pc.unique(parts.rows(["shard"])["shard"]).to_pylist()}
    for path in {*out.glob("shard-*.tar"), *out.glob("data-*.parquet")} - kept:
        path.unlink()


def _not_planned(parts: Parts, ids: Iterable[Sequence[str]]) -> dict[str, list[dict[str, Any]]]:
    """``sample_id`` → the rows under it that are none of these."""
    stored = StoredIds(parts.dataset())
    planned = np.zeros(len(stored), bool)
    for some in ids if len(stored) else ():
        places = stored.places(some)
        planned[places[places >= 0]] = True
    found: dict[str, list[dict[str, Any]]] = {}
    if planned.all():
        return found
    for batch in parts.dataset().to_batches(columns=_FOUND):
        others = ~planned[stored.places(batch["row_id"].to_pylist())]
        for row in batch.filter(pa.array(others)).to_pylist():
            found.setdefault(row["sample_id"], []).append(row)
    return found


def _forget(
    out: Path, format: str, parts: Parts, rows: list[dict[str, Any]], unwanted: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Drop rows; in shards with them all that share one, and the shard. Returns what was dropped."""
    if format in SHARD_FORMATS:
        spoiled = {row["shard"] for row in unwanted}
        unwanted = [row for row in rows if row["shard"] in spoiled]
        for number in spoiled:
            shard_path(out, format, number).unlink(missing_ok=True)
    parts.drop_ids([row["row_id"] for row in unwanted])
    return unwanted


def _files_hold(out: Path) -> Callable[[dict[str, Any]], bool]:
    def holds(row: dict[str, Any]) -> bool:
        return all(
            path is None or ((out / path).is_file() and bytes_sha256((out / path).read_bytes()) == digest)
            for path, digest in ((row["path"], row["sha256"]), (row["mask_path"], row["mask_sha256"]))
        )

    return holds


def _shard_holds(out: Path, format: str) -> Callable[[dict[str, Any]], bool]:
    @lru_cache(maxsize=1)  # rows come shard by shard
    def images(number: int) -> dict[str, bytes]:
        path = shard_path(out, format, number)
        if format == "webdataset":
            return tar_images(path)
        try:
            rows = pq.read_table(path, columns=["sample_id", "image"]).to_pylist()
        except (OSError, pa.ArrowException):
            return {}
        return {row["sample_id"]: row["image"]["bytes"] for row in rows}

    return lambda row: bytes_sha256(images(row["shard"]).get(row["sample_id"], b"")) == row["sha256"]
