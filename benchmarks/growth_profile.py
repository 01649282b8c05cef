"""Where a command's time goes, by py-spy: shares of samples by the innermost function of Holdfast."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

RATE = 100
_FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^()]+?)(?::\d+)?\)$")


def hot(command: list[str]) -> list[tuple[str, float]]:
    """Function → share of the busy samples of a command, largest first; empty without py-spy."""
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "stacks.txt"
        recording = [spy, "record", "--format", "raw", "--rate", str(RATE), "--subprocesses", "--full-filenames",
                     "--output", str(raw), "--", *command]  # fmt: skip
        subprocess.run(recording, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return shares(raw.read_text()) if raw.exists() else []


def shares(stacks: str) -> list[tuple[str, float]]:
    """From py-spy's raw format, a stack and its count a line."""
    found: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        if count.isdigit():  # a command given by -c may hold line breaks
            found[_owner(stack.split(";"))] += int(count)
    whole = sum(found.values())
    return [(name, count / whole) for name, count in found.most_common()]


def _owner(stack: list[str]) -> str:
    """The innermost frame of Holdfast and what it calls, or that a module is being imported."""
    called = ""
    for frame in reversed(stack):
        match = _FRAME.match(frame)
        if match is None:
            continue
        if "_find_and_load" in match["function"] or "<frozen importlib" in match["file"]:
            return "imports"
        if "/holdfast/" in match["file"]:
            where = match["file"].rpartition("/holdfast/")[2].removesuffix(".py")
            return f"{where}.{match['function']}" + (f" → {called}" if called else "")
        called = match["function"]
    return "other"


if __name__ == "__main__":
    words = sys.argv[1:]
    for name, share in hot([sys.executable, "-m", "holdfast.cli.main", *words])[:20]:
        print(f"{share:6.1%}  {name}")
