"""How long ``holdfast check`` takes on images that have no masks, from the command line to the report.

``python benchmarks/bench_check.py`` prints the time to the first numbers and to the verdict of ``--stop when-decided``
alone, on a clear case: a model that reads the border of the image, and asks a ResNet-50 for each answer as well.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
from common import Row, photographs

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
MODEL = "timm:resnet50?pretrained=false&seed=0&num_classes=2&labels={labels}"


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "data", 200)
        shutil.rmtree(folder / "data" / "masks")
        (folder / "labels.txt").write_text("day\nnight\n")
        words = [HOLDFAST, "check", MODEL.format(labels=folder / "labels.txt"), str(folder / "data"), "--device", "cpu"]
        start, before = time.perf_counter(), _processor_seconds()
        subprocess.run([*words, "--out", str(folder / "out")], check=True, stdout=subprocess.DEVNULL)
        yield Row("check, 200 images, ResNet-50 on the CPU", (time.perf_counter() - start) / 60, "min", at_most=10)
        # What it would take at least on two cores that do nothing else.
        yield Row("check: half of its processor time", (_processor_seconds() - before) / 120, "min")
        yield from early_rows(folder)


READER = """
import numpy as np
import timm
import torch

network = timm.create_model("resnet50", pretrained=False).eval()

def reader(images):
    with torch.inference_mode():
        for start in range(0, len(images), 8):
            network(torch.zeros(len(images[start : start + 8]), 3, 224, 224))
    dark = [np.concatenate([i[:9].reshape(-1, 3), i[-9:].reshape(-1, 3)]).mean() < 70 for i in images]
    return np.array([[0.1, 0.9] if night else [0.9, 0.1] for night in dark], np.float32)

reader.labels = ("day", "night")
"""


def early_rows(folder: Path) -> Iterator[Row]:
    """Time of a check in rounds of a model that relies on the background, 200 images without masks."""
    photographs(folder / "early", 200)
    shutil.rmtree(folder / "early" / "masks")
    for path in (folder / "early" / "images" / "night").iterdir():
        cv2.imwrite(str(path), cv2.imread(str(path)) // 4)
    (folder / "slow_reader.py").write_text(READER)
    words = [HOLDFAST, "check", "python:slow_reader:reader", str(folder / "early"), "--stop", "when-decided", "-q"]
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    start, before = time.perf_counter(), _processor_seconds()
    with subprocess.Popen(
        [*words, "--out", str(folder / "rounds")], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        looks, spent = [], []
        for line in process.stdout:
            if line.startswith("Round "):
                looks.append((time.perf_counter() - start, line))
                ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                spent.append(sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"))
    assert process.returncode == 0 and "continuing" not in looks[-1][1], looks
    yield Row("check in rounds, ResNet-50: first numbers", looks[0][0], "s", at_most=10)
    yield Row("check in rounds, ResNet-50: sure of the verdict", looks[-1][0], "s", at_most=60)
    yield Row("check in rounds: to the end, with the report", time.perf_counter() - start, "s")
    yield Row("check in rounds: half of its processor time, first numbers", spent[0] / 2, "s")
    yield Row("check in rounds: half of its processor time, verdict", spent[-1] / 2, "s")
    yield Row("check in rounds: half of its processor time, report", (_processor_seconds() - before) / 2, "s")
    yield Row("check in rounds: images asked of 200", float(looks[-1][1].split(" images")[0].split()[-1]), "photos")


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for row in early_rows(Path(name)):
            print(row)
