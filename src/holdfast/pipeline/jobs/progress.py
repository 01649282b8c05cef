"""How a long step tells how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Progress(Protocol):
    """Told after every piece of work. The command line draws a bar; a notebook may print."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """``done`` of ``total`` pieces of this step are finished; the first call of a step has ``done`` 0."""


def silent(step: str, done: int, total: int) -> None:
    """Tell nobody."""


def told(items: Iterable[Item], progress: Progress, step: str, total: int) -> Iterator[Item]:
    """The items of a step, told as they are done with; nothing is told where nobody asks for the first."""
    progress(step, 0, total)
    done = 0
    for done, item in enumerate(items, start=1):
        yield item
        progress(step, done, total)
    if done < total:  # some ask for nothing
        progress(step, total, total)
