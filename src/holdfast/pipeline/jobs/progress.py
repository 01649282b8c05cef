"""Reports of how far a long step is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Progress(Protocol):
    """A function that is called after every piece of work. The command line draws a bar; a notebook may print."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` pieces of a step are finished; a step's first call has ``done`` 0."""


def silent(step: str, done: int, total: int) -> None:
    """Report nothing."""


def in_notebook(step: str, done: int, total: int) -> None:
    """Write how far a step is on one line that is written over, where a notebook runs this process; else nothing."""
    if "ipykernel" in sys.modules and total and (done >= total or not done % max(1, total // 100)):
        print(f"\r{step}: {done}/{total}", end="\n" if done >= total else "", file=sys.stderr, flush=True)


def with_progress(items: Iterable[Item], progress: Progress, step: str, total: int) -> Iterator[Item]:
    """Yield the items of a step, and report each when the next is asked for."""
    progress(step, 0, total)
    done = 0
    for done, item in enumerate(items, start=1):
        yield item
        progress(step, done, total)
    if done < total:  # fewer items came than were expected
        progress(step, total, total)
