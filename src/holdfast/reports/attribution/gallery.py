"""Attribution maps over their images, from the files that ``holdfast explain`` kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import percent
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import parts as page
from holdfast.reports.page.words import condition_label, listing, plural, unbroken

PHOTOS, MODELS, CONDITIONS = 3, 3, 8  # Limits that keep the page small


def maps_shown(
    frame: pd.DataFrame, folders: Mapping[str, Path], short: Mapping[str, str], method_name: Callable[[str], str]
) -> list[page.Part]:
    """Return the maps of some images under every condition and model, then of one image by every method."""
    kept = frame[frame["picture"].fillna("") != ""]
    if kept.empty:
        return [page.Notice("The maps: none was kept as an image; explain --pictures N keeps some.")]
    method, target = kept["method"].iloc[0], kept["target"].iloc[0]
    first = kept[(kept["method"] == method) & (kept["target"] == target)]
    sources = list(dict.fromkeys(first["source_id"]))[:PHOTOS]
    models = list(dict.fromkeys(first["model"]))[:MODELS]
    photos = []
    for source in sources:
        for model in models:
            own = first[(first["source_id"] == source) & (first["model"] == model)]
            rows = _ordered(own).head(CONDITIONS).to_dict("records")
            tiles = _tiles(rows, folders, lambda row: condition_label(str(row["condition"])))
            if tiles:
                of = f"as {short[model]} looks at it, an image of"
                photos.append(page.Photo(str(source), str(own["label"].iloc[0]), _summary(own), tiles, of))
    if not photos:
        return [page.Notice("The maps: their images are not in the run folder any more.")]
    more = f" Of {listing(list(short.values()), 6)}, the first {len(models)} are shown." if len(short) > MODELS else ""
    text = (
        f"{plural(len(sources), 'image')}, the first of their classes rather than picked by result, under up to "
        f"{CONDITIONS} conditions, by {method_name(str(method))}. Bright is where the map is high, scaled to each "
        "map's maximum and smoothed a little; the line is the edge of the mask; a dashed frame marks a wrong answer."
        + more
    )
    parts: list[page.Part] = [page.Heading("The maps"), page.Text([text]), page.Gallery(photos)]
    return parts + _by_method(kept, sources[0], models, folders, short, method_name)


def _by_method(
    kept: pd.DataFrame,
    source: str,
    models: list[str],
    folders: Mapping[str, Path],
    short: Mapping[str, str],
    method_name: Callable[[str], str],
) -> list[page.Part]:
    own = kept[(kept["source_id"] == source) & (kept["condition"] == ORIGINAL)]
    if own.groupby("method").ngroups < 2:
        return []
    photos = []
    for model in models:
        rows = own[own["model"] == model].drop_duplicates(["method", "target"]).to_dict("records")
        tiles = _tiles(rows, folders, lambda row: method_name(str(row["method"])))
        if tiles:
            label = str(rows[0]["label"])
            photos.append(page.Photo(source, label, "", tiles, f"as {short[model]} looks at it, an image of"))
    return [page.Heading("One image by every method"), page.Gallery(photos)] if photos else []


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the original first, then the conditions whose share differs most from the original's."""
    before = rows.loc[rows["condition"] == ORIGINAL, "share"]
    reference = float(before.iloc[0]) if len(before) and before.notna().iloc[0] else 0.0
    distance = (rows["share"].astype(float) - reference).abs().fillna(0)
    distance = distance.where(rows["condition"] != ORIGINAL, float("inf"))
    return rows.assign(distance=distance).sort_values(["distance", "condition"], ascending=[False, True], kind="stable")


def _tiles(
    rows: Sequence[dict[Any, Any]], folders: Mapping[str, Path], caption: Callable[[dict[Any, Any]], str]
) -> list[page.Tile]:
    """Return a tile per row, without those whose image is missing."""
    jpegs = [_read(folders[str(row["folder"])], str(row["picture"])) for row in rows]
    tiles = [page.tile(caption(row), jpeg, _answers(row)) for row, jpeg in zip(rows, jpegs, strict=True)]
    return [shown for shown in tiles if shown.picture]


def _answers(row: dict[Any, Any]) -> list[page.Answer]:
    right = row["correct"]
    answers = []
    if right is not None and right == right:
        answers.append(page.judged("answer", f"{'right' if right else 'wrong'}: {row['prediction']}", bool(right)))
    share, area = (unbroken(percent(float(row[key]), 0)) for key in ("share", "area"))
    where = "no map: it is zero everywhere" if row["status"] == "empty" else f"{share} of the map"
    return [*answers, page.Answer("on the mask", f"{where}, {area} of the area", "●", "none")]


def _read(folder: Path, name: str) -> bytes:
    """Return an image's bytes; nothing for a file that is missing, too large, or outside the run."""
    path = (folder / name).resolve()
    inside = path.is_relative_to(folder.resolve())
    return path.read_bytes() if inside and path.is_file() and path.stat().st_size <= page.LARGEST_PICTURE else b""


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
    return f"Most of the map on the mask under {_with_share(high)}, least under {_with_share(low)}."


def _with_share(row: Any) -> str:
    return f"{condition_label(str(row['condition']))} ({percent(float(row['share']), 0)})"
