"""Sizes of shards, and checks on workers that share no memory with the process that plans."""

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

_BATCHES = 4  # per shard: a half-empty last batch costs little, and so does a killed worker
_SHARDS = 3  # per worker at least, so that a slow worker is not waited for


def elsewhere(executor: Executor | None) -> TypeGuard[Executor]:
    """Return whether work leaves this process: it is then cut into shards, each of which writes one part of a table."""
    return executor is not None and not executor.shares_memory


def shard_size(count: int, executor: Executor, batch: int) -> int:
    """Return how many of ``count`` jobs a shard has: some batches, or fewer where workers would have none."""
    return max(1, min(_BATCHES * batch, -(-count // (_SHARDS * executor.width))))


def check_same(name: str, planned: object, loaded: object) -> None:
    """Raise a UserError where a worker has loaded something else than what the row ids were planned for."""
    if planned != loaded:
        raise UserError(
            f"{name} is not the same on a worker as where the command was started: other weights or versions, or "
            "another precision since only one of them has a GPU; start the command on a machine like the workers"
        )


def seeing(
    work: Callable[[Shard], Result], samples: Iterable[Sample], executor: Executor, donors: Iterable[Sample] = ()
) -> Callable[[Shard], Result]:
    """Return work that a machine without the images refuses, instead of making a row with an error per image.

    One image, one mask and one donor's image are looked for.
    """
    if not executor.remote:
        return work
    samples = list(samples)
    images, masks = (sample.image for sample in samples), (sample.mask for sample in samples)
    backgrounds = (donor.image for donor in donors)
    seen = [path for path in map(_first_file, (images, masks, backgrounds)) if path]
    return _Seeing(work, seen) if seen else work


def _first_file(references: Iterable[object]) -> str:
    paths = (str(getattr(reference, "path", "")) for reference in references)
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
