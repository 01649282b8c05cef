"""Trials of growing size, and what follows from them for the whole run."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.places import address
from holdfast.engine import core_count
from holdfast.forecast.fit import LEAST_DOUBT, Estimate, estimate
from holdfast.forecast.subject import Subject, subject
from holdfast.forecast.trial import PARTS, Trial, run, words_of
from holdfast.pipeline.donors import CACHE_BYTES
from holdfast.pipeline.jobs.progress import Progress, silent

GROWTH = 8
"""A trial is at most so many times as large as the one before."""

PATIENCE = 3
"""Trials may take so many times the seconds they were given on a machine that is busy with other work."""

TELLING = 2.0
"""On such a machine the largest trial has to cost so many times the first: processor time, too, is uneven there, and of
two that cost much the same nobody can tell what an image costs."""

MOST = 6
"""Trials, when more are made than there is time for."""

PLANNED_BYTES = 20_000
"""Bookkeeping of an image in memory, at most: ``benchmarks/growth.py`` found 12,000 for eval and 19,000 for synth."""


@dataclass(frozen=True)
class Plan:
    """What a run will take.

    Attributes:
        command: the run, as it is typed.
        unit: what ``--limit`` counts; ``units`` is how many there are.
        images: pictures that are read, or made where the verb makes them.
        conditions: that each is put under.
        models: that look at it.
        rows: of the table.
        bytes: kind of file → bytes written.
        seconds: by the clock.
        processor: seconds of all cores together.
        memory: peak resident bytes of all processes together.
        machines: that ``seconds_on_machines`` is about.
        seconds_on_machines: if every machine pays what is fixed and they share the rest evenly.
        whole: whether the last trial was the whole run.
        load: of this machine over the last minute, when the trials ended.
        trials: what was measured, the first (cold) one included.
        notes: what is assumed or was seen, a sentence each.
    """

    command: str
    unit: str
    units: int
    images: int
    conditions: int
    models: int
    rows: int
    bytes: Mapping[str, float]
    seconds: Estimate
    processor: Estimate
    memory: Estimate
    machines: int
    seconds_on_machines: float
    whole: bool
    load: float
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]


def plan(verb: str, *, seconds: float = 60.0, machines: int = 1, progress: Progress = silent, **options: Any) -> Plan:
    """Say before a run what it takes, from trials of the same command with fewer images.

    Args:
        verb: eval, synth, perturb, generate, mine, mask, ask, train, segment or detect.
        seconds: that the trials may take together; two are always made, and on a machine that is busy with other work
            as many as it takes to tell the price of an image.
        machines: how many are to share the run.
        progress: told how many seconds are used.
        **options: those of the command line, ``data="photos/", models="timm:resnet50", out="runs/first"``; what is
            written goes to a temporary folder beside ``out``, which is removed.

    Raises:
        UserError: the verb or an option is unknown, or the command would refuse to run, in its own words.
    """
    if seconds <= 0:
        raise UserError(f"--seconds {seconds}: trials need some time")
    if machines < 1:
        raise UserError(f"--machines {machines}: at least one has to do it")
    about = subject(verb, options)
    if not about.units:
        raise UserError("there is nothing to do: no image is left")
    trials = _trials(verb, options, about, seconds, progress)
    return _forecast(verb, options, about, trials, machines)


def _trials(verb: str, options: Mapping[str, Any], about: Subject, seconds: float, progress: Progress) -> list[Trial]:
    trials: list[Trial] = []
    size, used = min(about.first, about.units), 0.0
    with tempfile.TemporaryDirectory(prefix=".holdfast-plan-", dir=_beside(options.get("out"))) as folder:
        while size:
            number = len(trials)
            variant = about.variants[number % len(about.variants)]
            out = Path(folder) / f"trial-{number}"
            changed = {**options, **variant, "limit": size, "out": out, "quiet": True}
            if options.get("publish"):
                changed["publish"] = Path(folder) / f"published-{number}"
            trials.append(run(words_of(verb, changed), out, size=size, work=about.work(size, variant)))
            used += trials[-1].wall
            progress("trials", min(round(used), round(seconds)), round(seconds))
            size = _next(trials, about, (PATIENCE if busy() else 1) * seconds - used)
    return trials


def _beside(out: Any) -> Path | None:
    """The folder that exists already and is nearest to where the run goes: the same disk; None for one elsewhere."""
    if not out or address(out):
        return None
    return next((one for one in Path(out).absolute().parents if one.is_dir() and os.access(one, os.W_OK)), None)


def _next(trials: Sequence[Trial], about: Subject, left: float) -> int:
    """Units of the next trial, or 0: it may take half of the time that is left, or most of it as the last one."""
    size = _size(trials, about, left)
    return size // about.grain * about.grain if size < about.units else size


def _size(trials: Sequence[Trial], about: Subject, left: float) -> int:
    last = trials[-1]
    enough = max(2, len(about.variants))
    recent = trials[-len(about.variants) :]
    if all(one.size >= about.units for one in recent) and len(trials) >= len(about.variants):
        return 0
    largest = min(about.units, GROWTH * last.size)
    if len(trials) < enough:
        fits = int(last.size * max(left, 0) / 2 / last.wall)  # as if nothing of it were fixed
        return min(largest, max(fits, 2 * last.size if len(about.variants) == 1 else last.size))
    variant = about.variants[len(trials) % len(about.variants)]
    for share in (0.5, 0.9):  # the last one may take what is left
        size = largest
        while size > last.size and _clock(trials, about.work(size, variant)).value > share * left:
            size = size * 3 // 4
        if size >= min(1.5 * last.size, about.units):
            return size
    if not busy() or len(trials) >= MOST:
        return 0
    if len(about.variants) > 1:  # what an epoch costs can be told from trials that differ in epochs alone
        return last.size if any(one.size < last.size for one in recent) else 0
    return min(largest, _telling(trials))


def _telling(trials: Sequence[Trial]) -> int:
    """Units that should cost enough to tell the price of one from what is fixed; 0 where the last trial did."""
    first, last = trials[0], trials[-1]
    if last.processor >= TELLING * first.processor:
        return 0
    # At most three times the first: one unit costs no more than this, or the last would have shown it.
    dearest = (max(last.processor - first.processor, 0) + 0.1 * first.processor) / (last.size - first.size)
    return max(2 * last.size, last.size + int(TELLING * first.processor / dearest))


def _forecast(verb: str, options: Mapping[str, Any], about: Subject, trials: Sequence[Trial], machines: int) -> Plan:
    wanted = about.work(about.units, {})
    # The first one read files from the disk that the others found in memory, unless every trial is needed.
    used = trials[1:] if len(trials) > len(wanted) + 1 else trials
    works = [one.work for one in used]
    kinds = sorted({kind for one in used for kind in one.bytes})
    files = {kind: estimate([one.bytes.get(kind, 0) for one in used], works, wanted).value for kind in kinds}
    rows = about.rows
    if rows is None:
        rows = round(estimate([one.rows for one in used], works, wanted).value)
    if PARTS in files:
        files[PARTS] = _parts(trials, about, rows)
    whole = trials[-1].size == about.units and trials[-1].work == wanted
    clock = _known(_clock(used, wanted), trials[-1].wall if whole else None)
    busy = _known(estimate([one.processor for one in used], works, wanted), trials[-1].processor if whole else None)
    return Plan(
        command=" ".join(["holdfast", *words_of(verb, options)]),
        unit=about.unit, units=about.units, images=about.images, conditions=about.conditions, models=about.models,
        rows=rows, bytes=files, seconds=clock, processor=busy, memory=_memory(trials, about),
        machines=machines, seconds_on_machines=clock.fixed + (clock.value - clock.fixed) / machines,
        whole=whole, load=os.getloadavg()[0], trials=tuple(trials),
        notes=(*about.notes, *_notes(options, trials, about)),
    )  # fmt: skip


def busy() -> bool:
    """Whether others use this machine so much that the clock says little."""
    return os.getloadavg()[0] > 1.5 * core_count()


def _clock(trials: Sequence[Trial], wanted: Mapping[str, float]) -> Estimate:
    """Seconds by the clock; on a busy machine processor time, stretched as much as that of the trials was."""
    work = [one.work for one in trials]
    if not busy():
        return estimate([one.wall for one in trials], work, wanted)
    found = estimate([one.processor for one in trials], work, wanted)
    stretched = [one.wall / one.processor for one in trials if one.processor]
    mean = sum(one.wall for one in trials) / max(1e-9, sum(one.processor for one in trials))
    return Estimate(
        found.value * mean, found.low * min(stretched, default=1.0), found.high * max(stretched, default=1.0),
        found.fixed * mean,
    )  # fmt: skip


def _parts(trials: Sequence[Trial], about: Subject, rows: int) -> float:
    """Bytes of the table: a price a file and a price a row, since a small trial is one file and a run is many."""
    last = trials[-1]
    several = -(-about.units // about.part) if about.part else max(1, round(last.parts * rows / max(1, last.rows)))
    if not about.part and last.parts == 1:
        several = 1
    work = [{"parts": one.parts, "rows": one.rows} for one in trials]
    sizes = [one.bytes.get(PARTS, 0) for one in trials]
    return estimate(sizes, work, {"parts": several, "rows": rows}, fixed=False).value


def _known(found: Estimate, measured: float | None) -> Estimate:
    """Of a run that was made whole, what it took."""
    if measured is None:
        return found
    low, high = min(found.low, measured * (1 - LEAST_DOUBT)), max(found.high, measured * (1 + LEAST_DOUBT))
    return Estimate(measured, low, high, min(found.fixed, measured))


def _memory(trials: Sequence[Trial], about: Subject) -> Estimate:
    """From the largest trial upwards: caches fill up to their bounds, and bookkeeping goes on growing."""
    last, before = trials[-1], trials[-2] if len(trials) > 1 else trials[-1]
    more, apart = about.units - last.size, last.size - before.size
    growth = max(0.0, (last.memory - before.memory) / apart * more) if apart > 0 else 0.0
    bounded = min(growth, CACHE_BYTES + PLANNED_BYTES * more)
    value = last.memory + bounded
    return Estimate(value, last.memory, max(last.memory + growth, value * (1 + LEAST_DOUBT)), before.memory)


def _notes(options: Mapping[str, Any], trials: Sequence[Trial], about: Subject) -> list[str]:
    found = []
    out = options.get("out")
    if out and address(out):
        found.append("trials write to this machine's disk: the way to the store is not counted")
    elif out and Path(out).is_dir() and any(Path(out).iterdir()):
        found.append(f"{out} is there already: what is finished in it is not made again, and this is about all of it")
    if busy():
        found.append(
            "this machine is busy with other work: its time is processor time, stretched as it was in the trials"
        )
    if len(about.variants) == 1 and len(trials) > 3:
        first, second = (
            (after.processor - before.processor) / (after.size - before.size)
            for before, after in (trials[-3:-1], trials[-2:])
        )
        if second > 1.25 * first > 0:
            found.append(
                f"an image cost {second / first - 1:.0%} more processor time in the largest trial than before: a "
                "larger run may cost more than this"
            )
    return found


def total(files: Mapping[str, float]) -> float:
    """Bytes of all kinds."""
    return float(sum(Counter(dict(files)).values())) if files else 0.0
