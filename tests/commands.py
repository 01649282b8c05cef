"""Commands as they are typed, for tests of any room."""

from __future__ import annotations

import io
import multiprocessing.util
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from holdfast.cli.main import main

HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]


def run(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """A command in this process, which has imported everything already; a process of its own takes seconds for that."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["holdfast", *map(str, words)])
        # How a failed command ends, whatever its threads do: of this process nothing may be torn down.
        patch.setattr("holdfast.cli.main.end_process", sys.exit)
        patch.setattr(multiprocessing.util, "_exit_function", lambda: None)
        try:
            main()
            ended: object = 0
        except SystemExit as stop:
            ended = stop.code or 0
    assert ended == code, (out.getvalue(), err.getvalue())
    assert "Traceback" not in err.getvalue()
    return subprocess.CompletedProcess(list(words), code, out.getvalue(), err.getvalue())


def alone(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return subprocess.run([*HOLDFAST, *map(str, words)], capture_output=True, text=True)
