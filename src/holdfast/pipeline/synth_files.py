"""What ``synth`` leaves on disk besides the images: manifest, COCO files, tar and Parquet shards."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from holdfast.core.fingerprint import bytes_sha256
from holdfast.data.writers import coco_document, tar_images, write_atomic, write_parquet_shard, write_tar_shard
from holdfast.pipeline.progress import Progress
from holdfast.store import Parts, write_json, write_table

SHARD_FORMATS = ("webdataset", "parquet")

MANIFEST = pa.schema(
    [
        ("path", pa.string()),
        ("mask_path", pa.string()),
        ("sample_id", pa.string()),
        ("source_id", pa.string()),
        ("label", pa.string()),
        ("scenario", pa.string()),
        ("variant", pa.string()),
        ("parameters", pa.string()),
        ("donor_id", pa.string()),
        ("donor_label", pa.string()),
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
_INTERNAL = ["shard", "mask_rle", "row_id"]


def shard_path(out: Path, format: str, number: int) -> Path:
    """The file of a tar or Parquet shard."""
    return out / (f"shard-{number:06d}.tar" if format == "webdataset" else f"data-{number:06d}.parquet")


def write_shard(out: Path, format: str, number: int, files: list[tuple[dict[str, Any], bytes, bytes]]) -> None:
    """Write the images of one shard, with their masks and facts beside them."""
    write = write_tar_shard if format == "webdataset" else write_parquet_shard
    facts = [({k: v for k, v in row.items() if k not in _INTERNAL}, image, mask) for row, image, mask in files]
    write(shard_path(out, format, number), facts)


def finish(out: Path, parts: Parts, layout: str) -> None:
    """Gather the parts into ``manifest.parquet``, ``manifest.csv`` and a COCO file a condition."""
    table = parts.rows().sort_by([("scenario", "ascending"), ("variant", "ascending"), ("sample_id", "ascending")])
    public = table.drop_columns(_INTERNAL)
    write_table(out / "manifest.parquet", public)
    text = pa.BufferOutputStream()
    pacsv.write_csv(public, text)
    write_atomic(out / "manifest.csv", text.getvalue().to_pybytes())
    drawn = table.filter(pc.and_(pc.equal(table["status"], "ok"), pc.is_valid(table["mask_rle"])))
    folders = pa.array([path.partition("/")[0] for path in drawn["path"].to_pylist()], pa.string())
    for folder in pc.unique(folders).to_pylist():
        rows = drawn.filter(pc.equal(folders, folder)).to_pylist()
        (out / "coco").mkdir(exist_ok=True)
        write_json(out / "coco" / f"{folder}.json", coco_document(rows))


def broken_rows(out: Path, parts: Parts, progress: Progress) -> list[str]:
    """Hash every file against the manifest and forget the rows that do not hold, so that they are made again."""
    rows = parts.rows(["row_id", "sample_id", "path", "mask_path", "sha256", "status", "shard"]).to_pylist()
    rows = [row for row in rows if row["status"] == "ok"]
    broken = []
    progress("verify", 0, len(rows))
    for done, (row, content) in enumerate(_contents(out, rows), start=1):
        if content is None or bytes_sha256(content) != row["sha256"]:
            broken.append(row)
        progress("verify", done, len(rows))
    if broken:
        parts.drop(pc.field("row_id").isin([row["row_id"] for row in broken]))
    return [row["sample_id"] for row in broken]


def _contents(out: Path, rows: list[dict[str, Any]]) -> Iterable[tuple[dict[str, Any], bytes | None]]:
    """Each row with the bytes that are on disk for it, None where they are gone."""
    shards: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        tar, parquet = (shard_path(out, format, row["shard"]) for format in SHARD_FORMATS)
        if tar.exists() or parquet.exists():
            shards.setdefault(row["shard"], []).append(row)
            continue
        path = out / row["path"]
        mask_there = row["mask_path"] is None or (out / row["mask_path"]).exists()
        yield row, path.read_bytes() if path.is_file() and mask_there else None
    for number, members in shards.items():
        stored = _shard_images(out, number)
        yield from ((row, stored.get(row["sample_id"])) for row in members)


def _shard_images(out: Path, number: int) -> dict[str, bytes]:
    tar, parquet = (shard_path(out, format, number) for format in SHARD_FORMATS)
    if parquet.exists():
        table = pq.read_table(parquet, columns=["sample_id", "image"]).to_pylist()
        return {row["sample_id"]: row["image"]["bytes"] for row in table}
    return tar_images(tar)
