"""The options that say where a verb's work runs, and the opening of what they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from holdfast.engine import Executor

Engine = Annotated[str, typer.Option(help="Where work runs: local (this machine) or ray (many).")]
Address = Annotated[
    str,
    typer.Option(help="A Ray cluster: auto or HOST:PORT; without it, one on this machine.", show_default=False),
]
Workers = Annotated[
    str, typer.Option(metavar="N|MIN:MAX", help="Processes; 0 means one a core. MIN:MAX leaves it to Ray.")
]
Gpus = Annotated[float, typer.Option(min=0, help="GPUs a Ray worker, 0.5 puts two on one; 0 keeps them off GPUs.")]
Cpus = Annotated[float, typer.Option(min=0, help="Cores a Ray worker.")]


@contextmanager
def opened(
    out: Path, *, engine: str, address: str, workers: str, gpus: float, cpus: float, whole: bool = True
) -> Iterator[tuple[Path, Executor]]:
    """The folder to write to, which stands for ``out`` where that is in a store, and who does the work of a command.

    Without ``whole`` the images that the command writes to a store do not stay on the disk: it must not read them.
    """
    from holdfast.core import places
    from holdfast.engine import open_executor
    from holdfast.store import workplace

    # Of a store every worker has a folder of its own, so there is none that all must see.
    seen = None if places.address(out) else out
    executor = open_executor(engine, address=address, workers=workers, gpus=gpus, cpus=cpus, folder=seen)
    try:
        with workplace(out, executor, whole=whole) as (folder, sending):
            yield folder, sending
    finally:
        executor.close()


def count(workers: str) -> int:
    """The number that a specification records: of a range, the most."""
    from holdfast.engine.executor import worker_range

    return worker_range(workers)[1]
