"""Measure the peak memory of two steps that see every image or every row at once.

``split N``: ``holdfast data split`` of N images with masks, as hard links to one file each in folders of a thousand.
``resume N``: the plan of a run whose table holds N rows (made up: ids and models, nothing else), all but a few of
which are planned again; then the shards of what is left. Prints processor time and peak resident memory of the step,
which runs in a fresh process.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PER_JOB = 390  # 13 conditions × 30 models
PER_PART = 2_000  # jobs of a part file
MISSING = 1_000  # every so many rows one is not stored yet


def ids_of(job: int) -> list[str]:
    """Return made-up row ids of a job, always the same."""
    text = hashlib.shake_128(job.to_bytes(8, "big")).hexdigest(16 * PER_JOB)
    return [text[start : start + 32] for start in range(0, len(text), 32)]


class Jobs:
    """As many jobs as there are images; nothing of them is held."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[object]:
        from holdfast.pipeline.jobs.plan import Job

        parts = range(PER_JOB)
        return (Job(number, parts) for number in range(self._count))


def make_table(folder: Path, jobs: int) -> None:
    """Write part files whose rows have ids, a model and a status."""
    import pyarrow as pa

    from holdfast.core.schema import PREDICTIONS
    from holdfast.store import write_table

    for first in range(0, jobs, PER_PART):
        names = [name for job in range(first, min(first + PER_PART, jobs)) for name in ids_of(job)]
        names = [name for place, name in enumerate(names) if place % MISSING]
        known = {"row_id": names, "status": ["ok"] * len(names), "model": ["m"] * len(names)}
        columns = [
            pa.array(known[field.name]).cast(field.type) if field.name in known else pa.nulls(len(names), field.type)
            for field in PREDICTIONS
        ]
        write_table(folder / f"part-{first:09d}.parquet", pa.Table.from_arrays(columns, schema=PREDICTIONS))


def resume(folder: Path, jobs: int) -> str:
    """Plan the run and go through what it owes."""
    from holdfast.core.schema import PREDICTIONS
    from holdfast.pipeline.jobs.plan import plan
    from holdfast.store import Parts

    todo = plan(Parts(folder, PREDICTIONS), Jobs(jobs), lambda job: ids_of(job.item), retry=True)  # type: ignore[arg-type]
    owed = sum(len(job.parts) for shard in todo.shards(64, with_ids=False) for job in shard)
    assert owed == todo.owed, (owed, todo.owed)
    return f"{todo.already:,} rows stored, {owed:,} owed by {todo.count:,} images"


def make_images(folder: Path, images: int) -> None:
    """Make folders of images and masks; all are one file."""
    import cv2

    kinds = {"images": np.full((32, 32, 3), 90, np.uint8), "masks": np.eye(32, dtype=np.uint8) * 255}
    for kind, pixels in kinds.items():
        cv2.imwrite(str(folder / f"{kind}.png"), pixels)
        for number in range(images):
            parent = folder / "data" / kind / f"class_{number // 1000:04d}"
            if number % 1000 == 0:
                parent.mkdir(parents=True)
                first = parent / "first.png"
                first.write_bytes((folder / f"{kind}.png").read_bytes())  # file systems limit the links of a file
            os.link(first, parent / f"photo_{number:08d}.png")


def split(folder: Path) -> str:
    """Split the images."""
    from holdfast.pipeline.files import write_split

    return str(write_split(str(folder / "data"), folder / "split.csv", folds=5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("split", "resume"))
    parser.add_argument("count", type=int, help="images, or rows")
    parser.add_argument("--folder", type=Path, help="where an earlier call has made the data (kept then)")
    parser.add_argument("--step", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(split(given.folder) if given.what == "split" else resume(given.folder, given.count // PER_JOB))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(f"{usage.ru_utime + usage.ru_stime:.0f} s of processor time, peak memory {usage.ru_maxrss / 1e6:.2f} GB")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        if not folder.is_dir() or not any(folder.iterdir()):
            folder.mkdir(parents=True, exist_ok=True)
            started = time.process_time()
            make_images(folder, given.count) if given.what == "split" else make_table(folder, given.count // PER_JOB)
            print(f"made the data in {time.process_time() - started:.0f} s of processor time", flush=True)
        command = [sys.executable, __file__, given.what, str(given.count), "--folder", str(folder), "--step"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
