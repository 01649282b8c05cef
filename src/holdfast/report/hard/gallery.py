"""The gallery of a mined set: pictures with their prompt, what each model said, and what the oracle saw."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from holdfast.report.page.parts import Answer, Gallery, Notice, Photo, Section, Tile
from holdfast.report.page.words import plural, sentence

if TYPE_CHECKING:
    import pandas as pd

    from holdfast.report.hard.mining import Evidence

TILES = 8
"""Pictures of one kind."""


def gallery(
    evidence: Evidence, images: pd.DataFrame, pictures: Callable[[Container[str]], dict[str, bytes]] | None
) -> Section:
    """Hard images by kind of nuisance, those that the oracle rejected, and controls.

    Args:
        evidence: facts and names.
        images: a row an image of the pool by sample_id: each model's answer, category, kind, prompt, valid, set, ….
        pictures: makes JPEGs.
    """
    section = Section("gallery", "What the images look like")
    hard = images[images["set"] == "hard"]
    groups = [(sentence(str(kind)), "hard and valid", part) for kind, part in hard[hard["valid"]].groupby("kind")]
    groups.append(
        ("Rejected", "failed by as many, and rejected by the oracle", images[images["shared"] & ~images["valid"]])
    )
    groups.append(("Controls", "failed by too few surrogates", images[images["set"] == "control"]))
    picked = [(title, what, len(part), _pick(part)) for title, what, part in groups if len(part)]
    wanted = {name for *_, part in picked for name in part.index}
    jpegs = pictures(wanted) if pictures is not None else {}
    section.lead = [
        "Picked by hash, a category at a time; hard images are not typical, they were chosen because they fail. Below "
        "each picture its prompt, and what every model and the oracle said."
    ]
    if not jpegs:
        section.parts.append(Notice("The pictures: the pool is not at hand."))
    section.parts.append(
        Gallery(
            [
                Photo(
                    title,
                    f"{plural(count, 'image')} {what}",
                    "",
                    [_tile(evidence, str(name), row, jpegs) for name, row in part.iterrows()],
                    of=f"{len(part)} of",
                )
                for title, what, count, part in picked
            ]
        )
    )
    return section


def _pick(part: pd.DataFrame) -> pd.DataFrame:
    """One of each category first; the index is a hash, so its order is chance."""
    turn = part.sort_index().groupby("category").cumcount()
    return part.assign(turn=turn).sort_values(["turn", "category"]).head(TILES)


def _tile(evidence: Evidence, name: str, row: Any, jpegs: dict[str, bytes]) -> Tile:
    given = []
    for model, short in evidence.short.items():
        right = row[model] == row["category"]
        given.append(Answer(short, str(row[model]), "✓" if right else "✗", "right" if right else "wrong"))
    wrong = sum(answer.kind == "wrong" for answer in given)
    saw = str(row["oracle_saw"]) or "nothing"
    verdict = Answer("oracle", f"saw {saw}", "✓" if row["valid"] else "✗", "right" if row["valid"] else "wrong")
    asked = str(row["prompt"]) or f"{row['category']}, {row['kind']} {row['nuisance']}".strip()
    jpeg = jpegs.get(name, b"")
    width, height = picture_size(jpeg)
    return Tile(
        f"“{asked}”",
        base64.b64encode(jpeg).decode() if width else "",
        width,
        height,
        [*given, verdict],
        wrong,
        f"✗ {wrong} of {len(given)} models wrong; oracle saw {saw}",
    )


def picture_size(jpeg: bytes) -> tuple[int, int]:
    """Width and height; zeros for what is no JPEG."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
            return image.size
    except (UnidentifiedImageError, OSError):
        return 0, 0
