"""How soon the command line answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from common import Row, best_of

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


def rows() -> Iterator[Row]:
    (seconds,) = best_of(lambda: subprocess.run([HOLDFAST, "--help"], capture_output=True, check=True), repeats=5)
    yield Row("holdfast --help", seconds, "s", at_most=0.5)
