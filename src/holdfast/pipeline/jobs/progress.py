"""What a command reports: progress while it runs, a summary at its end, and machine and versions next to a result."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import logging
import os
import platform
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.distribution import installed_version
from holdfast.core.lazy import torch
from holdfast.core.secrets import redacted
from holdfast.core.types import Problem
from holdfast.engine import core_count

Item = TypeVar("Item")
R = TypeVar("R")
PAUSE = 0.05  # seconds between two drawings of a line or a bar: drawing one takes longer than hashing a small image


class Progress(Protocol):
    """A function that is called after every piece of work. The command line draws a bar; a notebook may print."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` pieces of a step are finished; a step's first call has ``done`` 0."""


def silent(step: str, done: int, total: int) -> None:
    """Report nothing."""


class ProgressLines:
    """Prints how far each step is: on one line that is written over in notebooks and terminals, else now and then."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._printed: dict[str, float] = {}
        self._ended: set[str] = set()

    def __call__(self, step: str, done: int, total: int) -> None:
        """Print what is due; see ``Progress``."""
        if not total:
            return
        now = time.monotonic()
        if done == 0:  # a step may come again
            self._started.pop(step, None)
            self._printed.pop(step, None)
            self._ended.discard(step)
        if step in self._ended:
            return
        if done == total:
            self._ended.add(step)
        started = self._started.setdefault(step, now)
        rate = done / (now - started) if now > started and done else 0.0
        if self.is_due(done, total, now - started, now - self._printed.get(step, started)):
            self._printed[step] = now
            self.draw(step, done, total, rate)

    def is_due(self, done: int, total: int, age: float, pause: float) -> bool:
        """Return whether to print, ``age`` seconds after a step began and ``pause`` after its last line."""
        if _written_over():
            return done == total or pause >= 2 * PAUSE
        # Lines go to logs: every five seconds of the first minutes, then more seldom, and a last one unless the step
        # was over at once.
        return (done == total and age >= 1 and total > 1) or pause >= max(5.0, age / 60)

    def draw(self, step: str, done: int, total: int, rate: float) -> None:
        """Print one line about a step."""
        text, over = f"{step}: {done}/{total}{_pace(done, total, rate)}", _written_over()
        print(f"\r{text:<60}" if over else text, end="" if over and done < total else "\n", file=sys.stderr, flush=True)


def _written_over() -> bool:
    return "ipykernel" in sys.modules or sys.stderr.isatty()


def _pace(done: int, total: int, rate: float) -> str:
    """Return speed and time left; no time before a tenth is done, since the first piece loads models and files."""
    speed = f", {rate:.1f}/s" if rate >= 0.1 else ""
    if not rate or done == total or done < max(2, total / 10):
        return speed
    seconds = (total - done) / rate
    return f"{speed}, {f'{seconds:.0f} s' if seconds < 100 else f'{seconds / 60:.0f} min'} left"


_LINES = ProgressLines()


def printed(step: str, done: int, total: int) -> None:
    """Print how far a step is on stderr; what functions of Python do unless they are asked to be quiet."""
    _LINES(step, done, total)


def noted(line: str) -> None:
    """Print a line on stderr, unless the call is to be quiet."""
    if logging.getLogger("holdfast").isEnabledFor(logging.WARNING):
        print(line, file=sys.stderr, flush=True)


@contextmanager
def hushed(quiet: bool = True) -> Iterator[None]:
    """Let Holdfast log nothing but errors meanwhile, if ``quiet``."""
    logger = logging.getLogger("holdfast")
    level = logger.level
    if quiet:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


QUIET = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool)


def quietable(function: Callable[..., R]) -> Callable[..., R]:
    """Return the function with an argument ``quiet``, which silences the progress and the notes of a call."""

    @functools.wraps(function)
    def call(*args: Any, quiet: bool = False, **values: Any) -> R:
        with hushed(quiet):
            return function(*args, **values | ({"progress": silent} if quiet else {}))

    signature = inspect.signature(function)
    parameters = sorted({**signature.parameters, QUIET.name: QUIET}.values(), key=lambda each: each.kind)
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def with_progress(items: Iterable[Item], progress: Progress, step: str, total: int) -> Iterator[Item]:
    """Yield the items of a step, and report each when the next is asked for."""
    progress(step, 0, total)
    done = 0
    for done, item in enumerate(items, start=1):
        yield item
        progress(step, done, total)
    if done < total:  # fewer items came than were expected
        progress(step, total, total)


@dataclass
class Summary:
    """Counts rows made now and rows stored before, and rows with trouble by message, with one example each."""

    # ``rows`` counts every row that was made, ``errors`` those of them with status ``error``; for ``generate``,
    # ``rows`` counts images and ``errors`` requests without one.

    rows: int = 0
    already: int = 0
    trouble: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # sentences for the user
    times: dict[str, float] = field(default_factory=dict)  # seconds by kind of work
    errors: int = 0
    skipped: int = 0
    unmade: int = 0  # planned rows that were not made, for a reason that is in ``trouble``

    def add(self, sample_id: str, message: str, rows: int = 1) -> None:
        """Count rows that went wrong for the same reason."""
        self.trouble[message] += rows
        self.examples.setdefault(message, sample_id)

    def add_problems(self, problems: Iterable[Problem]) -> None:
        """Count what a reader could not use."""
        for problem in problems:
            self.add(problem.sample_id, problem.message)

    def count(self, rows: pa.Table, *, key: str = "sample_id", fine: Sequence[str] = ("ok",)) -> None:
        """Count rows that were made, and what is wrong with those whose status is not ``fine``."""
        self.rows += len(rows)
        if "status" not in rows.column_names:  # an oracle's verdicts
            return
        for row in rows.filter(~pc.field("status").isin(list(fine))).select([key, "status", "error"]).to_pylist():
            self.add(str(row[key]), f"{row['status']}: {row['error']}")
            self.errors += row["status"] == "error"
            self.skipped += row["status"] == "skipped"

    def line(self, done: str = "made", *, count: int | None = None) -> str:
        """Return how many rows were made, failed and were there before, for a command's last line."""
        count = self.rows - self.errors - self.skipped if count is None else count
        failed = f", {self.errors} error{'s' if self.errors > 1 else ''}" if self.errors else ""
        failed += f", {self.skipped} skipped" if self.skipped else ""
        return f"{count} {done}{failed}, {self.already} there already"

    def merge(self, other: Summary) -> None:
        """Add the counts of a shard."""
        self.rows += other.rows
        self.already += other.already
        self.errors += other.errors
        self.skipped += other.skipped
        self.unmade += other.unmade
        self.trouble.update(other.trouble)
        self.examples = other.examples | self.examples
        known = set(map(_without_figures, self.notes))  # another worker said the same
        self.notes += [note for note in other.notes if _without_figures(note) not in known]
        for name, seconds in other.times.items():
            self.times[name] = self.times.get(name, 0.0) + seconds


def _without_figures(note: str) -> str:
    """Return a note without the figures in parentheses at its end: every worker has measured its own."""
    return re.sub(r" \([^()]*\d[^()]*\)$", "", note)


PACKAGES = (
    "holdfast", "numpy", "opencv-python-headless", "pillow", "pyarrow", "pandas", "duckdb", "scipy", "torch",
    "torchvision", "timm", "transformers", "accelerate", "diffusers", "open-clip-torch", "segmentation-models-pytorch",
    "onnxruntime", "safetensors", "tensorboard", "pycocotools", "statsmodels", "torchmetrics", "vl-convert-python",
)  # fmt: skip


@functools.cache
def version(package: str) -> str | None:
    """Return the installed version of a package without importing it; None if it is not installed."""
    if package == "holdfast":
        return installed_version()
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment() -> dict[str, Any]:
    """Return the machine, the versions and the command, for ``environment.json``."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": redacted(shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])),  # noqa: PTH119
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": core_count(),
        "gpu": gpu_name(),
        "packages": {name: installed for name in PACKAGES if (installed := version(name))},
    }


def gpu_name() -> str | None:
    """Return the name of the first GPU that torch sees; None without one."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
