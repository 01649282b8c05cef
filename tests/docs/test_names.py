"""Names in the package: variables say what they hold, and every class name is defined once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from doc_blocks import ROOT

SOURCES = [ROOT / "src", *sorted(ROOT.glob("packages/*/src"))]
RIDDLES = frozenset({"one", "found", "told", "made", "there"})
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
SAME_CLASS_NAME: dict[str, str] = {}
"""Class names that may be defined twice, each with the reason."""


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for source in SOURCES:
        for path in sorted(source.rglob("*.py")):
            yield path.relative_to(source), ast.parse(path.read_text(encoding="utf8"))


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every name that code binds, with its line: variables, parameters, imports, functions, captures."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, DEFINITIONS) and node.name:
            yield node.name, node.lineno
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest, node.lineno


def test_variables_are_named_after_what_they_hold() -> None:
    riddles = [f"{path}:{line} {name}" for path, tree in trees() for name, line in bound_names(tree) if name in RIDDLES]
    assert riddles == [], "name these after what they hold"


def test_every_way_to_bind_a_name_is_seen() -> None:
    code = """
from a import b as one
def told(found, *, made=0):
    there = [one for one in found]
    with open("x") as one, open("y") as (told, _):
        pass
    try:
        made += (there := 1)
    except OSError as found:
        pass
    match found:
        case {"a": one, **told}:
            pass
        case [*made]:
            pass
    return {"one": found.made, "told": there}
"""
    seen = [name for name, _ in bound_names(ast.parse(code)) if name in RIDDLES]
    assert sorted(seen) == sorted(
        ["one", "told", "found", "made", "there", "one", "one", "told", "made", "there", "found", "one", "told", "made"]
    )


def test_every_class_name_is_defined_once() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    repeated = {name: where for name, where in places.items() if len(where) > 1 and name not in SAME_CLASS_NAME}
    assert repeated == {}, "rename one of each pair, or unite them if they are the same idea"
