"""Maps over their pictures, from the files that ``holdfast explain`` kept."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.types import ORIGINAL
from holdfast.report.page.parts import Answer, Gallery, Heading, Notice, Part, Photo, Text, Tile
from holdfast.report.page.words import listing, percent, plural
from holdfast.report.static.evidence import shown
from holdfast.report.static.gallery import LARGEST_PICTURE, jpeg_size

if TYPE_CHECKING:
    import pandas as pd

PHOTOS, MODELS, CONDITIONS = 3, 3, 8
"""At most so many on the page, which must stay small."""


def maps_shown(
    frame: pd.DataFrame, folders: Mapping[str, Path], short: Mapping[str, str], method_name: Callable[[str], str]
) -> list[Part]:
    """The same photos under every condition as each model looks at them, then by every method."""
    kept = frame[frame["picture"].fillna("") != ""]
    if kept.empty:
        return [Notice("The maps: none was kept as a picture; explain --pictures N keeps some.")]
    method, target = kept["method"].iloc[0], kept["target"].iloc[0]
    first = kept[(kept["method"] == method) & (kept["target"] == target)]
    sources = list(dict.fromkeys(first["source_id"]))[:PHOTOS]
    models = list(dict.fromkeys(first["model"]))[:MODELS]
    photos = []
    for source in sources:
        for model in models:
            own = first[(first["source_id"] == source) & (first["model"] == model)]
            tiles = [
                made
                for row in _ordered(own).head(CONDITIONS).to_dict("records")
                if (made := _tile(row, folders, shown(str(row["condition"])))) is not None
            ]
            if tiles:
                of = f"as {short[model]} looks at it, a photo of"
                photos.append(Photo(str(source), str(own["label"].iloc[0]), _summary(own), tiles, of))
    if not photos:
        return [Notice("The maps: their pictures are not in the run folder any more.")]
    more = f" Of {listing(list(short.values()), 6)}, the first {len(models)} are shown." if len(short) > MODELS else ""
    text = (
        f"{plural(len(sources), 'photo')}, the first of their classes rather than picked by result, under up to "
        f"{CONDITIONS} conditions, by {method_name(str(method))}. Bright is where the map is high, scaled to each "
        "map's maximum and smoothed a little; the line is the edge of the mask; a dashed frame marks a wrong answer."
        + more
    )
    parts: list[Part] = [Heading("The maps"), Text([text]), Gallery(photos)]
    return parts + _by_method(kept, sources[0], models, folders, short, method_name)


def _by_method(
    kept: pd.DataFrame,
    source: str,
    models: list[str],
    folders: Mapping[str, Path],
    short: Mapping[str, str],
    method_name: Callable[[str], str],
) -> list[Part]:
    own = kept[(kept["source_id"] == source) & (kept["condition"] == ORIGINAL)]
    if own.groupby("method").ngroups < 2:
        return []
    photos = []
    for model in models:
        rows = own[own["model"] == model].drop_duplicates(["method", "target"]).to_dict("records")
        tiles = [made for row in rows if (made := _tile(row, folders, method_name(str(row["method"])))) is not None]
        if tiles:
            label = str(rows[0]["label"])
            photos.append(Photo(source, label, "", tiles, f"as {short[model]} looks at it, a photo of"))
    return [Heading("One photo by every method"), Gallery(photos)] if photos else []


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """The original first, then where the share is farthest from the original's: that is what there is to see."""
    before = rows.loc[rows["condition"] == ORIGINAL, "share"]
    reference = float(before.iloc[0]) if len(before) and before.notna().iloc[0] else 0.0
    distance = (rows["share"].astype(float) - reference).abs().fillna(0)
    distance = distance.where(rows["condition"] != ORIGINAL, float("inf"))
    return rows.assign(distance=distance).sort_values(["distance", "condition"], ascending=[False, True], kind="stable")


def _tile(row: dict[Any, Any], folders: Mapping[str, Path], title: str) -> Tile | None:
    jpeg = _read(folders[str(row["folder"])], str(row["picture"]))
    width, height = jpeg_size(jpeg)
    if not width:
        return None
    right = row["correct"]
    known = right is not None and right == right
    wrong = known and not right
    answers = []
    if known:
        kind, sign = ("wrong", "✗") if wrong else ("right", "✓")
        answers.append(Answer("answer", f"{kind}: {row['prediction']}", sign, kind))
    empty = row["status"] == "empty"
    where = "no map: it is zero everywhere" if empty else f"{_close(float(row['share']))} of the map"
    answers.append(Answer("on the mask", f"{where}, {_close(float(row['area']))} of the area", "●", "none"))
    return Tile(title, base64.b64encode(jpeg).decode(), width, height, answers, int(wrong), "")


def _close(share: float) -> str:
    """A per cent that no line break takes apart."""
    return percent(share, 0).replace(" ", "\N{NO-BREAK SPACE}")


def _read(folder: Path, name: str) -> bytes:
    """A picture of the run's own; nothing for a file that is not there, too large, or outside of the run."""
    path = (folder / name).resolve()
    inside = path.is_relative_to(folder.resolve())
    return path.read_bytes() if inside and path.is_file() and path.stat().st_size <= LARGEST_PICTURE else b""


def _summary(rows: pd.DataFrame) -> str:
    fine = rows[rows["share"].notna()]
    if fine.empty:
        return "No map has a share."
    ordered = fine.sort_values("share", kind="stable")
    low, high = ordered.iloc[0], ordered.iloc[-1]
    if f"{low['share']:.2f}" == f"{high['share']:.2f}" and len(fine) > 1:
        return f"{percent(float(high['share']), 0)} of the map on the mask, whatever the condition."
    if len(fine) == 1:
        return f"{percent(float(high['share']), 0)} of the map on the mask."
    return (
        f"Most of the map on the mask under {shown(str(high['condition']))} ({percent(float(high['share']), 0)}), "
        f"least under {shown(str(low['condition']))} ({percent(float(low['share']), 0)})."
    )
