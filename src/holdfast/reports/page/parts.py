"""The parts that a section of a page is made of, and how a gallery is made."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from holdfast.core.lazy import pd
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.tables import Table
from holdfast.store import Run


@dataclass(frozen=True)
class Heading:
    """A heading below the section's own."""

    text: str
    kind: ClassVar[str] = "heading"


@dataclass(frozen=True)
class Text:
    """Paragraphs."""

    texts: Sequence[str]
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Notice:
    """A sentence that says why something is not shown."""

    text: str
    kind: ClassVar[str] = "notice"


@dataclass(frozen=True)
class Listing:
    """Sentences that the reader can fold away."""

    title: str
    texts: Sequence[str]
    open: bool = False
    kind: ClassVar[str] = "list"


@dataclass(frozen=True)
class ModelVerdict:
    """The verdict on one model (or, without one, on all that the page is about), in words; ``small``: what is open."""

    model: str
    word: str
    sign: str
    sentence: str
    small: str = ""


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on all models."""

    items: Sequence[ModelVerdict]
    kind: ClassVar[str] = "verdicts"


@dataclass(frozen=True)
class Answer:
    """What a model, an oracle or people said about an image: ``kind`` is right, wrong or none."""

    who: str
    said: str
    sign: str
    kind: str
    confidence: float | None = None  # of the prediction, 0 to 1


@dataclass(frozen=True)
class Tile:
    """An image in base64 (or empty), the words below it, and the answers to it.

    ``mark`` is behind the caption; ``count`` sums up more than four answers.
    """

    caption: str
    picture: str
    width: int
    height: int
    answers: Sequence[Answer] = ()
    wrong: bool = False
    count: str = ""
    mark: str = ""
    format: str = "jpeg"


@dataclass(frozen=True)
class Photo:
    """A row of tiles under one heading; without a name it has no heading. ``of`` leads from the name to the label."""

    name: str
    label: str
    summary: str
    tiles: Sequence[Tile]
    of: str = "an image of"
    against: str = ""


@dataclass(frozen=True)
class Gallery:
    """Rows of tiles; ``steps`` draws them small, as the steps of walks, ``grid`` as the columns of a grid.

    ``large`` draws them as the first thing to look at.
    """

    photos: Sequence[Photo]
    steps: bool = False
    large: bool = False
    grid: bool = False
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Code:
    """Text to be copied."""

    title: str
    text: str
    kind: ClassVar[str] = "code"


@dataclass(frozen=True)
class Steps:
    """What to do, in order, each with a command or nothing."""

    title: str
    items: Sequence[tuple[str, str]]
    kind: ClassVar[str] = "steps"


Part = Heading | Text | Notice | Listing | Verdicts | Table | Figure | Gallery | Code | Steps


@dataclass
class Section:
    """A section of a page: ``lead`` says what it shows and what was found.

    ``template``: Jinja source of what is below the heading, instead of lead and parts; ``data``: what it shows.
    """

    name: str
    title: str
    lead: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    template: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def gist(self) -> str:
        """The first text of the lead, next to the title of a section that is not open."""
        return self.lead[0] if self.lead else ""


@dataclass(frozen=True)
class Front:
    """The first screen of a page: a question, its answer, images that prove it, one chart, and what to do next.

    Args:
        title: the question that the page answers.
        verdicts: the answer; one without a model is about the whole page.
        facts: the numbers of the data.
        limits: what the numbers mean, and what they cannot say.
        images: images that prove the answer.
        chart: the one chart.
        steps: what to do next, each with a command or nothing.
        warnings: what to bear in mind.
    """

    title: str
    verdicts: Sequence[ModelVerdict]
    facts: Sequence[tuple[str, str]]
    limits: str
    images: Gallery | None = None
    chart: Figure | None = None
    steps: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()


MOST_PROOF = 4  # Images of several rows on the first screen


def answer(sentence: str, more: str = "", *, sign: str = "", small: str = "") -> list[ModelVerdict]:
    """Return the verdict of a page that is about more than one model, or about none."""
    return [ModelVerdict("", sentence.removesuffix("."), sign, more, small)]


def first_figure(parts: Sequence[Part]) -> Figure | None:
    """Return the first figure among some parts, to be the chart of the first screen."""
    return next((part for part in parts if isinstance(part, Figure)), None)


def proof(parts: Sequence[Part], tiles: int = 3, rows: int = 1) -> Gallery | None:
    """Return the first images of the galleries among some parts, large; None if no image is at hand.

    ``tiles`` of each of ``rows`` rows of tiles; several rows become one, whose tiles name what they are of.
    """
    photos = [photo for part in parts if isinstance(part, Gallery) for photo in part.photos]
    kept = [replace(photo, tiles=[tile for tile in photo.tiles if tile.picture][:tiles]) for photo in photos]
    kept = [photo for photo in kept if photo.tiles][:rows]
    if len(kept) > 1:
        joined = [replace(tile, mark=tile.mark or photo.name) for photo in kept for tile in photo.tiles]
        kept = [Photo("", "", "", joined[:MOST_PROOF])]
    return Gallery(kept, large=True) if kept else None


class RunPictures(Protocol):
    """Makes JPEGs of some images of a run, by (sample_id, condition name)."""

    def __call__(
        self, run: Run, source_ids: Collection[str], /, *, size: int = ..., only: Collection[str] = ...
    ) -> dict[tuple[str, str], bytes]:
        """Return the images, their longer side ``size`` pixels; ``only`` names the conditions, if not all."""


def pictures_of(
    pictures: RunPictures | None, runs: Sequence[Run], sources: Collection[str], **options: Any
) -> dict[tuple[str, str], bytes]:
    """Return renderings of some images, each from the first run that can make it; none without a maker."""
    images: dict[tuple[str, str], bytes] = {}
    if pictures is not None:
        for run in runs:
            images = pictures(run, sources, **options) | images
    return images


Thumbnails = Callable[[Container[str]], dict[str, bytes]]  # Makes JPEGs of some images, by sample_id
LARGEST_PICTURE = 60_000  # Bytes of an image; larger ones are left out, so that the page stays small
TILES = 8  # Images per group


def judged(who: str, said: str, right: bool, confidence: float | None = None) -> Answer:
    """Return an answer with the sign of right or wrong."""
    return Answer(who, said, "✓" if right else "✗", "right" if right else "wrong", confidence)


def tile(caption: str, jpeg: bytes, answers: Sequence[Answer], *, count: str = "", wrong: bool | None = None) -> Tile:
    """Return a tile; its frame is dashed if an answer is wrong, unless ``wrong`` says otherwise."""
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
    """Return width and height; zeros for bytes that are not JPEG or too many."""
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
    """Return a gallery with a row of tiles per group, behind a notice if no image can be had.

    ``groups``: title, what the group holds, and the sample_ids to show. ``make_tile``: returns the tile for the group's
    title, a sample_id and its JPEG, which may be empty. ``missing``: what is not at hand where there are no images.
    """
    wanted = {sample_id for _, _, ids in groups for sample_id in ids}
    jpegs = thumbnails(wanted) if thumbnails is not None else {}
    photos = [
        Photo(title, label, "", [make_tile(title, name, jpegs.get(name, b"")) for name in ids], of=f"{len(ids)} of")
        for title, label, ids in groups
    ]
    notice = [] if jpegs else [Notice(f"The images: the {missing} not at hand.")]
    return [*notice, Gallery(photos)]
