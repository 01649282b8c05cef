"""Code that runs in the processes of a Ray cluster: the workers, and the stream of shards to them.

Shards are made one by one in the process that planned them. A ``Feeder`` holds those that are on their way, ``read``
turns them into a stream that Ray Data hands to workers, and none is made long before there is a worker for it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import HoldfastError, UserError, end_process, no_exit, text_of
from holdfast.core.lazy import ray
from holdfast.core.memory import keep_memory
from holdfast.engine.local import limit_process, take_share

NUMBER, SHARD, ANSWER = "number", "shard", "answer"
_TRIALS = 4  # of a shard whose worker is lost: one that kills every worker must end the run, not repeat for ever
_PATIENCE = 3.0  # seconds until a new file is seen through a network's caches


class Feeder:
    """Shards on their way to workers, as bytes; an actor on the node of the process that makes them."""

    def __init__(self) -> None:
        self._waiting: dict[int, bytes] = {}
        self._answered: set[int] = set()
        self._end: int | None = None
        self._begun: Counter[int] = Counter()
        self._change = asyncio.Condition()

    async def put(self, number: int, shard: bytes) -> None:
        """Add the next shard."""
        async with self._change:
            self._waiting[number] = shard
            self._change.notify_all()

    async def end(self, count: int) -> None:
        """Record that there were this many shards."""
        async with self._change:
            self._end = count
            self._change.notify_all()

    async def begun(self, number: int) -> int:
        """Return how often this shard has been started, this time included."""
        self._begun[number] += 1
        return self._begun[number]

    async def any_begun(self) -> bool:
        """Return whether any worker has started a shard."""
        return bool(self._begun)

    async def answered(self, number: int) -> None:
        """Forget a shard that is answered; a reader that starts again gets nothing for it."""
        self._answered.add(number)
        self._waiting.pop(number, None)

    async def get(self, number: int) -> bytes | None:
        """Return the next shard as soon as there is one; None after the last."""
        async with self._change:
            while number not in self._waiting and number not in self._answered:
                if self._end is not None and number >= self._end:
                    return None
                await self._change.wait()
        return self._waiting.get(number, b"")


def read(_: pa.Table, *, feeder: Any) -> Iterator[pa.Table]:
    """Yield every shard as a table of one row."""
    number = 0
    while (shard := ray.get(feeder.get.remote(number))) is not None:
        yield pa.table({NUMBER: pa.array([number]), SHARD: pa.array([shard], pa.large_binary())})
        number += 1


@dataclass(frozen=True)
class Surroundings:
    """What a worker should find."""

    machine: str  # the name of the one that the command was started on
    here: Path  # the folder in which it was
    folder: Path | None  # where work writes, or None
    token: str  # the name of a file there
    cpus: float  # of the worker
    gpus: float  # of the worker


class RayActor:
    """The work inside an actor, from its first shard on."""

    # Errors are answers, too: Ray would wrap them in its own, and their text would be a page long.

    def __init__(self, work: Any, feeder: Any, surroundings: Surroundings) -> None:
        self._sent, self._feeder, self._surroundings = work, feeder, surroundings
        self._work: Callable[[Any], Any] | None = None

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Do one shard; an answer without bytes means that it was done before."""
        (number,), (shard,) = batch[NUMBER].to_pylist(), batch[SHARD].to_pylist()
        answer = self._answer(number, shard) if shard else b""
        return pa.table({NUMBER: pa.array([number]), ANSWER: pa.array([answer], pa.large_binary())})

    def _answer(self, number: int, shard: bytes) -> bytes:
        try:
            if ray.get(self._feeder.begun.remote(number)) > _TRIALS:
                raise HoldfastError(
                    f"{_TRIALS} workers were lost over one piece of work (out of memory?); what was finished is kept: "
                    "run the same command again, with fewer --workers a machine or smaller batches"
                )
            if self._work is None:
                _settle(self._surroundings)
                self._work = ray.cloudpickle.loads(ray.get(self._sent))
            with no_exit():
                return sealed((True, self._work(opened(shard))))
        except Exception as error:
            return sealed((False, portable(_placed(error, self._surroundings.machine))))


def sealed(value: Any) -> bytes:
    """Return a value as bytes, also of classes that are defined in a script or a notebook."""
    return bytes(ray.cloudpickle.dumps(value))


def opened(value: bytes) -> Any:
    """Return the value that ``sealed`` packed."""
    return pickle.loads(value)  # noqa: S301 (of our own processes; Ray itself unpickles all that it is sent)


def _settle(surroundings: Surroundings) -> None:
    """Limit the process's threads as in the local pool; Ray sets OMP_NUM_THREADS to the worker's cores."""
    limit_process(max(1, int(surroundings.cpus)))
    if not surroundings.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else every worker would take the first GPU of its node
    keep_memory()
    take_share(_share(surroundings))
    with suppress(OSError):  # paths may have been given from the folder in which the command was started
        os.chdir(surroundings.here)
    folder = surroundings.folder
    if folder is not None and not _sees(folder / surroundings.token):
        here = socket.gethostname()
        raise UserError(
            f"the worker on {here} does not see {folder}: write to a folder that all machines share, or to s3://"
        )
    if folder is not None:
        threading.Thread(target=_end_without, args=(folder / surroundings.token,), daemon=True).start()


def _share(surroundings: Surroundings) -> float:
    """Return the worker's share of its machine: of its cores or of its GPUs, whichever is more."""
    here = ray.get_runtime_context().get_node_id()
    resources: dict[str, float] = next((node["Resources"] for node in ray.nodes() if node["NodeID"] == here), {})
    wanted = (("CPU", surroundings.cpus), ("GPU", surroundings.gpus))
    return min(1.0, max(share / max(resources.get(name, 0), share) if share else 0.0 for name, share in wanted) or 1.0)


def _end_without(token: Path) -> None:
    """End this process when the file is gone: the command has ended, and another may use the folder."""
    while True:
        time.sleep(1)
        try:
            token.stat()
        except FileNotFoundError:
            end_process(1)
        except OSError:  # a network that stutters says nothing
            continue


def _sees(path: Path) -> bool:
    end = time.monotonic() + _PATIENCE
    while not path.is_file():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _placed(error: Exception, machine: str) -> Exception:
    """Return an error with the machine's name if it is not the command's: credentials may be missing there."""
    here = socket.gethostname()
    if type(error) is not UserError or here == machine or here in str(error):
        return error
    return UserError(f"{error} (so says the worker on {here})")


def portable(error: Exception) -> Exception:
    """Return the error with the worker's traceback as a note, or its text if it cannot be pickled."""
    error.add_note(f"in a Ray worker:\n{traceback.format_exc()}")
    with suppress(Exception):
        if type(opened(sealed(error))) is type(error):
            return error
    return HoldfastError(f"{type(error).__name__}: {text_of(error)}")
