"""Words, pages and lines of the documentation: ``python docs/counts.py`` prints them, ``tests/docs`` holds the limits.

Counted are the pages of docs/, those of the companion packages and the texts at the root, as ``wc`` counts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = {
    "README and other texts at the root": ("*.md",),
    "docs/": ("docs/**/*.md",),
    "packages/": ("packages/*/README.md", "packages/*/docs/**/*.md"),
}


@dataclass(frozen=True)
class Counts:
    """Size of a part of the documentation."""

    pages: int
    words: int
    longest: int
    longest_page: str


def counts(root: Path = ROOT) -> dict[str, Counts]:
    """Return the size of every part, and of all parts together under the name "all"."""
    found = {part: sorted(page for one in patterns for page in root.glob(one)) for part, patterns in PARTS.items()}
    return {part: _counted(pages, root) for part, pages in found.items()} | {
        "all": _counted([page for pages in found.values() for page in pages], root)
    }


def _counted(pages: list[Path], root: Path) -> Counts:
    texts = {page.relative_to(root).as_posix(): page.read_text(encoding="utf8") for page in pages}
    lines = {name: len(text.splitlines()) for name, text in texts.items()} or {"": 0}
    longest = max(lines, key=lambda name: (lines[name], name))
    return Counts(len(texts), sum(len(text.split()) for text in texts.values()), lines[longest], longest)


def main() -> None:
    """Print a line for every part."""
    print(f"{'':36}{'pages':>6}{'words':>9}  longest page")
    for part, size in counts().items():
        print(f"{part:36}{size.pages:6}{size.words:9,}  {size.longest} lines, {size.longest_page}")


if __name__ == "__main__":
    main()
