"""Digests of the code that a simulation depends on: its trial, and the statistics that the trial calls."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from promises.promise import Simulation

OWN = "promises."
MEASURED = ("holdfast.stats", "holdfast.forecast")


def fingerprint(simulation: Simulation) -> str:
    """Return a digest of settings and code; comments and docstrings do not count."""
    texts, modules = trial_code(simulation.trial)
    parts = [simulation.key(), *texts, *(module_code(name) for name in imported(modules))]
    return _digest(parts)


def overall(simulations: Iterable[Simulation]) -> str:
    """Return one digest of several simulations."""
    return _digest(fingerprint(simulation) for simulation in simulations)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


@cache
def trial_code(trial: FunctionType) -> tuple[list[str], frozenset[str]]:
    """Return the sources of a trial and of what it uses of this package, and the measured modules that they name."""
    texts: dict[str, str] = {}
    modules: set[str] = set()
    waiting: list[Any] = [trial]
    while waiting:
        thing = waiting.pop()
        name = f"{thing.__module__}.{thing.__qualname__}"
        if name in texts:
            continue
        texts[name] = without_words(inspect.getsource(thing))
        functions = [part for part in vars(thing).values() if isinstance(part, FunctionType)]
        for function in functions if isinstance(thing, type) else [thing]:
            for word in sorted(set(_names(function.__code__))):
                value = inspect.unwrap(function.__globals__.get(word, None))
                for part in value.values() if isinstance(value, dict) else [value]:
                    module = part.__name__ if isinstance(part, ModuleType) else getattr(part, "__module__", None) or ""
                    if module.startswith(OWN) and hasattr(part, "__qualname__"):
                        waiting.append(part)
                    elif module.startswith(MEASURED):
                        modules.add(module)
                    elif part is not None and not module:
                        texts[f"{name} {word} {part!r}"] = repr(part)
    return [texts[name] for name in sorted(texts)], frozenset(modules)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)


@cache
def imported(modules: frozenset[str]) -> list[str]:
    """Return modules and all measured ones that they import, also within functions."""
    every: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in every:
            continue
        every.add(name)
        for node in ast.walk(ast.parse(_file(name).read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            waiting += [found for found in names if found.startswith(MEASURED) and _is_module(found)]
    return sorted(every)


@cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _file(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin
    return Path(spec.origin)


@cache
def module_code(name: str) -> str:
    return without_words(_file(name).read_text(encoding="utf-8"))


def without_words(source: str) -> str:
    """Return code as Python prints it, without comments and docstrings."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
