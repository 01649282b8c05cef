"""The work on the device: images are gathered by size, rendered, resized per model, and answered in batches.

The host runs ahead of a GPU: it only hands over work, and looks at answers when they have arrived by themselves.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError
from holdfast.core.lazy import torch
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.fast import answers, decoding
from holdfast.pipeline.fast.decoding import Facts, Group, Unit
from holdfast.pipeline.fast.networks import Network, blank
from holdfast.pipeline.fast.rows import Chunk
from holdfast.pipeline.jobs.rows import answer_each
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import Call, at_once, on_device, plain, render_batch

HELD = 1024  # images of all sizes that may wait for others of their size
IN_FLIGHT = 24  # batches whose answers have not arrived yet, at most
READING = 4  # uploads that may be under way while the next unit is taken
STRIDE = 1 << 32  # A row's number is its chunk's number times this, plus its place in the chunk


@dataclass
class Subject:
    """A network, its label map as tensors, and the images that wait for a full batch."""

    network: Network
    groups: answers.Groups
    waiting: deque[tuple[torch.Tensor, torch.Tensor, NDArray[np.int64]]] = field(
        default_factory=deque
    )  # images, truths, rows
    count: int = 0


@dataclass
class _Gathered:
    """Images of one size and one chunk, on the device: NHWC, NHW, NHWC."""

    number: int
    places: list[int]
    images: torch.Tensor
    masks: torch.Tensor
    backgrounds: torch.Tensor


class Uploads:
    """Copies of decoded images to a device, in parallel with its work; on a CPU they are made at once."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._stream: Any = _upload_stream(device) if device.startswith("cuda") else None
        self._reading: deque[tuple[Any, Callable[[], None]]] = deque()
        self.waited = 0.0  # seconds, for uploads, or for what its owner waits for

    def move(self, arrays: Sequence[NDArray[Any]]) -> list[torch.Tensor]:
        """Return the arrays on the device; they may still be on their way."""
        tensors = [torch.from_numpy(array) for array in arrays]
        if self._stream is None:
            return [tensor.to(self._device, copy=True) for tensor in tensors]
        with torch.cuda.stream(self._stream):
            moved = [tensor.to(self._device, non_blocking=True) for tensor in tensors]
        for tensor in moved:
            tensor.record_stream(torch.cuda.current_stream(self._device))
        return moved

    def release(self, release: Callable[[], None]) -> None:
        """Call ``release`` when the device has read what was moved last; what comes now waits for it."""
        if self._stream is None:
            release()
            return
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        self._reading.append((self._stream.record_event(), release))
        while self._reading and (len(self._reading) > READING or self._reading[0][0].query()):
            self._give_back()

    def finish(self) -> None:
        """Wait until everything has arrived."""
        while self._reading:
            self._give_back()

    def wait(self, event: Any) -> None:
        """Wait for an event of the device, and count the time."""
        start = time.perf_counter()
        event.synchronize()
        self.waited += time.perf_counter() - start

    def _give_back(self) -> None:
        event, release = self._reading.popleft()
        self.wait(event)
        release()


class Flow:
    """The work under way on one device."""

    def __init__(
        self,
        spec: EvaluateSpec,
        device: str,
        conditions: Sequence[Condition],
        subjects: Sequence[Subject],
        classes: Sequence[str],
        pool: DonorPool,
        call: Call = plain,
    ) -> None:
        self._spec, self._device, self._conditions, self._pool = spec, device, list(conditions), pool
        self._subjects, self._call = subjects, call
        self._truth_of = {label: place for place, label in enumerate(classes)}
        self._chunks: dict[int, tuple[Unit, Chunk]] = {}
        self._by_size: dict[tuple[int, int], list[_Gathered]] = {}
        self._answers: deque[tuple[Any, torch.Tensor, NDArray[np.int64]]] = deque()
        self._finished: list[Chunk] = []
        self._cuda = device.startswith("cuda")
        self._uploads = Uploads(device)

    @property
    def waited(self) -> float:
        """Return the seconds spent waiting for answers or for uploads."""
        return self._uploads.waited

    def expect(self, unit: Unit, chunk: Chunk) -> None:
        """Expect the images of this unit."""
        self._chunks[unit.number] = unit, chunk

    def receive(self, facts: Facts, groups: Sequence[Group], release: Callable[[], None]) -> None:
        """Take decoded images, and give the device those of which there are enough."""
        # ``release`` is called when the arrays of the groups are no longer needed.
        unit, chunk = self._chunks[facts.number]
        decoding.settle(facts, unit, groups, self._conditions, self._pool, self._spec.seed)
        for place, condition, status, reason in facts.failed:
            chunk.fail(place, condition, status, reason)
        chunk.donors.update(facts.donors)
        sizes = []
        for group in groups:
            if (chunk.slots[group.places] < 0).all():  # every missing condition needs a donor, and there is none
                continue
            size = int(group.images.shape[1]), int(group.images.shape[2])
            moved = self._uploads.move((group.images, group.masks, group.backgrounds))
            self._by_size.setdefault(size, []).append(_Gathered(facts.number, list(group.places), *moved))
            sizes.append(size)
        self._uploads.release(release)
        for size in sizes:
            if _count(self._by_size[size]) >= at_once(*size):
                self._render(size)
        while sum(map(_count, self._by_size.values())) > HELD:
            self._render(max(self._by_size, key=lambda size: _count(self._by_size[size])))
        self._finish(facts.number)
        self.drain()

    def finish(self) -> None:
        """End the work: fill batches up, wait for all answers, and release all memory."""
        for size in list(self._by_size):
            self._render(size)
        for subject in self._subjects:
            if subject.count:
                self._answer(subject)
        self.drain(everything=True)
        self._uploads.finish()

    def finished(self) -> Iterator[Chunk]:
        """Yield the chunks that have become complete."""
        done, self._finished = self._finished, []
        yield from done

    def drain(self, *, everything: bool = False) -> None:
        """Take the answers that have arrived; wait if too many have not."""
        while self._answers:
            event, packed, rows = self._answers[0]
            if event is not None:
                if everything or len(self._answers) > IN_FLIGHT:
                    self._uploads.wait(event)
                elif not event.query():
                    return
            self._answers.popleft()
            for number, places, chosen in self._by_chunk(rows):
                self._chunks[number][1].answer(places, packed.numpy()[chosen])
                self._finish(number)

    def _finish(self, number: int) -> None:
        if number in self._chunks and self._chunks[number][1].left == 0:
            self._finished.append(self._chunks.pop(number)[1])

    def _render(self, size: tuple[int, int]) -> None:
        """Render all gathered images of a size, some at a time."""
        gathered = self._by_size.pop(size)
        parts = ([getattr(group, name) for group in gathered] for name in ("images", "masks", "backgrounds"))
        images, masks, backgrounds = (torch.cat(part) if len(part) > 1 else part[0] for part in parts)
        origins = [(group.number, place) for group in gathered for place in group.places]
        step = at_once(*size)
        for start in range(0, len(origins), step):
            part = slice(start, start + step)
            self._show(origins[part], channels_first(images[part]), channels_first(backgrounds[part]), masks[part])

    def _show(
        self, origins: Sequence[tuple[int, int]], images: torch.Tensor, backgrounds: torch.Tensor, masks: torch.Tensor
    ) -> None:
        """Render images under the conditions that they are wanted under, and queue them for the networks."""
        samples = [self._chunks[number][1].samples[place] for number, place in origins]
        slots = np.stack([self._chunks[number][1].slots[place] for number, place in origins])
        firsts = STRIDE * np.array([number for number, _ in origins], np.int64)[:, None, None]
        rows = np.where(slots >= 0, slots + firsts, -1)
        wanted = np.flatnonzero((rows >= 0).any(axis=(0, 2)))
        if not len(wanted):
            return
        conditions = [self._conditions[number] for number in wanted]
        with torch.no_grad():
            rendered = render_batch(
                conditions, images, masks, sample_ids=[sample.sample_id for sample in samples], seed=self._spec.seed,
                donors=backgrounds, matte=self._spec.matte, call=self._call,
            )  # fmt: skip
            truths = on_device([self._truth_of.get(sample.label, 0) for sample in samples], images.device)
            truths = truths.repeat(len(conditions))
            views: dict[Any, torch.Tensor] = {}
            for column, subject in enumerate(self._subjects):
                mine = rows[:, wanted, column].T.reshape(-1)  # condition by condition
                if (mine < 0).all():
                    continue
                view = subject.network.view
                if view not in views:
                    room = views[view] = blank(len(truths), view[0], self._device)
                    for place, condition in enumerate(conditions):
                        part = room[place * len(samples) : (place + 1) * len(samples)]
                        subject.network.see(rendered[condition], part)
                self._queue(subject, views[view], truths, mine)

    def _queue(self, subject: Subject, seen: torch.Tensor, truths: torch.Tensor, rows: NDArray[np.int64]) -> None:
        if (rows < 0).any():
            kept = np.flatnonzero(rows >= 0)
            where = on_device(kept.tolist(), seen.device)
            seen, truths, rows = seen[where], truths[where], rows[kept]
        subject.waiting.append((seen, truths, rows))
        subject.count += len(rows)
        while subject.count >= subject.network.batch:
            self._answer(subject)

    def _answer(self, subject: Subject) -> None:
        """Ask a network about one batch, filled up with black images if there are not enough."""
        network = subject.network
        batch = network.blank(network.batch)
        truths = torch.zeros(network.batch, dtype=torch.int64, device=self._device)
        rows: list[NDArray[np.int64]] = []
        filled = 0
        while subject.waiting and filled < network.batch:
            seen, truth, numbers = subject.waiting.popleft()
            taken = min(len(numbers), network.batch - filled)
            batch[filled : filled + taken], truths[filled : filled + taken] = seen[:taken], truth[:taken]
            rows.append(numbers[:taken])
            if taken < len(numbers):
                subject.waiting.appendleft((seen[taken:], truth[taken:], numbers[taken:]))
            filled += taken
        subject.count -= filled
        numbers = np.concatenate(rows)
        try:
            with torch.no_grad():
                packed = answers.pack(network.probabilities(batch), subject.groups, truths)[:filled]
        except Exception:  # find the images that it fails on, or raise what must stop the run
            self._answer_each(subject, batch[:filled], truths[:filled], numbers)
            return
        self._fetch(packed, numbers)

    def _answer_each(
        self, subject: Subject, batch: torch.Tensor, truths: torch.Tensor, rows: NDArray[np.int64]
    ) -> None:
        """Ask about smaller and smaller parts of a batch that failed: ``jobs.rows`` says what becomes a row."""
        network = subject.network

        def ask(places: Sequence[int]) -> list[torch.Tensor]:
            some = on_device(list(places), batch.device)
            with torch.no_grad():  # not compiled: that would be for one size of batches
                return list(answers.pack(network.module(batch[some]), subject.groups, truths[some]))

        for place, packed in enumerate(answer_each(ask, range(len(rows)))):
            if not isinstance(packed, SampleError):
                self._fetch(packed[None], rows[place : place + 1])
                continue
            for number, places, _ in self._by_chunk(rows[place : place + 1]):
                self._chunks[number][1].fail_rows(places, "error", str(packed))
                self._finish(number)

    def _fetch(self, packed: torch.Tensor, rows: NDArray[np.int64]) -> None:
        if not self._cuda:
            self._answers.append((None, packed.cpu(), rows))
            return
        host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
        host.copy_(packed, non_blocking=True)
        self._answers.append((torch.cuda.current_stream(self._device).record_event(), host, rows))

    def _by_chunk(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield, per chunk: its number, the rows' places in it, and their places in ``rows``."""
        numbers = rows // STRIDE
        for number in np.unique(numbers):
            chosen = np.flatnonzero(numbers == number)
            yield int(number), rows[chosen] % STRIDE, chosen


@cache
def _upload_stream(device: str) -> Any:
    """Return one stream for all pieces of work: torch keeps the memory of a stream for that stream alone."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _count(gathered: Sequence[_Gathered]) -> int:
    return sum(len(group.places) for group in gathered)


def channels_first(images: torch.Tensor) -> torch.Tensor:
    """Return NHWC images as NCHW."""
    return images.permute(0, 3, 1, 2).contiguous()
