"""Work cut into shards for workers that share no memory with the process that plans it."""

from __future__ import annotations

from typing import TypeGuard

from holdfast.core.errors import UserError
from holdfast.engine import Executor

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
