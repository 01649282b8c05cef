"""The interface of executors, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.core.errors import UserError
from holdfast.engine.local import LocalExecutor

Shard = TypeVar("Shard")
Result = TypeVar("Result")

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
        """Yield results as they are ready, in any order.

        ``work`` travels to each worker once, and what cannot travel is loaded there on first use; shards and results
        are small things that can be pickled.
        """
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
        raise UserError(f"--engine {engine} is not one of {', '.join(ENGINES)}")
    least, most = worker_range(workers)
    if engine == "local":
        for name, value, default in (("address", address, ""), ("gpus", gpus, 0.0), ("cpus", cpus, 1.0)):
            if value != default:
                raise UserError(f"--{name} is for --engine ray, which was not asked for")
        if least != most:
            raise UserError(f"--workers {workers} is a range, which is for --engine ray; give one number")
        return LocalExecutor(most)
    if gpus < 0 or cpus < 0:
        raise UserError("--gpus and --cpus of a worker cannot be less than nothing")
    if (gpus > 1 and gpus % 1) or 0 < gpus < _LEAST or 0 < cpus < _LEAST:
        raise UserError(f"a worker has {_LEAST} of a core or GPU at least, and either a part of a GPU or whole ones")
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
