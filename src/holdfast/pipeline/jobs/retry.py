"""Rows with errors that a command makes again."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.compute as pc

from holdfast.store.parts import Parts


def drop_errors(parts: Parts, planned: Iterable[str], *, statuses: tuple[str, ...] = ("error",)) -> None:
    """Drop the rows with errors that this command makes again; other rows with errors stay in the table."""
    failed = parts.dataset().to_table(["row_id"], pc.field("status").isin(statuses))["row_id"].to_pylist()
    if failed:
        parts.drop_ids(set(failed).intersection(planned))
