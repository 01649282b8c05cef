"""A command run in its own process, and its costs: time, memory, rows, bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.core.errors import HoldfastError, UserError

POSITIONAL = ("data", "pool")
TABLES = ("predictions", "manifest", ".parts", "mining/predictions", "mining/run/predictions")
"""Folders in which verbs keep the part files of their table."""

PARTS = "parts of the table"

_PAUSE = 0.05
_KILOBYTE = 1 if sys.platform == "darwin" else 1024  # what ru_maxrss counts in
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclass(frozen=True)
class Trial:
    """A finished command."""

    size: int  # its number of source images, or of what ``--limit`` counts
    wall: float  # wall time in seconds
    processor: float  # processor time of all its processes, in seconds
    memory: float  # peak resident bytes of all its processes together
    rows: int  # rows of its table
    parts: int  # files of its table
    bytes: Mapping[str, int]  # kind of file (its suffix) → bytes written
    work: Mapping[str, float]  # name → amount of the work that decides its cost


def words_of(verb: str, options: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line: ``{"data": "photos", "limit": 3}`` → ``photos --limit 3``."""
    words = [verb]
    for name, value in options.items():
        option = f"--{name.rstrip('_').replace('_', '-')}"
        if value is None or value == "":
            continue
        if name in POSITIONAL:
            words.append(str(value))
        elif isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        else:
            words += [option, text(value)]
    return words


def text(value: Any) -> str:
    """Return a value as it is typed."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(text, value))
    return str(value)


@dataclass(frozen=True)
class Cost:
    """Costs of a process and all that it started; fields as in ``Trial``."""

    wall: float
    processor: float
    memory: float


def run(words: list[str], out: Path, *, size: int, work: Mapping[str, float]) -> Trial:
    """Run ``holdfast`` with these words, which write to ``out``, and measure it."""
    cost = measured([sys.executable, "-m", "holdfast.cli.main", *words])
    return Trial(
        size=size, wall=cost.wall, processor=cost.processor, memory=cost.memory,
        rows=rows_in(out), parts=len(_parts(out)), bytes=dict(bytes_in(out)), work=dict(work),
    )  # fmt: skip


def measured(command: list[str]) -> Cost:
    """Run a command to its end and return its costs; a UserError with its message if it ended with exit code 2."""
    with tempfile.TemporaryFile("w+") as said:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
        watch = _Watch(child.pid)
        try:
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:  # Ctrl-C: nothing that was started here continues without us
            child.kill()
            child.wait()
            raise
        finally:
            most = watch.stop()
        wall = time.perf_counter() - start
        if child.returncode:
            said.seek(0)
            raise _trouble(said.read(), child.returncode)
    # ru_maxrss includes the memory of this process at the start of the other, so it is a last resort.
    return Cost(wall, used.ru_utime + used.ru_stime, most or used.ru_maxrss * _KILOBYTE)


def rows_in(out: Path) -> int:
    """Return the number of rows of a run's table, whatever the verb."""
    return sum(pq.read_metadata(path).num_rows for path in _parts(out))


def _parts(out: Path) -> list[Path]:
    return next((parts for name in TABLES if (parts := sorted((out / name).glob("part-*.parquet")))), [])


def bytes_in(out: Path) -> Counter[str]:
    """Return suffix → bytes of the files below a folder; the table's own files are ``PARTS``."""
    sizes: Counter[str] = Counter()
    for folder, _, names in os.walk(out):
        for name in names:
            kind = PARTS if name.startswith("part-") else Path(name).suffix.lstrip(".") or "other"
            sizes[kind] += Path(folder, name).stat().st_size
    return sizes


def _trouble(said: str, code: int) -> HoldfastError:
    """Return the error with the command's message, without its name or the box around it."""
    lines = [re.sub(r"[│╭╮╰╯─]+", " ", line).strip() for line in said.splitlines()]
    own = next((line for line in reversed(lines) if line.startswith("holdfast: ")), "")
    texts = [line for line in lines if line and not re.match(r"Usage:|Try |Error$", line)]
    sentence = own.removeprefix("holdfast: ") or " ".join(texts[-3:]) or "it said nothing"
    if code == 2:
        return UserError(sentence)
    return HoldfastError(f"the trial run failed (exit code {code}): {sentence}")


class _Watch:
    """Samples the memory of a process and all below it; without /proc it sees nothing."""

    def __init__(self, root: int) -> None:
        self._root, self._most, self._over = root, 0, threading.Event()
        self._own = b""
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop, and return the largest number of bytes seen at one time."""
        self._over.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        before = {self._root}
        self._over.wait(_PAUSE)  # until the process has become the program
        self._own = _command(self._root)
        while not self._over.wait(_PAUSE):
            seen = _tree(self._root)
            # A process that just starts shares the memory of its parent for a moment.
            processes = [
                process
                for process in seen
                if process in before and (process == self._root or _command(process) != self._own)
            ]
            before = set(seen)
            self._most = max(self._most, sum(map(_resident, processes)), *map(_high_water, processes))


def _tree(root: int) -> list[int]:
    processes = [root]
    for process in processes:  # the list grows while it is read
        try:
            for thread in Path(f"/proc/{process}/task").iterdir():
                processes += map(int, (thread / "children").read_text().split())
        except OSError:
            continue
    return processes


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _high_water(process: int) -> int:
    """Return the peak of one process, so that a peak between two samples is not missed."""
    try:
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0
    return int(peak[1]) * 1024 if peak else 0


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0
