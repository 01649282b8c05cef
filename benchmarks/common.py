"""What the benchmarks share: photographs to work on, a clock, and how a result is printed."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

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
    """nvidia-smi's utilisation while something runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.values: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self.over.wait(0.2):
            try:
                self.values.append(float(subprocess.check_output(command, text=True).split()[0]))
            except (OSError, ValueError, subprocess.CalledProcessError):
                return
