"""What a command reports: progress while it runs, a summary at its end, and machine and versions beside a result."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.lazy import torch
from holdfast.core.types import Problem
from holdfast.engine import core_count

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

    def add(self, sample_id: str, message: str, rows: int = 1) -> None:
        """Count rows that went wrong for the same reason."""
        self.trouble[message] += rows
        self.examples.setdefault(message, sample_id)

    def add_problems(self, problems: Iterable[Problem]) -> None:
        """Count what a reader could not use."""
        for problem in problems:
            self.add(problem.sample_id, problem.message)

    def count(
        self, rows: pa.Table | Sequence[Mapping[str, Any]], *, key: str = "sample_id", fine: Sequence[str] = ("ok",)
    ) -> None:
        """Count rows that were made, and what is wrong with those whose status is not ``fine``."""
        self.rows += len(rows)
        if isinstance(rows, pa.Table) and "status" not in rows.column_names:  # an oracle's verdicts
            return
        if isinstance(rows, pa.Table):
            rows = rows.filter(~pc.field("status").isin(list(fine))).select([key, "status", "error"]).to_pylist()
        for row in rows:
            if row["status"] not in fine:
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
    """Return the installed version of a package without importing it; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment() -> dict[str, Any]:
    """Return the machine, the versions and the command, for ``environment.json``."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),  # noqa: PTH119
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": core_count(),
        "gpu": gpu_name(),
        "packages": {name: installed for name in PACKAGES if (installed := version(name))},
    }


def gpu_name() -> str | None:
    """Return the name of the first GPU that torch sees; None without one."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
