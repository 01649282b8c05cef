"""The one gallery of all pages: tiles with answers below, and groups of pictures that are fetched together."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Collection, Container, Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.report.page.parts import Answer, Gallery, Notice, Part, Photo, Tile
from holdfast.store import Run

if TYPE_CHECKING:
    import pandas as pd


class RunPictures(Protocol):
    """Makes JPEGs of some photos of a run, by (sample_id, condition name)."""

    def __call__(self, run: Run, source_ids: Collection[str], /, *, size: int = ...) -> dict[tuple[str, str], bytes]:
        """Return the pictures, their longer side ``size`` pixels."""


Thumbnails = Callable[[Container[str]], dict[str, bytes]]  # Makes JPEGs of some images, by sample_id
LARGEST_PICTURE = 60_000  # Bytes of a picture; larger ones are left out, so that the page stays small
TILES = 8  # Pictures per group


def judged(who: str, said: str, right: bool) -> Answer:
    """Return an answer with the sign of right or wrong."""
    return Answer(who, said, "✓" if right else "✗", "right" if right else "wrong")


def tile(caption: str, jpeg: bytes, answers: Sequence[Answer], *, count: str = "", wrong: bool | None = None) -> Tile:
    """Return a tile; its frame is dashed where an answer is wrong, unless ``wrong`` says otherwise."""
    width, height = jpeg_size(jpeg)
    picture = base64.b64encode(jpeg).decode() if width else ""
    if wrong is None:
        wrong = any(answer.kind == "wrong" for answer in answers)
    return Tile(caption, picture, width, height, answers, wrong, count)


def png_tile(caption: str, png: bytes) -> Tile:
    """Return a tile of a PNG without answers."""
    from PIL import Image

    with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
        width, height = image.size
    return Tile(caption, base64.b64encode(png).decode(), width, height, format="png")


def jpeg_size(jpeg: bytes) -> tuple[int, int]:
    """Return width and height; zeros for bytes that are no JPEG or too many."""
    from PIL import Image, UnidentifiedImageError

    if not jpeg or len(jpeg) > LARGEST_PICTURE:
        return 0, 0
    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
            return image.size
    except (UnidentifiedImageError, OSError):
        return 0, 0


def by_turns(frame: pd.DataFrame, column: str, most: int = TILES) -> pd.DataFrame:
    """Return the first rows of each class in ``column``, then the second rows, and so on, at most ``most``."""
    turn = frame.groupby(column).cumcount()
    return frame.assign(turn=turn).sort_values(["turn", column], kind="stable").drop(columns="turn").head(most)


def grouped(
    groups: Sequence[tuple[str, str, Sequence[str]]],
    thumbnails: Thumbnails | None,
    make_tile: Callable[[str, str, bytes], Tile],
    *,
    missing: str,
) -> list[Part]:
    """Return a gallery with a row of tiles per group, behind a notice where no picture can be had.

    ``groups``: title, what the group holds, and the sample_ids to show. ``make_tile``: returns the tile for the group's
    title, a sample_id and its JPEG, which may be empty. ``missing``: what is not at hand where there are no pictures.
    """
    wanted = {sample_id for _, _, ids in groups for sample_id in ids}
    jpegs = thumbnails(wanted) if thumbnails is not None else {}
    photos = [
        Photo(title, label, "", [make_tile(title, name, jpegs.get(name, b"")) for name in ids], of=f"{len(ids)} of")
        for title, label, ids in groups
    ]
    notice = [] if jpegs else [Notice(f"The pictures: the {missing} not at hand.")]
    return [*notice, Gallery(photos)]
