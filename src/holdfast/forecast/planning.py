"""Trials of growing size, costs fitted to them, and the forecast for the whole run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.places import address
from holdfast.engine import core_count
from holdfast.forecast.trial import PARTS, Trial, run, words_of
from holdfast.forecast.workload import Workload, workload
from holdfast.pipeline.donors import CACHE_BYTES
from holdfast.pipeline.jobs.progress import Progress, silent

LEAST_DOUBT = 0.1  # least relative width of a range: machines are no steadier


@dataclass(frozen=True)
class CostForecast:
    """A forecast with its range."""

    value: float  # of the fit to all trials
    low: float  # the least forecast of a fit without one of the trials, or a tenth less than ``value``
    high: float  # the largest of these forecasts, or a tenth more
    fixed: float  # the part of ``value`` that does not grow with the work


def estimate(
    measured: Sequence[float],  # cost per trial
    work: Sequence[Mapping[str, float]],  # name → amount, per trial
    wanted: Mapping[str, float],  # name → amount of the run
    *,
    fixed: bool = True,  # whether there is a fixed part
) -> CostForecast:
    """Forecast the cost of ``wanted`` work: fixed + Σ price × amount, no part below zero, small relative errors."""
    names = list(wanted)
    costs = np.array(measured, float)
    amounts = np.array([[float(fixed), *(amount[name] for name in names)] for amount in work])
    target = np.array([float(fixed), *(wanted[name] for name in names)])
    prices = _prices(amounts, costs)
    value = float(prices @ target)
    others = [
        float(_prices(np.delete(amounts, left, 0), np.delete(costs, left)) @ target)
        for left in range(len(costs))
        if len(costs) - 1 > len(names)
    ]
    low, high = min([value * (1 - LEAST_DOUBT), *others]), max([value * (1 + LEAST_DOUBT), *others])
    return CostForecast(value, low, high, fixed=float(prices[0]))


def _prices(amounts: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the fixed part and the price of each amount, none negative."""
    from scipy.optimize import nnls

    if not costs.any():
        return np.zeros(amounts.shape[1])
    # With relative errors small trials decide the fixed part, and large ones the price of an image.
    weights = 1 / np.maximum(costs, costs.max() * 1e-6)
    scale = np.maximum(np.abs(amounts).max(0), 1e-12)
    prices, _ = nnls(amounts / scale * weights[:, None], costs * weights)
    return np.asarray(prices / scale)


GROWTH = 8  # times as large as the one before is a trial at most
PATIENCE = 3  # times the given seconds may trials take on a machine that is busy with other work
TELLING = 2.0  # times the first trial that the largest must cost on a busy machine to show the price of an image
MOST = 6  # trials, if more are made than there is time for
PLANNED_BYTES = 20_000  # of bookkeeping per image, at most: benchmarks/growth.py measured 12,000 (eval), 19,000 (synth)


@dataclass(frozen=True)
class RunForecast:
    """What a run will take."""

    command: str  # the run, as it is typed
    unit: str  # what ``--limit`` counts; ``units`` is their number
    units: int
    images: int  # images that are read, or made if the verb makes them
    conditions: int  # per image
    models: int  # per image
    rows: int  # of the table
    bytes: Mapping[str, float]  # kind of file → bytes written
    seconds: CostForecast  # wall time
    processor: CostForecast  # processor time of all cores together, in seconds
    memory: CostForecast  # peak resident bytes of all processes together
    machines: int  # number of machines of ``seconds_on_machines``
    seconds_on_machines: float  # wall time if every machine pays the fixed part and they share the rest evenly
    whole: bool  # whether the last trial was the whole run
    load: float  # load of this machine over the last minute, when the trials ended
    trials: tuple[Trial, ...]  # all measurements, the first (cold) one included
    notes: tuple[str, ...]  # assumptions and observations, a sentence each


def plan(
    verb: str,  # eval, synth, perturb, generate, mine, mask, ask, train, segment or telltale
    *,
    seconds: float = 60.0,  # that the trials may take together
    machines: int = 1,  # that share the run
    progress: Progress = silent,  # is called with the seconds that are used
    **options: Any,  # of the command line: ``data="photos/", models="timm:resnet50", out="runs/first"``
) -> RunForecast:
    """Forecast what a run takes, from trials of the same command with fewer images.

    Two trials are always made, and on a busy machine more, until they show the price of an image or have taken three
    times ``seconds``. They write to a temporary folder next to ``out``, which is removed.

    Args:
        verb: eval, synth, perturb, generate, mine, mask, ask, train or segment.
        seconds: What the trials may take together.
        machines: Number of machines that share the run.
        progress: Called with the seconds that are used.
        options: Of the verb: ``data="photos/", models="timm:resnet50", out="runs/first"``.

    Returns:
        Time, memory and disk space, with the trials they come from.

    Raises:
        UserError: The verb or an option is unknown, or the command refuses to run.

    Examples:
        >>> planned = holdfast.plan("synth", data="diorama:test?n=4", scenarios="grey", out="planned", seconds=1)
        >>> planned.seconds_on_machines > 0
        True
    """
    if seconds <= 0:
        raise UserError(f"--seconds {seconds}: trials need some time")
    if machines < 1:
        raise UserError(f"--machines {machines}: at least one has to do it")
    if not hasattr(os, "wait4"):
        raise UserError(
            "plan cannot measure its trials on Windows, which does not report the time of a process: use WSL 2"
        )
    load = workload(verb, options)
    if not load.units:
        raise UserError("there is nothing to do: no image is left")
    trials = _trials(verb, options, load, seconds, progress)
    return _forecast(verb, options, load, trials, machines)


def _trials(verb: str, options: Mapping[str, Any], load: Workload, seconds: float, progress: Progress) -> list[Trial]:
    trials: list[Trial] = []
    size, used = min(load.first, load.units), 0.0
    with tempfile.TemporaryDirectory(prefix=".holdfast-plan-", dir=_beside(options.get("out"))) as folder:
        while size:
            number = len(trials)
            variant = load.variants[number % len(load.variants)]
            out = Path(folder) / f"trial-{number}"
            changed = {**options, **variant, "limit": size, "out": out, "quiet": True}
            if options.get("publish"):
                changed["publish"] = Path(folder) / f"published-{number}"
            trials.append(run(words_of(verb, changed), out, size=size, work=load.work(size, variant)))
            used += trials[-1].wall
            progress("trials", min(round(used), round(seconds)), round(seconds))
            size = _next(trials, load, (PATIENCE if busy() else 1) * seconds - used)
    return trials


def _beside(out: Any) -> Path | None:
    """Return the nearest existing folder above ``out``, on the same disk; None if ``out`` is in a store."""
    if not out or address(out):
        return None
    folders = Path(out).absolute().parents
    return next((folder for folder in folders if folder.is_dir() and os.access(folder, os.W_OK)), None)


def _next(trials: Sequence[Trial], load: Workload, left: float) -> int:
    """Return the units of the next trial, or 0 if there is none."""
    size = _size(trials, load, left)
    return size // load.grain * load.grain if size < load.units else size


def _size(trials: Sequence[Trial], load: Workload, left: float) -> int:
    """Return the units of a trial that takes half of the time left, or most of it for the last; 0: no more trials."""
    last = trials[-1]
    enough = max(2, len(load.variants))
    recent = trials[-len(load.variants) :]
    if all(trial.size >= load.units for trial in recent) and len(trials) >= len(load.variants):
        return 0
    largest = min(load.units, GROWTH * last.size)
    if len(trials) < enough:
        fits = int(last.size * max(left, 0) / 2 / last.wall)  # as if nothing of it were fixed
        return min(largest, max(fits, 2 * last.size if len(load.variants) == 1 else last.size))
    variant = load.variants[len(trials) % len(load.variants)]
    for share in (0.5, 0.9):  # the last one may take what is left
        size = largest
        while size > last.size and _clock(trials, load.work(size, variant)).value > share * left:
            size = size * 3 // 4
        if size >= min(1.5 * last.size, load.units):
            return size
    if not busy() or len(trials) >= MOST or left <= 0:
        return 0
    if len(load.variants) > 1:  # what an epoch costs follows from trials that differ in epochs alone
        return last.size if any(trial.size < last.size for trial in recent) else 0
    return min(largest, _telling(trials))


def _undecided(trials: Sequence[Trial], load: Workload) -> bool:
    """Return whether the trials ended before they showed the price of an image: all are about as long as the first."""
    steady = len(trials) > 2 and not busy()
    ended = len(load.variants) > 1 or len(trials) >= MOST or not trials[0].size < trials[-1].size < load.units
    return not steady and not ended and _telling(trials) > 0


def _dearest(trials: Sequence[Trial]) -> float:
    """Return the most processor time that a unit may cost: more, and the last trial would have shown it."""
    first, last = trials[0], trials[-1]
    return (max(last.processor - first.processor, 0) + 0.1 * first.processor) / (last.size - first.size)


def _telling(trials: Sequence[Trial]) -> int:
    """Return units that cost enough to separate the price of one from the fixed part; 0 if the last trial did."""
    first, last = trials[0], trials[-1]
    if last.processor >= TELLING * first.processor:
        return 0
    # At most three times the first.
    return max(2 * last.size, last.size + int(TELLING * first.processor / _dearest(trials)))


def _forecast(
    verb: str, options: Mapping[str, Any], load: Workload, trials: Sequence[Trial], machines: int
) -> RunForecast:
    wanted = load.work(load.units, {})
    # The first one read files from the disk that the others found in memory, unless every trial is needed.
    used = trials[1:] if len(trials) > len(wanted) + 1 else trials
    works = [trial.work for trial in used]
    kinds = sorted({kind for trial in used for kind in trial.bytes})
    files = {kind: estimate([trial.bytes.get(kind, 0) for trial in used], works, wanted).value for kind in kinds}
    rows = load.rows
    if rows is None:
        rows = round(estimate([trial.rows for trial in used], works, wanted).value)
    if PARTS in files:
        files[PARTS] = _parts(trials, load, rows)
    whole = trials[-1].size == load.units and trials[-1].work == wanted
    clock = _known(_clock(used, wanted), trials[-1].wall if whole else None)
    busy = _known(estimate([trial.processor for trial in used], works, wanted), trials[-1].processor if whole else None)
    if _undecided(trials, load):
        most = trials[-1].processor + _dearest(trials) * (load.units - trials[-1].size)
        stretch = max(trial.wall / max(trial.processor, 1e-9) for trial in trials)
        busy = replace(busy, high=max(busy.high, most))
        clock = replace(clock, high=max(clock.high, most * stretch))
    return RunForecast(
        command=" ".join(["holdfast", *words_of(verb, options)]),
        unit=load.unit, units=load.units, images=load.images, conditions=load.conditions, models=load.models,
        rows=rows, bytes=files, seconds=clock, processor=busy, memory=_memory(trials, load),
        machines=machines, seconds_on_machines=clock.fixed + (clock.value - clock.fixed) / machines,
        whole=whole, load=os.getloadavg()[0], trials=tuple(trials),
        notes=(*load.notes, *_notes(options, trials, load)),
    )  # fmt: skip


def busy() -> bool:
    """Return whether others use this machine so much that wall time says little."""
    return os.getloadavg()[0] > 1.5 * core_count()


def _clock(trials: Sequence[Trial], wanted: Mapping[str, float]) -> CostForecast:
    """Forecast wall time; on a busy machine from processor time, stretched as much as in the trials."""
    work = [trial.work for trial in trials]
    if not busy():
        return estimate([trial.wall for trial in trials], work, wanted)
    time = estimate([trial.processor for trial in trials], work, wanted)
    stretched = [trial.wall / trial.processor for trial in trials if trial.processor]
    mean = sum(trial.wall for trial in trials) / max(1e-9, sum(trial.processor for trial in trials))
    return CostForecast(
        time.value * mean, time.low * min(stretched, default=1.0), time.high * max(stretched, default=1.0),
        time.fixed * mean,
    )  # fmt: skip


def _parts(trials: Sequence[Trial], load: Workload, rows: int) -> float:
    """Forecast bytes of the table from a price per file and per row: a small trial is one file, a run is many."""
    last = trials[-1]
    several = -(-load.units // load.part) if load.part else max(1, round(last.parts * rows / max(1, last.rows)))
    if not load.part and last.parts == 1:
        several = 1
    work = [{"parts": trial.parts, "rows": trial.rows} for trial in trials]
    sizes = [trial.bytes.get(PARTS, 0) for trial in trials]
    return estimate(sizes, work, {"parts": several, "rows": rows}, fixed=False).value


def _known(estimated: CostForecast, measured: float | None) -> CostForecast:
    """Return the estimate with the measured value, if the whole run was measured."""
    if measured is None:
        return estimated
    low, high = min(estimated.low, measured * (1 - LEAST_DOUBT)), max(estimated.high, measured * (1 + LEAST_DOUBT))
    return CostForecast(measured, low, high, min(estimated.fixed, measured))


def _memory(trials: Sequence[Trial], load: Workload) -> CostForecast:
    """Forecast peak memory: from the largest trial on, caches fill up to their bounds and bookkeeping grows."""
    last, before = trials[-1], trials[-2] if len(trials) > 1 else trials[-1]
    more, apart = load.units - last.size, last.size - before.size
    growth = max(0.0, (last.memory - before.memory) / apart * more) if apart > 0 else 0.0
    bounded = min(growth, CACHE_BYTES + PLANNED_BYTES * more)
    value = last.memory + bounded
    return CostForecast(value, last.memory, max(last.memory + growth, value * (1 + LEAST_DOUBT)), before.memory)


def _notes(options: Mapping[str, Any], trials: Sequence[Trial], load: Workload) -> list[str]:
    notes = []
    out = options.get("out")
    if out and address(out):
        notes.append("trials write to this machine's disk: the way to the store is not counted")
    elif out and Path(out).is_dir() and any(Path(out).iterdir()):
        notes.append(f"{out} exists: what is finished in it is not made again, and this plan is about all of it")
    if busy():
        notes.append(
            "this machine is busy with other work: its time is processor time, stretched as it was in the trials"
        )
    if _undecided(trials, load):
        notes.append("the trials were too few to estimate the cost of an image: increase --seconds")
    if len(load.variants) == 1 and len(trials) > 3:
        first, second = (
            (after.processor - before.processor) / (after.size - before.size)
            for before, after in (trials[-3:-1], trials[-2:])
        )
        if second > 1.25 * first > 0:
            notes.append(
                f"an image cost {second / first - 1:.0%} more processor time in the largest trial than before: a "
                "larger run may cost more than this"
            )
    return notes


def total(files: Mapping[str, float]) -> float:
    """Return the bytes of all kinds of file."""
    return float(sum(files.values()))
