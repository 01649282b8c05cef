"""The numbers of a table as files: CSV, JSON and Parquet, with a row per entry and score."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.board.site.measure import Measured
from holdfast.report.page.tables import guarded

SCHEMA = pa.schema(
    [
        ("entry", pa.string()), ("kind", pa.string()), ("model", pa.string()), ("title", pa.string()),
        ("dataset", pa.string()), ("dataset_sha256", pa.string()), ("protocol", pa.string()),
        ("protocol_version", pa.int32()), ("settings", pa.string()), ("score", pa.string()),
        ("estimate", pa.float64()), ("low", pa.float64()), ("high", pa.float64()), ("n", pa.int64()),
        ("rank_low", pa.int32()), ("rank_high", pa.int32()), ("parameters", pa.int64()), ("input_size", pa.int32()),
        ("images_per_second", pa.float64()), ("hardware", pa.string()), ("holds_on_to", pa.string()),
        ("table_sha256", pa.string()), ("run_fingerprint", pa.string()), ("paper", pa.string()), ("code", pa.string()),
        ("source", pa.string()),
    ]
)  # fmt: skip
TEXTS = [column.name for column in SCHEMA if column.type == pa.string()]

Ranks = Mapping[str, Mapping[str, tuple[int, int]]]
"""Measure → entry → first and last rank."""


def rows_of(members: Sequence[Measured], ranks: Ranks) -> list[dict[str, Any]]:
    """Return a row per entry and score."""
    rows = []
    for member in members:
        entry = member.entry
        about = {
            "entry": entry.id, "kind": entry.kind, "model": entry.model.name, "title": entry.model.title,
            "dataset": entry.dataset.name, "dataset_sha256": entry.dataset.sha256, "protocol": entry.protocol.name,
            "protocol_version": entry.protocol.version,
            "settings": json.dumps(entry.protocol.settings, sort_keys=True, ensure_ascii=False),
            "parameters": entry.model.parameters, "input_size": entry.model.input_size,
            "images_per_second": entry.speed.images_per_second if entry.speed else None,
            "hardware": entry.speed.hardware if entry.speed else None, "holds_on_to": member.verdict,
            "table_sha256": entry.table.sha256 if entry.table else None,
            "run_fingerprint": entry.run.fingerprint if entry.run else None, "paper": entry.model.paper,
            "code": entry.model.code, "source": f"{entry.source.title}, {entry.source.where}" if entry.source else "",
        }  # fmt: skip
        for score in entry.scores:
            low, high = ranks.get(score.name, {}).get(entry.id, (None, None))
            rows.append(
                about
                | {"score": score.name, "estimate": score.estimate, "low": score.low, "high": score.high, "n": score.n}
                | {"rank_low": low, "rank_high": high}
            )
    return rows


def as_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return CSV at full precision; a text that a spreadsheet would run as a formula gets a quote before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(SCHEMA.names)
    texts = {text for name in TEXTS for text in map(itemgetter(name), rows) if text is not None}
    changed = {text: safe for text in texts if (safe := guarded(text)) != text}
    lines: Iterable[Iterable[Any]] = map(itemgetter(*SCHEMA.names), rows)
    if changed:
        lines = ([changed.get(value, value) for value in line] for line in lines)
    writer.writerows(lines)
    return out.getvalue().encode()


def as_json(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return the rows as a JSON list, one object per line."""
    lines = ",\n".join(map(json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode, rows))
    return f"[\n{lines}\n]\n".encode()


def as_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return the rows as Parquet."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), sink, compression="zstd")
    return bytes(sink.getvalue())
