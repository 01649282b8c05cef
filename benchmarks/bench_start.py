"""How soon the command line answers, and a folder of XIMAGENET-12's size is read."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from common import Row, best_of

from holdfast.data import load_collection

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


def rows() -> Iterator[Row]:
    (seconds,) = best_of(lambda: subprocess.run([HOLDFAST, "--help"], capture_output=True, check=True), repeats=5)
    yield Row("holdfast --help", seconds, "s", at_most=0.5)
    with tempfile.TemporaryDirectory() as name:
        for tree, suffix in (("images", "jpg"), ("masks", "png")):
            for label in range(12):
                folder = Path(name) / tree / f"class{label:02d}"
                folder.mkdir(parents=True)
                for number in range(1250):
                    (folder / f"{number:05d}.{suffix}").touch()
        (seconds,) = best_of(lambda: load_collection(name), repeats=3)
        yield Row("list 15,000 images and their masks", seconds, "s", at_most=2)
