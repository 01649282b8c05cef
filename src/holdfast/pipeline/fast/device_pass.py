"""The fast pass: decodes jobs, renders and asks networks on one device, and has rows made."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from holdfast.core.errors import SampleError
from holdfast.core.types import ORIGINAL, Sample
from holdfast.engine import core_count
from holdfast.pipeline.classifiers import EvaluateSpec, Tested
from holdfast.pipeline.evaluation_rows import EvaluationJob, Portion
from holdfast.pipeline.fast import tuning
from holdfast.pipeline.fast.answers import Groups
from holdfast.pipeline.fast.decoding import Arrival, Crew, Decoder, Unit, unit_of
from holdfast.pipeline.fast.flow import Flow, Subject
from holdfast.pipeline.fast.networks import Network
from holdfast.pipeline.fast.rows import Chunk, TableMaker, Writer
from holdfast.pipeline.generate.tools import load_filler
from holdfast.pipeline.jobs.progress import Summary
from holdfast.pipeline.samples import Prepared
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import Call, at_once, plain, proved_for, render_batch
from holdfast.scenarios.tensors.batches import MOST

SWITCH = 0.0005
"""Seconds that another thread may keep the interpreter while the thread that drives the device waits for it."""

Item = TypeVar("Item")


class Watch:
    """Adds up the seconds of this process by kind of work; planning is a part of waiting for images, too."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.times: dict[str, float] = {}

    def note(self, what: str, seconds: float) -> None:
        """Add seconds to the total of ``what``."""
        self.times[what] = self.times.get(what, 0.0) + seconds

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Add the block's wall time to the total of ``what``."""
        start = time.perf_counter()
        yield
        self.note(what, time.perf_counter() - start)

    def each(self, what: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items; add the time that each takes to arrive to the total of ``what``."""
        start = time.perf_counter()
        for item in items:
            self.note(what, time.perf_counter() - start)
            yield item
            start = time.perf_counter()
        self.note(what, time.perf_counter() - start)


class Pass:
    """Networks on a device, processes that decode and a process that makes rows, for any number of jobs."""

    def __init__(
        self,
        spec: EvaluateSpec,
        prepared: Prepared,  # the run's data; only its classes, its name and its donors are used
        portion: Portion,  # the conditions and models that the pass makes
        tested: Sequence[Tested],  # all models of the run
        chosen: Mapping[int, Network],  # position → network, for the models of the portion
        folder: Path,
        *,
        compiles: bool,  # whether networks are compiled
        start: EarlyStart | None = None,  # what was begun before the data was hashed
        writes: bool = True,  # whether part files are written as rows are made; else ``through`` yields tables
    ) -> None:
        self.spec, self.portion = spec, portion
        self._tested, self._networks, self._compiles = tested, chosen, compiles
        self.device = next(iter(chosen.values())).device
        self._start = start
        self._conditions = list(start.conditions if start else decoded_conditions(portion.conditions))
        self._unit_size = 0
        self._call: Call = plain
        self._decoder = Decoder(self._conditions, spec.max_pixels, load_filler(spec.fill))
        cuda = self.device.startswith("cuda")
        processes = decoding_processes(spec, cuda)
        positions = portion.positions
        maker = TableMaker(spec, prepared, positions, tested, self._conditions, folder, writes=writes)
        with ExitStack() as opening:
            self._writer = Writer(maker, apart=processes > 0)
            opening.callback(self._writer.close)
            self._crew = start.crew if start else None
            if processes and self._crew is None:
                self._crew = Crew(self._decoder, processes=processes, gpu=cuda)
                opening.callback(self._crew.close)
            self._closing = opening.pop_all()

    def close(self) -> None:
        """End the processes."""
        self._closing.close()

    def through(
        self,
        prepared: Prepared,  # the hashes of the jobs' images and masks, and the donors
        jobs: Callable[[int], Iterator[list[EvaluationJob]]],  # yields the jobs, so many at a time
        samples: Sequence[Sample],  # of the jobs; the sizes of some of them are looked at
        owed: int,  # about how many rows there will be
    ) -> Iterator[Summary | pa.Table]:
        """Make the rows of jobs; yield counts of what was written, or tables, and at the end notes and times."""
        watch = Watch()
        sizes = sizes_of(samples) if not self._unit_size else []
        self._unit_size = self._unit_size or unit_size(sizes)
        expected: deque[tuple[Unit, Chunk]] = deque()
        units = watch.each("planning", self._units(prepared, jobs, expected))
        switching = sys.getswitchinterval()
        with ExitStack() as ending:
            ending.callback(sys.setswitchinterval, switching)
            self._writer.begin(prepared, owed)
            arrival = Arrival(units, self._decoder, self._crew)
            ending.callback(arrival.close)
            sys.setswitchinterval(SWITCH)
            # While the first images are decoded.
            notes = self._make_ready(sizes)
            ready = time.perf_counter()
            watch.note("ready", ready - watch.start)
            flow = self._flow(prepared)
            for facts, groups, release in watch.each("waiting for images", arrival):
                with watch("handing over"):
                    while expected:
                        flow.expect(*expected.popleft())
                    flow.receive(facts, groups, release)
                yield from watch.each("writing", self._written(flow))
            watch.note("waiting for answers", flow.waited)
            with watch("the last answers"):
                flow.finish()
            yield from watch.each("the last rows", self._written(flow, everything=True))
        watch.note("pass", time.perf_counter() - ready)
        yield Summary(notes=notes, times=watch.times)

    def _units(
        self,
        prepared: Prepared,
        jobs: Callable[[int], Iterator[list[EvaluationJob]]],
        expected: deque[tuple[Unit, Chunk]],
    ) -> Iterator[Unit]:
        """Yield the units to decode, made when they are asked for; put each with its rows into ``expected``."""
        place_of = {condition: place for place, condition in enumerate(self._conditions)}
        for number, some in enumerate(jobs(self._unit_size)):
            wanted = [
                (job.item, [place_of[condition] for condition, _ in groupby(job.parts, itemgetter(0))]) for job in some
            ]
            unit = unit_of(number, wanted, self._conditions, prepared.pool, self.spec.seed)
            expected.append((unit, Chunk(some, self._conditions, self.portion.positions)))
            yield unit

    def _flow(self, prepared: Prepared) -> Flow:
        subjects = [
            Subject(self._networks[position], Groups.of(self._tested[position].labels, self.device))
            for position in self.portion.positions
        ]
        classes = prepared.collection.classes
        return Flow(self.spec, self.device, self._conditions, subjects, classes, prepared.pool, self._call)

    def _written(self, flow: Flow, *, everything: bool = False) -> Iterator[Summary | pa.Table]:
        for chunk in flow.finished():
            self._writer.add(chunk)
        yield from self._writer.done(everything=everything)

    def _make_ready(self, sizes: Sequence[tuple[int, int]]) -> list[str]:
        """Compile new networks and fit them into memory, in the order in which they are warm; return notes."""
        notes = []
        if sizes and any(network.kernels for network in self._networks.values()):  # for the size that most images have
            (height, width), _ = Counter(sizes).most_common(1)[0]
            shape = (at_once(height, width), 3, height, width)
            self._call, reason = proved_for(render_batch, self._conditions, shape, self.device)
            notes += [f"scenarios are made without our kernels: {reason}"] if reason else []
        chosen = {self.spec.models[position]: self._networks[position] for position in self.portion.positions}
        if self._start is not None:
            notes += self._start.notes()
        return notes + tuning.make_ready(chosen, compiles=self._compiles)


def sizes_of(samples: Sequence[Sample]) -> list[tuple[int, int]]:
    """Return height and width of a few images."""
    sizes = []
    for sample in samples[:: max(1, len(samples) // 8)][:8]:
        try:
            height, width = sample.image.load().shape[:2]
        except SampleError:
            continue
        sizes.append((int(height), int(width)))
    return sizes


def unit_size(sizes: Sequence[tuple[int, int]]) -> int:
    """Return how many samples are decoded together: a quarter of those that are rendered together."""
    if not sizes:
        return MOST // 4
    height, width = (int(np.mean([size[axis] for size in sizes])) for axis in (0, 1))
    return max(4, at_once(height, width) // 4)


class EarlyStart:
    """What a pass needs and the data's hashes do not: processes that decode start, networks get ready, next to them."""

    def __init__(self, spec: EvaluateSpec, conditions: Sequence[Condition], processes: int, *, cuda: bool) -> None:
        self.conditions = decoded_conditions(conditions)
        decoder = Decoder(self.conditions, spec.max_pixels, load_filler(spec.fill))
        self.crew = Crew(decoder, processes=processes, gpu=cuda)
        self.crew.begin()
        self._thread = ThreadPoolExecutor(1)
        self._pending: list[Future[list[str]]] = []

    def make_ready(self, name: str, network: Network, *, compiles: bool) -> None:
        """Begin to make a network fast."""
        self._pending.append(self._thread.submit(tuning.make_ready, {name: network}, compiles=compiles))

    def notes(self) -> list[str]:
        """Wait until the networks are ready; return notes, or raise what one of them has raised."""
        pending, self._pending = self._pending, []
        return [note for future in pending for note in future.result()]

    def close(self) -> None:
        """End the processes."""
        self._thread.shutdown(cancel_futures=True)
        self.crew.close()


def decoded_conditions(conditions: Sequence[Condition]) -> list[Condition]:
    """Return the conditions in the order in which units of work name them; the original is always among them."""
    return list(dict.fromkeys((*conditions, Condition(ORIGINAL))))


def decoding_processes(spec: EvaluateSpec, cuda: bool) -> int:
    """Return how many processes decode: ``--workers``; by default one per core on a GPU, else none but this one."""
    if os.name == "nt":  # which has no way to hand an open file without a name to another process
        return 0
    if spec.workers > 1:
        return spec.workers
    return core_count() if cuda or spec.workers == 0 else 0
