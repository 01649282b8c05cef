"""Docstrings of the public names: their parts, and their examples, which run in one folder, one after the other."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import registry

FIRST = ("evaluate", "generate", "mine")
"""Examples whose folders the others read: ``run``, ``pool``, ``hard``."""
SLOW = (
    "ask",
    "check",
    "choose",
    "explain",
    "mine",
    "mine_remedy",
    "parity",
    "perturb",
    "plan",
    "segment",
    "track",
    "train",
)
ORDER = [*FIRST, *(name for name in holdfast.__all__ if name not in FIRST)]
NOT_IMPERATIVE = re.compile(r"\w+(s|ing|ed)\b|An? |The |One |Anything ")


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_says_what_it_takes_and_returns(name: str) -> None:
    public = getattr(holdfast, name)
    text = inspect.getdoc(public) or ""
    is_error = isinstance(public, type) and issubclass(public, Exception)
    parts = (
        ("Args:", "Raises:", "Examples:") if isinstance(public, type) else ("Args:", "Returns:", "Raises:", "Examples:")
    )
    parts = ("Examples:",) if is_error else parts
    assert [part for part in parts if f"\n{part}\n" not in text] == []
    first = text.partition("\n")[0]
    assert first.endswith((".", ",")) and not NOT_IMPERATIVE.match(first), first
    assert doctest.DocTestParser().get_examples(text)


def _run(several: list[str]) -> None:
    context: Any = SimpleNamespace(label="dog", donor=None, memo=None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for name in several:
        names = {"holdfast": holdfast, "np": np, "context": context}
        text = inspect.getdoc(getattr(holdfast, name)) or ""
        runner.run(doctest.DocTestParser().get_doctest(text, names, name, None, 0), out=said.append)
    assert not runner.failures, "".join(said)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory; scenarios that an example registers are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry.scenarios, "_entries", dict(registry.scenarios._entries))


@pytest.mark.usefixtures("folder")
def test_their_examples_run() -> None:
    _run([name for name in ORDER if name not in SLOW])


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_examples_that_train_or_walk_run() -> None:
    _run([name for name in ORDER if name in {*FIRST, *SLOW}])
