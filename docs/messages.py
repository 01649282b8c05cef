"""All messages in one file for review: ``python docs/messages.py`` writes ``build/messages.md`` (``make messages``).

``--sample SEED`` prints 60 docstrings, 45 messages and 20 paragraphs without context, for a blind reading.

A message is every text of three words or more that a user may read: errors, warnings, notes, next steps, headings, help
and sentences of reports. Code collects them from the syntax tree, so none is missed; ``tests/docs`` checks them by
rule.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src", *sorted(ROOT.glob("packages/*/src")))
PAGE = ROOT / "build" / "messages.md"
KINDS = ("error", "row error", "warning", "note", "next step", "heading", "help", "output", "text")
_CALLS = {
    "warning": "warning", "warn": "warning", "echo": "output", "print": "output", "noted": "note", "Heading": "heading",
    "Section": "heading", "Finding": "heading", "Column": "heading", "Steps": "next step", "Option": "help",
    "Argument": "help", "option": "help", "Parameter": "help", "Setting": "help", "Listing": "heading",
}  # fmt: skip
_KEYWORDS = {"help": "help", "hint": "heading", "title": "heading", "caption": "heading", "summary": "help"}
_LISTS = {"notes": "note", "warnings": "warning", "steps": "next step"}
_CODE = re.compile(
    r"\b(SELECT|select) .*\b(FROM|from) |\bcreate temp view\b|^\s*[.#][\w-]+ \{|;\s*$|^\(\?|\\b|https?://\S+$"
)


@dataclass(frozen=True)
class Message:
    """A text that a user may read; ``{…}`` is what the program puts in."""

    file: str
    line: int
    kind: str
    text: str


def messages() -> list[Message]:
    """Return all messages of the package and its companions, by file and line."""
    paths = [path for source in SOURCES for path in sorted(source.rglob("*.py"))]
    return [message for path in paths for message in messages_of(path.read_text("utf8"), _name(path))]


def messages_of(code: str, file: str) -> Iterator[Message]:
    """Yield the messages in some code."""
    tree = ast.parse(code)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    yield from (message for message in _walk(tree, "text", file, skipped) if _is_text(message.text))


def _walk(node: ast.AST, kind: str, file: str, skipped: set[int]) -> Iterator[Message]:
    if id(node) in skipped and isinstance(node, (ast.Constant, ast.JoinedStr)):
        return
    if isinstance(node, ast.JoinedStr):
        yield Message(file, node.lineno, kind, _shown(node))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _walk(part.value, kind, file, skipped)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield Message(file, node.lineno, kind, node.value)
        return
    kind = _kind(node) or kind
    for _, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                own = _KEYWORDS.get(child.arg or "", kind) if isinstance(child, ast.keyword) else kind
                yield from _walk(child, "text" if isinstance(child, ast.stmt) else own, file, skipped)


def _kind(node: ast.AST) -> str:
    """Return the kind of message that the texts of a node are, if the node says it."""
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return "row error" if _last(raised) in ("SampleError", "RejectedError") else "error"
    if isinstance(node, ast.AugAssign):
        return _LISTS.get(_last(node.target), "")
    if isinstance(node, ast.Call):
        if _last(node.func) in ("append", "extend") and isinstance(node.func, ast.Attribute):
            return _LISTS.get(_last(node.func.value), "")
        return _CALLS.get(_last(node.func), "")
    return ""


def _last(node: ast.AST | None) -> str:
    """Return the last part of a name such as ``summary.notes``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _slot(value: ast.expr) -> str:
    return f"{{{ast.unparse(value.value)}}}" if isinstance(value, ast.FormattedValue) else ""


def _shown(node: ast.JoinedStr) -> str:
    parts = [each.value if isinstance(each, ast.Constant) else _slot(each) for each in node.values]
    return "".join(map(str, parts))


def _is_text(text: str) -> bool:
    """Return whether a string is a text: three words or more, and no query, pattern or style sheet."""
    words = re.findall(r"[A-Za-z]{2,}", re.sub(r"\{[^{}]*\}", " ", text))
    return len(words) > 2 and text.count(" ") > 1 and not _CODE.search(text)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def page(listed: Sequence[Message]) -> str:
    """Return the catalogue as Markdown: a heading per kind, then the texts by file."""
    kinds: dict[str, list[Message]] = defaultdict(list)
    for message in listed:
        kinds[message.kind].append(message)
    lines = [f"# {len(listed):,} messages", ""]
    for kind in KINDS:
        lines += [f"## {kind}: {len(kinds[kind]):,}", ""]
        lines += [f"- {' '.join(each.text.split())}  \n  `{each.file}:{each.line}`" for each in kinds[kind]] + [""]
    return "\n".join(lines)


def sample(seed: int) -> Iterator[str]:
    """Yield docstrings, messages and paragraphs drawn at random, for a reader who does not know the code."""
    trees = [ast.parse(path.read_text("utf8")) for source in SOURCES for path in sorted(source.rglob("*.py"))]
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    texts = [ast.get_docstring(node) for tree in trees for node in ast.walk(tree) if isinstance(node, named)]
    docstrings = [text.split("Examples:")[0] for text in texts if text]
    said = [message.text for message in messages() if len(message.text.split()) > 6]
    pages = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("packages/*/docs/**/*.md"))]
    prose = [re.sub(r"```.*?```", "", path.read_text("utf8"), flags=re.DOTALL).split("\n\n") for path in pages]
    paragraphs = [text for page in prose for text in page if len(text.split()) > 19 and text[0] not in "|#<!"]
    chance = random.Random(seed)
    for title, known, count in (("docstrings", docstrings, 60), ("messages", said, 45), ("paragraphs", paragraphs, 20)):
        yield f"\n{title}"
        yield from (f"{place}. {' '.join(text.split())}" for place, text in enumerate(chance.sample(known, count), 1))


def main() -> None:
    """Write the catalogue and print how many messages there are of each kind; or print a sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, metavar="SEED")
    seed = parser.parse_args().sample
    if seed is not None:
        print("\n".join(sample(seed)))
        return
    listed = messages()
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(listed), "utf8")
    counts = [(kind, sum(message.kind == kind for message in listed)) for kind in KINDS]
    print(f"{len(listed):,} messages in {_name(PAGE)}: " + ", ".join(f"{kind} {count:,}" for kind, count in counts))


if __name__ == "__main__":
    main()
