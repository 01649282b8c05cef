"""Commands of a storm: each a process of its own, forked from one that has imported everything already."""

from __future__ import annotations

import errno
import itertools
import multiprocessing.util
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storm_laws import SECRET

FAILING = "STORM_FAILING_RENAME"
LIMIT_S = 480.0
"""A command that takes longer hangs; the slowest takes a minute on a machine that others use, too."""


@dataclass
class Ended:
    """How a command ended."""

    code: int
    said: str  # on standard output
    complained: str  # on standard error
    seconds: float
    hit: bool = False  # whether a signal of ours reached it alive
    left: tuple[str, ...] = ()  # processes of it that outlived it
    named: dict[str, bool] = field(default_factory=dict)  # the targets of its renames, and whether they were synced


def import_everything() -> None:
    """Import what commands import, once; no threads may run afterwards, since they do not survive a fork."""
    import cv2  # noqa: F401
    import duckdb  # noqa: F401
    import open_clip  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import scipy.stats  # noqa: F401
    import segmentation_models_pytorch  # noqa: F401
    import statsmodels.api  # noqa: F401
    import timm  # noqa: F401
    import torchvision  # noqa: F401

    import holdfast.cli.main  # noqa: F401


def _inside(work: Callable[[], None], folder: Path, environment: dict[str, str], largest_file: int) -> None:
    """Run ``work`` in the forked process and end it as a Python program ends."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(folder / "cwd")
        os.environ.update(environment)
        _log_renames(os.open(folder / "named", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        tempfile.tempdir = None
        if largest_file:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        multiprocessing.util._exit_function()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _log_renames(log: int) -> None:
    """Write the target of every rename or link of this process to a file, and whether its source had been synced.

    The rename whose number, counted from 0, is in the environment as ``FAILING`` fails.
    """
    synced: set[tuple[int, int]] = set()
    numbers, failing = itertools.count(), os.environ.pop(FAILING, "")
    sync = os.fsync

    def fsync(file: Any) -> None:
        status = os.fstat(file)
        synced.add((status.st_dev, status.st_ino))
        sync(file)

    def logged(rename: Any) -> Any:
        def renaming(source: Any, target: Any, **options: Any) -> None:
            status = Path(source).stat()
            if failing and next(numbers) == int(failing):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rename(source, target, **options)
            mark = "1" if (status.st_dev, status.st_ino) in synced else "0"
            os.write(log, os.fsencode(f"{mark}{os.path.realpath(target)}") + b"\0")

        return renaming

    os.fsync, os.rename, os.replace, os.link = fsync, logged(os.rename), logged(os.replace), logged(os.link)


def _named(log: Path) -> dict[str, bool]:
    """Read what ``_log_renames`` wrote; the last rename to a name counts."""
    lines = log.read_bytes().split(b"\0") if log.is_file() else []
    return {os.fsdecode(line[1:]): line[:1] == b"1" for line in lines if line}


def _holdfast(words: list[str]) -> Callable[[], None]:
    def work() -> None:
        from holdfast.cli.main import main

        sys.argv = ["holdfast", *words]
        main()

    return work


def command(
    words: list[str], folder: Path, *, environment: dict[str, str] | None = None, kill: tuple[int, float] | None = None,
    largest_file: int = 0, own_interpreter: bool = False, meanwhile: tuple[float, Callable[[], None]] | None = None,
    limit: float = LIMIT_S,
) -> Ended:  # fmt: skip
    """Run ``holdfast WORDS``; ``kill`` is a signal and the seconds after which it is sent.

    ``own_interpreter`` starts Python again, as a user does, which takes seconds more. ``meanwhile`` is called once
    after so many seconds.
    """
    for name in ("cwd", "tmp", "home"):
        (folder / name).mkdir(exist_ok=True)
    settings = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "COLUMNS": "120"}
    settings |= {"HOLDFAST_API_KEY": SECRET} | (environment or {})
    began = time.monotonic()
    if own_interpreter:
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli.main", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                cwd=folder / "cwd", env=os.environ | settings, start_new_session=True,
            )  # fmt: skip
        pid = process.pid
    else:
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the storm's own is not a command's
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            _inside(_holdfast(words), folder, settings, largest_file)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    hit, status = False, None
    while status is None:
        seconds = time.monotonic() - began
        done, code = os.waitpid(pid, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(code)
        elif kill is not None and not hit and seconds >= kill[1]:
            hit = True
            os.kill(pid, kill[0])
        elif seconds > limit:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            status = 124
        else:
            if meanwhile is not None and seconds >= meanwhile[0]:
                meanwhile[1]()
                meanwhile = None
            time.sleep(0.004)
    if own_interpreter:
        process.returncode = status
    said, complained = ((folder / name).read_text("utf8", "replace") for name in ("stdout", "stderr"))
    seconds, named = time.monotonic() - began, {} if own_interpreter else _named(folder / "named")
    return Ended(status, said, complained, seconds, hit, _left(pid), named)


def aside(work: Callable[[], None], folder: Path) -> str:
    """Run ``work`` in a process of its own, since it may start threads; its standard output."""
    pid = os.fork()
    if not pid:
        _inside(work, folder, {}, 0)
    _, code = os.waitpid(pid, 0)
    if code:
        raise RuntimeError((folder / "stderr").read_text())
    return (folder / "stdout").read_text()


def _left(session: int, patience: float = 60.0) -> tuple[str, ...]:
    """Return the processes of a session that are still there; workers of a killed command get a while to notice."""
    deadline = time.monotonic() + patience
    while True:
        members = [name for pid, name in _processes(session)]
        if not members or time.monotonic() > deadline:
            for pid, _ in _processes(session):
                os.kill(pid, signal.SIGKILL)
            return tuple(members)
        time.sleep(0.05)


def _processes(session: int) -> list[tuple[int, str]]:
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, tail = stat.read_text().rpartition(")")
            fields = tail.split()
            if int(fields[3]) == session and fields[0] != "Z":
                words = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf8", "replace")
                members.append((int(stat.parent.name), words[:120]))
        except OSError:
            continue
    return members
