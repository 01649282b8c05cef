"""Boxes drawn on pictures: what happened to an object is told by the line and by a sign, not by the colour alone."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdfast.core.objects import FOUND_IOU, box_overlaps
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

_SHARP = 2  # drawn at twice the size, then made smaller
_QUALITY = 78


@dataclass(frozen=True)
class DrawnBox:
    """A box with what happened there; ``label`` is the class of the object, or of the false alarm."""

    outcome: BoxOutcome
    corners: tuple[float, float, float, float]
    label: str
    said: str
    score: float


def boxes_of(answers: DetectorAnswers, picture: int) -> list[DrawnBox]:
    """Return the boxes of one picture: its true objects, and predictions at the threshold that match none of them."""
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
        score = float(answers.guess_score[kept[match]]) if match is not None else float(row["score"])
        box = (float(row["x1"]), float(row["y1"]), float(row["x2"]), float(row["y2"]))
        drawn.append(DrawnBox(outcome, box, str(row["label"]), str(said), score))
    for at in sorted(free):
        label = answers.labels[answers.guess_label[kept[at]]]
        x1, y1, x2, y2 = answers.guess_corners[kept[at]].tolist()
        drawn.append(DrawnBox("false alarm", (x1, y1, x2, y2), "", label, float(answers.guess_score[kept[at]])))
    return drawn


def with_boxes(jpeg: bytes, boxes: Sequence[DrawnBox], size: int, *, around: Sequence[float] | None = None) -> bytes:
    """Return the picture with boxes as a JPEG, its longer side ``size`` pixels; empty where it cannot be read.

    ``boxes``: what to draw; found ones lie below the others. ``around``: x1, y1, x2, y2 of what to show, with some room
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
