"""Statistics at size: time and peak memory of ``stats.core.reduce`` on generated shards.

    python benchmarks/big_reduce.py                    # 100 models × 13 conditions × 15,423 images, 20 million rows
    python benchmarks/big_reduce.py --models 5         # a million
    python benchmarks/big_reduce.py --classes 1000     # a larger confusion table

A shard a model, about 9 MB each, goes to a temporary folder (``TMPDIR`` says where). The rows have what is counted:
names, answers, confidences, donors, hashes of images that all models share, and a thousandth of failures; columns
that are not counted are null. Only ``reduce`` is measured, in a process of its own: the kernel's high-water mark of
its resident memory (VmHWM), everything imported included. Exits 1 above 2 GB.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from holdfast.core.schema import PREDICTIONS

CONDITIONS = (
    "original", "blur_background", "blur_object", "grey", "red", "green", "blue", "rainbow", "bright_background",
    "bright_object", "segmented", "transparent", "random_background",
)  # fmt: skip
GOAL = 2e9
MEASURE = """
import json, sys, time
import pyarrow.dataset as ds
from holdfast.stats.core.reduce import reduce
start, busy = time.perf_counter(), time.process_time()
counts = reduce(ds.dataset(sys.argv[1], format="parquet"))
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "processor": time.process_time() - busy,
    "peak": int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024,
    "rows": int(counts.cells["n"].sum()) + int(counts.trouble["n"].sum()),
    "right": int(counts.cells["right"].sum()),
    "cells": len(counts.cells),
    "cells_bytes": int(counts.cells.memory_usage(deep=True).sum()),
    "confidence": len(counts.confidence), "confusion": len(counts.confusion), "trouble": len(counts.trouble),
}))
"""


class World:
    """What all shards share, and the shard of one model."""

    def __init__(self, photos: int, classes: int) -> None:
        self.rng = np.random.default_rng(0)
        self.photos, self.classes = photos, classes
        self.names = pa.array([f"class {number:04d}" for number in range(classes)])
        label = np.arange(photos) % classes
        ids = pa.array([f"class {number % classes:04d}/photo_{number:08d}.JPEG" for number in range(photos)])
        self.label = np.tile(label, len(CONDITIONS))
        self.photo = np.tile(np.arange(photos), len(CONDITIONS))
        self.condition = np.repeat(np.arange(len(CONDITIONS)), photos)
        self.ease = self.rng.normal(0, 1, photos)
        self.ids = ids.take(pa.array(self.photo))
        # Segmented and transparent are one image, as in the published set.
        shown = np.where(self.condition == CONDITIONS.index("transparent"), self.condition - 1, self.condition)
        self.hashes = pa.array(
            hashlib.sha256(f"{c} {p}".encode()).hexdigest() for c, p in zip(shown, self.photo, strict=True)
        )
        donor = self.rng.permutation(photos)[self.photo]
        plain = self.condition != CONDITIONS.index("random_background")
        self.donor = ids.take(pa.array(donor, mask=plain))
        self.donor_label = self._coded(label[donor], self.names, plain)
        self.rows = len(self.photo)

    def _coded(self, codes: NDArray[np.int64], words: pa.Array, none: NDArray[np.bool_] | None = None) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=none), words)

    def shard(self, model: int) -> pa.Table:
        """All answers of one model."""
        strength = 1.2 - 0.01 * model - 0.05 * self.condition
        right = self.ease[self.photo] + self.rng.normal(0, 1, self.rows) < strength
        other = (self.label + self.rng.integers(1, self.classes, self.rows)) % self.classes
        failed = self.rng.random(self.rows) < 0.001
        answer = self._coded(np.where(right, self.label, other), self.names, failed)
        sure = np.clip(self.rng.beta(4, 1.5, self.rows) + 0.1 * right, 0, 1).astype(np.float32)
        columns = {
            "sample_id": self.ids,
            "source_id": self.ids,
            "fold": pa.array(np.full(self.rows, -1, np.int32)),
            "condition": self._coded(self.condition, pa.array(CONDITIONS)),
            "label": self._coded(self.label, self.names),
            "prediction": answer,
            "correct": pa.array(right, mask=failed),
            "prediction_restricted": answer,
            "correct_restricted": pa.array(right, mask=failed),
            "confidence": pa.array(sure, mask=failed),
            "donor_id": self.donor,
            "donor_label": self.donor_label,
            "status": self._coded(failed.astype(np.int64), pa.array(["ok", "error"])),
            "error": pa.array(np.where(failed, "cannot be read", None)),
            "image_sha256": self.hashes,
        }
        fixed = {"task": "classify", "kind": "static", "dataset": "made", "variant": "paper", "parameters": "{}",
                 "model": f"made:model_{model:03d}", "trained_on": "", "protocol": "argmax"}  # fmt: skip
        for name, value in fixed.items():
            columns[name] = self._coded(np.zeros(self.rows, np.int64), pa.array([value]))
        filled = [columns.get(field.name, pa.nulls(self.rows, field.type)) for field in PREDICTIONS]
        return pa.table(filled, names=PREDICTIONS.names).cast(PREDICTIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--photos", type=int, default=15_423)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--keep", type=Path, help="keep the shards in this folder, and use those that are there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = given.models * given.photos * len(CONDITIONS)
        if shutil.disk_usage(folder).free < 400 * rows:
            sys.exit(f"{400 * rows / 1e9:.0f} GB of free disk are wanted below {folder}, for shards and spilled counts")
        if not any(folder.iterdir()):
            start, world = time.perf_counter(), World(given.photos, given.classes)
            for model in range(given.models):
                pq.write_table(world.shard(model), folder / f"part-{model:05d}.parquet", compression="zstd")
            print(f"generated in {time.perf_counter() - start:.0f} s")
        size = sum(path.stat().st_size for path in folder.iterdir())
        command = [sys.executable, "-c", MEASURE, str(folder)]
        found = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    print(f"{found['rows']:,} rows, {size / 1e9:.2f} GB of Parquet in {given.models} shards")
    print(f"reduce: {found['seconds']:.1f} s ({found['processor']:.1f} s of processor time)")
    print(f"peak resident memory: {found['peak'] / 1e9:.2f} GB, goal {GOAL / 1e9:.0f}")
    for name in ("cells", "confidence", "confusion", "trouble", "right"):
        print(f"{name}: {found[name]:,}")
    print(f"cells take {found['cells_bytes'] / 1e9:.2f} GB")
    sys.exit(found["peak"] > GOAL)


if __name__ == "__main__":
    main()
