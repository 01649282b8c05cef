"""``synth --review``: painted pictures that the oracle doubts go to people, and their verdict decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.votes import Tally, read_votes
from holdfast.pipeline.jobs.progress import Summary
from holdfast.store import Parts, write_table
from holdfast.store.run import write_csv

REVIEW = "review"
"""The folder of pictures that people look at, a dataset of its own."""


_SHOWN = [
    "path", "label", "sample_id", "source_id", "kind", "condition", "licence", "prompt", "asked_background",
    "generator", "generator_fingerprint", "image_seed", "oracle", "oracle_accepted", "oracle_score", "oracle_margin",
    "oracle_saw", "published_sha256",
]  # fmt: skip


_ASKED = (pc.field("status") == "pending") | pc.field("people_votes").is_valid()
"""Rows of pictures that went to people."""


def check_review(*, oracle: str, shards: bool, margin: float) -> None:
    """Raise a UserError if --review is not possible."""
    if not oracle:
        raise UserError("--review is about pictures that an oracle doubts; name one: --oracle O (holdfast ls oracles)")
    if shards:
        raise UserError(
            "--review moves single pictures, which tar and Parquet files do not allow: --format png or jpeg"
        )
    if not -1 <= margin <= 1:
        raise UserError(f"--review-margin is a number from -1 to 1, not {margin}")


def settle(out: Path, parts: Parts, votes: str | None, summary: Summary) -> None:
    """Apply people's votes to pending pictures, then list what people are to look at.

    An accepted picture takes its place among the others, its row becomes ``ok``; the row of a rejected one says so.
    What nobody judged, or too few, stays pending. Files are written before rows: after a crash the same is done again.
    ``parts``: its rows. ``votes``: what ``holdfast review --export`` wrote, or None. ``summary``: told what is left.
    """
    rows = parts.dataset().to_table(filter=_ASKED).to_pylist()
    if votes is not None and rows:
        decided = _decide(rows, votes)
        for row in decided.values():
            _place(out, row)
        parts.drop_ids(list(decided))
        if decided:
            parts.write(pa.Table.from_pylist(list(decided.values()), schema=parts.schema))
        rows = [decided.get(row["row_id"], row) for row in rows]
    for row in rows:
        if row["status"] == "pending":
            hint = f"people may look at it: holdfast review {out / REVIEW}"
            summary.add(row["sample_id"], f"pending: {row['error']}; {hint}")
        elif row["status"] == "rejected":
            summary.add(row["sample_id"], "rejected: people do not accept it")
    if rows:
        _list(out / REVIEW, rows)


def _decide(rows: list[dict[str, Any]], votes: str) -> dict[str, dict[str, Any]]:
    """Return the rows that people's verdicts change, with their new values, by id."""
    tallies = {(tally.sha256, tally.asked): tally for tally in read_votes(votes).tallies() if tally.sha256}
    met = [(row, tallies[key]) for row in rows if (key := (row["sha256"], row["label"])) in tallies]
    if not met:
        raise UserError(f"the votes at {votes} are about none of the {len(rows)} pictures that went to people")
    decided = {row["row_id"]: _decided(row, tally) for row, tally in met if tally.decision != "undecided"}
    before = {row["row_id"]: row for row in rows}
    return {image_id: row for image_id, row in decided.items() if row != before[image_id]}


def _place(out: Path, row: dict[str, Any]) -> None:
    """Move an accepted picture to the others; remove what an earlier vote had put there."""
    if row["status"] != "ok":
        (out / row["path"]).unlink(missing_ok=True)
        return
    picture = (out / REVIEW / row["path"]).read_bytes()
    if bytes_sha256(picture) != row["sha256"]:
        raise UserError(f"{out / REVIEW / row['path']} has changed since it was painted, so votes are not about it")
    write_atomic(out / row["path"], picture)


def _decided(row: dict[str, Any], tally: Tally) -> dict[str, Any]:
    said = {"people_votes": tally.votes, "people_yes": tally.yes}
    if tally.decision == "accepted":
        return row | said | {"status": "ok", "error": None}
    return row | said | {"status": "rejected", "error": f"{tally.yes} of {tally.votes} people accept it"}


def _list(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the manifest of what went to people, decided or not, so that ``holdfast review`` opens the folder."""
    named = [{**row, "condition": row["scenario"], "published_sha256": row["sha256"]} for row in rows]
    table = pa.table({name: [row[name] for row in named] for name in _SHOWN}).sort_by("sample_id")
    write_csv(folder / "manifest.csv", table)
    write_table(folder / "manifest.parquet", table)
