"""A document as plain data, and its three forms: PDF (by Typst), HTML and Markdown."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from holdfast.reports.page.writer import templates


@dataclass(frozen=True)
class Grid:
    """A table of texts with its caption."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: ClassVar[str] = "grid"


@dataclass(frozen=True)
class DossierPicture:
    """An image file next to the document, with a caption and a text for people who do not see it."""

    file: str
    caption: str
    alternative: str
    width: int = 100  # in per cent of the page's
    kind: ClassVar[str] = "picture"


Block = str | Grid | DossierPicture  # A text is a paragraph


@dataclass
class Chapter:
    """A numbered part of the document."""

    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    """Title, a line below it, chapters, and keywords that the PDF carries as metadata."""

    title: str
    subtitle: str
    chapters: Sequence[Chapter]
    keywords: Sequence[str] = ()


def write_document(document: Document, folder: Path) -> Path:
    """Write ``dossier.md``, ``.html``, ``.typ`` and ``.pdf`` (PDF/UA-1, for screen readers); return the PDF's path."""
    import typst

    for form in ("md", "html", "typ"):
        (folder / f"dossier.{form}").write_text(as_text(document, form), encoding="utf8")
    target = folder / "dossier.pdf"
    typst.compile(folder / "dossier.typ", output=target, root=folder, pdf_standards=["ua-1"])
    return target


def as_text(document: Document, form: str) -> str:
    """Return the document in the form ``md``, ``html`` or ``typ``; nothing of its texts becomes markup."""
    environment = templates(Path(__file__).parent / "templates")
    environment.filters |= {"markdown": _markdown, "typst": _typst, "typst_cell": _typst_cell}
    return environment.get_template(f"dossier.{form}.j2").render(document=document).rstrip() + "\n"


def _markdown(text: str) -> str:
    text = html.escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{character}" if character in "\\`*_[]#|~" else character for character in text)


def _typst(text: str) -> str:
    return json.dumps(" ".join(text.split()), ensure_ascii=False).replace("\\/", "/")


def _typst_cell(text: str) -> str:
    """Return the text in Typst; "(chapter 3)" becomes a link that names the page, too."""
    parts = []
    for place, part in enumerate(re.split(r"\(chapter (\d+)\)", text)):
        if place % 2:
            page = f"str(counter(page).at(<chapter-{part}>).first())"
            parts.append(f'link(<chapter-{part}>, context text(" (chapter {part}, page " + {page} + ")"))')
        elif part or len(text) == 0:
            parts.append(f"text({_typst(part)})")
    return " + ".join(parts)
