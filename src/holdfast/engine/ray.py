"""Executor on many machines: Ray Data with a pool of actors that keep the work and its models."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import math
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from holdfast.core.distribution import pip_install
from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.files import UNFINISHED
from holdfast.core.lazy import ray
from holdfast.engine.local import core_count
from holdfast.engine.ray_worker import ANSWER, NUMBER, Feeder, RayActor, Surroundings, opened, read, sealed

Shard = TypeVar("Shard")
Result = TypeVar("Result")

_STORE_BYTES = 256 << 20  # shards and answers are small; what does not fit goes to disk
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported home
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # no copy of the working folder travels: workers import what is installed
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # what goes wrong reaches us as errors
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",  # on stdout, of everything that is lost and begun again
}
_HINT = "`ray status` on its first machine says whether it runs, and RAY_AUTH_MODE must be the same here as there"
_LOG = logging.getLogger(__name__)
_PATIENCE = 30.0  # seconds without a worker until someone who looks at a silent terminal is informed
_AHEAD = 4  # shards a worker that are made and not answered: two at the worker, two on their way


class RayExecutor:
    """Workers of a Ray cluster: as many as asked for, or as many as Ray finds room for between two numbers."""

    # Lost workers and nodes are replaced and their shards done again. Shards are made as workers need them, answers
    # come back as they are ready: memory does not grow with their number.

    def __init__(
        self,
        least: int = 0,
        most: int = 0,
        *,
        address: str = "",
        gpus: float = 0.0,
        cpus: float = 1.0,
        folder: Path | None = None,
    ) -> None:
        """Take the options of ``open_executor``; ``least`` and ``most`` 0 mean one worker per ``cpus`` cores."""
        if importlib.util.find_spec("ray") is None:
            raise UserError(f"--engine ray needs Ray, which is not installed: {pip_install('ray')}")
        if address.startswith("ray://"):
            raise UserError(
                "Ray Data does not work through ray://; start the command on a machine of the cluster with --address "
                "auto, or hand it in with `ray job submit`"
            )
        for name, value in _SETTINGS.items():  # read when Ray is imported
            os.environ.setdefault(name, value)
        self._least, self._most = least, most
        named = address or os.environ.get("RAY_ADDRESS", "")  # which Ray sets within `ray job submit`
        self._address = "" if named == "local" else named  # Ray's word for a cluster of one's own
        if not self._address and "RAY_AUTH_MODE" not in os.environ and "ray" not in sys.modules:
            # A token that ends with the command: Ray would leave one in the home folder.
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._gpus, self._cpus = gpus, cpus
        self._folder = None if folder is None else folder.absolute()
        self._ours = False  # whether the connection ends with this
        self._logs = ""  # folder of a cluster that is ours as well
        if self._address:  # no one should wait until all images are hashed to hear that there is no cluster
            self._join()

    @property
    def width(self) -> int:
        """The most workers that compute at once."""
        return self._pool()[1]

    @property
    def shares_memory(self) -> bool:
        """Always False: workers are other processes, perhaps on other machines."""
        return False

    @property
    def remote(self) -> bool:
        """Always True: a cluster on this machine works like any other."""
        return True

    def map(self, work: Callable[[Shard], Result], shards: Iterable[Shard]) -> Iterator[Result]:
        """Yield results as they are ready, in any order; an error of the work is raised here unchanged."""
        rest = iter(shards)
        for first in rest:  # nothing is started for no work
            yield from self._map(work, itertools.chain([first], rest))

    def _map(self, work: Callable[[Shard], Result], shards: Iterator[Shard]) -> Iterator[Result]:
        from ray.exceptions import RayError

        most = self._pool()[1]
        try:
            with (
                _token(self._folder) as token,
                _feeding(shards, _AHEAD * most) as (feeder, answered),
                _telling(feeder, {"CPU": self._cpus, "GPU": self._gpus}),
            ):
                surroundings = Surroundings(
                    socket.gethostname(), Path.cwd(), self._folder, token, self._cpus, self._gpus
                )
                answers = self._answers(work, feeder, surroundings)
                for block in answers.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                    for number, answer in zip(block[NUMBER].to_pylist(), block[ANSWER].to_pylist(), strict=True):
                        if answered(number):
                            continue
                        fine, value = opened(answer)
                        if not fine:
                            raise value
                        yield cast(Result, value)
        except RayError as error:
            self._logs = ""  # which say more
            raise HoldfastError(
                f"Ray gave up ({_reason(error)}); what was finished is kept: run the same command again, with fewer "
                "--workers or more --cpus a worker if memory ran out"
            ) from error

    def _answers(self, work: object, feeder: Any, surroundings: Surroundings) -> Any:
        """Return the lazy dataset of the answers."""
        least, most = self._pool()
        with _quiet_data():
            return (
                ray.data.from_items([{NUMBER: 0}], override_num_blocks=1)
                .map_batches(
                    read,
                    fn_kwargs={"feeder": feeder},
                    batch_format="pyarrow",
                    num_cpus=0,
                    ray_remote_args_fn=_beside_this,
                )
                .map_batches(
                    RayActor,
                    fn_constructor_args=(ray.put(sealed(work)), feeder, surroundings),
                    batch_size=1,
                    batch_format="pyarrow",
                    compute=ray.data.ActorPoolStrategy(min_size=least, max_size=most),
                    num_cpus=self._cpus,
                    num_gpus=self._gpus or None,
                )
            )

    def close(self) -> None:
        """Leave the cluster; a cluster that was started here ends."""
        if self._ours:
            self._ours = False
            ray.shutdown()
            if self._logs:
                shutil.rmtree(self._logs, ignore_errors=True)

    def _join(self) -> None:
        """Connect to the cluster, if that has not been done."""
        if not ray.is_initialized():
            self._connect()

    def _pool(self) -> tuple[int, int]:
        """Return the least and the most workers."""
        self._join()
        if self._most:
            return self._least, self._most
        resources = ray.cluster_resources()
        wanted = [("CPU", self._cpus), ("GPU", self._gpus)]
        room = min((int(resources.get(name, 0) / share + 1e-6) for name, share in wanted if share), default=1)
        return max(1, room), max(1, room)

    def _connect(self) -> None:
        _knock(self._address)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        try:
            with _silent():
                if self._address:
                    ray.init(self._address, **quiet)
                else:
                    cores = max(core_count(), math.ceil(self._most * self._cpus))
                    local = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
                    self._logs = ray.init("local", **local, **quiet).address_info["session_dir"]
        except Exception as error:  # Ray raises nothing more special if a busy machine takes too long to start one
            where = f"the Ray cluster at {self._address}" if self._address else "a Ray cluster on this machine"
            raise UserError(f"{where} does not answer ({_reason(error)}); {_HINT}") from error
        self._ours = True
        if not self._address:
            gpus = ray.cluster_resources().get("GPU", 0)
            if self._gpus > gpus:
                self.close()
                raise UserError(f"--gpus {self._gpus:g} a worker is more than this machine has ({gpus:g})")


def _knock(address: str) -> None:
    """Return whether a cluster listens at the address; Ray itself would take minutes to fail."""
    if address == "auto":  # what the last `ray start` on this machine has left, also if that cluster is long gone
        folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
        with suppress(OSError):
            address = Path(folder, "ray", "ray_current_cluster").read_text().strip()
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise UserError(f"no Ray cluster listens at {address} ({error.strerror or error}); {_HINT}") from error


def _beside_this() -> dict[str, Any]:
    """Pin the actor to this node, so that only this node's failure kills it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return {"scheduling_strategy": here}


@contextmanager
def _feeding(shards: Iterator[object], ahead: int) -> Iterator[tuple[Any, Callable[[int], bool]]]:
    """Start a thread that makes shards as they are needed, at most ``ahead`` of the answers."""
    # Yields the feeder, and what to report of every answer: it says whether there was one before.
    feeder = ray.remote(num_cpus=0)(Feeder).options(**_beside_this()).remote()
    room, stopped = threading.Semaphore(ahead), threading.Event()
    trouble: list[BaseException] = []
    seen: set[int] = set()

    def feed() -> None:
        count = 0
        try:
            for shard in shards:
                room.acquire()
                if stopped.is_set():
                    return
                ray.get(feeder.put.remote(count, sealed(shard)))
                count += 1
        except BaseException as error:
            trouble.append(error)
        finally:
            with suppress(Exception):
                ray.get(feeder.end.remote(count))

    def answered(number: int) -> bool:
        before = number in seen
        if not before:
            seen.add(number)
            feeder.answered.remote(number)
            room.release()
        return before

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield feeder, answered
        thread.join()
        if trouble:
            raise trouble[0]
    finally:
        stopped.set()
        room.release()
        ray.kill(feeder)


@contextmanager
def _token(folder: Path | None) -> Iterator[str]:
    """Write a file by which workers know that their folder is this one, and still theirs."""
    # Who writes to the folder next clears it away. Workers of a command that was killed, on a machine that has not
    # heard of it, must write no more from then on: rows would be there twice.
    if folder is None:
        yield ""
        return
    path = folder / f"{UNFINISHED}workers-{uuid.uuid4().hex}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    try:
        yield path.name
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _telling(feeder: Any, wanted: dict[str, float]) -> Iterator[None]:
    """Say what is missing if no worker starts: Ray waits silently until there is room for one."""
    done = threading.Event()

    def tell() -> None:
        with suppress(Exception):  # the run may have ended meanwhile
            began = time.monotonic()
            if done.wait(_PATIENCE):
                return
            resources = ray.cluster_resources()
            # If there is enough in all, workers may only be slow to start, or others are about to be finished.
            if all(resources.get(name, 0) >= value for name, value in wanted.items()) and done.wait(3 * _PATIENCE):
                return
            if ray.get(feeder.any_begun.remote()):
                return
            resources, free = ray.cluster_resources(), ray.available_resources()
            needs = ", ".join(
                f"{value:g} {name} (the cluster has {resources.get(name, 0):g}, {free.get(name, 0):g} of them free)"
                for name, value in wanted.items()
                if value
            )
            _LOG.warning(
                "no worker has begun for %d seconds; each needs %s; still waiting: `ray status` says for what, Ctrl-C "
                "ends it",
                time.monotonic() - began,
                needs or "nothing",
            )

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        done.set()


@contextmanager
def _quiet_data() -> Iterator[None]:
    """Set Ray Data up without progress bars and messages, one row per block, and no time limit per shard."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    # Said, from a thread of Ray's and during the run, of every pool that has fewer shards than workers.
    warnings.filterwarnings("ignore", "The minimum number of concurrent actors", UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # which the context's own constructor raises
        context = ray.data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.enable_operator_progress_bars = False
        context.print_on_execution_start = False
        context.enable_auto_log_stats = False
        context.execution_no_progress_timeout_s = -1
        context.target_max_block_size = 1
        with ray.data.DataContext.current(context):
            yield


@contextmanager
def _silent() -> Iterator[None]:
    """Silence stderr: Ray's C++ code logs there that it was asked to be quiet."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _reason(error: BaseException) -> str:
    """Return the beginning of Ray's message, without the traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
