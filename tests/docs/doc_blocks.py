"""The commands and the Python of the documentation, as data.

A command is in a ```bash fence and is run, or the comment ``<!-- not run: why -->`` before the fence says why not;
then its names and options are held against the parser only. In sentences a command is in backticks.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("packages/*/README.md")),
    *sorted(ROOT.glob("packages/*/docs/**/*.md")),
]
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_FENCE = re.compile(r'^ *```(\w*)(?: title="(.+)")?$')
_CODE_SPAN = re.compile(r"`(holdfast [a-z][^`]*)`")
_OPERATORS = re.compile(r"[();<>|&]+")


@dataclass(frozen=True)
class Block:
    """What is between two fences; ``not_run`` is the reason, if any; ``title`` the file it belongs in."""

    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    title: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf8").splitlines()
    opened: int | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence and opened is None:
            opened, language, title = number, fence[1], fence[2] or ""
        elif fence and opened is not None:
            before = next((one for one in reversed(lines[:opened]) if one.strip()), "")
            reason = NOT_RUN.search(before)
            text = "\n".join(lines[opened + 1 : number])
            found.append(Block(name(page), opened + 1, language, text, reason[1] if reason else "", title))
            opened = None
    assert opened is None, f"{name(page)}:{opened} opens a fence that nothing closes"
    return found


def outside(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf8"), flags=re.M | re.S)


def spans(page: Path) -> list[str]:
    """Commands inside sentences."""
    found = (re.sub(r"\s+", " ", text) for text in _CODE_SPAN.findall(outside(page)))
    return [command for text in found for command in text.split(" && ")]


def commands(block: Block) -> list[list[str]]:
    """The words of every command, with continued lines joined and comments left out, as a shell reads them."""
    joined = block.text.replace("\\\n", " ")
    found, begun = [], ""
    for line in joined.splitlines():
        reader = shlex.shlex(begun + line, posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        try:
            words = list(reader)
        except ValueError:  # a quotation continues in the next line
            begun += f"{line}\n"
            continue
        begun = ""
        loose = [word for word in words if _OPERATORS.fullmatch(word) and word != "&&"]
        assert not loose or words[0] != "holdfast", f"{block}: quote {loose[0]!r} in: {line}"
        if words:
            found.append(words)
    assert not begun, f"{block}: a quotation does not end: {begun}"
    return found


def name(page: Path) -> str:
    """As it is called in messages and parameters of tests."""
    return page.relative_to(ROOT).as_posix()
