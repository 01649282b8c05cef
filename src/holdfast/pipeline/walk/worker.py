"""The work of walking: what a process needs for its walks against a model, and what it writes of them."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.errors import HoldfastError, SampleError, raise_machine_trouble, stop_or_sentence
from holdfast.core.types import Sample
from holdfast.engine import core_count
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.evaluate.models import Tested
from holdfast.pipeline.jobs.sharding import check_same
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared
from holdfast.pipeline.walk.distances import feature_distance
from holdfast.pipeline.walk.resources import PerturbSpec, load_setting, load_tested, square
from holdfast.pipeline.walk.rows import RANDOM_WALK, WALK_CONDITIONS, FinishedWalk, WalkRecorder
from holdfast.pipeline.walk.walk import WalkInput, WalkOptions, WalkResult, walk_with
from holdfast.pipeline.walk.walk_model import UnderTest
from holdfast.pipeline.walk.walk_step import Stepper
from holdfast.store import Run

_SECONDS_A_PART = 20.0
"""What a kill may cost at most, besides the walks that are under way."""

Part = tuple[int, Summary]
"""Samples that have gone their way, and the rows that were written of them."""


@dataclass(frozen=True)
class WalkShard:
    """Samples that walk against one model.

    Attributes:
        model: its place in the specification.
        jobs: each sample, and how many steps it may go; None: as many as the options say.
        images: fingerprints of their images, by sample.
        baseline: whether the walks are random ones, as long as those before.
        stored: rows of theirs that are there already.
    """

    model: int
    jobs: tuple[tuple[Sample, int | None], ...]
    images: dict[str, str]
    baseline: bool = False
    stored: frozenset[str] = frozenset()

    def cut(self, size: int) -> Iterator[WalkShard]:
        """Yield the same samples in shards of ``size``."""
        for start in range(0, len(self.jobs), size):
            jobs = self.jobs[start : start + size]
            images = {sample.sample_id: self.images[sample.sample_id] for sample, _ in jobs}
            yield replace(self, jobs=jobs, images=images)


class WalkWorker:
    """Walks shards and writes what they leave.

    Travels to other processes without generator, oracle and models, which are loaded there on first use.
    """

    def __init__(
        self, spec: PerturbSpec, recorder: WalkRecorder, tested: Sequence[Tested], frames: frozenset[str]
    ) -> None:
        collection = recorder.prepared.collection
        self.spec = replace(spec, size=recorder.setting.size)  # else it would follow from the first image
        self.frames = frames
        self.run = recorder.run.path.absolute()
        self.classes = {name: place for place, name in enumerate(collection.classes)}
        self._bare = Prepared(replace(collection, samples=()), {}, {}, {}, DonorPool([]), "")
        self._parameters = recorder.setting.parameters
        self._fingerprints = [model.fingerprint for model in tested]
        self._recorder: WalkRecorder | None = recorder
        self._tested = dict(enumerate(tested))
        self._joined: tuple[tuple[int, bool], Stepper] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recorder": None, "_tested": {}, "_joined": None}

    def __call__(self, shard: WalkShard) -> Part:
        """Walk a shard and write one part of each table, named after its rows: doing it twice leaves the same."""
        self.recorder.prepared = replace(self._bare, images=shard.images)
        self.recorder.stored = set(shard.stored)
        done, summary = 0, Summary()
        for samples, part in self.parts(shard, whole=True):
            done += samples
            summary.merge(part)
        return done, summary

    @property
    def recorder(self) -> WalkRecorder:
        """Return the recorder; load generator and oracle where they are not loaded."""
        if self._recorder is None:
            setting = load_setting(self.spec, self._bare.collection)
            check_same(f"{self.spec.generator} or {self.spec.oracle}", self._parameters, setting.parameters)
            distance = feature_distance(setting.oracle, setting.size)
            self._recorder = WalkRecorder(self.spec, self._bare, setting, Run(self.run), distance)
        return self._recorder

    def tested(self, place: int) -> Tested:
        """Return a model; load it if needed and let go of those before it, as shards come model by model."""
        if place not in self._tested:
            self._tested.clear()
            self._joined = None
            name = self.spec.models[place]
            (model,) = load_tested(replace(self.spec, models=(name,)), self._bare.collection)
            check_same(name, self._fingerprints[place], model.fingerprint)
            self._tested[place] = model
        return self._tested[place]

    def parts(self, walks: WalkShard, *, whole: bool = False) -> Iterator[Part]:
        """Walk these samples and write what is finished, part by part, or all of it at the end."""
        if not walks.jobs:
            return
        on_the_way: dict[str, tuple[WalkInput, FinishedWalk]] = {}
        finished: list[FinishedWalk] = []
        written = time.monotonic()
        walkers = self._walkers(walks.jobs, on_the_way, finished)
        for walked in self._surviving(walks, walkers, on_the_way, finished):
            walk = on_the_way.pop(walked.key)[1]
            walk.walked = walked
            finished.append(walk)
            full = len(finished) >= 4 * self.spec.walk.batch_size or time.monotonic() - written > _SECONDS_A_PART
            if full and not whole:
                yield self._write(walks, finished)
                finished.clear()
                written = time.monotonic()
        if finished:
            yield self._write(walks, finished)

    def _options(self, walks: WalkShard) -> WalkOptions:
        given = self.spec.walk
        return replace(given, direction="random", stop_when_fooled=False) if walks.baseline else given

    def _stepper(self, walks: WalkShard) -> Stepper:
        """Return the stepper of a model, kept from shard to shard: compiling takes long."""
        key = walks.model, walks.baseline
        if self._joined is None or self._joined[0] != key:
            model, setting = self.tested(walks.model), self.recorder.setting
            under = UnderTest(model.classifier, model.labels, setting.loss_space)
            self._joined = key, Stepper(setting.generator, under, setting.oracle, self._options(walks), setting.mask)
        return self._joined[1]

    def _surviving(
        self,
        walks: WalkShard,
        walkers: Iterator[WalkInput],
        on_the_way: dict[str, tuple[WalkInput, FinishedWalk]],
        finished: list[FinishedWalk],
    ) -> Iterator[WalkResult]:
        """Yield the walks; after a failure, repeat those under way one by one to find the image that fails."""
        options, main = self._options(walks), not walks.baseline
        stepper = self._stepper(walks)

        def walked(some: Iterable[WalkInput]) -> Iterator[WalkResult]:
            return walk_with(
                stepper, some, options, frames=self.frames if main else (), latents=self.spec.keep_latents and main
            )

        while True:
            try:
                yield from walked(walkers)
                return
            except HoldfastError:
                raise
            except Exception as error:
                raise_machine_trouble(error)
                alone = [walker for walker, _ in on_the_way.values()]
            for walker in alone:
                try:
                    yield from walked([walker])
                except Exception as error:
                    walk = on_the_way.pop(walker.key)[1]
                    walk.error = stop_or_sentence(error)
                    finished.append(walk)

    def _write(self, walks: WalkShard, finished: Sequence[FinishedWalk]) -> Part:
        conditions = [RANDOM_WALK] if walks.baseline else WALK_CONDITIONS
        rows = self.recorder.write(self.tested(walks.model), finished, conditions)
        summary = Summary(len(rows))
        for row in rows:
            if row["status"] == "error":
                summary.add(row["sample_id"], f"{row['condition']}: {row['error']}")
                summary.errors += 1
        return len({row["sample_id"] for row in rows}), summary

    def _walkers(
        self,
        jobs: Sequence[tuple[Sample, int | None]],
        on_the_way: dict[str, tuple[WalkInput, FinishedWalk]],
        finished: list[FinishedWalk],
    ) -> Iterator[WalkInput]:
        """Yield images to walk, decoded ahead in threads; unreadable ones are finished before they start."""

        def decoded(sample: Sample) -> Any:
            return square(sample.image.load(max_pixels=self.spec.max_pixels), self.recorder.setting.size)

        ahead = 2 * core_count()
        queue: deque[tuple[Sample, int | None, Future[Any]]] = deque()
        waiting = iter(jobs)
        with ThreadPoolExecutor(core_count()) as threads:
            while True:
                queue.extend(
                    (sample, steps, threads.submit(decoded, sample))
                    for sample, steps in itertools.islice(waiting, ahead - len(queue))
                )
                if not queue:
                    return
                sample, steps, future = queue.popleft()
                try:
                    image = future.result()
                except SampleError as error:
                    finished.append(FinishedWalk(sample, error=str(error)))
                    continue
                budget = self.spec.walk.steps if steps is None else steps
                seed = self.recorder.seed(sample)
                walker = WalkInput(sample.sample_id, image, self.classes[sample.label], seed, steps)
                on_the_way[sample.sample_id] = walker, FinishedWalk(sample, image, budget=budget)
                yield walker
