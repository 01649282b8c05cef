"""Progress on the terminal: a bar with rate and time left, or plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from holdfast.pipeline.jobs.progress import Summary

MOST = 20
_PAUSE = 0.05  # seconds between two drawings of a bar: drawing one takes longer than hashing a small image


def echo_summary(summary: Summary, where: str, what: str = "made") -> None:
    """Print how much was made, where it is, and what went wrong."""
    typer.echo(f"{summary.line(what)}; {where}")
    for note in summary.notes:
        typer.echo(note)
    echo_trouble(summary)


def echo_trouble(summary: Summary) -> None:
    """Print what went wrong, the commonest first, with the first image of each kind."""
    lines = [f"{count} × {text} (first: {summary.examples[text]})" for text, count in summary.trouble.most_common()]
    echo_lines(lines, "other kinds of trouble, all in the table")


def echo_lines(lines: Sequence[object], rest: str = "more") -> None:
    """Print the first lines, and how many others there are."""
    for line in lines[:MOST]:
        typer.echo(f"  {line}")
    if len(lines) > MOST:
        typer.echo(f"  … and {len(lines) - MOST} {rest}")


class TerminalProgress:
    """Draws what the pipeline reports; ``quiet`` draws nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}
        self._printed: dict[str, float] = {}
        if not quiet and sys.stderr.isatty():
            self._bars = Progress(
                TextColumn("{task.description:>10}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __call__(self, step: str, done: int, total: int) -> None:
        """Draw how far a step is; see ``pipeline.jobs.progress.Progress``."""
        if self._quiet or not total:
            return
        now = time.monotonic()
        if done == 0:  # a step may come again
            self._started.pop(step, None)
            self._printed.pop(step, None)
        started = self._started.setdefault(step, now)
        rate = done / (now - started) if now > started and done else 0.0
        if self._bars is not None:
            if step not in self._tasks:
                self._tasks[step] = self._bars.add_task(step, total=total, rate="")
            elif 0 < done < total and now - self._printed.get(step, 0.0) < _PAUSE:
                return
            self._printed[step] = now
            self._bars.update(self._tasks[step], completed=done, total=total, rate=f"{rate:.1f}/s" if rate else "")
            return
        # Lines go to logs: one every ten seconds, and a last one unless the step was over at once.
        last = done == total and now - started >= 1
        if last or now - self._printed.get(step, started) >= 10:
            self._printed[step] = now
            print(f"{step}: {done}/{total}{_pace(done, total, rate)}", file=sys.stderr, flush=True)

    def __enter__(self) -> TerminalProgress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()


def _pace(done: int, total: int, rate: float) -> str:
    """Return speed and time left; no time before a tenth is done, since the first piece loads models and files."""
    speed = f", {rate:.1f}/s" if rate >= 0.1 else ""
    if not rate or done == total or done < max(2, total / 10):
        return speed
    seconds = (total - done) / rate
    return f"{speed}, {f'{seconds:.0f} s' if seconds < 100 else f'{seconds / 60:.0f} min'} left"
