"""Work cut into shards for workers that share no memory with the process that plans it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeGuard, TypeVar

from holdfast.core.errors import UserError
from holdfast.core.places import address
from holdfast.core.types import Sample
from holdfast.engine import Executor

Shard = TypeVar("Shard")
Result = TypeVar("Result")

_BATCHES = 4  # a shard: a batch that runs empty at its end costs little, and a killed worker not much more
_SHARDS = 3  # a worker at least, so that one that is slower than others is not waited for


def elsewhere(executor: Executor | None) -> TypeGuard[Executor]:
    """Whether work leaves this process: it then goes in shards, each of which leaves one part of a table."""
    return executor is not None and not executor.shares_memory


def shard_size(count: int, executor: Executor, batch: int) -> int:
    """How many of ``count`` pieces of work a shard has: some batches, or fewer where workers would have none."""
    return max(1, min(_BATCHES * batch, -(-count // (_SHARDS * executor.width))))


def check_same(name: str, planned: object, loaded: object) -> None:
    """UserError where a worker has loaded something else than what rows were planned for, and would be named after."""
    if planned != loaded:
        raise UserError(
            f"{name} is not the same on a worker as where the command was started: other weights or versions, or "
            "another precision since only one of them has a GPU; start the command on a machine like the workers"
        )


def seeing(
    work: Callable[[Shard], Result], samples: Iterable[Sample], executor: Executor, donors: Iterable[Sample] = ()
) -> Callable[[Shard], Result]:
    """Work that is refused by a machine without the images; it would turn thousands of them into rows with errors.

    One image, one mask and one image that lends its background, all files here, stand for all.
    """
    if not executor.remote:
        return work
    samples = list(samples)
    images, masks = (one.image for one in samples), (one.mask for one in samples)
    backgrounds = (one.image for one in donors)
    seen = [path for path in map(_first_file, (images, masks, backgrounds)) if path]
    return _Seeing(work, seen) if seen else work


def _first_file(references: Iterable[object]) -> str:
    paths = (str(getattr(one, "path", "")) for one in references)
    return next((path for path in paths if path and not address(path) and Path(path).is_file()), "")


class _Seeing(Generic[Shard, Result]):
    def __init__(self, work: Callable[[Shard], Result], paths: list[str]) -> None:
        self._work, self._paths = work, paths

    def __call__(self, shard: Shard) -> Result:
        missing = next((path for path in self._paths if not Path(path).is_file()), "")
        if missing:
            raise UserError(
                f"the worker on {socket.gethostname()} does not see {missing}: images, masks and backgrounds must be "
                "readable under the same path on every machine, or be in s3://"
            )
        self._paths = []  # once is enough
        return self._work(shard)
