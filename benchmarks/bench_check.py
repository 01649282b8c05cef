"""How long ``holdfast check`` takes on photos that have no masks, from the command line to the report."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

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
        yield Row("check, 200 photos, ResNet-50 on the CPU", (time.perf_counter() - start) / 60, "min", at_most=10)
        # What it would take at least on two cores that do nothing else.
        yield Row("check: half of its processor time", (_processor_seconds() - before) / 120, "min")


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
