"""What ``synth`` leaves on disk apart from the images: manifest, COCO files, tar and Parquet shards."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from holdfast.core.errors import raise_machine_trouble
from holdfast.core.files import UNFINISHED, whole_file, write_atomic
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.schema import plain_schema, versioned
from holdfast.data.writers import coco_text, tar_images, write_parquet_shard, write_tar_shard
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.store import Parts
from holdfast.store.ids import by_file, compare

SHARD_FORMATS = ("webdataset", "parquet")

MANIFEST = plain_schema(
    "path text, mask_path text, mask_sha256 text, sample_id text, source_id text, label text, kind text, scenario "
    "text, variant text, parameters text, donor_id text, donor_label text, donor_unmasked flag, prompt text, "
    "cut_words text, asked_background text, generator text, generator_fingerprint text, image_seed long, attempt int, "
    "oracle text, oracle_accepted flag, oracle_score float, oracle_margin float, oracle_saw text, people_votes int, "
    "people_yes int, seed long, sha256 text, height int, width int, licence text, split text, fold int, status text, "
    "error text, shard int, mask_rle text, row_id text"
)
"""``cut_words``: of the prompt, which the generator did not read; ``asked_background``: the kind of background the
prompt names, if it is drawn from a list; ``image_seed``: what the generator started from; ``attempt``: 1 if
the first image was blank; ``people_votes``: of an image that went to people (--review); ``sha256``: of the
encoded image."""
DETAILS = (
    "donor_id", "donor_label", "donor_unmasked", "prompt", "cut_words", "asked_background", "generator",
    "generator_fingerprint", "image_seed", "attempt", "oracle", "oracle_accepted", "oracle_score", "oracle_margin",
    "oracle_saw",
)  # fmt: skip
"""The columns that a scenario fills."""

_INTERNAL = ["shard", "mask_rle", "row_id"]
_FOUND = ["row_id", "sample_id", "shard"]
_COCO = ["path", "label", "height", "width", "mask_rle", "licence"]

# Lets datasets.load_dataset(folder) which of the files are the dataset; it would take manifest and COCO files, too.
_DATASET_CARD = b"""---
configs:
- config_name: default
  data_files: data-*.parquet
---
Made by `holdfast synth`; `manifest.csv` lists every image.
"""


def shard_path(out: Path, format: str, number: int) -> Path:
    """Return the file of a tar or Parquet shard."""
    return out / (f"shard-{number:06d}.tar" if format == "webdataset" else f"data-{number:06d}.parquet")


def write_shard(out: Path, format: str, number: int, files: list[tuple[dict[str, Any], bytes, bytes]]) -> None:
    """Write the images of one shard, with their masks and facts next to them."""
    write = write_tar_shard if format == "webdataset" else write_parquet_shard
    facts = [({k: v for k, v in row.items() if k not in _INTERNAL}, image, mask) for row, image, mask in files]
    write(shard_path(out, format, number), facts)


def finish(out: Path, parts: Parts, format: str, progress: Progress = silent) -> None:
    """Gather the parts into ``manifest.parquet``, ``manifest.csv`` and a COCO file a condition."""
    # A large table is gone through some rows at a time, so that memory holds no more of it.
    done, total = 0, parts.count()
    progress("manifest", 0, total)
    public = pa.schema([field for field in MANIFEST if field.name not in _INTERNAL])
    with (
        whole_file(out / "manifest.parquet") as as_parquet,
        whole_file(out / "manifest.csv") as as_csv,
        pq.ParquetWriter(as_parquet, versioned(public), compression="zstd") as parquet,
        pacsv.CSVWriter(as_csv, public) as csv,
    ):
        for tables in in_order(parts, out):
            folders: dict[str, None] = {}
            for table in tables(MANIFEST.names):
                shown = table.drop_columns(_INTERNAL).cast(public)
                parquet.write_table(shown)
                csv.write_table(shown)
                folders |= dict.fromkeys(pc.unique(_folders(_drawn(table))).to_pylist())
                done += len(table)
                progress("manifest", done, total)
            for folder in folders:
                with whole_file(out / "coco" / f"{folder}.json") as path, path.open("w", encoding="utf8") as file:
                    file.writelines(coco_text(partial(_coco_rows, tables, folder)))
    if format == "parquet":
        write_atomic(out / "README.md", _DATASET_CARD)


def _drawn(table: pa.Table) -> pa.Table:
    """Return the rows that a COCO file has."""
    return table.filter(pc.and_(pc.equal(table["status"], "ok"), pc.is_valid(table["mask_rle"]))).select(_COCO)


def _folders(table: pa.Table) -> pa.ChunkedArray:
    """Return the first folder of each path."""
    return pc.list_element(pc.split_pattern(table["path"], "/", max_splits=1), 0)


def _coco_rows(tables: Tables, folder: str) -> Iterator[dict[str, Any]]:
    for table in tables([*_COCO, "sample_id", "status"]):
        drawn = _drawn(table)
        yield from _a_few_at_a_time(drawn.filter(pc.equal(_folders(drawn), folder)))


def _a_few_at_a_time(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table in batches; as Python objects they would take ten times its memory."""
    for batch in table.to_batches(max_chunksize=1000):
        yield from batch.to_pylist()


def broken_rows(out: Path, format: str, parts: Parts, progress: Progress) -> list[str]:
    """Hash every file against the manifest and forget the rows that do not hold, so that they are made again."""
    # A shard in which anything is wrong goes as a whole: it cannot be repaired in place.
    fine = pc.field("status") == "ok"
    total = sum(len(_read(path, ["status"], fine)) for path in parts.paths())
    progress("verify", 0, total)
    broken = []
    check = _shard_holds(out, format) if format in SHARD_FORMATS else _files_hold(out)
    for done, row in enumerate(_shard_by_shard(parts, fine), start=1):
        if not check(row):
            broken.append({name: row[name] for name in _FOUND})
        progress("verify", done, total)
    beside = _beside(parts, broken, fine) if format in SHARD_FORMATS else []
    return [row["sample_id"] for row in _forget(out, format, parts, beside, broken)]


def _shard_by_shard(parts: Parts, condition: pc.Expression) -> Iterator[dict[str, Any]]:
    """Yield the rows for which a condition holds, shard by shard; memory holds one part file."""
    shards = []
    for place, path in enumerate(parts.paths()):
        numbers = _read(path, ["shard"])["shard"]
        shards += [(number, place, path) for number in pc.unique(numbers).to_pylist()]
    columns = ["path", "sha256", "mask_path", "mask_sha256", *_FOUND]
    for number, _, path in sorted(shards):
        yield from _read(path, columns, condition & (pc.field("shard") == number)).to_pylist()


def _read(path: Path, columns: list[str], condition: pc.Expression | None = None) -> pa.Table:
    """Read one part file in one thread: several take more memory and no less time for so little."""
    return pq.read_table(path, schema=MANIFEST, columns=columns, filters=condition, use_threads=False)


def last_shard(parts: Parts) -> int:
    """Return the highest number that a shard has; -1 if there is none."""
    return max((shard for path in parts.paths() for shard in _read(path, ["shard"])["shard"].to_pylist()), default=-1)


def _beside(parts: Parts, unwanted: list[dict[str, Any]], condition: pc.Expression) -> list[dict[str, Any]]:
    """Return all rows for which a condition holds in the shards that hold unwanted rows."""
    spoiled = pc.field("shard").isin(pa.array({row["shard"] for row in unwanted}, pa.int32()))
    rows: list[dict[str, Any]] = parts.dataset().to_table(columns=_FOUND, filter=spoiled & condition).to_pylist()
    return rows


def drop_superseded(out: Path, format: str, parts: Parts, ids: Iterable[Sequence[str]], names: Iterable[str]) -> None:
    """Forget renderings that a planned one of the same name replaces: image, mask, seed or donors have changed."""
    # Clears away shards that nothing records as well: a killed run may have left one. ``format``: As in ``--format``.
    # ``parts``: The manifest so far. ``ids``: The ids of all planned rows, a few at a time; gone through if there
    # are rows at all. ``names``: The ``sample_id`` of every planned rendering; gone through if there are rows that
    # are not planned.
    strange = _not_planned(parts, ids)
    stale = [row for name in names for row in strange.pop(name, ())] if strange else []
    if format not in SHARD_FORMATS:
        _forget(out, format, parts, [], stale)
        return
    _forget(out, format, parts, _beside(parts, stale, pc.scalar(True)), stale)
    kept = {shard_path(out, format, number) for number in pc.unique(parts.rows(["shard"])["shard"]).to_pylist()}
    for path in {*out.glob("shard-*.tar"), *out.glob("data-*.parquet")} - kept:
        path.unlink()


def _not_planned(parts: Parts, ids: Iterable[Sequence[str]]) -> dict[str, list[dict[str, Any]]]:
    """Return ``sample_id`` → its rows that are none of these."""
    rows: dict[str, list[dict[str, Any]]] = {}
    if not parts.count():
        return rows
    planned, _ = compare(parts, ids)
    for path, flags in by_file(parts, planned):
        if not flags.all():
            for row in _read(path, _FOUND).filter(pa.array(~flags)).to_pylist():
                rows.setdefault(row["sample_id"], []).append(row)
    return rows


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
        except (OSError, pa.ArrowException) as error:
            raise_machine_trouble(error)
            return {}
        return {row["sample_id"]: row["image"]["bytes"] for row in rows}

    return lambda row: bytes_sha256(images(row["shard"]).get(row["sample_id"], b"")) == row["sha256"]


AT_ONCE = 100_000  # rows that are held and sorted at a time

Tables = Callable[[list[str]], Iterator[pa.Table]]
"""Gives the wanted columns of some rows, ``sample_id`` among them, in tables that follow one another; again whenever it
is called."""

_CONDITION = ["scenario", "variant"]


def in_order(parts: Parts, room: Path) -> Iterator[Tables]:
    """Yield all rows by condition and id: at once, or one condition at a time if there are many."""
    # Those of many are first copied to a file a condition, since each part has rows of all; ``room`` is the folder for
    # these files, which are gone afterwards.
    if parts.count() <= AT_ONCE:
        # One after the other: many small files take twice the memory when several threads read them.
        stored = [pq.read_table(path, schema=parts.schema, use_threads=False) for path in parts.paths()]
        whole = pa.concat_tables([parts.schema.empty_table(), *stored])
        everything = whole.sort_by([(name, "ascending") for name in (*_CONDITION, "sample_id")])
        yield lambda columns: iter([everything.select(columns)])
        return
    with tempfile.TemporaryDirectory(dir=room, prefix=UNFINISHED) as name:
        for path, firsts in _by_condition(parts, Path(name)):
            yield partial(_merged, path, sorted(firsts))
            path.unlink()


def _by_condition(parts: Parts, folder: Path) -> list[tuple[Path, list[tuple[str, int]]]]:
    """Write one file per condition with its rows, one batch per part; return first id and place of each batch."""
    files: dict[tuple[str, str], tuple[Path, list[tuple[str, int]], pa.RecordBatchFileWriter]] = {}
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with ExitStack() as opened:
        for part in parts.paths():
            rows = pq.read_table(part, schema=parts.schema, use_threads=False)
            for key in rows.group_by(_CONDITION).aggregate([]).to_pylist():
                name = key["scenario"], key["variant"]
                if name not in files:
                    path = folder / f"{len(files)}.arrow"
                    writer = opened.enter_context(pa.ipc.new_file(path, parts.schema, options=options))
                    files[name] = path, [], writer
                here = pc.and_(*(pc.equal(rows[column], key[column]) for column in _CONDITION))
                (batch,) = rows.filter(here).sort_by("sample_id").combine_chunks().to_batches()
                path, firsts, writer = files[name]
                firsts.append((batch["sample_id"][0].as_py(), len(firsts)))
                writer.write_batch(batch)
    return [(path, firsts) for _, (path, firsts, _) in sorted(files.items())]


def _merged(path: Path, firsts: Sequence[tuple[str, int]], columns: list[str]) -> Iterator[pa.Table]:
    """Yield the rows of a file by id."""
    # A part has images that follow one another, so what is before the first id of the next batch is complete, and few
    # batches are held at a time; of a dataset that is not sorted by its ids, all of them. ``path``: of
    # ``_by_condition``. ``firsts``: the first id of each batch and its place in the file, in order. ``columns``: which
    # of the table.
    with pa.memory_map(str(path)) as file:
        schema = pa.ipc.open_file(file).schema
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in columns])
        batches = pa.ipc.open_file(file, options=options)
        narrow = pa.schema([schema.field(name) for name in columns])
        # The texts of a column that are sorted at once may be more than the 2 GiB that the usual type counts up to.
        wide = pa.schema(
            [(column.name, pa.large_string() if column.type == pa.string() else column.type) for column in narrow]
        )
        held: list[pa.Table] = []
        enough = AT_ONCE // 4
        for number, (_, place) in enumerate(firsts, start=1):
            held.append(pa.Table.from_batches([batches.get_batch(place)]).select(columns).cast(wide))
            last = number == len(firsts)
            if sum(map(len, held)) < enough and not last:
                continue
            rows = pa.concat_tables(held).sort_by("sample_id")
            ready = len(rows) if last else pc.sum(pc.less(rows["sample_id"], firsts[number][0])).as_py()
            for start in range(0, ready, AT_ONCE):
                # taken, not sliced: a slice still counts from the first text of all
                yield rows.take(pa.array(range(start, min(start + AT_ONCE, ready)))).cast(narrow)
            held = [rows.slice(ready).combine_chunks()]
            enough = max(AT_ONCE // 4, 2 * (len(rows) - ready))  # else each of many that overlap is sorted in again
