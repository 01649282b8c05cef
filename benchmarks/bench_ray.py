"""What the Ray engine costs compared with processes of this machine: a cluster of one machine, the same work, no GPU.

``python benchmarks/bench_ray.py`` prints jobs of several sizes on both.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import Row

from holdfast.engine import Executor, LocalExecutor, open_executor
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate

SPEC = EvaluateSpec(
    "diorama:test?n=192", models=("embedded:resnet_rho95", "embedded:vit_rho95"), scenarios="static", device="cpu"
)
SHARDS = 300


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rates = {}
        for workers in (1, 2):
            # Both engines in processes of their own, so that starting and loading are paid on both sides.
            for engine in ("local", "ray"):
                if (engine, workers) == ("local", 1):
                    continue
                executor: Executor = (
                    open_executor(engine, workers=workers) if engine == "ray" else LocalExecutor(workers)
                )
                rates[engine, workers] = _rate(executor, folder / f"{engine}-{workers}")
                if (engine, workers) == ("ray", 2):
                    yield Row("ray: overhead of a shard, two workers", 1000 * _overhead(executor), "ms", at_most=100)
                executor.close()
        yield Row("eval on ray, one worker", rates["ray", 1], "rows/s")
        yield Row("eval on ray, two workers", rates["ray", 2], "rows/s")
        yield Row("eval on ray, two workers against one", rates["ray", 2] / rates["ray", 1])
        yield Row("eval on ray against local, two workers", rates["ray", 2] / rates["local", 2], at_least=0.8)


def _rate(executor: Executor, out: Path) -> float:
    """Rows a second from the first word to the last, with the start of workers and the loading of models."""
    start = time.perf_counter()
    _, summary = evaluate(SPEC, out, executor=executor)
    return summary.rows / (time.perf_counter() - start)


def _overhead(executor: Executor) -> float:
    """Seconds a shard that does nothing, after the first has come back."""
    start, done = 0.0, 0
    for _ in executor.map(_nothing, range(SHARDS)):
        start = start or time.perf_counter()
        done += 1
    return (time.perf_counter() - start) / (done - 1)


def _nothing(number: int) -> int:
    return number


def curve(sizes: tuple[int, ...] = (48, 192, 768, 2304)) -> None:
    """Print the seconds of jobs of several sizes on both engines, two workers, and the line through them."""
    points: dict[str, list[tuple[int, float]]] = {"local": [], "ray": []}
    with tempfile.TemporaryDirectory() as name:
        for count in sizes:
            for engine, own in points.items():
                executor: Executor = open_executor(engine, workers=2) if engine == "ray" else LocalExecutor(2)
                start, spec = time.perf_counter(), replace(SPEC, data=f"diorama:test?n={count}")
                evaluate(spec, Path(name) / f"{engine}-{count}", executor=executor)
                executor.close()
                own.append((count, time.perf_counter() - start))
            ours, other = points["local"][-1][1], points["ray"][-1][1]
            load = os.getloadavg()[0]
            print(
                f"{count} scenes: local {ours:.1f} s, ray {other:.1f} s, {ours / other:.2f}, load {load:.1f}",
                flush=True,
            )
    for engine, own in points.items():
        price, fixed = np.polyfit(*zip(*own, strict=True), 1)
        print(f"{engine}: {fixed:.1f} s + {1000 * price:.1f} ms a scene")


if __name__ == "__main__":
    curve()
