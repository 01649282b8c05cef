"""Runs the simulations over all cores, block by block; counts are kept in a file each, so that a run can continue."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from promises.fingerprint import fingerprint
from promises.promise import Counted, Measured, Promise, Simulation, add
from promises.register import PROMISES

Block = tuple[Simulation, int, int]
"""A simulation, the number of one of its blocks, and the draws in it."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def simulations(promises: Iterable[Promise]) -> list[Simulation]:
    """Return the simulations behind promises, each once, by name."""
    return sorted({promise.simulation.name: promise.simulation for promise in promises}.values(), key=lambda s: s.name)


def run(folder: Path, promises: list[Promise], *, jobs: int, seconds: float = float("inf")) -> bool:
    """Draw what is missing; return whether everything is there. After ``seconds`` no new block is begun."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    state = {simulation.name: _stored(folder, simulation) for simulation in simulations(promises)}
    wanted = [
        (simulation, number, draws)
        for simulation in simulations(promises)
        for number, draws in enumerate(simulation.blocks())
        if str(number) not in state[simulation.name]["blocks"]
    ]
    print(f"{len(wanted)} blocks to draw with {jobs} processes", flush=True)
    for finished, (simulation, number, counts, spent) in enumerate(_drawn(wanted, jobs), start=1):
        own = state[simulation.name]
        own["blocks"][str(number)] = counts
        own["seconds"] += spent
        _write(folder / f"{simulation.name}.json", own)
        if finished % 200 == 0:
            print(f"{finished} of {len(wanted)} blocks, {time.monotonic() - began:.0f} s", flush=True)
        if time.monotonic() - began > seconds:
            return finished == len(wanted)
    return True


def _drawn(wanted: list[Block], jobs: int) -> Iterator[tuple[Simulation, int, Counted, float]]:
    """Yield blocks as they are done, in this process or in others; what was not begun is dropped with the iterator."""
    if jobs == 1:
        for simulation, number, draws in wanted:
            yield simulation, number, *_draw(simulation.name, number, draws)
        return
    for name in THREADS:  # inherited by the workers
        os.environ[name] = "1"
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    owed = {pool.submit(_draw, block[0].name, *block[1:]): block for block in wanted}
    try:
        for future in as_completed(owed):
            yield *owed[future][:2], *future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _draw(name: str, number: int, draws: int) -> tuple[Counted, float]:
    simulation = next(s for s in simulations(PROMISES) if s.name == name)
    began = time.process_time()
    return simulation.block(number, draws), time.process_time() - began


def _stored(folder: Path, simulation: Simulation) -> dict[str, Any]:
    """Return the counts that are kept; none if settings or code have changed since."""
    path = folder / f"{simulation.name}.json"
    fresh = {"fingerprint": fingerprint(simulation), "draws": simulation.draws, "seconds": 0.0, "blocks": {}}
    stored = json.loads(path.read_text()) if path.is_file() else fresh
    return stored if stored.get("fingerprint") == fresh["fingerprint"] else fresh


def _write(path: Path, content: dict[str, Any]) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content))
    draft.replace(path)


def measured(folder: Path, promises: Iterable[Promise]) -> dict[str, Measured]:
    """Return the rates of the promises whose simulation is whole, on the code as it is now."""
    rates = {}
    for promise in promises:
        blocks = _stored(folder, promise.simulation)["blocks"]
        if len(blocks) == len(promise.simulation.blocks()):
            total: Counted = {}
            for counts in blocks.values():
                total = add(total, counts)
            rates[promise.name] = Measured(*total[promise.outcome])
    return rates


def cost(folder: Path, promises: Iterable[Promise]) -> float:
    """Return the processor time behind the counts, in minutes."""
    return float(sum(_stored(folder, simulation)["seconds"] for simulation in simulations(promises))) / 60
