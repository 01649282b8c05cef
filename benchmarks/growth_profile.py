"""Where a command's time goes, by py-spy: shares of samples by the innermost function of Holdfast."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from holdfast.forecast.trial import Cost, measured

RATE = 25
_WAITS = re.compile(r"(_worker \(\S*futures/thread|(wait|acquire|_wait_for_tstate_lock) \(\S*threading)\.py:\d+\)$")
"""A thread without work, which py-spy may count as busy."""
_FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^()]+?)(?::\d+)?\)$")


_MEASURED = "import json, sys; from holdfast.forecast.trial import measured as m; c = m(sys.argv[2:])\n"
_MEASURED += "open(sys.argv[1], 'w').write(json.dumps([c.wall, c.processor, c.memory]))"


def profiled(command: list[str]) -> tuple[Cost, list[tuple[str, float]]]:
    """What a command takes, and function → share of its busy samples, largest first; none without py-spy.

    The profiler watches the process that measures and all below it, so that its own work is not counted.
    """
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        return measured(command), []
    with tempfile.TemporaryDirectory() as folder:
        raw, cost = Path(folder) / "stacks.txt", Path(folder) / "cost.json"
        recording = [spy, "record", "--format", "raw", "--rate", str(RATE), "--subprocesses", "--full-filenames",
                     "--output", str(raw), "--", sys.executable, "-c", _MEASURED, str(cost), *command]  # fmt: skip
        subprocess.run(recording, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if not cost.exists():
            return measured(command), []  # which says what is wrong
        return Cost(*json.loads(cost.read_text())), shares(raw.read_text()) if raw.exists() else []


def shares(stacks: str) -> list[tuple[str, float]]:
    """From py-spy's raw format, a stack and its count a line."""
    found: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        if count.isdigit() and not _WAITS.search(stack):  # a command given by -c may hold line breaks
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
    return f"other → {called}" if called else "the interpreter itself"


if __name__ == "__main__":
    words = sys.argv[1:]
    took, found = profiled([sys.executable, "-m", "holdfast.cli.main", *words])
    print(f"{took.processor:.1f} s of processor time, {took.wall:.1f} s by the clock, {took.memory / 1e6:.0f} MB")
    for name, share in found[:20]:
        print(f"{share:6.1%}  {name}")
