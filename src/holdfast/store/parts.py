"""A growing table as a folder of Parquet part files.

Every file is written under a temporary name, synced and renamed, so that neither a killed process nor a power cut
leaves a file half-written. A checksum in each file shows whether it was damaged later.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from holdfast import registry
from holdfast.core.errors import DamageWarning, HoldfastError, UserError, cannot_write, first_line
from holdfast.core.files import check_own, clear_unfinished, no_empty_folders, whole_file
from holdfast.core.fingerprint import fingerprint
from holdfast.core.places import address
from holdfast.core.schema import FRAMES, LATENTS, PREDICTIONS, WALKS, versioned
from holdfast.core.system import lock_file
from holdfast.store.checksums import add_checksum, damage_of, refusal_of

_MENDED = re.compile(r"(part-.*|samples)\.parquet")  # made again by the command that wrote them


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON under a temporary name, then rename."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    with whole_file(path, sync=True) as temporary:
        temporary.write_text(text, encoding="utf8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that Holdfast wrote; a UserError names one that is damaged."""
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: BaseException) -> UserError:
    """Return what is said of a damaged file that no command makes again by itself."""
    return UserError(
        f"{path} is damaged ({first_line(error)}); put back a copy of it, or delete it, and give the same command again"
    )


def write_table(path: Path, table: pa.Table | pa.RecordBatchReader) -> None:
    """Write Parquet with version and checksum under a temporary name, then rename; a full disk leaves no half file."""
    schema = versioned(table.schema)
    with whole_file(path, sync=True) as temporary:
        if isinstance(table, pa.Table):
            pq.write_table(table.replace_schema_metadata(schema.metadata), temporary, compression="zstd")
        else:
            with pq.ParquetWriter(temporary, schema, compression="zstd") as file:
                for batch in table:
                    file.write_batch(batch)
        add_checksum(temporary)


def read_table(path: Path, schema: pa.Schema | None = None, key: Sequence[str] = ()) -> pa.Table:
    """Read a Parquet file that Holdfast wrote, after ``check_table``."""
    check_table(path, schema, key)
    return pq.read_table(path, schema=schema, partitioning=None).unify_dictionaries()


def check_table(path: Path, schema: pa.Schema | None = None, key: Sequence[str] = ()) -> None:
    """Raise a UserError that names the file if it is damaged, newer than this Holdfast, or not of the schema."""
    if damage := damage_of(path):
        raise UserError(
            f"{path} is damaged: {damage}. Run the command that wrote it (such as holdfast eval) again with the same "
            "--out: it sets the file aside and makes the lost rows again"
        )
    if refusal := refusal_of(path, schema, tuple(key)):
        raise UserError(f"{path} {refusal}")


_LOCK = ".lock"
_OF_A_RUN = ("spec.json", "predictions", "manifest", "data/manifest.parquet")  # the last: objects are written first
DAMAGED = "damaged"
"""The folder for damaged tables, below the one that is written to; next to whole ones, other programs read them."""


@contextmanager
def writing(folder: Path, *marks: str) -> Iterator[None]:
    """Hold the right to write below a folder, which one process at a time has.

    A folder that has files must have one of ``marks`` (those of a run by default), else a UserError is raised.
    """
    # Makes the folder, deletes unfinished files and sets damaged tables aside. The kernel drops the lock with the
    # process, even after kill -9. A folder that was made here and is still empty after an error is removed again.
    if url := address(folder):
        raise UserError(f"this command writes to a folder of the disk, not to {url}; copy it there afterwards")
    check_own(folder, *(marks or _OF_A_RUN))
    with no_empty_folders(folder, own=_LOCK), _locked(folder):
        _set_damaged_aside(folder, clear_unfinished(folder, ending=".parquet"))
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("w")
    except OSError as error:
        raise cannot_write(f"to {folder}", error) from error
    with lock:
        if not lock_file(lock, wait=False):
            raise UserError(f"another process is writing to {folder}; wait for it or choose another --out")
        try:
            yield
        except Exception:  # a folder that is gone explains every error that follows from it
            _check_still_there(folder, lock.fileno())
            raise
        _check_still_there(folder, lock.fileno())


def _check_still_there(folder: Path, lock: int) -> None:
    """Raise an error if the folder of an open lock was removed or moved: what was written since is not all in one."""
    try:
        same = os.path.samestat(os.fstat(lock), (folder / _LOCK).stat())
    except OSError:
        same = False
    if not same:
        raise HoldfastError(
            f"{folder} was removed or moved while the command wrote to it, so files are missing there; run the same "
            "command again"
        )


def _set_damaged_aside(out: Path, paths: Sequence[str]) -> None:
    """Move damaged tables to ``DAMAGED`` with a warning, and drop the rows that need what was lost with them."""
    folders = set()
    for path in map(Path, paths):
        if _MENDED.fullmatch(path.name) and (damage := damage_of(path)):
            aside = out / DAMAGED / f"{path.relative_to(out)}.damaged"
            aside.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, aside)
            folders.add(path.parent)
            warnings.warn(
                f"{path} is damaged: {damage}. It was moved to {aside}; its rows are made again",
                DamageWarning,
                stacklevel=4,
            )
    for folder in folders:
        if folder.name == "predictions":
            _drop_unpaired(folder.parent, detail_tables())
        elif folder.parent.name == "details" and folder.name in detail_tables():
            _drop_unpaired(folder.parent.parent, [folder.name])


def _drop_unpaired(run: Path, tables: Iterable[str]) -> None:
    """Drop details without their row, and rows without the details that they must have."""
    predictions = Parts(run / "predictions", PREDICTIONS)
    stored = predictions.stored_ids()
    for name in tables:
        schema, needed_by = detail_tables()[name]
        details = Parts(run / "details" / name, schema)
        if not details.folder.is_dir():
            continue
        detailed = details.stored_ids()
        details.drop_ids(detailed - stored)
        if needed_by is not None:
            owners = predictions.dataset().to_table(["row_id"], needed_by & pc.field("status").isin(_ANSWERED))
            predictions.drop_ids(set(owners["row_id"].to_pylist()) - detailed)


_ANSWERED = ["ok", "rejected"]
_WALKED = (pc.field("kind") == "dynamic") & pc.field("condition").isin(["perturbed", "random_walk"])


def detail_tables() -> dict[str, tuple[pa.Schema, ds.Expression | None]]:
    """Return the tables below ``details/`` with their schemas, and which rows of the one table have a row in each."""
    tables: dict[str, tuple[pa.Schema, ds.Expression | None]] = {
        "walks": (WALKS, _WALKED), "frames": (FRAMES, None), "latents": (LATENTS, None)
    }  # fmt: skip
    for task in map(registry.tasks.get, registry.tasks):
        own = pc.field("task") == task.name
        tables |= {name: (schema, own if name == task.required else None) for name, schema in task.tables.items()}
    return tables


class Parts:
    """The part files of one table; the columns of ``key`` name a row. Only rows ``where`` something holds are read."""

    def __init__(
        self, folder: Path, schema: pa.Schema, key: Sequence[str] = ("row_id",), *, where: ds.Expression | None = None
    ) -> None:
        self.folder = folder
        self.schema = schema
        self.key = tuple(key)
        self.where = where

    def paths(self) -> list[Path]:
        """Return the part files, after checking them."""
        paths = sorted(self.folder.glob("part-*.parquet"))
        for path in paths:
            check_table(path, self.schema, self.key)
        return paths

    def write(self, rows: pa.Table, *, of: Collection[str] = ()) -> Path:
        """Add rows as one part file, in the place of one that was written for the same rows."""
        # A worker may be killed after it has written its part and before it has said so. The worker that does the work
        # again then writes the same file: the name follows from the rows, so none is there twice. ``rows``: of the
        # table's schema. ``of``: what was asked for, if which rows come of it may differ from one time to the next:
        # the name then follows from this.
        rows = rows.cast(self.schema)
        names: list[Any] = sorted(of) or sorted(zip(*(rows[name].to_pylist() for name in self.key), strict=True))
        path = self.folder / f"part-{fingerprint(names)[:32]}.parquet"
        write_table(path, rows)
        return path

    def dataset(self) -> ds.Dataset:
        """Return all parts as one Arrow dataset, which is read piece by piece."""
        paths = [str(path) for path in self.paths()]
        if not paths:
            return ds.dataset(self.schema.empty_table())
        whole = ds.dataset(paths, schema=self.schema, format="parquet")
        # A filtered dataset is not part of a union, and DuckDB reads past its filter: the rows themselves are.
        return whole if self.where is None else ds.dataset(whole.to_table(filter=self.where))

    def count(self) -> int:
        """Return the number of rows. ``dataset().count_rows()`` would keep the metadata of every file in memory."""
        if self.where is not None:
            return int(self.dataset().count_rows())
        return sum(pq.read_metadata(path).num_rows for path in self.paths())

    def rows(self, columns: list[str] | None = None) -> pa.Table:
        """Return the table, or some of its columns; words have one dictionary, without which Arrow groups no column."""
        return self.dataset().to_table(columns=columns).unify_dictionaries()

    def stored_ids(self) -> set[str]:
        """Return the ids of all stored rows."""
        return set(self.rows(["row_id"])["row_id"].to_pylist())

    def drop_ids(self, ids: Collection[str]) -> int:
        """Remove the rows with these ids and return how many there were."""
        return self.drop(pc.field("row_id").isin(pa.array(ids, pa.string()))) if ids else 0

    def drop_rows(self, dropped: Iterable[NDArray[np.bool_]]) -> None:
        """Remove rows by their place; ``dropped`` has the flags of one part file after the other."""
        for path, flags in zip(self.paths(), dropped, strict=True):
            if flags.any():
                write_table(path, pq.read_table(path, schema=self.schema).filter(pa.array(~flags)))

    def drop(self, condition: ds.Expression) -> int:
        """Remove the rows for which a condition holds and return how many there were."""
        dropped = 0
        for path in self.paths():
            part = ds.dataset(path, schema=self.schema, format="parquet")
            if part.count_rows(filter=~condition) == part.count_rows():  # looks at no other column
                continue
            table = pq.read_table(path, schema=self.schema)
            kept = table.filter(~condition)
            dropped += table.num_rows - kept.num_rows
            write_table(path, kept)
        return dropped
