"""Votes of simulated people whose truth is known, without a database."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from holdfast.core.votes import VOTES, VoteQuestion, Votes

YES_NO = ("yes", "no")
QUALITY = (VoteQuestion("recognisable", "?", YES_NO), VoteQuestion("usable", "?", YES_NO))
SHOWS = (VoteQuestion("shows", "?", YES_NO),)
NATURAL = (VoteQuestion("natural", "?", tuple("12345"), 1),)
_START = datetime(2026, 1, 1, tzinfo=UTC)


def make_votes(
    rows: Iterable[dict[str, Any]],
    *,
    questions: tuple[VoteQuestion, ...] = SHOWS,
    rule: str = "",
    at_least: int = 3,
    of: int = 5,
) -> Votes:
    """A row a vote: ``sample_id``, ``person``, ``answers``; whatever else differs from a vote that counts."""
    table = []
    for number, row in enumerate(rows, start=1):
        answers = row["answers"]
        common = dict.fromkeys(VOTES.names, "") | {
            "campaign": "made up", "kind": "made", "source_id": row["sample_id"], "label": "cup", "asked": "cup",
            "condition": "background", "sha256": f"file {row['sample_id']}", "pixels_sha256": row["sample_id"],
            "role": "judge", "task": row["person"], "task_status": "finished", "vote": number, "seconds": 2.0,
            "voted_at": _START + timedelta(seconds=number), "counts": True, "superseded": False,
        }  # fmt: skip
        common |= {key: value for key, value in row.items() if key not in ("answers", "expected")}
        for question, answer in answers.items():
            allowed = "|".join(row.get("expected", {}).get(question, ()))
            table.append(common | {"question": question, "answer": answer, "expected": allowed})
    rule = rule or "|".join(question.id for question in questions)
    return Votes(pa.Table.from_pylist(table, schema=VOTES), "made up", "made", questions, rule, at_least, of)
