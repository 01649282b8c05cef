"""Decode images, masks and backgrounds, a few dozen samples at a time, in processes that do nothing else.

A process gets what it needs with each unit of work, and imports neither torch nor a model: sixteen of them hold no more
than their images. It decodes into shared memory, from which a GPU fetches the images before the next unit comes.
"""

from __future__ import annotations

import itertools
import mmap
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import reduction
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError, RejectedError, SampleError
from holdfast.core.lazy import torch
from holdfast.core.types import Donor, Image, Mask, Sample
from holdfast.engine import Processes
from holdfast.pipeline.donors import DonorPool, SampleContext, donor_draws, load_sample
from holdfast.pipeline.generate.tools import Inpainting
from holdfast.scenarios import Condition
from holdfast.scenarios.background import cover, donor_background
from holdfast.scenarios.base.rendering import check_input, mask_missing

DONORS = 4  # donors that travel with a sample; the first of them is rarely unreadable


@dataclass(frozen=True)
class Order:
    """A sample, its conditions (as places in the run's list), and the samples that may lend it a background."""

    sample: Sample
    conditions: tuple[int, ...]
    donors: tuple[Sample, ...] = ()
    all_donors: bool = True  # whether the pool has no others for this sample


@dataclass(frozen=True)
class Unit:
    """Orders that are decoded together."""

    number: int
    orders: list[Order]


@dataclass
class Facts:
    """What is known about a unit's samples apart from pixels; places are those of the orders."""

    number: int
    failed: list[tuple[int, int, str, str]] = field(default_factory=list)  # place, condition, status, reason
    donors: dict[int, dict[str, Any]] = field(default_factory=dict)
    undecided: list[int] = field(default_factory=list)  # places for which no donor that travelled along can be read


@dataclass
class Group:
    """Images of one size: the places of their orders, NHWC uint8, NHW bool, NHWC uint8 (no pixels if not needed)."""

    places: list[int]
    images: NDArray[np.uint8]
    masks: NDArray[np.bool_]
    backgrounds: NDArray[np.uint8]


_Decoded = tuple[int, Image, Mask, Image]  # place, image, mask and background


def unit_of(
    number: int,
    wanted: Sequence[tuple[Sample, Sequence[int]]],
    conditions: Sequence[Condition],
    pool: DonorPool,
    seed: int,
) -> Unit:
    """Return a unit of work, with the donors in the order in which the pool would try them."""
    borrows = {place for place, condition in enumerate(conditions) if condition.definition.donor}
    orders = []
    for sample, places in wanted:
        lenders: list[Sample] = []
        if borrows.intersection(places):
            asked = pool.candidates(sample, donor_draws(seed, sample, False), same_class=False)
            lenders = list(itertools.islice(asked, DONORS + 1))
        orders.append(Order(sample, tuple(places), tuple(lenders[:DONORS]), len(lenders) <= DONORS))
    return Unit(number, orders)


@dataclass(frozen=True)
class Decoder:
    """Decodes units of work."""

    conditions: Sequence[Condition]
    max_pixels: int
    filler: Inpainting | None = None  # takes out the objects of donors

    @property
    def _borrows(self) -> bool:
        return any(condition.definition.donor for condition in self.conditions)

    def __call__(self, unit: Unit) -> tuple[Facts, list[Group]]:
        """Decode a unit: return facts about its samples, and their images by size."""
        facts = Facts(unit.number)
        by_size: dict[tuple[int, ...], list[_Decoded]] = {}
        for place, order in enumerate(unit.orders):
            decoded = self._decode(place, order, facts)
            if decoded is not None:
                by_size.setdefault(decoded[1].shape, []).append(decoded)
        groups = []
        for same_size in by_size.values():
            places, *pictures = zip(*same_size, strict=True)
            images, masks, backgrounds = pictures
            stacked = np.stack(images)
            borrowed = np.stack(backgrounds) if self._borrows else stacked[:, :0, :0]  # a third of what is copied
            groups.append(Group(list(places), stacked, np.stack(masks), borrowed))
        return facts, groups

    def _decode(self, place: int, order: Order, facts: Facts) -> _Decoded | None:
        """Return the images of one sample; None if no condition can be made of it."""
        try:
            image, mask, no_mask = load_sample(order.sample, self.max_pixels)
        except SampleError as error:
            facts.failed += [(place, number, "error", str(error)) for number in order.conditions]
            return None
        background: Image | None = None
        good = 0
        for number in order.conditions:
            condition = self.conditions[number]
            if mask is None and condition.definition.needs_mask:
                reason = no_mask or mask_missing(condition.scenario)
                facts.failed.append((place, number, "error" if no_mask else "skipped", reason))
                continue
            try:
                check_input(condition.definition, image, mask)
                if condition.definition.donor and background is None and place not in facts.undecided:
                    background = self._background(place, order, image.shape, facts)
            except SampleError as error:
                status = "rejected" if isinstance(error, RejectedError) else "error"
                facts.failed.append((place, number, status, str(error)))
                continue
            good += 1
        if not good:
            return None
        nothing = np.zeros(image.shape[:2], np.bool_)
        # Only conditions with a donor use the background; for others, any image of the size will do.
        return place, image, nothing if mask is None else mask, image if background is None else background

    def _background(self, place: int, order: Order, shape: tuple[int, ...], facts: Facts) -> Image | None:
        """Return the cleared background of the first readable donor, in the image's size."""
        for donor in order.donors:
            try:
                image, mask, no_mask = load_sample(donor, self.max_pixels)
            except SampleError:
                continue
            if not no_mask:
                lender = Donor(donor.sample_id, donor.label, image, mask)
                background, facts.donors[place] = lent(lender, shape, self.filler)
                return background
        if order.all_donors:
            raise SampleError("no image of another class to borrow a background from, or none that can be read")
        facts.undecided.append(place)
        return None


def lent(
    donor: Donor, shape: tuple[int, ...], fill: Callable[[Image, Mask], Image | None] | None
) -> tuple[Image, dict[str, Any]]:
    """Return a donor's background in an image's size, and the columns that name the donor."""
    cleared, details = donor_background(donor, fill)
    return cover(cleared, shape[0], shape[1]), details


def settle(
    facts: Facts, unit: Unit, groups: Sequence[Group], conditions: Sequence[Condition], pool: DonorPool, seed: int
) -> None:
    """Find a donor later in the pool for images whose first donors cannot be read; without one, they have failed."""
    for group in groups:
        for place in set(group.places).intersection(facts.undecided):
            order = unit.orders[place]
            try:
                context = SampleContext(order.sample, pool, seed)
                lender = context.donor(same_class=False)
                background, facts.donors[place] = lent(lender, group.images.shape[1:], context.fill)
                group.backgrounds[group.places.index(place)] = background
            except SampleError as error:
                borrowing = [number for number in order.conditions if conditions[number].definition.donor]
                facts.failed += [(place, number, "error", str(error)) for number in borrowing]


PIECE = 48 << 20  # bytes a unit is decoded into: image, mask and background of 32 images of 500 × 375 take 42 million
AHEAD = 2  # units per process that are decoded, or being decoded, before they are asked for
SPARE = 8  # pieces that the device may still be reading while the processes use all others
NAMES = ("images", "masks", "backgrounds")
Arrived = tuple[Facts, list[Group], Callable[[], None]]
"""What was decoded, and a function to call when its pixels have been read."""


class Pieces:
    """Pieces of equal size of a file in memory, and the numbers of those that are free."""

    def __init__(self, count: int, size: int) -> None:
        self.file, self.size = _nameless(count * size), count * size
        self._maps = [mmap.mmap(self.file.fileno(), size, offset=number * size) for number in range(count)]
        self.free = deque(range(count))
        self._registered: list[int] = []

    def reserve(self) -> None:
        """Take the room that the file needs: without it, a process that writes into it could end with SIGBUS."""
        os.posix_fallocate(self.file.fileno(), 0, self.size)

    def register(self) -> None:
        """Let a GPU read the pieces by itself; if the driver refuses, copies only take longer."""
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        for piece in self._maps:
            address = np.frombuffer(piece, np.uint8).ctypes.data
            if runtime.cudaHostRegister(address, len(piece), 0) == runtime.cudaError.success:
                self._registered.append(address)

    def view(self, number: int, shape: tuple[int, ...], kind: str, offset: int) -> Any:
        """Return an array that is in a piece."""
        return np.ndarray(shape, kind, self._maps[number], offset)

    def close(self) -> None:
        """Release the memory; nothing may read from it any longer."""
        if self._registered:
            runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            for address in self._registered:
                runtime.cudaHostUnregister(address)
        self.file.close()  # the mapped memory is released with the last array in it


def _nameless(size: int) -> IO[bytes]:
    """Return a file in memory if there is room, else on the disk."""
    # It has no name: the kernel removes it with the last process that has it open, even if all processes are killed
    # at once, as Ray does.
    memory = Path("/dev/shm")  # noqa: S108  (no name is taken there)
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * size
    file = tempfile.TemporaryFile(dir=memory if roomy else None)  # noqa: SIM115  (it stays open)
    os.truncate(file.fileno(), size)
    return file


@dataclass
class _Placed:
    """A group whose arrays are in a piece, with the name, shape, type and offset of each array."""

    places: list[int]
    arrays: list[tuple[str, tuple[int, ...], str, int]]


class Filling:
    """The work of a process: it decodes a unit into a piece of memory; groups that do not fit are pickled."""

    # It travels to the processes when they start; they keep the file open from then on.

    def __init__(self, decoder: Decoder, file: int, size: int) -> None:
        self._decoder, self._file, self._size = decoder, file, size

    def __getstate__(self) -> tuple[Decoder, Any, int]:
        return self._decoder, reduction.DupFd(self._file), self._size

    def __setstate__(self, state: tuple[Decoder, Any, int]) -> None:
        self._decoder, file, self._size = state
        self._file = file.detach()

    def __call__(self, task: tuple[Unit, int]) -> tuple[Facts, list[Group | _Placed]]:
        """Return facts, and groups or where they are."""
        unit, number = task
        facts, groups = self._decoder(unit)
        answer: list[Group | _Placed] = []
        offset = 0
        with mmap.mmap(self._file, self._size, offset=number * self._size) as piece:
            for group in groups:
                arrays = [getattr(group, name) for name in NAMES]
                if offset + sum(array.nbytes for array in arrays) > self._size:
                    answer.append(group)
                    continue
                placed = _Placed(group.places, [])
                for name, array in zip(NAMES, arrays, strict=True):
                    if array.nbytes:
                        piece[offset : offset + array.nbytes] = array.data.cast("B")
                    placed.arrays.append((name, array.shape, array.dtype.str, offset))
                    offset += array.nbytes
                answer.append(placed)
        return facts, answer


class Crew:
    """Processes that decode and the memory they decode into, for one pass or for several."""

    def __init__(self, decoder: Decoder, *, processes: int, gpu: bool, piece: int = PIECE) -> None:
        self.most = AHEAD * processes
        self.pieces = Pieces(self.most + SPARE, piece)
        self.processes: Processes[Any, Any] = Processes(Filling(decoder, self.pieces.file.fileno(), piece), processes)
        # Both take a second per gigabyte, in addition to models being loaded.
        self._thread = ThreadPoolExecutor(1)
        self._reserved = self._thread.submit(self.pieces.reserve)
        self._registered = self._thread.submit(self.pieces.register) if gpu else None

    def begin(self) -> None:
        """Start the processes before there is work."""
        for _ in range(self.most // AHEAD):
            self.processes.submit((Unit(0, []), 0))

    def reserved(self) -> None:
        """Wait until there is memory to decode into; raise a HoldfastError if there is not enough."""
        try:
            self._reserved.result()
        except OSError as error:
            gigabytes = self.pieces.size / 2**30
            raise HoldfastError(
                f"there is no room for {gigabytes:.1f} GB of decoded images ({error.strerror}); make room in /dev/shm "
                "or the folder for temporary files, or run the same command with fewer --workers"
            ) from error

    def registered(self) -> None:
        """Wait until a GPU can read the memory by itself."""
        if self._registered is not None:
            self._registered.result()

    def close(self) -> None:
        """End the processes."""
        self._thread.shutdown()
        self.processes.close()
        self.pieces.close()


class Arrival:
    """Yields decoded units in order: decoded in this process without a crew, else some units ahead."""

    def __init__(self, units: Iterable[Unit], decoder: Decoder, crew: Crew | None) -> None:
        self._units, self._decoder, self._crew = iter(units), decoder, crew
        self._pending: deque[tuple[Future[Any], int]] = deque()
        if crew is not None:
            crew.reserved()
            self._ask(crew)

    def __iter__(self) -> Iterator[Arrived]:
        crew = self._crew
        if crew is None:
            for unit in self._units:
                yield *self._decoder(unit), lambda: None  # these arrays are in no piece
            return
        crew.registered()
        while self._pending:
            future, number = self._pending.popleft()
            with _lost_processes_named():
                facts, groups = future.result()
            placed = [_group(group, number, crew.pieces) for group in groups]
            yield facts, placed, partial(crew.pieces.free.append, number)
            self._ask(crew)

    def close(self) -> None:
        """Cancel the units that are not being decoded yet; each piece is free when no one fills it any longer."""
        for future, number in self._pending:
            assert self._crew is not None, "only a crew has units under way"
            free = self._crew.pieces.free
            future.add_done_callback(lambda _, number=number, free=free: free.append(number))  # type: ignore[misc]
            future.cancel()
        self._pending.clear()

    def _ask(self, crew: Crew) -> None:
        while len(self._pending) < crew.most and crew.pieces.free:
            unit = next(self._units, None)
            if unit is None:
                return
            number = crew.pieces.free.popleft()
            with _lost_processes_named():
                self._pending.append((crew.processes.submit((unit, number)), number))


@contextmanager
def _lost_processes_named() -> Iterator[None]:
    """Turn BrokenProcessPool into a HoldfastError."""
    try:
        yield
    except BrokenProcessPool as error:
        raise HoldfastError(
            "a process that decodes images was killed (out of memory?); finished rows are kept: run the same "
            "command again with fewer --workers (with --engine ray: fewer --cpus per worker)"
        ) from error


def _group(group: Group | _Placed, number: int, pieces: Pieces) -> Group:
    if isinstance(group, Group):
        return group
    return Group(
        group.places, **{name: pieces.view(number, shape, kind, offset) for name, shape, kind, offset in group.arrays}
    )
