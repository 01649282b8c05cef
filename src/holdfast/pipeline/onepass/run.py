"""One pass over a collection, and what of a run goes through it."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeVar

import numpy as np

from holdfast.core.errors import SampleError, first_line
from holdfast.core.types import ORIGINAL, Collection
from holdfast.engine import core_count
from holdfast.models.torch_classifier import TorchClassifier, resolve_device
from holdfast.pipeline.evaluation import EvaluateSpec, Tested
from holdfast.pipeline.onepass import networks
from holdfast.pipeline.onepass.answers import Groups
from holdfast.pipeline.onepass.arrival import Arrival
from holdfast.pipeline.onepass.decoding import Decoder, Unit, unit_of
from holdfast.pipeline.onepass.flow import MOST, Flow, Subject, at_once
from holdfast.pipeline.onepass.networks import Network, Warming
from holdfast.pipeline.onepass.rows import Chunk, Recording, Writer
from holdfast.pipeline.planning import Plan, Portion
from holdfast.pipeline.summary import Summary
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import Compiled, compile_for, render_batch, supports
from holdfast.store import Run

PIECE = 48 << 20
"""Bytes of shared memory for a unit: image, mask and background of 32 pictures of 500 × 375 need 42 million."""

SWITCH = 0.0005
"""Seconds that the thread which makes rows may keep the interpreter while the one that drives the device wants it."""

Item = TypeVar("Item")

WORTH_COMPILING = 50_000
"""Pictures a model: below that, compiling takes longer than it saves."""


class Watch:
    """Seconds of the host by what it did with them; planning is a part of waiting for pictures, too."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.times: dict[str, float] = {}

    def note(self, what: str, seconds: float) -> None:
        """Add some."""
        self.times[what] = self.times.get(what, 0.0) + seconds

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Those of a block."""
        start = time.perf_counter()
        yield
        self.note(what, time.perf_counter() - start)

    def each(self, what: str, items: Iterable[Item]) -> Iterator[Item]:
        """Those that are spent on finding the next item."""
        start = time.perf_counter()
        for item in items:
            self.note(what, time.perf_counter() - start)
            yield item
            start = time.perf_counter()
        self.note(what, time.perf_counter() - start)


class OnePass:
    """The fast way of one run: which models and conditions take it, their networks, and the pass itself."""

    def __init__(self, spec: EvaluateSpec, collection: Collection, conditions: Sequence[Condition], run: Run) -> None:
        self.spec, self.run = spec, run
        self.device = resolve_device(spec.device)
        self.portion: Portion | None = None
        self._networks: dict[int, Network] = {}
        self._tested: list[Tested] = []
        self._reasons: list[str] = []
        self._told = False
        pictures = len(collection) * sum(map(supports, conditions))
        by_itself = self.device.startswith("cuda") and pictures >= WORTH_COMPILING
        self._compiles = by_itself if spec.compile is None else spec.compile
        self._warming: Warming | None = None
        if self._compiles and self.device.startswith("cuda") and len(spec.models) > 1:
            self._warming = Warming(spec.models, self.device, collection.classes, spec.batch_size)

    def close(self) -> None:
        """Let go of processes that are no longer needed."""
        if self._warming is not None:
            self._warming.close()

    def try_out(self, tested: Sequence[Tested]) -> list[Tested]:
        """The models, those that cannot go this way named as exact ones."""
        made = []
        for position, model in enumerate(tested):
            reason = "" if model.fast else "its preparation is not plain resizing, cropping and normalising"
            if model.fast and isinstance(model.classifier, TorchClassifier):
                try:
                    self._networks[position] = networks.build(model.classifier, self.spec.batch_size)
                except Exception as error:  # whatever it is, the ordinary way is there
                    reason = first_line(error)
            if reason:
                self._reasons.append(f"{model.classifier.name} goes the ordinary way: {reason}")
            made.append(replace(model, fast="") if reason else model)
        self._tested = made
        return made

    def split(self, conditions: tuple[Condition, ...], summary: Summary) -> list[Portion]:
        """What goes this way, then what goes the ordinary one."""
        here = tuple(one for one in conditions if supports(one))
        rest = tuple(one for one in conditions if not supports(one))
        fast = tuple(self._networks)
        others = tuple(position for position in range(len(self._tested)) if position not in self._networks)
        self.portion = Portion(here, fast, conditions)
        self._tell(here, rest, summary)
        portions = [self.portion] if fast else []
        if fast and rest:
            portions.append(Portion(rest, fast, conditions, renderings=False))
        if others:
            portions.append(Portion(conditions, others, conditions))
        return portions

    def _tell(self, here: Sequence[Condition], rest: Sequence[Condition], summary: Summary) -> None:
        summary.notes += [] if self._told else self._reasons
        self._told = True
        if rest and self._networks:
            names = ", ".join(one.name for one in rest)
            summary.notes.append(f"{len(here)} conditions in one pass; the ordinary way: {names}")

    def work(self, plan: Plan) -> Iterator[Summary]:
        """Do what a plan owes; a summary for each part file."""
        if not plan.owed:
            return
        watch = Watch()
        conditions = list(dict.fromkeys((*plan.portion.conditions, Condition(ORIGINAL))))
        expected: deque[tuple[Unit, Chunk]] = deque()
        cuda = self.device.startswith("cuda")
        processes, sizes = _processes(self.spec, cuda), _sizes(plan)
        units = watch.each("planning", self._units(plan, conditions, expected, _unit_size(sizes)))
        decoder = Decoder(conditions, self.spec.max_pixels)
        switching = sys.getswitchinterval()
        with ExitStack() as ending:
            ending.callback(sys.setswitchinterval, switching)
            recording = Recording.of(self.spec, plan, self._tested, conditions, self.run)
            writer = Writer(recording, plan, apart=processes > 0)
            ending.callback(writer.close)
            arrival = Arrival(units, decoder, processes=processes, piece=PIECE, gpu=cuda)
            ending.callback(arrival.close)
            sys.setswitchinterval(SWITCH)
            # While the first images are decoded, and other processes compile networks.
            compiled, notes = self._compiled(conditions, sizes)
            notes += self._make_ready(plan.portion.positions)
            ready = time.perf_counter()
            watch.note("ready", ready - watch.start)
            flow = self._flow(plan, conditions, compiled)
            for facts, groups, release in watch.each("waiting for pictures", arrival):
                with watch("handing over"):
                    while expected:
                        flow.expect(*expected.popleft())
                    flow.receive(facts, groups, release)
                yield from watch.each("writing", _written(flow, writer))
            watch.note("waiting for answers", flow.waited)
            with watch("the last answers"):
                flow.finish()
            yield from watch.each("the last rows", _written(flow, writer, everything=True))
        watch.note("pass", time.perf_counter() - ready)
        yield Summary(notes=notes, times=watch.times)

    def _units(
        self, plan: Plan, conditions: Sequence[Condition], expected: deque[tuple[Unit, Chunk]], size: int
    ) -> Iterator[Unit]:
        """The work of decoding, made as it is asked for; what its rows are is remembered here."""
        place_of = {condition: place for place, condition in enumerate(conditions)}
        for number, jobs in enumerate(plan.shards(size, named=False)):
            wanted = [(job.sample, [place_of[condition] for condition, _ in job.owed]) for job in jobs]
            unit = unit_of(number, wanted, conditions, plan.prepared.pool, self.spec.seed)
            expected.append((unit, Chunk(jobs, conditions, plan.portion.positions)))
            yield unit

    def _flow(self, plan: Plan, conditions: Sequence[Condition], compiled: Compiled | None) -> Flow:
        subjects = [
            Subject(self._networks[position], Groups.of(self._tested[position].labels, self.device))
            for position in plan.portion.positions
        ]
        classes, pool = plan.prepared.collection.classes, plan.prepared.pool
        return Flow(self.spec, self.device, conditions, subjects, classes, pool, compiled)

    def _compiled(
        self, conditions: Sequence[Condition], sizes: Sequence[tuple[int, int]]
    ) -> tuple[Compiled | None, list[str]]:
        """The arithmetic of scenarios compiled for the size that most images have, and why it is not."""
        if not (self._compiles and self.device.startswith("cuda") and sizes):
            return None, []
        (height, width), _ = Counter(sizes).most_common(1)[0]
        made, reason = compile_for(render_batch, conditions, (at_once(height, width), 3, height, width), self.device)
        return made, [f"scenarios are not compiled: {reason}"] if reason else []

    def _make_ready(self, positions: Sequence[int]) -> list[str]:
        """Fit the networks into memory, and compile them where that is wanted, in the order they are warm."""
        new = {self.spec.models[one]: one for one in positions if not self._networks[one].ready}
        notes = []
        for name in self._warming.in_turn(list(new)) if self._warming is not None else new:
            network, model = self._networks[new[name]], self._tested[new[name]].classifier.name
            if self.device.startswith("cuda"):
                networks.fit(network)
            if self._compiles:
                reason = networks.compile_network(network)
                notes += [f"{model} is not compiled: {reason}"] if reason else []
            network.ready = True
        return notes


def _written(flow: Flow, writer: Writer, *, everything: bool = False) -> Iterator[Summary]:
    for chunk in flow.finished():
        writer.add(chunk)
    yield from writer.done(everything=everything)


def _processes(spec: EvaluateSpec, cuda: bool) -> int:
    """That decode: ``--workers``; on a GPU one a core where nothing is said, elsewhere none but this one."""
    if spec.workers > 1:
        return spec.workers
    return core_count() if cuda or spec.workers == 0 else 0


def _sizes(plan: Plan) -> list[tuple[int, int]]:
    """Height and width of a few images."""
    samples = plan.prepared.collection.samples
    sizes = []
    for sample in samples[:: max(1, len(samples) // 8)][:8]:
        try:
            height, width = sample.image.load().shape[:2]
        except SampleError:
            continue
        sizes.append((int(height), int(width)))
    return sizes


def _unit_size(sizes: Sequence[tuple[int, int]]) -> int:
    """Samples that are decoded together: a quarter of those that are rendered together."""
    if not sizes:
        return MOST // 4
    height, width = (int(np.mean([size[axis] for size in sizes])) for axis in (0, 1))
    return max(4, at_once(height, width) // 4)
