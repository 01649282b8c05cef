"""Some questions with their picture and everybody's answers."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.report.page.parts import Answer, Gallery, Heading, Part, Photo, Text, Tile
from holdfast.report.page.words import listing, plural
from holdfast.report.static.gallery import LARGEST_PICTURE, Pictures
from holdfast.store import Run

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 6
LONGEST = 90


def gallery(
    frame: pd.DataFrame, runs: Sequence[Run], short: Mapping[str, str], pictures: Pictures | None
) -> list[Part]:
    """The images that most answers were wrong about, one a class as far as they go."""
    good = frame[frame["status"] == "ok"]
    wrong = good.assign(wrong=~good["lenient"].astype(bool)).groupby(["sample_id", "label"], sort=True)["wrong"].sum()
    ordered = wrong[wrong > 0].reset_index().sort_values(["wrong", "sample_id"], ascending=[False, True])
    if ordered.empty:
        return []
    picked = [*ordered.drop_duplicates("label")["sample_id"], *ordered["sample_id"]]
    chosen = list(dict.fromkeys(picked))[:SHOWN]
    some = good[good["sample_id"].isin(chosen)]
    images: dict[tuple[str, str], bytes] = {}
    for run in runs if pictures is not None else ():
        assert pictures is not None
        images = pictures(run, set(some["source_id"])) | images
    photos = [_photo(some[some["sample_id"] == one], short, images) for one in chosen]
    text = (
        f"{plural(len(chosen), 'image')} that most answers are wrong about, with the options and every answer. They "
        "were picked because they fail, so they are not typical. ✓ right, ✗ wrong, – names no option."
    )
    return [Heading("Questions and answers"), Text([text]), Gallery(photos)]


def _photo(rows: pd.DataFrame, short: Mapping[str, str], images: Mapping[tuple[str, str], bytes]) -> Photo:
    first = rows.iloc[0]
    picture = images.get((str(first["sample_id"]), str(first["condition"])))
    if picture is None or len(picture) > LARGEST_PICTURE:
        picture = None
    groups = sorted(rows.groupby("protocol"), key=lambda pair: pair[0] == "full_list")
    tiles = [_tile(group, short, picture if place == 0 else None) for place, (_, group) in enumerate(groups)]
    wrong = int((~rows["lenient"].astype(bool)).sum())
    return Photo(
        name=str(first["sample_id"]),
        label=str(first["label"]),
        summary=f"{wrong} of {plural(len(rows), 'answer')} {'is' if wrong == 1 else 'are'} wrong.",
        tiles=tiles,
    )


def _tile(rows: pd.DataFrame, short: Mapping[str, str], picture: bytes | None) -> Tile:
    width, height = _size(picture)
    options = [str(one) for one in rows["options"].iloc[0]]
    title = f"{options[0]} or {options[1]}?" if rows["kind"].iloc[0] == "two_way" else listing(options, 5) + "?"
    answers = [_answer(row, short) for row in rows.sort_values("model").to_dict("records")]
    wrong = sum(answer.kind != "right" for answer in answers)
    return Tile(
        title,
        base64.b64encode(picture).decode() if picture else "",
        width,
        height,
        answers,
        wrong,
        f"{len(answers) - wrong} of {len(answers)} right",
    )


def _answer(row: dict[Any, Any], short: Mapping[str, str]) -> Answer:
    text = row["raw_text"] if isinstance(row["raw_text"], str) else row["matched"]
    said = " ".join(str(text or "").split()) or "(nothing)"
    said = said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"
    right, read = bool(row["lenient"]), isinstance(row["matched"], str)
    return Answer(
        short.get(row["model"], row["model"]),
        said,
        "✓" if right else "✗" if read else "–",
        "right" if right else "wrong" if read else "none",
    )


def _size(picture: bytes | None) -> tuple[int, int]:
    import PIL.Image

    if picture is None:
        return 0, 0
    with PIL.Image.open(io.BytesIO(picture)) as image:
        return image.size
