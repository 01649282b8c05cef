"""A document as plain data, and its three forms: PDF (by Typst), HTML and Markdown."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Grid:
    """A table of texts with its caption."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class DossierPicture:
    """An image file beside the document, with a caption and a text for people who do not see it."""

    file: str
    caption: str
    alternative: str
    width: int = 100  # in per cent of the page's


@dataclass
class Chapter:
    """A numbered part of the document; a text in ``blocks`` is a paragraph."""

    title: str
    blocks: list[str | Grid | DossierPicture] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    """Title, a line below it, chapters, and keywords that the PDF carries as metadata."""

    title: str
    subtitle: str
    chapters: Sequence[Chapter]
    keywords: Sequence[str] = ()


def write_pdf(document: Document, folder: Path) -> Path:
    """Write ``dossier.pdf``, tagged for screen readers (PDF/UA-1), from ``dossier.typ``; return its path."""
    import typst

    source = folder / "dossier.typ"
    source.write_text("".join(_typst(document)), encoding="utf8")
    target = folder / "dossier.pdf"
    typst.compile(source, output=target, root=folder, pdf_standards=["ua-1"])
    return target


PAGE = """#set page(paper: "a4", margin: 22mm, numbering: "1 / 1")
#set text(size: 10pt, lang: "en")
#set heading(numbering: "1.")
#set par(justify: false)
#set table(stroke: 0.4pt + luma(120), inset: 4pt)
#show figure: set block(breakable: true)
#show figure.where(kind: table): set figure.caption(position: top)
#show figure: set align(left)
#show figure.caption: it => block(sticky: true, it)
"""


def _quoted(text: str) -> str:
    """Return a Typst string, in which nothing of the text is markup."""
    return json.dumps(" ".join(text.split()), ensure_ascii=False).replace("\\/", "/")


def _typst(document: Document) -> Iterator[str]:
    keywords = "".join(f"{_quoted(word)}, " for word in document.keywords)
    yield f"#set document(title: {_quoted(document.title)}, keywords: ({keywords}))\n"
    yield PAGE
    yield f'#title()\n#text(style: "italic", {_quoted(document.subtitle)})\n#outline(depth: 1)\n#pagebreak()\n'
    for number, chapter in enumerate(document.chapters, start=1):
        yield f"\n#heading({_quoted(chapter.title)}) <chapter-{number}>\n"
        for block in chapter.blocks:
            if isinstance(block, str):
                yield f"#par(text({_quoted(block)}))\n"
            elif isinstance(block, DossierPicture):
                image = f"image({_quoted(block.file)}, width: {block.width}%, alt: {_quoted(block.alternative)})"
                yield f"#figure({image}, alt: {_quoted(block.alternative)}, caption: text({_quoted(block.caption)}))\n"
            else:
                yield from _typst_table(block)


def _typst_cell(text: str) -> str:
    """Return the text in Typst; "(chapter 3)" becomes a link that names the page, too."""
    parts = []
    for place, part in enumerate(re.split(r"\(chapter (\d+)\)", text)):
        if place % 2:
            page = f"str(counter(page).at(<chapter-{part}>).first())"
            parts.append(f'link(<chapter-{part}>, context text(" (chapter {part}, page " + {page} + ")"))')
        elif part or len(text) == 0:
            parts.append(f"text({_quoted(part)})")
    return " + ".join(parts)


def _typst_table(grid: Grid) -> Iterator[str]:
    header = ", ".join(f"strong({_quoted(name)})" for name in grid.header)
    yield f"#figure(caption: text({_quoted(grid.caption)}), text(size: 8pt, table(\n"
    yield f"  columns: {len(grid.header)}, align: left,\n"
    yield f"  table.header({header}),\n"
    for row in grid.rows:
        yield "  " + ", ".join(map(_typst_cell, row)) + ",\n"
    yield ")))\n"


def write_markdown(document: Document, folder: Path) -> Path:
    """Write ``dossier.md``; return its path."""
    lines = [f"# {_plain(document.title)}", "", f"*{_plain(document.subtitle)}*"]
    for number, chapter in enumerate(document.chapters, start=1):
        lines += ["", f"## {number}. {_plain(chapter.title)}"]
        for block in chapter.blocks:
            if isinstance(block, str):
                lines += ["", _plain(block)]
            elif isinstance(block, DossierPicture):
                lines += ["", f"![{_plain(block.alternative)}]({block.file})", "", f"*{_plain(block.caption)}*"]
            else:
                rows = [" | ".join(_plain(cell) for cell in row) for row in block.rows]
                header = " | ".join(_plain(name) for name in block.header)
                ruled = " | ".join("---" for _ in block.header)
                lines += ["", f"**{_plain(block.caption)}**", "", *(f"| {row} |" for row in (header, ruled, *rows))]
    target = folder / "dossier.md"
    target.write_text("\n".join(lines) + "\n", encoding="utf8")
    return target


def _plain(text: str) -> str:
    """Return one line of Markdown in which nothing of the text is markup."""
    text = html.escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{character}" if character in "\\`*_[]#|~" else character for character in text)


STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#111;
background:#fff}h1{line-height:1.2}table{border-collapse:collapse;font-size:.85rem}caption{text-align:left;
font-weight:600;padding:.4rem 0}
th,td{border:1px solid #888;padding:.25rem .5rem;text-align:left;vertical-align:top}img{max-width:100%;height:auto}
.wide{overflow-x:auto}figure{margin:1rem 0}@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}}"""


def write_html(document: Document, folder: Path) -> Path:
    """Write ``dossier.html``, which opens by itself beside its pictures; return its path."""
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(document.title)}</title>',
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>',
        "<body><main>",
        f"<h1>{html.escape(document.title)}</h1><p><em>{html.escape(document.subtitle)}</em></p>",
    ]
    for number, chapter in enumerate(document.chapters, start=1):
        parts.append(f"<h2>{number}. {html.escape(chapter.title)}</h2>")
        parts += [_html_block(block) for block in chapter.blocks]
    target = folder / "dossier.html"
    target.write_text("\n".join([*parts, "</main></body></html>\n"]), encoding="utf8")
    return target


def _html_block(block: str | Grid | DossierPicture) -> str:
    if isinstance(block, str):
        return f"<p>{html.escape(block)}</p>"
    if isinstance(block, DossierPicture):
        image = f'<img src="{html.escape(block.file)}" alt="{html.escape(block.alternative)}">'
        return f"<figure>{image}<figcaption>{html.escape(block.caption)}</figcaption></figure>"
    header = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in block.header)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
    caption = f"<caption>{html.escape(block.caption)}</caption>"
    return f'<div class="wide"><table>{caption}<thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>'
