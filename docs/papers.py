"""Run every row of docs/seeds.md: its command, and a look at what it wrote. ``make seeds`` calls it.

A row is a line of a table with five cells: where it is in the paper, what it asks, a command in backticks, what the
command writes in backticks, and limits. A command that several rows share runs once. What is written is a file below
the working folder, a file with ``#id`` for a section of a page, or ``browser`` for a server, which is asked for its
first page and stopped.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "seeds.md"
PAPERS = ("fmr", "imagenet-d", "ximagenet-12")
HEADER = ["there", "asks", "command", "writes", "limits"]
BROWSER = "browser"
STUDY = "holdfast study "
_CODE = re.compile(r"^`([^`]+)`$")


@dataclass(frozen=True)
class Row:
    """A row of a paper: where it is in the paper, what it asks, its command, what it writes, and limits."""

    paper: str
    there: str
    asks: str
    command: str
    writes: str
    limits: str

    def __str__(self) -> str:
        return f"{self.paper}: {self.there}"


def rows(page: Path = PAGE) -> list[Row]:
    """Return the rows of the page with the paper of their heading; a ValueError if a table has another form."""
    found, paper = [], ""
    for number, line in enumerate(page.read_text(encoding="utf8").splitlines(), start=1):
        if line.startswith("## "):
            paper = line.removeprefix("## ").partition(",")[0].lower()
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or cells == HEADER or set(line) <= set("|- "):
            continue
        codes = [_CODE.match(cell) for cell in cells[2:4]]
        if len(cells) != len(HEADER) or not all(cells[:2]) or not all(codes):
            raise ValueError(f"{page.name}:{number} is not a row of {', '.join(HEADER)}")
        command, writes = (code[1] for code in codes if code)
        found.append(Row(paper, cells[0], cells[1], command, writes, cells[4]))
    return found


def run(command: str, folder: Path, *, serves: bool) -> tuple[str, float]:
    """Run a command in a folder; return what went wrong, or "", and the seconds it took."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    started = time.monotonic()
    said = folder / f"command-{zlib.crc32(command.encode()):08x}.log"
    with said.open("w+", encoding="utf8") as log:
        process = subprocess.Popen(
            ["bash", "-ec", command], cwd=folder, env=os.environ | {"PATH": path}, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            wrong = _asked(process, said) if serves else ""
            code = 0 if serves else process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
        log.seek(0)
        last = [line for line in log.read().splitlines() if line.strip()][-1:]
    return wrong or (f"exit code {code}: {' '.join(last)}" if code else ""), time.monotonic() - started


def _asked(process: subprocess.Popen[bytes], log: Path, patience: float = 120) -> str:
    """Wait for the address that a server prints, and read its first page."""
    until = time.monotonic() + patience
    while time.monotonic() < until and process.poll() is None:
        if address := re.search(r"http://[^\s);,]+", log.read_text(encoding="utf8")):
            try:
                with urllib.request.urlopen(address[0], timeout=patience) as page:  # noqa: S310 - http only
                    return "" if b"<html" in page.read() else f"{address[0]} is not a page"
            except (OSError, ValueError) as error:
                return f"{address[0]}: {error}"
        time.sleep(0.2)
    return f"printed no address: {log.read_text(encoding='utf8').strip()[-200:]}"


def missing(writes: str, folder: Path, since: float = 0) -> str:
    """Return what is missing of what a row writes, or ""; files from before ``since`` were written by other rows."""
    name, _, section = writes.partition("#")
    files = sorted(folder.glob(name))
    if not files:
        return f"{name} is not there"
    if all(file.stat().st_mtime < since for file in files):
        return f"{name} was there before: the command does not write it"
    if not section:
        return ""
    ids = re.findall(r'<section[^>]* id="([^"]+)"', files[0].read_text(encoding="utf8"))
    return "" if section in ids else f"{name} has no section {section}; it has {', '.join(ids)}"


def main() -> int:
    """Run the rows and print a table; return 1 if a row failed."""
    parser = argparse.ArgumentParser(description="Run every row of docs/seeds.md.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "seeds", help="working folder, emptied first")
    parser.add_argument("--only", default="", help="only commands that match this regular expression")
    parser.add_argument("--paper", choices=PAPERS, help="only the rows of one paper")
    parser.add_argument("--keep", action="store_true", help="keep the working folder; finished runs resume")
    asked = parser.parse_args()
    if not asked.keep:
        shutil.rmtree(asked.out, ignore_errors=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    done: dict[str, tuple[str, float]] = {}
    begun: dict[str, float] = {}
    failed, started = 0, time.time() - 1
    wanted = [row for row in rows() if asked.paper in (None, row.paper) and re.search(asked.only, row.command)]
    studies = ThreadPoolExecutor(1)  # they use no run of another row, so they run next to the others
    waiting = {
        command: studies.submit(run, command, asked.out, serves=False)
        for command in dict.fromkeys(row.command for row in wanted if row.command.startswith(STUDY))
    }
    try:
        for row in wanted:
            first = row.command not in done
            if first:
                begun[row.command] = started if row.command in waiting else time.time() - 1
                study = waiting.get(row.command)
                done[row.command] = (
                    study.result() if study else run(row.command, asked.out, serves=row.writes == BROWSER)
                )
            wrong, seconds = done[row.command]
            wrong = wrong or (
                missing(row.writes, asked.out, 0 if asked.keep else begun[row.command]) if row.writes != BROWSER else ""
            )
            failed += bool(wrong)
            took = f"{seconds:6.1f} s" if first else "       –"
            state = "FAILED" if wrong else "ok    "
            print(f"{state} {took}  {row}  |  {row.command}  |  {wrong or row.writes}", flush=True)
    finally:
        studies.shutdown(cancel_futures=True)
    total = time.time() - started
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = spent.ru_utime + spent.ru_stime  # on a busy machine this says more than the clock
    print(f"{len(wanted)} rows, {len(done)} commands, {failed} failed, {total:.0f} s, {busy:.0f} s of processor time")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
