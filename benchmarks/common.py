"""What the benchmarks share: photographs to work on, a clock, and how a result is printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import cv2
import numpy as np


@dataclass(frozen=True)
class Row:
    """One measured figure; without a goal it is there to read the others by."""

    what: str
    value: float
    unit: str = "×"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    def __str__(self) -> str:
        goal = "" if self.at_least is None else f">= {self.at_least:g} {self.unit}"
        if self.at_most is not None:
            goal = f"<= {self.at_most:g} {self.unit}" if not goal else f"{self.at_least:g} to {self.at_most:g}"
        verdict = "" if not goal else "ok" if self.met else "MISSED"
        return f"{self.what:62} {f'{self.value:.3g} {self.unit}':>12} {goal:>12}  {verdict}"


def best_of(*works: Callable[[], object], repeats: int = 3, before: Callable[[], object] = lambda: None) -> list[float]:
    """Seconds of each work's fastest repeat, the one least disturbed by the rest of the machine.

    They take turns, so that a machine that slows down does so for all of them. ``before`` runs unmeasured each time.
    """
    times = [float("inf")] * len(works)
    for _ in range(repeats):
        for index, work in enumerate(works):
            before()
            start = time.perf_counter()
            work()
            times[index] = min(times[index], time.perf_counter() - start)
    return times


def photographs(folder: Path, count: int = 40) -> None:
    """500×375 JPEGs of real photographs in two classes, with an ellipse as mask."""
    pictures = sorted(
        path for path in resources.files("foolbox").joinpath("data").iterdir() if path.name.startswith("imagenet_")
    )
    mask = np.zeros((375, 500), np.uint8)
    cv2.ellipse(mask, (250, 190), (150, 120), 20, 0, 360, 255, -1)
    for index in range(count):
        data = np.frombuffer(pictures[index % len(pictures)].read_bytes(), np.uint8)
        image = cv2.resize(cv2.imdecode(data, cv2.IMREAD_COLOR), (500, 375), interpolation=cv2.INTER_CUBIC)
        label = ("day", "night")[index % 2]
        for tree, suffix, picture in (("images", "jpg", image), ("masks", "png", mask)):
            target = folder / tree / label / f"{index:03d}.{suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(target), picture, [cv2.IMWRITE_JPEG_QUALITY, 90] if suffix == "jpg" else [])


class Sampler(threading.Thread):
    """nvidia-smi's utilisation and memory while something runs, ten times a second, with the time of each value."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.values: list[float] = []
        self.memory: list[float] = []
        self.times: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        wanted = "--query-gpu=utilization.gpu,memory.used"
        command = ["nvidia-smi", wanted, "--format=csv,noheader,nounits", "-lms", "100"]
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        except OSError:  # no GPU
            return
        assert process.stdout is not None
        for line in process.stdout:
            percent, _, mebibytes = (part.strip() for part in line.partition(","))
            if self.over.is_set() or not percent.isdigit():
                break
            self.values.append(float(percent))
            self.memory.append(float(mebibytes) if mebibytes.isdigit() else 0.0)
            self.times.append(time.perf_counter())
        process.kill()
        process.wait()

    def busy(self, since: float, until: float) -> float | None:
        """The mean utilisation in percent between two times; None if nothing was sampled."""
        within = [value for at, value in zip(self.times, self.values, strict=False) if since <= at <= until]
        return sum(within) / len(within) if within else None

    def peak(self, since: float, until: float) -> float | None:
        """The most GiB that all processes together held on the GPU between two times."""
        within = [value for at, value in zip(self.times, self.memory, strict=False) if since <= at <= until]
        return max(within) / 1024 if within else None


class Stacks(threading.Thread):
    """Where the main thread's seconds go, by the functions of holdfast that it is in, and the library below them."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__(daemon=True)
        self.seconds: Counter[str] = Counter()
        self.over = threading.Event()
        self._depth = depth

    def run(self) -> None:
        main, before = threading.main_thread().ident, time.perf_counter()
        while not self.over.wait(0.02):
            names, library, frame = [], "", sys._current_frames().get(main or 0)
            while frame is not None:
                module = str(frame.f_globals.get("__name__", ""))
                if module.startswith("holdfast."):
                    names.append(frame.f_code.co_name)
                elif not names:  # the outermost library below holdfast
                    library = module.partition(".")[0]
                frame = frame.f_back
            now = time.perf_counter()
            self.seconds[" > ".join([*names[::-1][1 : self._depth + 1], library])] += now - before
            before = now

    def most(self, count: int = 14) -> dict[str, float]:
        """The places with most seconds."""
        return {name: round(seconds, 2) for name, seconds in self.seconds.most_common(count)}


def in_own_process(arguments: list[str], seconds: float) -> dict[str, Any]:
    """Run a script of this folder, and return the JSON that it wrote to ``$OUT``: one that fails stops no other."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-u", str(Path(__file__).parent / arguments[0]), *arguments[1:]]
        start = time.perf_counter()
        process = subprocess.Popen(command, env=os.environ | {"OUT": out}, start_new_session=True)
        try:
            code: int | str = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = f"stopped after {seconds:.0f} s"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found: dict[str, Any] = {"exit": code, "process_seconds": time.perf_counter() - start}
        for file in Path(out).glob("*.json"):
            found |= json.loads(file.read_text())
    if code:
        print(f"FAILED ({code}): {' '.join(arguments)}", flush=True)
    return found
