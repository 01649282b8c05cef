"""The gallery of a campaign: what people accept, reject, and are divided on."""

from __future__ import annotations

import base64
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from holdfast.core.votes import Votes
from holdfast.report.hard.gallery import picture_size
from holdfast.report.page.parts import Answer, Gallery, Notice, Photo, Section, Tile
from holdfast.report.page.words import number, percent, plural

if TYPE_CHECKING:
    import pandas as pd

TILES = 8
"""Pictures of one kind."""


def gallery(
    images: pd.DataFrame, votes: Votes, pictures: Callable[[Container[str]], dict[str, bytes]] | None
) -> Section:
    """Accepted, rejected and divided images with their votes.

    Args:
        images: from ``stats.people.votes.accept``.
        votes: their questions.
        pictures: makes JPEGs.
    """
    section = Section("gallery", "What the images look like")
    judged = images[images["votes"] > 0]
    apart = (judged["share"] - votes.at_least / votes.of).abs()
    groups = [
        ("Accepted", "accepted", _pick(judged[judged["decision"] == "accepted"])),
        ("Rejected", "rejected", _pick(judged[judged["decision"] == "rejected"])),
        ("Divided", "judged", judged.assign(apart=apart).sort_values(["apart", "sample_id"]).head(TILES)),
    ]
    counts = judged["decision"].value_counts()
    totals = {"accepted": counts.get("accepted", 0), "rejected": counts.get("rejected", 0), "judged": len(judged)}
    wanted = {str(name) for *_, part in groups for name in part["sample_id"]}
    jpegs = pictures(wanted) if pictures is not None else {}
    section.lead = [
        "Accepted and rejected ones a category at a time, in no other order; the divided ones are nearest to the "
        "rule's threshold. Below each picture the class that people were asked about, and how many said yes."
    ]
    if not jpegs:
        section.parts.append(Notice("The pictures: the images are not at hand."))
    section.parts.append(
        Gallery(
            [
                Photo(
                    title,
                    f"{plural(int(totals[what]), 'image')} {what}",
                    "",
                    [_tile(row, votes, jpegs) for row in part.to_dict("records")],
                    of=f"{len(part)} of",
                )
                for title, what, part in groups
                if len(part)
            ]
        )
    )
    return section


def _pick(part: pd.DataFrame) -> pd.DataFrame:
    turn = part.sort_values("sha256").groupby("label").cumcount()
    return part.assign(turn=turn).sort_values(["turn", "label"]).head(TILES)


def _tile(row: dict[Any, Any], votes: Votes, jpegs: dict[str, bytes]) -> Tile:
    given = []
    for question in votes.questions:
        if question.is_rating:
            said = f"{number(row[f'mean_{question.id}'], 1)} of {question.answers[-1]}"
            given.append(Answer(question.id, said, "•", "none"))
        else:
            share = row[f"share_{question.id}"]
            good = share >= 0.5
            given.append(Answer(question.id, percent(share, 0), "✓" if good else "✗", "right" if good else "wrong"))
    jpeg = jpegs.get(str(row["sample_id"]), b"")
    width, height = picture_size(jpeg)
    nuisance = f", {row['condition']} {row['nuisance']}" if row["nuisance"] else ""
    accepted = row["decision"] == "accepted"
    sign, kind = {"accepted": ("✓", "right"), "rejected": ("✗", "wrong")}.get(row["decision"], ("?", "none"))
    given.append(Answer("people", f"{int(row['yes'])} of {int(row['votes'])} say yes", sign, kind))
    return Tile(
        f"{row['asked']}{nuisance}",
        base64.b64encode(jpeg).decode() if width else "",
        width,
        height,
        given,
        int(not accepted),
        f"{int(row['yes'])} of {int(row['votes'])} say yes: {row['decision']}",
    )
