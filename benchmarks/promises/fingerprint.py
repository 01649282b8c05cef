"""Digests of the code that a simulation depends on: its trial, and the definitions that the trial reaches."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from promises.promise import Simulation

FOLLOWED = ("promises.", "holdfast.stats", "holdfast.forecast", "holdfast.core.types")
"""Packages whose definitions count; what they use of others does not."""

Place = tuple[str, str]
"""A module, and a name that it defines."""


def fingerprint(simulation: Simulation) -> str:
    """Return a digest of settings and code; comments, docstrings and definitions out of reach do not count."""
    trial = simulation.trial
    return _digest([simulation.key(), *(_text(place) for place in reached(trial.__module__, trial.__name__))])


def overall(simulations: Iterable[Simulation]) -> str:
    """Return one digest of several simulations."""
    return _digest(fingerprint(simulation) for simulation in simulations)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


@cache
def reached(module: str, name: str) -> list[Place]:
    """Return all definitions that one of them uses, directly or through others, sorted."""
    seen: set[Place] = set()
    waiting = [(module, name)]
    while waiting:
        place = waiting.pop()
        if place in seen or not place[0].startswith(FOLLOWED):
            continue
        seen.add(place)
        code = code_of(place[0])
        if place[1] in code.definitions:
            waiting += _uses(place)
        elif place[1] in code.imports:
            waiting.append(code.imports[place[1]])
    return sorted(place for place in seen if place[1] in code_of(place[0]).definitions)


@dataclass(frozen=True)
class ModuleCode:
    """Top-level definitions of a module (name → statements), and where imported names come from."""

    definitions: dict[str, list[ast.stmt]]
    imports: dict[str, Place]


@cache
def code_of(module: str) -> ModuleCode:
    """Return what a module defines; a module that is imported whole has the name ''."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin, module
    definitions: dict[str, list[ast.stmt]] = {}
    imports: dict[str, Place] = {}
    for statement in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        imports |= _imported([statement])
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            definitions.setdefault(statement.name, []).append(statement)
        for target in ast.walk(statement) if isinstance(statement, ast.Assign | ast.AnnAssign) else ():
            if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                definitions.setdefault(target.id, []).append(statement)
    return ModuleCode(definitions, imports)


def _imported(nodes: Iterable[ast.AST]) -> dict[str, Place]:
    """Return the names that statements import from followed packages."""
    found: dict[str, Place] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("promises", *FOLLOWED)):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found[alias.asname or alias.name] = (whole, "") if _is_module(whole) else (node.module, alias.name)
    return found


@cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _uses(place: Place) -> Iterator[Place]:
    """Yield what a definition names: others of its module, imported ones, and attributes of imported modules."""
    module, name = place
    code = code_of(module)
    nodes = [node for statement in code.definitions[name] for node in ast.walk(statement)]
    known = code.imports | _imported(nodes)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = known.get(node.value.id, ("", "-"))
            if not owner[1]:
                yield owner[0], node.attr
        elif isinstance(node, ast.Name):
            yield known.get(node.id, (module, node.id))


@cache
def _text(place: Place) -> str:
    """Return a definition as Python prints it, without comments and docstrings."""
    module, name = place
    return f"{module}.{name}\n" + "\n".join(without_words(part) for part in code_of(module).definitions[name])


def without_words(statement: ast.stmt) -> str:
    """Return code without docstrings; comments are gone already."""
    copy = ast.parse(ast.unparse(statement))
    for node in ast.walk(copy):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(copy)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
