"""Memory of ``stats.core.reduce`` at two million rows; ``big_reduce.py`` has twenty."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from big_reduce import MEASURE, World
from common import Row

MODELS, PHOTOS = 10, 15_423


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        world = World(PHOTOS, 12)
        for model in range(MODELS):
            pq.write_table(world.shard(model), Path(folder) / f"part-{model:05d}.parquet", compression="zstd")
        command = [sys.executable, "-c", MEASURE, folder]
        found = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    yield Row(f"reduce of {found['rows'] / 1e6:.1f} million rows", found["seconds"], "s")
    yield Row("reduce: peak memory", found["peak"] / 1e9, "GB", at_most=1.0)
