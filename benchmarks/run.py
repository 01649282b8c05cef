"""``make bench``: every speed goal as a ratio measured in one run on this machine.

    python benchmarks/run.py            # all
    python benchmarks/run.py synth      # those whose name begins so

Prints a row a goal and exits 1 when one is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import bench_board
import bench_check
import bench_diorama
import bench_eval
import bench_generate
import bench_objects
import bench_plan
import bench_ray
import bench_reduce
import bench_start
import bench_stats
import bench_synth
import bench_train
import bench_walk
from common import Row

BENCHMARKS: dict[str, Callable[[], Iterator[Row]]] = {
    "start": bench_start.rows,
    "synth": bench_synth.rows,
    "eval": bench_eval.rows,
    "check": bench_check.rows,
    "stats": bench_stats.rows,
    "objects": bench_objects.rows,
    "reduce": bench_reduce.rows,
    "plan": bench_plan.rows,
    "other plans": bench_plan.others,
    "diorama": bench_diorama.rows,
    "walk": bench_walk.rows,
    "generate": bench_generate.rows,
    "train": bench_train.rows,
    "board": bench_board.rows,
    "ray": bench_ray.rows,
}


def main() -> int:
    wanted = sys.argv[1:] or list(BENCHMARKS)
    missed = 0
    print(f"{'what':62} {'measured':>12} {'goal':>12}")
    for name, rows in BENCHMARKS.items():
        if not any(name.startswith(word) for word in wanted):
            continue
        for row in rows():
            missed += not row.met
            print(row, flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
