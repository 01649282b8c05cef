"""What a section of the report is made of."""

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
    """Why something is not shown."""

    text: str
    kind: ClassVar[str] = "notice"


@dataclass(frozen=True)
class Listing:
    """Sentences behind a fold."""

    title: str
    texts: Sequence[str]
    open: bool = False
    kind: ClassVar[str] = "list"


@dataclass(frozen=True)
class Verdict:
    """One model's, in words."""

    model: str
    word: str
    sign: str
    sentence: str


@dataclass(frozen=True)
class Verdicts:
    """All models'."""

    items: Sequence[Verdict]
    kind: ClassVar[str] = "verdicts"


@dataclass(frozen=True)
class ShownTable:
    """A table."""

    table: Table
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class ShownFigure:
    """A figure; drawn when the page is made."""

    figure: Figure
    wide: str = ""
    narrow: str = ""
    kind: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Answer:
    """What a model said to one picture: ``kind`` is right, wrong or none."""

    model: str
    said: str
    sign: str
    kind: str


@dataclass(frozen=True)
class Tile:
    """A photo under one condition; ``picture`` is a JPEG in base64, or empty."""

    condition: str
    picture: str
    width: int
    height: int
    answers: Sequence[Answer]
    wrong: int
    count: str


@dataclass(frozen=True)
class Photo:
    """A photo under every condition; ``of`` leads from its name to its label."""

    name: str
    label: str
    summary: str
    tiles: Sequence[Tile]
    of: str = "a photo of"


@dataclass(frozen=True)
class Gallery:
    """Photos."""

    photos: Sequence[Photo]
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Frame:
    """One step of a walk; ``picture`` is a JPEG in base64, or empty; ``kept``: the image that counts."""

    step: str
    picture: str
    width: int
    height: int
    answers: Sequence[Answer]
    wrong: bool
    kept: bool


@dataclass(frozen=True)
class Filmstrip:
    """One walk of one image."""

    name: str
    label: str
    model: str
    summary: str
    frames: Sequence[Frame]


@dataclass(frozen=True)
class Filmstrips:
    """Walks, one below another."""

    strips: Sequence[Filmstrip]
    kind: ClassVar[str] = "filmstrips"


@dataclass(frozen=True)
class Picture:
    """One picture with the words below it: a PNG in base64."""

    caption: str
    png: str
    width: int
    height: int


@dataclass(frozen=True)
class Pictures:
    """Pictures side by side."""

    pictures: Sequence[Picture]
    kind: ClassVar[str] = "pictures"


@dataclass(frozen=True)
class Code:
    """Text to be copied."""

    title: str
    text: str
    kind: ClassVar[str] = "code"


Part = Heading | Text | Notice | Listing | Verdicts | ShownTable | ShownFigure | Gallery | Filmstrips | Pictures | Code


@dataclass
class Section:
    """A section: ``lead`` says what it shows and what came out."""

    name: str
    title: str
    lead: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
