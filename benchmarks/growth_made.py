"""Made-up inputs of any size for the curves of growth.py."""

from __future__ import annotations

import os
from pathlib import Path

import bench_board
import bench_stats
import cv2
import numpy as np
import pyarrow.parquet as pq
from big_reduce import CONDITIONS, World

REDUCE = """
import sys
import pyarrow.dataset as ds
from holdfast.stats.core.reduce import reduce
reduce(ds.dataset(sys.argv[1], format="parquet"))
"""
MODELS = 8


def shards(rows: int, folder: Path) -> None:
    """Rows of eight models, a Parquet file each."""
    (folder / "shards").mkdir()
    world = World(max(1, rows // MODELS // len(CONDITIONS)), 12)
    for model in range(MODELS):
        pq.write_table(world.shard(model), folder / "shards" / f"part-{model}.parquet", compression="zstd")


def run(rows: int, folder: Path) -> None:
    """A run directory of so many rows."""
    bench_stats.made_run(folder / "run", rows=rows)


def board(entries: int, folder: Path) -> None:
    """A board of so many entries."""
    bench_board.made_board(folder / "board", entries=entries)


def tree(folder: Path, images: int, classes: int) -> None:
    """A folder a class, the files being links to one tiny image."""
    first = folder / "one.png"
    cv2.imwrite(str(first), np.zeros((4, 4, 3), np.uint8))
    for label in range(classes):
        place = folder / "tree" / f"class {label:05d}"
        place.mkdir(parents=True)
        for number in range(images // classes):
            os.link(first, place / f"{number:06d}.png")
