"""Decoded pictures from other processes, through memory that both sides see and a GPU can read by itself.

The processes import neither torch nor a model (that takes half a minute for sixteen of them), and no picture is copied
on its way to the device: a process decodes into a piece of shared memory, the device fetches it from there, and the
piece is lent to the next.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import reduction
from pathlib import Path
from typing import IO, Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.engine import Processes
from holdfast.pipeline.fast.decoding import Decoder, Facts, Group, Unit

AHEAD = 2
"""Units that each process has done or in hand before they are asked for."""

SPARE = 8
"""Pieces that the device may still be reading from while all others are with the processes."""

NAMES = ("images", "masks", "backgrounds")
Arrived = tuple[Facts, list[Group], Callable[[], None]]
"""What was decoded, and what is to be called when its pixels have been read."""


class Pieces:
    """Parts of one size of a file that lies in memory, and who has which of them."""

    def __init__(self, count: int, size: int) -> None:
        self.file = _nameless(count * size)
        self._maps = [mmap.mmap(self.file.fileno(), size, offset=number * size) for number in range(count)]
        self.free = deque(range(count))
        self._registered: list[int] = []

    def register(self) -> None:
        """Let a GPU read them by itself; where the driver will not have it, copies only take longer."""
        import torch

        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        for piece in self._maps:
            address = np.frombuffer(piece, np.uint8).ctypes.data
            if runtime.cudaHostRegister(address, len(piece), 0) == runtime.cudaError.success:
                self._registered.append(address)

    def view(self, number: int, shape: tuple[int, ...], kind: str, offset: int) -> Any:
        """An array that lies in a piece."""
        return np.ndarray(shape, kind, self._maps[number], offset)

    def close(self) -> None:
        """Give the memory back; nobody may read from it any longer."""
        if self._registered:
            import torch

            runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            for address in self._registered:
                runtime.cudaHostUnregister(address)
        self.file.close()  # mapped memory goes with the last array that lies in it


def _nameless(size: int) -> IO[bytes]:
    """A file in memory where there is room, else on the disk.

    Without a name: the kernel takes it back with the last process that has it open, also where all of them are killed
    at once, as Ray does.
    """
    memory = Path("/dev/shm")  # noqa: S108  (no name is taken there)
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * size
    if roomy:
        with suppress(OSError):  # another worker may have taken the room meanwhile
            return _allocated(size, memory)
    return _allocated(size, None)


def _allocated(size: int, folder: Path | None) -> IO[bytes]:
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (it stays open)
    try:
        # Space that is only promised would end a process that writes into it with SIGBUS.
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        file.close()
        raise
    return file


@dataclass
class _Placed:
    """A group whose arrays lie in a piece: (name, shape, type, offset) of each."""

    places: list[int]
    arrays: list[tuple[str, tuple[int, ...], str, int]]


class Filling:
    """The work of a process: decodes a unit into a piece of memory. What does not fit travels by itself.

    Travels to processes that are started with it, which have the file open from then on.
    """

    def __init__(self, decoder: Decoder, file: int, size: int) -> None:
        self._decoder, self._file, self._size = decoder, file, size

    def __getstate__(self) -> tuple[Decoder, Any, int]:
        return self._decoder, reduction.DupFd(self._file), self._size

    def __setstate__(self, state: tuple[Decoder, Any, int]) -> None:
        self._decoder, file, self._size = state
        self._file = file.detach()

    def __call__(self, task: tuple[Unit, int]) -> tuple[Facts, list[Group | _Placed]]:
        """Facts, and the groups or where they lie."""
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
                    piece[offset : offset + array.nbytes] = array.data.cast("B")
                    placed.arrays.append((name, array.shape, array.dtype.str, offset))
                    offset += array.nbytes
                answer.append(placed)
        return facts, answer


class Crew:
    """Processes that decode and the memory they decode into, for one pass or for several."""

    def __init__(self, decoder: Decoder, *, processes: int, piece: int, gpu: bool) -> None:
        self.most = AHEAD * processes
        self.pieces = Pieces(self.most + SPARE, piece)
        self.processes: Processes[Any, Any] = Processes(Filling(decoder, self.pieces.file.fileno(), piece), processes)
        self._registering = threading.Thread(target=self.pieces.register, daemon=True) if gpu else None

    def begin_registering(self) -> None:
        """Takes some tenths of a second a gigabyte, which networks that are being compiled hide."""
        if self._registering is not None and self._registering.ident is None:
            self._registering.start()

    def registered(self) -> None:
        """Wait until a GPU can read the memory by itself."""
        if self._registering is not None and self._registering.ident is not None:
            self._registering.join()

    def close(self) -> None:
        """End the processes."""
        self.registered()
        self.processes.close()
        self.pieces.close()


class Arrival:
    """Units as they are decoded, in order: in this process where there is no crew, else some ahead."""

    def __init__(self, units: Iterable[Unit], decoder: Decoder, crew: Crew | None) -> None:
        self._units, self._decoder, self._crew = iter(units), decoder, crew
        self._pending: deque[tuple[Future[Any], int]] = deque()
        if crew is not None:
            self._ask(crew)
            crew.begin_registering()

    def __iter__(self) -> Iterator[Arrived]:
        crew = self._crew
        if crew is None:
            for unit in self._units:
                yield *self._decoder(unit), _nothing
            return
        crew.registered()
        while self._pending:
            future, number = self._pending.popleft()
            with _telling():
                facts, groups = future.result()
            yield facts, [_group(one, number, crew.pieces) for one in groups], partial(crew.pieces.free.append, number)
            self._ask(crew)

    def close(self) -> None:
        """Forget what has not been asked for yet."""
        for future, _ in self._pending:
            future.cancel()

    def _ask(self, crew: Crew) -> None:
        while len(self._pending) < crew.most and crew.pieces.free:
            unit = next(self._units, None)
            if unit is None:
                return
            number = crew.pieces.free.popleft()
            with _telling():
                self._pending.append((crew.processes.submit((unit, number)), number))


@contextmanager
def _telling() -> Iterator[None]:
    """Of a process that is lost; whoever asks it for more hears of it, too."""
    try:
        yield
    except BrokenProcessPool as error:
        raise HoldfastError(
            "a process that decodes images was killed (out of memory?); what was finished is kept: run the same "
            "command again, with fewer --workers (of --engine ray: fewer --cpus a worker)"
        ) from error


def _group(group: Group | _Placed, number: int, pieces: Pieces) -> Group:
    if isinstance(group, Group):
        return group
    return Group(
        group.places, **{name: pieces.view(number, shape, kind, offset) for name, shape, kind, offset in group.arrays}
    )


def _nothing() -> None:
    """There is nothing to give back."""
