"""Images with boxes, and the galleries made of them: the same image under every condition, and lost objects.

What happened to an object is shown by the line and by a sign, not by the colour alone.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdfast.core.lazy import pd
from holdfast.core.names import without_object
from holdfast.core.numbers import number
from holdfast.core.protocols import FOUND_IOU, box_overlaps
from holdfast.core.types import ORIGINAL
from holdfast.reports.objects.evidence import DetectorEvidence
from holdfast.reports.page.parts import Answer, Gallery, Notice, Photo, Section, Tile, by_turns, tile
from holdfast.reports.page.tables import Column, Table, model_column
from holdfast.reports.page.words import class_words, condition_label, listing, plural
from holdfast.stats.effects.verdict import RANDOM, SAME
from holdfast.stats.objects.answers import DetectorAnswers

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

BoxOutcome = Literal["found", "lost", "false alarm", "wrong class"]

STYLES: dict[BoxOutcome, tuple[str, tuple[int, ...]]] = {
    "found": ("#0072b2", ()),
    "lost": ("#d55e00", (9, 6)),
    "false alarm": ("#b5467f", (2, 4)),
    "wrong class": ("#7a5c00", (10, 4, 2, 4)),
}  # Colour, and the lengths of strokes and gaps in turn; none: a solid line

KEY = (
    "✓ and a solid line: found. ✗ and a dashed line: lost. ≠ and dashes with dots: seen, but called by another class. "
    "! and a dotted line: a false alarm, nothing of that class is there."
)

PHOTOS, LOST = 3, 8  # images of the gallery, and objects of the filmstrip
PICTURE, CROP = 220, 140  # pixels of their longer side

Pictures = Mapping[tuple[str, str], bytes]

_SHARP = 2  # drawn at twice the size, then made smaller
_QUALITY = 78


@dataclass(frozen=True)
class DrawnBox:
    """A box (x1, y1, x2, y2) with what happened there."""

    outcome: BoxOutcome
    corners: tuple[float, ...]


def boxes_of(answers: DetectorAnswers, picture: int) -> list[DrawnBox]:
    """Return the boxes of one image: its true objects, and predictions at the threshold that match none of them."""
    own = answers.objects[(answers.objects["picture"] == picture) & (answers.objects["status"] != "invalid")]
    objects = own[own["status"].isin(["ok", "removed"])]
    first, last = np.searchsorted(answers.guess_picture, [picture, picture + 1])
    kept = np.flatnonzero(answers.guess_score[first:last] >= float(answers.pictures["threshold"].iloc[picture]) - 1e-7)
    kept = first + kept[np.argsort(-answers.guess_score[first + kept], kind="stable")]
    corners = objects[["x1", "y1", "x2", "y2"]].to_numpy(np.float64)
    overlaps = box_overlaps(answers.guess_corners[kept], corners, crowd=objects["crowd"].to_numpy(bool))
    free = set(range(len(kept)))
    drawn = []
    for place, row in enumerate(objects.to_dict("records")):
        seen = bool(row["found"])
        near = [at for at in range(len(kept)) if overlaps[at, place] >= FOUND_IOU]
        if row["crowd"]:
            free -= {at for at in near if answers.labels[answers.guess_label[kept[at]]] == row["label"]}
            continue
        said = row["label"] if seen else row["predicted"] if row["wrong_class"] else ""
        match = next((at for at in near if at in free and answers.labels[answers.guess_label[kept[at]]] == said), None)
        if match is not None:
            free.discard(match)
        if row["status"] == "removed" and not seen:
            continue
        outcome: BoxOutcome = "found" if seen else "wrong class" if said else "lost"
        if row["status"] == "removed":
            outcome = "false alarm"
        drawn.append(DrawnBox(outcome, (row["x1"], row["y1"], row["x2"], row["y2"])))
    return drawn + [DrawnBox("false alarm", tuple(answers.guess_corners[kept[at]].tolist())) for at in sorted(free)]


def with_boxes(jpeg: bytes, boxes: Sequence[DrawnBox], size: int, *, around: Sequence[float] | None = None) -> bytes:
    """Return the image with boxes as a JPEG, its longer side ``size`` pixels; empty if it cannot be read.

    ``boxes``: what to draw; found ones are below the others. ``around``: x1, y1, x2, y2 of what to show, with some room
    around it; None: everything.
    """
    from PIL import Image, UnidentifiedImageError

    if not jpeg:
        return b""
    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as opened:
            image = opened.convert("RGB")
    except (UnidentifiedImageError, OSError):
        return b""
    left, top, right, bottom = _window(image, around)
    image = image.crop((left, top, right, bottom))
    scale = _SHARP * size / max(image.size)
    shape = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    image = image.resize(shape, Image.Resampling.LANCZOS)
    order = ("found", "false alarm", "wrong class", "lost")
    for box in sorted(boxes, key=lambda box: order.index(box.outcome)):
        moved = [scale * (value - start) for value, start in zip(box.corners, (left, top) * 2, strict=True)]
        _draw(image, box.outcome, moved)
    image = image.resize((max(1, shape[0] // _SHARP), max(1, shape[1] // _SHARP)), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


def _window(image: Image, around: Sequence[float] | None) -> tuple[int, int, int, int]:
    if around is None:
        return 0, 0, image.width, image.height
    x1, y1, x2, y2 = around
    room = max(0.6 * max(x2 - x1, y2 - y1), 16)
    window = (
        max(0, math.floor(x1 - room)), max(0, math.floor(y1 - room)), min(image.width, math.ceil(x2 + room)),
        min(image.height, math.ceil(y2 + room)),
    )  # fmt: skip
    return window if window[2] > window[0] and window[3] > window[1] else (0, 0, image.width, image.height)


def _draw(image: Image, outcome: BoxOutcome, box: Sequence[float]) -> None:
    """Draw a box with its sign, both with a pale rim, so that they show on any ground."""
    from PIL import ImageDraw

    colour, pattern = STYLES[outcome]
    canvas = ImageDraw.Draw(image)
    edge = 3
    x1, y1 = (min(max(edge, value), limit - edge - 1) for value, limit in zip(box[:2], image.size, strict=True))
    x2, y2 = (min(max(edge, value), limit - edge - 1) for value, limit in zip(box[2:], image.size, strict=True))
    if x2 <= x1 or y2 <= y1:
        return
    corners = [(x1, y1), (x2, y1), (x2, y2), (x1, y2), (x1, y1)]
    for start, end in pairwise(corners):
        canvas.line([start, end], fill="white", width=3 * _SHARP)
    for start, end in pairwise(corners):
        for part in _strokes(start, end, pattern):
            canvas.line(part, fill=colour, width=2 * _SHARP)
    side = 8 * _SHARP
    left, top = min(x1, image.width - side - 1), max(y1 - side, 0) if y1 >= side else y1
    _sign(canvas, outcome, left, top, side, colour)


def _strokes(start: tuple[float, float], end: tuple[float, float], pattern: tuple[int, ...]) -> list[Any]:
    """Return the pieces of a line that are drawn."""
    length = math.dist(start, end)
    if not pattern or length == 0:
        return [[start, end]]
    pieces, at, place = [], 0.0, 0
    while at < length:
        step = min(pattern[place % len(pattern)] * _SHARP, length - at)
        if place % 2 == 0:
            ends = [at / length, (at + step) / length]
            pieces.append([tuple(a + (b - a) * share for a, b in zip(start, end, strict=True)) for share in ends])
        at, place = at + step, place + 1
    return pieces


_SIGNS: dict[BoxOutcome, list[list[tuple[float, float]]]] = {
    "found": [[(0.2, 0.55), (0.42, 0.78), (0.82, 0.24)]],
    "lost": [[(0.22, 0.22), (0.78, 0.78)], [(0.78, 0.22), (0.22, 0.78)]],
    "false alarm": [[(0.5, 0.15), (0.5, 0.62)], [(0.5, 0.78), (0.5, 0.88)]],
    "wrong class": [[(0.2, 0.38), (0.8, 0.38)], [(0.2, 0.64), (0.8, 0.64)], [(0.7, 0.15), (0.3, 0.87)]],
}  # ✓ ✗ ! ≠ as lines in a square of side 1: no font is needed


def _sign(canvas: ImageDraw, outcome: BoxOutcome, left: float, top: float, side: float, colour: str) -> None:
    canvas.rectangle([left, top, left + side, top + side], fill=colour)
    for line in _SIGNS[outcome]:
        canvas.line([(left + x * side, top + y * side) for x, y in line], fill="white", width=_SHARP + 1)


def picked_photos(evidence: DetectorEvidence) -> list[str]:
    """Return the images of the gallery: where the worst model loses most, of unlike classes where possible."""
    lost = lost_objects(evidence)
    own = lost[lost["model"] == evidence.worst_model]
    if own.empty:
        pictures = evidence.answers.pictures
        return list(dict.fromkeys(pictures[pictures["n_objects"] > 0]["source_id"]))[: min(2, PHOTOS)]
    times = own.groupby("source_id")["times"].sum()
    photos = own.drop_duplicates("source_id").assign(total=lambda rows: rows["source_id"].map(times))
    photos = photos.sort_values("total", ascending=False, kind="stable")
    return [str(name) for name in by_turns(photos, "label", PHOTOS)["source_id"]]


def turning_photo(evidence: DetectorEvidence) -> list[str]:
    """Return an image whose objects the worst model finds in the original without a false alarm, but not elsewhere."""
    frame = evidence.answers.pictures
    frame = frame[frame["model"] == evidence.worst_model]
    objects = evidence.answers.counted[evidence.answers.counted["model"] == evidence.worst_model]
    share = objects.groupby(["source_id", "condition"])["found"].mean().unstack()
    calm = frame[(frame["condition"] == ORIGINAL) & (frame["false_alarms"] == 0)]["source_id"]
    if ORIGINAL not in share:
        return []
    clean = share[(share[ORIGINAL] == 1) & share.index.isin(calm)]
    for condition in (RANDOM, SAME):
        if condition in clean and len(turned := clean[clean[condition] < 1]):
            return [str(turned.index[0])]
    return [str(name) for name in clean.index[:1]]


def lost_objects(evidence: DetectorEvidence) -> pd.DataFrame:
    """Return a row per model and object that was found in the original and lost elsewhere, the worst first.

    ``times``: under how many conditions; ``score``: in the original; ``conditions``: their names.
    """
    counted = evidence.answers.counted
    keys = ["model", "sample_id", "object_id"]
    before = counted[(counted["condition"] == ORIGINAL) & counted["found"]]
    after = counted[(counted["condition"] != ORIGINAL) & ~counted["found"]]
    lost = after.merge(before[[*keys, "score"]], on=keys, suffixes=("", "_original"))
    grouped = lost.groupby(keys, sort=False).agg(
        source_id=("source_id", "first"), label=("label", "first"), times=("condition", "nunique"),
        score=("score_original", "first"), conditions=("condition", lambda names: list(dict.fromkeys(names))),
    )  # fmt: skip
    order = ["times", "score", *keys]
    return grouped.reset_index().sort_values(order, ascending=[False, False, True, True, True], ignore_index=True)


def photo_gallery(evidence: DetectorEvidence, images: Pictures, picked: Sequence[str]) -> Section:
    """Return the picked images under every condition, with the boxes of the worst model."""
    section = Section("gallery", "The same image under every condition")
    name = evidence.short[evidence.worst_model]
    section.lead = [
        f"What {name} sees, the detector that loses most. The images were picked because it loses objects there, so "
        f"they are not typical. {KEY}"
    ]
    if not images:
        section.parts.append(Notice("The images: the images are not at hand or have changed since the run."))
    photos = []
    for source in picked:
        tiles = photo_tiles(evidence, images, source, evidence.conditions, PICTURE)
        labels = evidence.answers.objects[evidence.answers.objects["source_id"] == source]["label"].unique()
        summary = listing([item.caption for item in tiles if item.wrong and item.caption != ORIGINAL], 6)
        text = f"Objects are lost or called wrongly under {summary}." if summary else ""
        photos.append(Photo(source, listing([class_words(label) for label in labels]), text, tiles))
    section.parts.append(Gallery(photos))
    return section


def photo_tiles(
    evidence: DetectorEvidence, images: Pictures, source: str, conditions: Sequence[str], size: int
) -> list[Tile]:
    """Return a tile per condition with the boxes of the worst model."""
    answers, model = evidence.answers, evidence.worst_model
    frame = answers.pictures[(answers.pictures["model"] == model) & (answers.pictures["source_id"] == source)]
    tiles = []
    for condition in conditions:
        own = frame[frame["condition"] == condition]
        if own.empty:
            continue
        place = int(own.index[0])
        boxes = boxes_of(answers, place)
        jpeg = with_boxes(images.get((str(own["sample_id"].iloc[0]), condition), b""), boxes, size)
        tiles.append(tile(condition_label(condition), jpeg, [_said(evidence.short[model], boxes, condition)]))
    return tiles


def _said(name: str, boxes: Sequence[DrawnBox], condition: str) -> Answer:
    counts = Counter(box.outcome for box in boxes)
    total = counts["found"] + counts["lost"] + counts["wrong class"]
    said = f"{counts['found']} of {total} found" if total else "no object"
    said += f", {plural(counts['false alarm'], 'false alarm')}" if counts["false alarm"] else ""
    said += f", {counts['wrong class']} called wrongly" if counts["wrong class"] else ""
    if counts["found"] < total:
        return Answer(name, said, "✗" if counts["lost"] else "≠", "wrong")
    if counts["false alarm"]:
        return Answer(name, said, "!", "none")
    return Answer(name, said, "○", "none") if without_object(condition) else Answer(name, said, "✓", "right")


def lost_filmstrip(evidence: DetectorEvidence, images: Pictures, lost: pd.DataFrame) -> Section:
    """Return the objects that were lost, the worst first, as they were shown under each condition."""
    section = Section("lost", "Lost objects, the worst first")
    if lost.empty:
        section.lead = ["No object that was found in an original was lost under any condition."]
        return section
    first = lost.iloc[0]
    section.lead = [
        f"{plural(len(lost), 'object')} found in the original {'was' if len(lost) == 1 else 'were'} lost under at "
        f"least one condition (a model and an object count once). First comes {class_words(first['label'])} in "
        f"{first['source_id']}, lost {plural(int(first['times']), 'time')}, though in the original "
        f"{evidence.short[first['model']]} gave it a score of {number(first['score'])}."
    ]
    photos = []
    for row in lost.drop_duplicates(["sample_id", "object_id"]).head(LOST).to_dict("records"):
        tiles = [_crop(evidence, images, row, condition) for condition in [ORIGINAL, *row["conditions"]]]
        text = f"Lost under {listing([condition_label(name) for name in row['conditions']], 8)}."
        title = f"{row['source_id']}, object {row['object_id']}"
        photos.append(Photo(title, class_words(row["label"]), text, [item for item in tiles if item], of="a"))
    section.parts = [Gallery(photos, steps=True), _lost_table(evidence, lost)]
    return section


def _crop(evidence: DetectorEvidence, images: Pictures, row: Mapping[Any, Any], condition: str) -> Tile | None:
    """Return the object as it was shown under a condition, with what became of it."""
    objects = evidence.answers.objects
    own = objects[
        (objects["model"] == row["model"]) & (objects["condition"] == condition)
        & (objects["sample_id"] == row["sample_id"]) & (objects["object_id"] == row["object_id"])
    ]  # fmt: skip
    if own.empty:
        return None
    shown = own.iloc[0]
    corners = (float(shown["x1"]), float(shown["y1"]), float(shown["x2"]), float(shown["y2"]))
    seen, said = bool(shown["found"]), str(shown["predicted"])
    box = DrawnBox("found" if seen else "wrong class" if shown["wrong_class"] else "lost", corners)
    jpeg = with_boxes(images.get((row["sample_id"], condition), b""), [box], CROP, around=corners)
    words = f"found, score {number(shown['score'])}" if seen else f"called {class_words(said)}" if said else "lost"
    answer = Answer(evidence.short[row["model"]], words, "✓" if seen else "✗", "right" if seen else "wrong")
    return tile(condition_label(condition), jpeg, [answer])


def _lost_table(evidence: DetectorEvidence, lost: pd.DataFrame) -> Table:
    frame = lost.assign(conditions=[", ".join(map(condition_label, names)) for names in lost["conditions"]])
    columns = [
        Column("source_id", "Image"), Column("object_id", "Object"), Column("label", "Class", show=class_words),
        model_column(evidence.short), Column("times", "Times lost", "integer"),
        Column("score", "Score in the original", "number", digits=2), Column("conditions", "Lost under"),
    ]  # fmt: skip
    return Table("lost_objects", "Objects that were lost, the worst first", frame, columns, folded=True)
