"""No message, heading, page or help text uses a word that the vocabulary has replaced (docs/glossary.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OLD_WORDS = {  # pattern → what to write instead
    r"\blean(s|ed|ing|t)?( \w+)? (up)?on\b": "rely on",
    r"\bholds? on to\b": "relies on",
    r"\b(is|are|stays?|leaves?) open\b|\bOpen: |\bwhat is open\b": "inconclusive",
    r"\b(do|does|did) not tell\b|\bnot told\b": "inconclusive, or: does not show, not reported",
    r"\bnot judged\b": "no verdict, or: not reviewed",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\banew\b": "again",
    r"\b(whoever|somebody|nobody)\b": "the actor, or: no one",
    r"\bgo(es)? on where\b": "resume",
    r"\bow(e|es|ed)\b": "missing",
}
PATTERN = re.compile("|".join(OLD_WORDS), re.IGNORECASE)
CODE = [ROOT / "src", *sorted(ROOT.glob("packages/*/src"))]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("packages/*/docs/**/*.md")), ROOT / "README.md"]


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every string of a Python file that is no docstring; f-strings as one text."""
    tree = ast.parse(path.read_text())
    docstrings: set[int] = set()
    pieces: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # also the strings below attributes
            docstrings.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            pieces |= {id(value) for value in node.values}
            literal = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
            yield node.lineno, "".join(map(str, literal))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | pieces:
            yield node.lineno, node.value


def _old(texts: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    # A single word is an identifier (a column, an option's value), never a sentence.
    return [(line, text.strip()) for line, text in texts if " " in text.strip() and PATTERN.search(text)]


@pytest.mark.parametrize("folder", CODE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_messages_use_the_vocabulary(folder):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(folder.rglob("*.py")) for line, text in _old(_texts(path))
    ]  # fmt: skip
    assert not found, "\n".join(found)


def test_templates_and_docs_use_the_vocabulary():
    templates = [path for folder in CODE for path in sorted({*folder.rglob("*.j2"), *folder.rglob("*.html")})]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in [*templates, *PAGES] for line, text in _old(enumerate(path.read_text().splitlines(), 1))
    ]  # fmt: skip
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text", ["Leans on the background", "192 images do not tell: −0.1", "Not judged: right on none", "mend it first"]
)
def test_the_patterns_find_the_old_words(text):
    assert PATTERN.search(text)
