"""A cache of measured entries, keyed by the hash of everything they depend on.

The folder belongs to whoever builds the site, never to the board: what is in it is believed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import holdfast.board
import holdfast.stats
from holdfast.board.check import DATASETS
from holdfast.board.entry import Entry
from holdfast.board.site.measure import Cells, Measured
from holdfast.core.files import write_atomic
from holdfast.stats.core.cells import ClassAccuracies
from holdfast.stats.effects.verdict import VerdictSteps
from holdfast.stats.effects.verdict_words import VerdictWords


def key_of(path: Path) -> str:
    """Return the key of an entry: a hash of its two files, the list of datasets, and the code that measures."""
    digest = hashlib.sha256(_code())
    for file in (path, path.with_suffix(".parquet"), path.with_name(DATASETS)):
        data = file.read_bytes() if file.is_file() and not file.is_symlink() else b""
        digest.update(hashlib.sha256(data).digest())
    return digest.hexdigest()


@cache
def _code() -> bytes:
    digest = hashlib.sha256()
    for package in (holdfast.board, holdfast.stats):
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.digest()


def recall_all(folder: Path, files: Sequence[Path]) -> tuple[dict[Path, Measured], dict[Path, str]]:
    """Return what the cache has of these entries, and the keys of the others; the folder is created if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = {file: key_of(file) for file in files}
    recalled = {file: member for file, key in keys.items() if (member := recall(folder, key)) is not None}
    return recalled, {file: key for file, key in keys.items() if file not in recalled}


def recall(folder: Path, key: str) -> Measured | None:
    """Return a cached entry, or None."""
    try:
        content = json.loads((folder / f"{key}.json").read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
    return Measured(
        **content
        | {
            "entry": Entry.model_validate_json(json.dumps(content["entry"])),
            "classes": _arrays(ClassAccuracies, content["classes"], float),
            "cells": _arrays(Cells, content["cells"], np.intp),
            "influence": {name: np.array(values) for name, values in content["influence"].items()},
            "words": None
            if content["words"] is None
            else VerdictWords(**content["words"] | {"steps": VerdictSteps(**content["words"]["steps"])}),
        }
    )


def _arrays(kind: Any, content: dict[str, Any] | None, number: Any) -> Any:
    """A dataclass of lists of names and of arrays."""
    if content is None:
        return None
    names = {field.name for field in fields(kind) if "list" not in str(field.type)}
    return kind(**{name: np.array(values, number) if name in names else values for name, values in content.items()})


def remember(folder: Path, key: str, member: Measured) -> None:
    """Store a measured entry. The key is of the files as they were before they were read."""
    content = vars(member) | {
        "entry": member.entry.model_dump(mode="json"),
        "classes": None if member.classes is None else vars(member.classes),
        "cells": None if member.cells is None else vars(member.cells),
        "words": None if member.words is None else asdict(member.words),
    }
    write_atomic(folder / f"{key}.json", json.dumps(content, default=lambda array: array.tolist()).encode())
