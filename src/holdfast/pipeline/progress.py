"""How a long step tells how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told after every piece of work. The command line draws a bar; a notebook may print."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """``done`` of ``total`` pieces of this step are finished; the first call of a step has ``done`` 0."""


def silent(step: str, done: int, total: int) -> None:
    """Tell nobody."""
