"""A growing table as a folder of Parquet part files.

Every file is written under a temporary name and renamed, so that a killed process leaves nothing half-written.
"""

from __future__ import annotations

import errno
import fcntl
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from holdfast.core.errors import UserError
from holdfast.core.files import clear_unfinished, whole_file
from holdfast.core.fingerprint import fingerprint
from holdfast.core.places import address


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON under a temporary name, then rename."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf8")


def write_table(path: Path, table: pa.Table) -> None:
    """Write Parquet under a temporary name, then rename; a full disk leaves no torso."""
    with whole_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """The right to write below a folder, for one process at a time; makes the folder and clears unfinished files.

    The kernel drops the lock with the process, even after kill -9.
    """
    if url := address(folder):
        raise UserError(f"this command writes to a folder of the disk, not to {url}; copy it there afterwards")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise UserError(f"another process is writing to {folder}; wait for it or choose another --out") from error
        clear_unfinished(folder)
        yield


class Parts:
    """The part files of one table; each row has a ``row_id``, which with other columns of ``key`` names it."""

    def __init__(self, folder: Path, schema: pa.Schema, key: Sequence[str] = ("row_id",)) -> None:
        self.folder = folder
        self.schema = schema
        self.key = tuple(key)

    def paths(self) -> list[Path]:
        """The finished part files."""
        return sorted(self.folder.glob("part-*.parquet"))

    def write(self, rows: pa.Table, *, of: Collection[str] = ()) -> Path:
        """Add rows as one part file, in the place of one that was written for the same rows.

        A worker may be killed after it has written its part and before it has said so. Whoever does the work again
        then writes the same file: the name follows from the rows, so none is there twice.

        Args:
            rows: of the table's schema.
            of: what was asked for, where which rows come of it may differ from one time to the next: the name then
                follows from this.

        Returns:
            The file.
        """
        rows = rows.cast(self.schema)
        names: list[Any] = sorted(of) or sorted(zip(*(rows[name].to_pylist() for name in self.key), strict=True))
        path = self.folder / f"part-{fingerprint(names)[:32]}.parquet"
        write_table(path, rows)
        return path

    def dataset(self) -> ds.Dataset:
        """All parts as one Arrow dataset, for out-of-core reading."""
        paths = [str(path) for path in self.paths()]
        return (
            ds.dataset(paths, schema=self.schema, format="parquet") if paths else ds.dataset(self.schema.empty_table())
        )

    def count(self) -> int:
        """How many rows there are. ``dataset().count_rows()`` would keep what every file says of itself."""
        return sum(pq.read_metadata(path).num_rows for path in self.paths())

    def rows(self, columns: list[str] | None = None) -> pa.Table:
        """The table, or some of its columns."""
        return self.dataset().to_table(columns=columns)

    def stored_ids(self) -> set[str]:
        """The ids of every row that is done."""
        return set(self.rows(["row_id"])["row_id"].to_pylist())

    def drop_ids(self, ids: Collection[str]) -> int:
        """Remove the rows of these ids; returns how many."""
        return self.drop(pc.field("row_id").isin(pa.array(ids, pa.string()))) if ids else 0

    def drop(self, condition: ds.Expression) -> int:
        """Remove the rows for which a condition holds, so that they are made again; returns how many."""
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
