"""What a folder holds, as texts to compare: tables by their rows, other files by their bytes."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any


def contents(folder: Path) -> dict[str, str]:
    """Return a hash per file, and for tables one per column: the parts of a table may be cut in any way.

    Files whose names begin with a dot are the command's own business, and logs for TensorBoard are named by the time.
    """
    import pyarrow.parquet as pq

    hashes: dict[str, str] = {}
    parts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        hidden = any(word.startswith(".") for word in name.split("/"))
        hidden = hidden or "times" in name.split("/")[:-1]  # a file per command of perturb, named after its shard
        if not path.is_file() or hidden or ".damaged" in name or ".tfevents." in name:
            continue
        if path.suffix == ".parquet":
            table = f"{path.parent.relative_to(folder).as_posix()}/*" if path.name.startswith("part-") else name
            parts[table] += pq.read_table(path, partitioning=None).to_pylist()
        elif path.suffix == ".csv" and path.stat().st_size:
            parts[name] += _cells(path)
        elif path.suffix == ".tex" and path.with_suffix(".csv").is_file():
            hashes[name] = "the same as CSV" if path.stat().st_size else "empty"
        elif path.suffix == ".safetensors":
            hashes[name] = _weights(path)
        elif path.suffix in (".html", ".md", ".typ"):
            hashes[name] = _hash(_OTHER.sub(b"", path.read_bytes())) if path.stat().st_size else "empty"
        elif path.suffix == ".jpg" and path.parent.name == "attributions":
            hashes[name] = _map(path)
        elif path.name == "config.json":
            hashes[name] = _network(path)
        elif path.name == "spec.json":
            hashes[name] = _request(path)
        else:
            hashes[name] = _hash(path.read_bytes()) if path.stat().st_size else "empty"
    for table, rows in parts.items():
        keys = [_key(row) for row in rows]
        for column in sorted({column for row in rows for column in row}):
            values = sorted(f"{key} {_text(row.get(column))}" for key, row in zip(keys, rows, strict=True))
            hashes[f"{table}:{column}"] = _hash("\n".join(values).encode())
    return hashes


_OTHER = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?|data:image/jpeg;base64,[\w+/=]*")
"""What two runs may have different: times, and images within pages, which are compared as files."""
_VOLATILE = {
    "run_id", "seconds", "time", "made_at", "shard", "environment.json", "job.json", "DATACARD.md", "README.md",
}  # fmt: skip


_OF_WEIGHTS = ("every-model.csv:sha256", "every-model.parquet:sha256")
"""Hashes of files of weights, whose metadata the library writes in any order."""


def volatile_names(first: dict[str, str], second: dict[str, str]) -> set[str]:
    """Return the files and columns that hold times and the like: two undisturbed runs differ in them, or in their kin.

    Kin are files and columns of the same name elsewhere, which two runs may have the same by luck.
    """
    changed = {name for name in second if first.get(name) != second[name]}
    kin = {_last(name) for name in changed} | _VOLATILE
    return {name for name in second if _last(name) in kin or name.endswith(_OF_WEIGHTS)}


def _last(name: str) -> str:
    return name.rpartition(":" if ":" in name else "/")[2]


def difference(there: dict[str, str], wanted: dict[str, str], volatile: set[str]) -> str:
    """Return the first things in which two folders differ, or "".

    Of volatile files and columns, which two undisturbed runs have different already, only the presence counts.
    """
    missing = [f"{name} is missing" for name in wanted if name not in there]
    more = [f"{name} is one too many" for name in there if name not in wanted]
    other = [
        f"{name} differs" for name in wanted
        if (name in there and (there[name] == "empty") != (wanted[name] == "empty"))
        or (name in there and there[name] != wanted[name] and name not in volatile)
    ]  # fmt: skip
    return "; ".join((missing + other + more)[:4])


def _weights(path: Path) -> str:
    """Return names, shapes and sizes of tensors: the library writes a file's metadata in any order."""
    import numpy as np
    from safetensors.numpy import load_file

    tensors = sorted(load_file(path).items())
    return _hash(repr([(name, t.shape, f"{np.abs(t.astype(np.float64)).mean():.2g}") for name, t in tensors]).encode())


def _map(path: Path) -> str:
    """Return the size of an attribution map: sums of another batch end in other digits, which turn a grey level."""
    import cv2

    image = cv2.imread(str(path))
    return "empty" if image is None else f"{image.shape}"


def _cells(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV file with numbers as numbers: the last digits of a sum depend on its order."""
    with path.open(newline="", encoding="utf8", errors="replace") as file:
        rows = list(csv.reader(file))
    names = [*rows[0], *map(str, range(len(rows[0]), max(map(len, rows))))]
    return [{name: _number(cell) for name, cell in zip(names, row, strict=False)} for row in rows[1:]]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _request(path: Path) -> str:
    """Return a hash of what was asked for, without the number of workers: a storm draws it."""
    try:
        return _hash(json.dumps(json.loads(path.read_bytes()) | {"workers": 1}, sort_keys=True).encode())
    except (ValueError, TypeError):
        return _hash(path.read_bytes()) if path.stat().st_size else "empty"


def _network(path: Path) -> str:
    """Return a hash of a trained network's facts, without the time it took and the hash of a file in any order."""
    try:
        facts = json.loads(path.read_bytes())
        own = {key: value for key, value in facts["holdfast"].items() if key not in ("seconds", "sha256")}
        return _hash(json.dumps(facts | {"holdfast": own}, sort_keys=True).encode())
    except (ValueError, TypeError, KeyError, AttributeError):
        return _hash(path.read_bytes()) if path.stat().st_size else "empty"


def _key(row: dict[str, Any]) -> str:
    return str(row.get("row_id") or row.get("sample_id") or row.get("image_id") or "")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, str) and value.startswith("{"):  # facts as JSON
        return re.sub(r"\d+\.\d{4,}", lambda digits: f"{float(digits[0]):.3g}", value)
    if isinstance(value, list) and value and isinstance(value[0], float):
        return json.dumps([round(number, 3) for number in value])
    return repr(value)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
