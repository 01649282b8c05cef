"""Commands that are killed at a chosen rename: each is forked from one process that has imported everything.

``python killing.py`` reads a request a line (JSON: words, folder, kill) and answers each with how the command ended.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a command ended; ``renamed``: the files that it gave their final names in its output folder."""

    code: int
    out: str
    err: str
    renamed: int


class Commands:
    """The process that commands are forked from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, *words: str | Path, out: Path, kill: int | None = None) -> Ended:
        """Run a command; ``kill``: it dies instead of its rename of this number, counted from 0, in the folder out."""
        request = {"words": [str(word) for word in words], "out": str(out), "kill": -1 if kill is None else kill}
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that commands are forked from is gone"
        out_text, err_text, renamed = ((self._folder / name).read_text("utf8", "replace") for name in _FILES)
        return Ended(json.loads(answer), out_text, err_text, len(renamed))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                stream.close()


_FILES = ("out", "err", "renamed")


def _die_at(kill: int, folder: str, log: int) -> None:
    """Count renames into a folder, a byte each; die instead of the one with this number."""
    real, numbers = os.path.realpath(folder), itertools.count()

    def counting(rename: Any) -> Any:
        def counted(source: Any, target: Any, **options: Any) -> None:
            if os.path.realpath(target).startswith(f"{real}{os.sep}"):
                if next(numbers) == kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                os.write(log, b".")
            rename(source, target, **options)

        return counted

    os.rename, os.replace = counting(os.rename), counting(os.replace)


def _serve(folder: Path) -> None:
    for module in ("cv2", "duckdb", "scipy.stats", "torchvision", "timm", "pyarrow.parquet", "jinja2", "vl_convert"):
        importlib.import_module(module)
    from holdfast.cli.main import main

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            files = [os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in _FILES]
            os.dup2(files[0], 1)
            os.dup2(files[1], 2)
            _die_at(request["kill"], request["out"], files[2])
            sys.argv = ["holdfast", *request["words"]]
            code = 1
            try:
                main()
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    _serve(Path(sys.argv[1]))
