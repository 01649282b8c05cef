"""Work on this machine: in this process, or on a pool of processes."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, cast

from holdfast.core.errors import HoldfastError, no_exit

Shard = TypeVar("Shard")
Result = TypeVar("Result")


_share = 1.0


def take_share(share: float) -> None:
    """Be one of several workers on a machine, with so much of it."""
    global _share  # noqa: PLW0603
    _share = share


def share_of(amount: float) -> int:
    """What a worker has of something its machine has so much of, 1 at least; all of it where it is not one of several.

    The small part more is for what fractions lose: 49 · (1 / 49) is less than 1.
    """
    return max(1, int(amount * _share + 1e-6))


def core_count() -> int:
    """The cores this process may use, which a container may limit, and of which a worker has its share."""
    return share_of(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def keep_memory() -> None:
    """Have glibc keep freed image buffers instead of handing them back to the kernel.

    By default every array above 128 KB is mapped and unmapped, so each new image pays a page fault for every 4 KB:
    on 500 × 375 images that is a third of the time of rendering them. Elsewhere than on glibc this does nothing.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in ((_TRIM_THRESHOLD, 512 << 20), (_TOP_PAD, 64 << 20), (_MMAP_THRESHOLD, 32 << 20)):
        mallopt(option, value)


_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # as in malloc.h


def few_threads(count: int = 1) -> AbstractContextManager[object]:
    """Matrices multiplied in so many threads, from now on or until the end of the ``with`` that this stands in.

    Ours are small, and threads without work wait for it at full speed. Libraries that are loaded already no longer look
    at OPENBLAS_NUM_THREADS and its like: they are told.
    """
    limit: AbstractContextManager[object] = _libraries().limit(limits=count, user_api="blas")
    return limit


@cache
def _libraries() -> Any:
    """What multiplies matrices here; looking for it takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def limit_process(threads: int) -> None:
    """Have this process, a worker among others, compute in so many threads: in libraries that are loaded, and later."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, str(threads))
    import cv2

    cv2.setNumThreads(threads)
    few_threads(threads)


def _start_worker() -> None:
    # Ctrl-C is the parent's business; and the pool uses all cores, so no worker should start threads of its own.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_process(1)
    keep_memory()
    end_with_parent()


def end_with_parent() -> None:
    """In a process that this machine's Python has started: end when the one that started it does, however it ends.

    A parent that was killed closes no queue: its processes would wait for ever, compute for nobody, or write into the
    next run's folder. One that has died before this is called is noticed as well.
    """
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()  # on a pipe, which the kernel closes
        os._exit(1)


_work: object = None


def _set_work(work: object, share: float) -> None:
    # The work travels to each worker once, not with every shard.
    global _work  # noqa: PLW0603
    take_share(share)
    _start_worker()
    _work = work


def _do(shard: Shard) -> object:
    assert callable(_work)
    return _work(shard)


@contextmanager
def _workers_deaf_to_ctrl_c() -> Iterator[None]:
    """A worker inherits what is blocked here, so that Ctrl-C finds none in the middle of its imports; ours is kept."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Processes(Generic[Shard, Result]):
    """Processes that keep one piece of work between its shards. They start as shards come and end with this."""

    def __init__(self, work: Callable[[Shard], Result], workers: int) -> None:
        # spawn, not fork: torch and OpenCV keep threads that do not survive a fork.
        self._pool = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), _set_work, (work, _share / workers)
        )

    def submit(self, shard: Shard) -> Future[Result]:
        """Have a shard done; its result raises BrokenProcessPool where a process was killed."""
        with _workers_deaf_to_ctrl_c():
            return cast(Future[Result], self._pool.submit(_do, shard))

    def close(self) -> None:
        """Forget what is not done yet."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class LocalExecutor:
    """``workers`` processes; 0 means one a core, 1 means none but this one."""

    workers: int = 0

    @property
    def width(self) -> int:
        """The number of processes."""
        return self.workers or core_count()

    @property
    def shares_memory(self) -> bool:
        """True where this process is the one that works."""
        return self.width == 1

    @property
    def remote(self) -> bool:
        """They are all here."""
        return False

    def close(self) -> None:
        """Nothing is kept between two calls of ``map``."""

    def map(self, work: Callable[[Shard], Result], shards: Iterable[Shard]) -> Iterator[Result]:
        """Results as they are ready. At most two shards a worker are in flight, so memory stays flat."""
        workers = self.width
        if self.shares_memory:
            keep_memory()
            for shard in shards:
                with no_exit():
                    result = work(shard)
                yield result
            return
        pool = Processes(work, workers)
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
        except SystemExit:
            with no_exit():
                raise
        except BrokenProcessPool as error:
            raise HoldfastError(
                "a worker process was killed (out of memory?); what it had finished is kept: "
                "run the same command again, with fewer --workers"
            ) from error
        finally:
            pool.close()
