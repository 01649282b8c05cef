"""Laws that hold after every complete command, whatever an undisturbed command of the same source does.

A fault that is in every run of a source is in its undisturbed run, too, and a comparison of the two sees nothing. The
laws need no comparison: rows are there once, files get their names by renames, tables are synced, secrets are nowhere.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SECRET = "sk-storm-0123456789abcdef-must-not-be-stored"
UNFINISHED = ".unfinished-"
MACHINE = ("No space left", "Disk quota", "Input/output error", "Read-only file system", "Too many open files")
KEY = (
    "task", "kind", "dataset", "sample_id", "fold", "condition", "variant", "parameters", "seed", "model", "trained_on",
    "protocol",
)  # fmt: skip
OTHERS_WRITE = (".lock", ".sqlite", ".sqlite3", ".db", "-wal", "-shm", ".log", ".jsonl", ".secret")
"""Endings of files that are written where they are: locks, databases and files to which lines are added."""


def of_tables(out: Path) -> str:
    """Return which law the files of a folder break, or ""; needs a process of its own."""
    import pyarrow.dataset as ds

    for path in out.rglob(f"{UNFINISHED}*"):
        return f"an unfinished file was left: {path.relative_to(out)}"
    for folder in sorted({path.parent for path in out.rglob("part-*.parquet")}):
        name = folder.relative_to(out).as_posix()
        try:
            rows = ds.dataset(folder, format="parquet").to_table().to_pylist()
        except Exception as error:
            return f"{name} cannot be read as a dataset ({type(error).__name__}: {str(error)[:120]})"
        if broken := of_rows(rows):
            return f"{name}: {broken}"
    return ""


def of_rows(rows: list[dict[str, Any]]) -> str:
    """Return which law the rows of a table break, or ""."""
    if twice := _repeated(json.dumps(row, sort_keys=True, default=repr) for row in rows):
        return f"{twice} rows are there twice"
    if rows and "condition" in rows[0] and "row_id" in rows[0]:
        if twice := _repeated(row["row_id"] for row in rows):
            return f"{twice} row ids are there twice"
        if twice := _repeated(json.dumps([row.get(name) for name in KEY]) for row in rows):
            return f"{twice} keys have two rows (a superseded row was kept)"
    for row in rows:
        error = str(row.get("error") or "")
        if any(sign in error for sign in MACHINE):
            return f"trouble of the machine is stored as a row: {error[:100]!r}"
    return ""


def _repeated(values: Iterable[str]) -> int:
    return sum(count - 1 for count in Counter(values).values())


def of_names(out: Path, before: set[str], named: dict[str, bool]) -> str:
    """Return which file got its name otherwise than by a rename, or which table was not synced before its rename.

    ``before``: the files that were there. ``named``: the targets of renames, and whether what got the name was synced.
    """
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        hidden = any(part.startswith(".") for part in name.split("/"))  # the command's own business
        if not path.is_file() or name in before or hidden or name.endswith(OTHERS_WRITE) or ".tfevents." in name:
            continue
        if not any(str(each) in named for each in (path, *path.parents)):
            return f"{name} was written in place, not renamed"
        if path.name.startswith("part-") and path.suffix == ".parquet" and not named.get(str(path), True):
            return f"{name} was renamed before it was synced"
    return ""


def holders_of_secret(folders: Iterable[Path]) -> str:
    """Return the first file that holds the secret, or ""."""
    marks = (SECRET.encode(), SECRET[:16].encode())
    for folder in folders:
        for path in [folder] if folder.is_file() else sorted(folder.rglob("*")) if folder.is_dir() else []:
            if path.is_file() and not path.is_symlink() and any(mark in path.read_bytes() for mark in marks):
                return path.name
    return ""
