"""``eval --fast`` with detectors: photos are decoded by processes, rendered on the device, and looked at there.

Threads ask the detectors: while one of them waits for the device, another takes out double boxes and makes rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import SampleError
from holdfast.core.lazy import torch
from holdfast.core.objects import Detections
from holdfast.pipeline.evaluate.detector_worker import TRUTH, Detection
from holdfast.pipeline.evaluate.matching import shown_objects
from holdfast.pipeline.evaluate.worker import RELEASED, Loaded, ReadyRendering, WaitingRow
from holdfast.pipeline.evaluation_rows import DETAILS, EvaluationJob, stored_details
from holdfast.pipeline.fast import decoding
from holdfast.pipeline.fast.decoding import Arrival, Crew, Decoder, Facts, Group, Unit, unit_of
from holdfast.pipeline.fast.device_pass import PIECE, decoding_processes
from holdfast.pipeline.fast.flow import at_once
from holdfast.pipeline.jobs.execute import Row
from holdfast.pipeline.samples import Rendering
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import render_batch

if TYPE_CHECKING:
    from torch import Tensor

UNIT = 16
"""Photos that are decoded together."""

THREADS = 2
"""Batches that a GPU is asked about at the same time, each on a stream of its own."""

Owed = dict[Condition, list[tuple[int, str]]]
"""By condition: the positions of models and the ids of their rows."""


class FastDetection(Detection):
    """The worker: ``Detection`` with pictures that never leave the device."""

    def _undetailed(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[Row]:
        self._device = str(resources.tested[jobs[0].parts[0][1]].model.device)
        self._cuda = self._device.startswith("cuda")
        self._pending: deque[Future[list[Row]]] = deque()
        with ThreadPoolExecutor(THREADS if self._cuda else 1) as self._threads:
            yield from super()._undetailed(resources, jobs)
            while self._pending:
                yield from self._pending.popleft().result()

    def _answered(self, resources: Loaded, position: int, batch: Sequence[WaitingRow]) -> Iterator[Row]:
        """Ask about a batch in a thread; yield the rows of earlier ones."""
        self._pending.append(self._threads.submit(self._in_thread, resources, position, batch))
        while len(self._pending) > THREADS:
            yield from self._pending.popleft().result()

    def _in_thread(self, resources: Loaded, position: int, batch: Sequence[WaitingRow]) -> list[Row]:
        stream: Any = torch.cuda.Stream(self._device) if self._cuda else None  # type: ignore[no-untyped-call]
        if stream is not None:
            stream.wait_stream(torch.cuda.default_stream(torch.device(self._device)))
        with torch.cuda.stream(stream) if stream is not None else nullcontext():
            return list(super()._answered(resources, position, batch))

    def _detected(self, model: Any, images: list[Any]) -> list[Detections]:
        answers: list[Detections] = []
        for _, alike in groupby(images, key=lambda picture: picture.shape):
            answers += model.detect_tensors(torch.stack(list(alike)))
        return answers

    def _ahead(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[ReadyRendering]:
        """Yield rendered pictures as tensors CHW uint8 on the device, in the order in which photos are decoded."""
        conditions = list(dict.fromkeys(condition for job in jobs for condition, _ in job.parts))
        decoder = Decoder(conditions, self.spec.max_pixels)
        expected: dict[int, tuple[Unit, Sequence[EvaluationJob]]] = {}

        def units() -> Iterator[Unit]:
            for number, start in enumerate(range(0, len(jobs), UNIT)):
                some = jobs[start : start + UNIT]
                wanted = [(job.item, [conditions.index(condition) for condition in _owed(job)]) for job in some]
                unit = unit_of(number, wanted, conditions, self.prepared.pool, self.spec.seed)
                expected[number] = unit, some
                yield unit

        with ExitStack() as ending:
            processes = decoding_processes(self.spec, self._cuda)
            crew = Crew(decoder, processes=processes, piece=PIECE, gpu=self._cuda) if processes else None
            if crew is not None:
                ending.callback(crew.close)
            arrival = Arrival(units(), decoder, crew)
            ending.callback(arrival.close)
            for facts, groups, release in arrival:
                unit, some = expected.pop(facts.number)
                for group in groups:
                    self._settle(facts, unit, group, conditions)
                for place, number, status, reason in facts.failed:
                    rendering = Rendering(
                        conditions[number], None, error=reason, skipped=status == "skipped",
                        rejected=status == "rejected",
                    )  # fmt: skip
                    yield self._prepared(resources, some[place], rendering, _owed(some[place])[conditions[number]])
                failed = {(place, number) for place, number, _, _ in facts.failed}
                for group in groups:
                    yield from self._shown(resources, group, facts, failed, some, conditions)
                release()

    def _settle(self, facts: Facts, unit: Unit, group: Group, conditions: Sequence[Condition]) -> None:
        """Find a donor later in the pool for photos whose first donors cannot be read."""
        for place in set(group.places).intersection(facts.undecided):
            order = unit.orders[place]
            try:
                background, facts.donors[place] = decoding.settle(
                    order, self.prepared.pool, self.spec.seed, group.images.shape[1:]
                )
                group.backgrounds[group.places.index(place)] = background
            except SampleError as error:
                facts.failed += [
                    (place, number, "error", str(error))
                    for number in order.conditions
                    if conditions[number].definition.donor
                ]

    def _shown(
        self,
        resources: Loaded,
        group: Group,
        facts: Facts,
        failed: set[tuple[int, int]],
        jobs: Sequence[EvaluationJob],
        conditions: Sequence[Condition],
    ) -> Iterator[ReadyRendering]:
        """Render photos of one size, some at a time, and yield each under every condition that has a picture."""
        size = int(group.images.shape[1]), int(group.images.shape[2])
        for start in range(0, len(group.places), at_once(*size)):
            part = slice(start, start + at_once(*size))
            places = group.places[part]
            images, masks, backgrounds = (
                torch.from_numpy(array[part]).to(self._device)
                for array in (group.images, group.masks, group.backgrounds)
            )
            owed = [_owed(jobs[place]) for place in places]
            wanted = [condition for condition in conditions if any(condition in own for own in owed)]
            with torch.no_grad():
                rendered = render_batch(
                    wanted, _channels_first(images), masks, sample_ids=[jobs[place].item.sample_id for place in places],
                    seed=self.spec.seed, donors=_channels_first(backgrounds), matte=self.spec.matte,
                )  # fmt: skip
            for row, place in enumerate(places):
                # None of these conditions moves an object or takes one out.
                try:
                    truth, reason = shown_objects(jobs[place].item, Rendering(wanted[0], None), size, None), ""
                except SampleError as error:
                    truth, reason = [], str(error)
                for condition in wanted:
                    if condition not in owed[row] or (place, conditions.index(condition)) in failed:
                        continue
                    if reason:
                        broken = Rendering(condition, None, error=reason)
                        yield self._prepared(resources, jobs[place], broken, owed[row][condition])
                        continue
                    ready = ReadyRendering(jobs[place], Rendering(condition, RELEASED), owed[row][condition])
                    details = stored_details(jobs[place].item)
                    details |= facts.donors.get(place, {}) if condition.definition.donor else {}
                    ready.facts = {name: details.get(name) for name in DETAILS} | {TRUTH: truth}
                    ready.prepared = [rendered[condition][row]] * len(ready.owed)
                    yield ready


def _owed(job: EvaluationJob) -> Owed:
    owed: Owed = {}
    for (condition, position), row_id in zip(job.parts, job.ids, strict=True):
        owed.setdefault(condition, []).append((position, row_id))
    return owed


def _channels_first(images: Tensor) -> Tensor:
    return images.permute(0, 3, 1, 2).contiguous()
