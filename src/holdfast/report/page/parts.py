"""The parts that a section of a page is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.report.page.figures import Figure
from holdfast.report.page.tables import Table


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
    """The verdict on one model, in words; ``small`` says what is open."""

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
    """What a model, an oracle or people said about a picture: ``kind`` is right, wrong or none."""

    who: str
    said: str
    sign: str
    kind: str


@dataclass(frozen=True)
class Tile:
    """A picture in base64 (or empty), the words below it, and the answers to it.

    ``mark`` stands behind the caption; ``count`` sums up more than four answers.
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
    of: str = "a photo of"
    against: str = ""


@dataclass(frozen=True)
class Gallery:
    """Rows of tiles; ``steps`` draws them small, as the steps of walks, ``large`` as the first thing to look at."""

    photos: Sequence[Photo]
    steps: bool = False
    large: bool = False
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

    ``front``: it is the first screen, and says itself what it rests on; ``folded``: the reader opens it.
    """

    name: str
    title: str
    lead: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    front: bool = False
    folded: bool = False
