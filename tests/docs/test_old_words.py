"""No message, heading, page, docstring or comment uses a word that the vocabulary has replaced (docs/glossary.md)."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EVERYWHERE = {  # pattern → what to write instead
    r"\blean(s|ed|ing|t)?( \w+)? (up)?on\b": "rely on",
    r"\bholds? on to\b": "relies on",
    r"\bnot judged\b": "no verdict, or: not reviewed",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\banew\b": "again",
    r"\b(whoever|somebody|nobody)\b": "the actor, or: no one",
    r"\bgo(es)? on where\b": "resume",
    r"\bow(e|es|ed)\b": "missing",
    r"\btold\b|\btells?\b(?! and say)": "reported, records, shows",
    r"\bbeside\b": "next to",
    r"\b(stands?|stood)\b(?! (out|for|in for|still|alone)\b|-)": "is, appears",
    r"\blies?\b(?! (above|below|between|inside|outside|within|clear(ly)?|beyond|on one|on both|in the mid))": "is",
    r"\b(None|empty|nothing|only|even|UserError|NaN) where\b": "if",
    r"\b(photos?|pictures?)\b": "image",
}
IN_MESSAGES = {
    r"\b(is|are|stays?|leaves?) open\b|\bOpen: |\bwhat is open\b": "inconclusive",
    r"\b(do|does|did) not tell\b|\bnot told\b": "inconclusive, or: does not show, not reported",
}
COMMENT = re.compile("|".join(EVERYWHERE), re.IGNORECASE)
MESSAGE = re.compile("|".join(EVERYWHERE | IN_MESSAGES), re.IGNORECASE)
# Code, commands, names of files and options, values, and prompts of generators are no prose.
CODE = re.compile(
    r"``.*?``|`[^`\n]*`|>>> .*|\.\.\. .*|\{[^{}]*\}|[^\s<]*/\S*|--[\w-]+|\bPHOTOS\b|\S+=(?!a )\S+|\bphoto-|"
    r"^ +(photos?|pictures?): |\ba (photo|picture) (of|in|with|without)\b|enough \w+ to tell|can tell\?|"
    r"\bselect .* from .*|^ +\w+ +(word|text|flag|int|long|float|texts|ints|floats) +",
    re.DOTALL | re.MULTILINE,
)
SOURCES = [ROOT / "src", *sorted(ROOT.glob("packages/*/src"))]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("packages/*/docs/**/*.md")), ROOT / "README.md"]


def _texts(code: str) -> Iterator[tuple[int, str, re.Pattern[str]]]:
    """Yield line, text and forbidden words of every string and comment of Python code; f-strings as one text."""
    tree = ast.parse(code)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # also those of attributes
    pieces: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            pieces |= {id(value) for value in node.values}
            yield node.lineno, "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values), MESSAGE
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            # A single word is an identifier (a column, an option's value), and what follows \b is a pattern.
            if id(node) in docstrings:
                yield node.lineno, node.value, COMMENT
            elif " " in node.value.strip() and "\\b" not in node.value:
                yield node.lineno, node.value, MESSAGE
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield token.start[0], token.string, COMMENT


def _scripts(code: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of JavaScript, and its strings of two words or more."""
    for line, text in enumerate(code.splitlines(), 1):
        for found in re.finditer(r"(?<!:)//.*|(^ *|/)\*\*? .*|\"[A-Z][^\"]* [^\"]*\"|`[A-Z][^`]* [^`]*`", text):
            yield line, re.sub(r"\$\{[^}]*\}", "{}", found[0]).strip("`")


def _pages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page without fenced code, tags and placeholders."""
    fenced = False
    for line, shown in enumerate(text.splitlines(), 1):
        fenced ^= shown.lstrip().startswith("```")
        if not fenced:
            yield line, re.sub(r"\{\{.*?\}\}|\{%.*?%\}|<[^>]*>|\]\([^)]*\)", " ", shown)


def _old(path: Path, texts: Iterable[tuple[int, str, re.Pattern[str]]]) -> list[str]:
    found = [(line, words.search(CODE.sub(" ", text)), text) for line, text, words in texts]
    return [
        f"{path.relative_to(ROOT)}:{line}: {word[0]!r} in {' '.join(text.split())[:200]}"
        for line, word, text in found if word
    ]  # fmt: skip


@pytest.mark.parametrize("folder", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_code_uses_the_vocabulary(folder):
    old = [found for path in sorted(folder.rglob("*.py")) for found in _old(path, _texts(path.read_text()))]
    scripts = [path for path in sorted(folder.rglob("*.js")) if ".min." not in path.name]
    old += [
        found for path in scripts
        for found in _old(path, ((*each, COMMENT) for each in _scripts(path.read_text())))
    ]  # fmt: skip
    assert not old, "\n".join(old)


def test_templates_and_docs_use_the_vocabulary():
    templates = [path for folder in SOURCES for path in sorted({*folder.rglob("*.j2"), *folder.rglob("*.html")})]
    shown = [path for path in [*templates, *PAGES] if ".yaml" not in path.name]
    old = [found for path in shown for found in _old(path, ((*each, MESSAGE) for each in _pages(path.read_text())))]
    assert not old, "\n".join(old)


@pytest.mark.parametrize(
    "text", ["Leans on the background", "192 photos do not tell: −0.1", "Not judged: right on none", "mend it first",
             "the file lies in the folder", "what stands in a cell", "None where it has none"],
)  # fmt: skip
def test_the_patterns_find_the_old_words(text):
    assert MESSAGE.search(CODE.sub(" ", text))


def test_code_in_a_text_is_no_prose():
    for text in (
        "``photos`` are",
        "run photos/cat",
        "holdfast check M PHOTOS",
        "it stands out",
        "the bound lies above 0",
    ):
        assert not MESSAGE.search(CODE.sub(" ", text)), text
    assert [each[1] for each in _texts('x = "one"; y = f"{x} lies there"  # told')] == ["{} lies there", "# told"]
