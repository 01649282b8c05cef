"""Work on this machine: in this process, or on a pool of processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from holdfast.core.errors import HoldfastError, UserError, end_process, no_exit
from holdfast.core.memory import keep_memory

Shard = TypeVar("Shard")
Result = TypeVar("Result")


_share = 1.0


def take_share(share: float) -> None:
    """Record that this process is one of several workers with this share of the machine."""
    global _share  # noqa: PLW0603
    _share = share


def share_of(amount: float) -> int:
    """Return this worker's share of a count of its machine, at least 1."""
    # The small part more is for what fractions lose: 49 · (1 / 49) is less than 1.
    return max(1, int(amount * _share + 1e-6))


def core_count() -> int:
    """Return the cores that this process may use: a container's limit, and a worker's share of it."""
    return share_of(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def ahead(
    threads: ThreadPoolExecutor, work: Callable[[Shard], Result], items: Iterable[Shard], count: int
) -> Iterator[Result]:
    """Yield what work makes of each item, in order; threads work on up to ``count`` items ahead of the caller."""
    queue: deque[Future[Result]] = deque()
    try:
        for item in items:
            queue.append(threads.submit(work, item))
            if len(queue) > count:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()
    finally:
        for future in queue:
            future.cancel()


def thread_pool(count: int = 0) -> ThreadPoolExecutor:
    """Return threads, one per core or so many, in each of which torch uses no other cores."""
    # Otherwise sixteen threads that prepare images would have sixteen more each, which wait for one another.
    return ThreadPoolExecutor(count or core_count(), initializer=_use_one_core)


def _use_one_core() -> None:
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


def few_threads(count: int = 1) -> AbstractContextManager[object]:
    """Multiply matrices in this many threads from now on, or until the end of a ``with`` block."""
    # Ours are small, and threads without work wait for it at full speed. Libraries that are loaded already no longer
    # look at OPENBLAS_NUM_THREADS and its like: they are set.
    limit: AbstractContextManager[object] = _libraries().limit(limits=count, user_api="blas")
    return limit


@cache
def _libraries() -> Any:
    """Return the controller of the libraries that multiply matrices; finding them takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def limit_process(threads: int) -> None:
    """Limit this process to this many threads, in libraries that are loaded and in later ones."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, str(threads))
    import cv2

    cv2.setNumThreads(threads)
    few_threads(threads)


def end_with_parent() -> None:
    """End this child process when its parent ends, however that happens."""
    # A parent that was killed closes no queue: its processes would wait for ever, compute for no one, or write into the
    # next run's folder. One that has died before this is called is noticed as well.
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()  # on a pipe, which the kernel closes
        end_process(1)


_work: object = None


def _set_work(work: object, share: float, gpus: Any = None) -> None:
    # The work travels to each worker once, not with every shard.
    global _work  # noqa: PLW0603
    take_share(share)
    if gpus is not None:  # before torch looks for them
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus.get()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_process(1)
    keep_memory()
    end_with_parent()
    _work = work


def _do(shard: Shard) -> object:
    assert callable(_work)
    with no_exit():
        return _work(shard)


@contextmanager
def _workers_deaf_to_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C while workers start, since they inherit the block; this process still gets it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_script() -> Iterator[None]:
    """Keep processes that start in this block from running the user's script, as they would without a main guard."""
    main: dict[str, Any] = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.update(dict.fromkeys(before))
    try:
        yield
    finally:
        main.update(before)


class Processes(Generic[Shard, Result]):
    """Processes that keep one piece of work between its shards; they start with the shards."""

    def __init__(
        self, work: Callable[[Shard], Result], workers: int, gpus: Sequence[str] = (), *, scriptless: bool = False
    ) -> None:
        # spawn, not fork: torch and OpenCV keep threads that do not survive a fork.
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue() if gpus else None
        for place in range(workers if queue is not None else 0):
            queue.put(gpus[place % len(gpus)])  # type: ignore[union-attr]
        self._pool = ProcessPoolExecutor(workers, context, _set_work, (work, _share / workers, queue))
        self._scriptless = scriptless

    def submit(self, shard: Shard) -> Future[Result]:
        """Submit a shard; its result raises BrokenProcessPool if a process was killed."""
        with _workers_deaf_to_ctrl_c(), _without_script() if self._scriptless else nullcontext():
            return cast(Future[Result], self._pool.submit(_do, shard))

    def close(self) -> None:
        """Cancel what is not done yet."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class LocalExecutor:
    """``workers`` processes; 0 means one per core, 1 means this process only."""

    workers: int = 0
    gpus: tuple[str, ...] = ()  # which the processes take in turn, each sees one; without them, each sees all
    # whether processes do not run the user's script: if Holdfast chose processes, the script may have no main guard
    scriptless: bool = False

    @property
    def width(self) -> int:
        """The number of processes."""
        return self.workers or core_count()

    @property
    def shares_memory(self) -> bool:
        """Whether this process does the work."""
        return self.width == 1

    @property
    def remote(self) -> bool:
        """Always False: all workers are on this machine."""
        return False

    def close(self) -> None:
        """Do nothing: no worker is kept between two calls of ``map``."""

    def map(self, work: Callable[[Shard], Result], shards: Iterable[Shard]) -> Iterator[Result]:
        """Yield results as they are ready, with at most two shards per worker in flight, so memory stays flat."""
        workers = self.width
        if self.shares_memory:
            for shard in shards:
                with no_exit():
                    result = work(shard)
                yield result
            return
        pool = Processes(work, workers, self.gpus, scriptless=self.scriptless)
        pending: set[Future[Result]] = set()
        try:
            for shard in shards:
                if len(pending) >= 2 * workers:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
                pending.add(pool.submit(shard))
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BrokenProcessPool as error:
            fewer = "HOLDFAST_GPU_PROCESSES=1 in the environment" if self.scriptless else "fewer --workers"
            raise HoldfastError(
                "a worker process was killed (out of memory?); what it had finished is kept: "
                f"run the same command again, with {fewer}"
            ) from error
        finally:
            pool.close()


ENGINES = ("local", "ray")
_LEAST = 0.001  # Ray itself counts to four digits


class Executor(Protocol):
    """Does work shard by shard; results never depend on where.

    A shard may be done twice (its worker was killed after the work, before the answer), so work writes whole files
    under names that follow from the shard.
    """

    @property
    def width(self) -> int:
        """The most workers that compute at once; it decides the size of shards."""
        ...

    @property
    def shares_memory(self) -> bool:
        """Whether work runs in this process and may use what is loaded here."""
        ...

    @property
    def remote(self) -> bool:
        """Whether workers may be on other machines, each with its own cores and GPU."""
        ...

    def map(self, work: Callable[[Shard], Result], shards: Iterable[Shard]) -> Iterator[Result]:
        """Yield results in any order; ``work`` travels to each worker once and loads there what cannot travel."""
        ...

    def close(self) -> None:
        """Release all workers; until then they may serve the next ``map``."""
        ...


def open_executor(
    engine: str = "local",  # ``local`` or ``ray``
    *,
    workers: int | str = 0,  # how many; 0 means one a core (of the cluster), ``"2:16"`` lets Ray choose between the two
    # of a Ray cluster: ``auto`` or ``host:port``; empty starts one on this machine, which ends with ``close``
    address: str = "",
    gpus: float = 0.0,  # of each Ray worker; fractions share a GPU
    cpus: float = 1.0,  # of each Ray worker
    folder: Path | None = None,  # where the work writes. Ray's workers check that they see it
) -> Executor:
    """Return an executor by name."""
    if engine not in ENGINES:
        raise UserError(f"--engine must be one of {', '.join(ENGINES)}, not {engine}")
    least, most = worker_range(workers)
    if engine == "local":
        for name, value, default in (("address", address, ""), ("gpus", gpus, 0.0), ("cpus", cpus, 1.0)):
            if value != default:
                raise UserError(f"--{name} is for --engine ray, which was not asked for")
        if least != most:
            raise UserError(f"--workers {workers} is a range, which is for --engine ray; give one number")
        return LocalExecutor(most)
    if gpus < 0 or cpus < 0:
        raise UserError("--gpus and --cpus of a worker must be 0 or more")
    if (gpus > 1 and gpus % 1) or 0 < gpus < _LEAST or 0 < cpus < _LEAST:
        raise UserError(f"a worker needs at least {_LEAST} of a core or GPU, and either a part of a GPU or whole ones")
    from holdfast.engine.ray import RayExecutor

    return RayExecutor(least, most, address=address, gpus=gpus, cpus=cpus, folder=folder)


def worker_range(workers: int | str) -> tuple[int, int]:
    """Return ``4`` or ``2:16`` as two numbers."""
    first, _, last = str(workers).partition(":")
    try:
        least, most = int(first), int(last or first)
    except ValueError:
        least, most = 1, 0
    if not 0 <= least <= most or (least == 0 and most > 0):
        raise UserError(f"--workers {workers} is neither a number nor a range such as 2:16")
    return least, most
