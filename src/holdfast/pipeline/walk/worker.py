"""Walks samples against models: what a process loads for it, and the rows it makes."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, SampleError, raise_machine_trouble, stop_or_sentence
from holdfast.core.fingerprint import canonical_json, seed_from
from holdfast.core.types import Collection, Sample
from holdfast.engine import core_count
from holdfast.pipeline.classifiers import Tested
from holdfast.pipeline.jobs.execute import Row, check_same
from holdfast.pipeline.walk.distances import FeatureDistance, feature_distance
from holdfast.pipeline.walk.resources import PerturbSpec, WalkSetting, load_setting, load_tested, square
from holdfast.pipeline.walk.rows import NO_WALK, FinishedWalk, WalkJob, WalkRecorder
from holdfast.pipeline.walk.walk import WalkInput, WalkOptions, WalkResult, walk_with
from holdfast.pipeline.walk.walk_model import UnderTest
from holdfast.pipeline.walk.walk_step import Stepper

_SECONDS_TOGETHER = 20.0
"""How long finished walks wait for others, to be shown to the model in one batch."""


@dataclass
class WalkResources:
    """What a process walks with: generator and oracle, and the models by their place in the specification.

    Attributes:
        setting: generator and oracle.
        distance: between images, in the oracle's features.
        tested: the models that are loaded.
        stepper: the last one, with its model and whether it walks a baseline: compiling takes long.
    """

    setting: WalkSetting
    distance: FeatureDistance | None
    tested: dict[int, Tested] = field(default_factory=dict)
    stepper: tuple[tuple[int, bool], Stepper] | None = None

    @classmethod
    def of(cls, setting: WalkSetting, tested: Sequence[Tested] = ()) -> WalkResources:
        """Return the resources of loaded parts."""
        return cls(setting, feature_distance(setting.oracle, setting.size), dict(enumerate(tested)))


class WalkWorker:
    """Walks samples; loads models one after the other, as jobs come model by model."""

    def __init__(
        self,
        spec: PerturbSpec,
        collection: Collection,
        run: Path,
        frames: frozenset[str],
        known: WalkResources,
        pictured: frozenset[str] = frozenset(),
    ) -> None:
        self.name = f"{spec.generator} or {spec.oracle}"
        self.spec = replace(spec, size=known.setting.size)  # else it would follow from the first image
        self.run_path, self.frames, self.pictured = run, frames, pictured
        self.collection = replace(collection, samples=(), problems=())
        self.classes = {name: place for place, name in enumerate(collection.classes)}
        self._expected = [model.fingerprint for model in known.tested.values()]

    def load(self) -> WalkResources:
        """Load generator and oracle."""
        return WalkResources.of(load_setting(self.spec, self.collection))

    def fingerprints(self, resources: WalkResources) -> list[str]:
        """Return what row ids depend on, besides the models, each of which is checked when it is loaded."""
        return [canonical_json(resources.setting.parameters)]

    def run(self, resources: WalkResources, jobs: Sequence[WalkJob]) -> Iterator[Row]:
        """Yield the rows that walks owe, model by model."""
        recorder = WalkRecorder(
            self.spec, self.collection.name, resources.setting, self.run_path, resources.distance, self.pictured
        )
        for (place, baseline), alike in itertools.groupby(jobs, key=lambda job: (job.item.model, job.item.baseline)):
            model = self._tested(resources, place)
            on_the_way: dict[str, tuple[WalkInput, FinishedWalk]] = {}
            finished: list[FinishedWalk] = []
            start = time.monotonic()
            walkers = self._walkers(resources, list(alike), on_the_way, finished)
            stepper = self._stepper(resources, model, place, baseline)
            for walked in self._surviving(stepper, walkers, on_the_way, finished, baseline=baseline):
                walk = on_the_way.pop(walked.key)[1]
                walk.walked = walked
                finished.append(walk)
                if len(finished) >= 4 * self.spec.walk.batch_size or time.monotonic() - start > _SECONDS_TOGETHER:
                    yield from recorder.rows(model, finished)
                    finished.clear()
                    start = time.monotonic()
            yield from recorder.rows(model, finished)

    def _tested(self, resources: WalkResources, place: int) -> Tested:
        """Return a model; load it if needed and let go of those before it."""
        if place not in resources.tested:
            resources.tested.clear()
            resources.stepper = None
            name = self.spec.models[place]
            (model,) = load_tested(replace(self.spec, models=(name,)), self.collection)
            check_same(name, self._expected[place], model.fingerprint)
            resources.tested[place] = model
        return resources.tested[place]

    def _options(self, baseline: bool) -> WalkOptions:
        given = self.spec.walk
        return replace(given, direction="random", stop_when_fooled=False) if baseline else given

    def _stepper(self, resources: WalkResources, model: Tested, place: int, baseline: bool) -> Stepper:
        if resources.stepper is None or resources.stepper[0] != (place, baseline):
            setting = resources.setting
            under = UnderTest(model.classifier, model.labels, setting.loss_space)
            stepper = Stepper(setting.generator, under, setting.oracle, self._options(baseline), setting.mask)
            resources.stepper = (place, baseline), stepper
        return resources.stepper[1]

    def _surviving(
        self,
        stepper: Stepper,
        walkers: Iterator[WalkInput],
        on_the_way: dict[str, tuple[WalkInput, FinishedWalk]],
        finished: list[FinishedWalk],
        *,
        baseline: bool,
    ) -> Iterator[WalkResult]:
        """Yield the walks; after a failure, repeat those under way one by one to find the image that fails."""
        frames, latents = () if baseline else self.frames, self.spec.keep_latents and not baseline

        def walked(some: Iterable[WalkInput]) -> Iterator[WalkResult]:
            return walk_with(stepper, some, self._options(baseline), frames=frames, latents=latents)

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

    def _walkers(
        self,
        resources: WalkResources,
        jobs: Sequence[WalkJob],
        on_the_way: dict[str, tuple[WalkInput, FinishedWalk]],
        finished: list[FinishedWalk],
    ) -> Iterator[WalkInput]:
        """Yield images to walk, decoded ahead in threads; those that cannot walk are finished before they start."""
        size = resources.setting.size

        def decoded(sample: Sample) -> Any:
            return square(sample.image.load(max_pixels=self.spec.max_pixels), size)

        lost = [job for job in jobs if job.item.baseline and job.item.steps is None]
        finished += [FinishedWalk(job, error=NO_WALK, status="skipped") for job in lost]
        waiting = (job for job in jobs if not job.item.baseline or job.item.steps is not None)
        queue: deque[tuple[WalkJob, Future[Any]]] = deque()
        with ThreadPoolExecutor(core_count()) as threads:
            while True:
                more = itertools.islice(waiting, 2 * core_count() - len(queue))
                queue.extend((job, threads.submit(decoded, job.item.sample)) for job in more)
                if not queue:
                    return
                job, future = queue.popleft()
                sample, steps = job.item.sample, job.item.steps
                try:
                    image = future.result()
                except SampleError as error:
                    finished.append(FinishedWalk(job, error=str(error)))
                    continue
                budget = self.spec.walk.steps if steps is None else steps
                # The same for every model, so that all meet the same random directions.
                seed = seed_from(self.spec.seed, sample.sample_id, "walk")
                walker = WalkInput(sample.sample_id, image, self.classes[sample.label], seed, steps)
                on_the_way[sample.sample_id] = walker, FinishedWalk(job, image, budget=budget)
                yield walker
