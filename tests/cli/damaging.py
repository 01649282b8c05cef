"""Runs whose files are well-formed and say nonsense: every value may be of another kind, missing, or no number."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.store import write_table

NONSENSE: tuple[Any, ...] = (
    None,
    7,
    -1.5,
    10**30,
    True,
    "",
    "x",
    "\u202e<b>",
    [],
    [7],
    [None],
    {},
    {"a": [1]},
    [["x"]],
)


def spoil_spec(run: Path, draw: random.Random) -> str:
    """Replace or remove one to three values of spec.json; say which."""
    file = run / "spec.json"
    spec = json.loads(file.read_text(encoding="utf8"))
    said = []
    for _ in range(draw.randint(1, 3)):
        name = draw.choice(sorted(spec))
        if draw.random() < 0.2:
            del spec[name]
            said.append(f"no {name}")
        else:
            spec[name] = draw.choice(NONSENSE)
            said.append(f"{name}={spec[name]!r}")
    file.write_text(json.dumps(spec), encoding="utf8")
    return ", ".join(said)


def spoil_table(run: Path, draw: random.Random) -> str:
    """Replace a column of a table by nonsense of its own type, checksum and all; say which."""
    file = draw.choice(sorted(run.rglob("*.parquet")))
    table = pq.read_table(file, partitioning=None)
    field = draw.choice(list(table.schema))
    kinds: list[Any] = [None]
    if pa.types.is_floating(field.type):
        kinds += [float("nan"), float("inf"), -1e300, 1e300]
    elif pa.types.is_integer(field.type):
        kinds += [-1, 2**31 - 1]
    elif pa.types.is_boolean(field.type):
        kinds += [True, False]
    elif pa.types.is_string(field.type) or pa.types.is_dictionary(field.type):
        kinds += ["", "x", "\u202e<b>", "{", "a" * 5000]
    value, every = draw.choice(kinds), draw.choice((1, 2, 5))
    values = [value if at % every == 0 else old for at, old in enumerate(table[field.name].to_pylist())]
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    column = (
        pa.array(values, plain).cast(field.type) if plain == field.type else pa.array(values, plain).dictionary_encode()
    )
    write_table(file, table.set_column(table.schema.get_field_index(field.name), field, column.cast(field.type)))
    return f"{file.name}: {field.name}={str(value)[:9]!r} in one row of {every}"
