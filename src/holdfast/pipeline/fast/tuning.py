"""Make a network of the fast pass fast: layers fused, launched as one graph, compiled where a run is long.

A network is ready within a second without torch.compile, which takes 15 to 30 seconds. Where that pays, a process per
network compiles it beside reading and hashing, and leaves the kernels in torch's cache on disk, where this process
finds them (as does the next run).
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from multiprocessing.connection import wait
from typing import Any

from holdfast.core.errors import first_line, out_of_memory
from holdfast.core.lazy import torch
from holdfast.engine import core_count, end_with_parent
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.fast.networks import Network, build

LOG = logging.getLogger(__name__)


def make_ready(chosen: Mapping[str, Network], *, compiles: bool, warming: Warming | None = None) -> list[str]:
    """Make networks fast and fit them into memory, in the order in which they are warm; return notes."""
    notes = []
    new = {name: network for name, network in chosen.items() if not network.ready}
    for name in warming.in_turn(list(new)) if warming is not None else new:
        network = new[name]
        cuda = network.device.startswith("cuda")
        if cuda:
            fit(network)
        if compiles:
            reason = compile_network(network)
            notes += [f"{name} is not compiled: {reason}"] if reason else []
        if cuda:
            record(network)
        network.ready = True
    return notes


def record(network: Network) -> None:
    """Have the GPU repeat a recorded batch, which costs the host one call in place of hundreds."""
    room, call = network.blank(network.batch), network.call
    try:
        with torch.no_grad(), torch.cuda.device(network.device):
            call(room)  # whatever is set up at the first call
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=_pool(network.device), capture_error_mode="thread_local"):
                answer = call(room)
    except Exception as error:  # a network that looks at values on its way, or too little memory
        LOG.debug("not recorded: %s", first_line(error))
        return

    def repeat(batch: torch.Tensor) -> torch.Tensor:
        room.copy_(batch)
        graph.replay()
        return answer  # until the next batch

    network.call, network.recorded = repeat, call


@cache
def _pool(device: str) -> Any:
    """Return the memory that the recorded networks of a device share: no two of them compute at once."""
    return torch.cuda.graph_pool_handle()


def fit(network: Network) -> None:
    """Halve the batch until it fits into memory."""
    while network.batch > 1:
        try:
            network.probabilities(network.blank(network.batch))
            return
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
        network.batch //= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def compile_network(network: Network) -> str:
    """Compile for batches of this size, and keep what is faster; return why it is not compiled, or nothing."""
    before, network.call = network.call, torch.compile(network.module, dynamic=False)
    try:
        network.probabilities(network.blank(network.batch))  # which compiles
    except Exception as error:  # the compiler fails in many ways; the network answers without it, too
        network.call = before
        return first_line(error)
    if network.device.startswith("cuda"):  # attention and convolutions may have faster kernels of their own
        compiled, plain = (_seconds(network, call) for call in (network.call, before))
        if plain < compiled:
            network.call = before
            return (
                f"it is faster as it is ({network.batch / plain:.0f} images/s, compiled {network.batch / compiled:.0f})"
            )
    return ""


def _seconds(network: Network, call: Any) -> float:
    """Return the seconds that one batch takes, with the device to itself."""
    batch, took = network.blank(network.batch), []
    with torch.no_grad():
        for _ in range(3):
            torch.cuda.synchronize(network.device)
            start = time.perf_counter()
            call(batch)
            torch.cuda.synchronize(network.device)
            took.append(time.perf_counter() - start)
    return min(took)


class Warming:
    """Processes, one per model, that compile networks into torch's cache on disk beside this process."""

    def __init__(self, models: Sequence[str], device: str, classes: Sequence[str], asked: int) -> None:
        threads = max(2, core_count() // max(1, len(models)))
        context = multiprocessing.get_context("spawn")
        self._processes = {
            name: context.Process(target=_warm, args=(name, device, tuple(classes), asked, threads)) for name in models
        }
        for process in self._processes.values():
            process.start()

    def in_turn(self, names: Sequence[str]) -> Iterator[str]:
        """Yield the names as their kernels get into the cache; a process that has failed costs only time."""
        waiting = list(names)
        while waiting:
            running = [name for name in waiting if name in self._processes and self._processes[name].is_alive()]
            done = [name for name in waiting if name not in running]
            if not done:
                wait([self._processes[name].sentinel for name in running])
                continue
            waiting.remove(done[0])
            yield done[0]

    def close(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            process.terminate()
            process.join()


def _warm(name: str, device: str, classes: tuple[str, ...], asked: int, threads: int) -> None:
    end_with_parent()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)  # read when torch is imported, which it is not yet
    from holdfast.models import load_classifier

    try:
        classifier = load_classifier(name, device=device, classes=classes)
        if isinstance(classifier, TorchClassifier) and classifier.preprocessing.geometry is not None:
            network = build(classifier, asked)
            network.call = torch.compile(network.module, dynamic=False)
            network.probabilities(network.blank(network.batch))
    except Exception as error:  # the run itself will meet the same and say so
        LOG.debug("%s was not compiled ahead: %s", name, error)
