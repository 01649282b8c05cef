"""A model's network as the fast pass uses it: bytes in, probabilities out, in batches of one size, compiled.

torch.compile takes up to half a minute per network, most of it on one core. So where there are several networks, a
process per network compiles it first and leaves the kernels in torch's cache on disk, where this process finds them.
"""

from __future__ import annotations

import copy
import logging
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from holdfast.core.errors import first_line, out_of_memory
from holdfast.core.lazy import torch
from holdfast.engine import core_count, end_with_parent
from holdfast.models.torch_classifier import Geometry, TorchClassifier
from holdfast.pipeline.fast.views import KNOWN, blank
from holdfast.scenarios.tensors.batches import with_own_code

LOG = logging.getLogger(__name__)

GPU_BATCH = 512
"""Pictures per batch on a GPU: larger batches gain nothing on an H200."""


@dataclass
class Network:
    """A network with its batch size; ``call`` is what computes, compiled or not."""

    module: Any
    geometry: Geometry
    crops_centre: bool
    batch: int
    device: str
    call: Any
    ready: bool = False

    @property
    def view(self) -> tuple[Geometry, bool]:
        """Return what a picture is resized by: equal for networks that see the same."""
        return self.geometry, self.crops_centre

    def blank(self, count: int) -> torch.Tensor:
        """Return a black batch to be filled: N3HW uint8, the channels of a pixel side by side."""
        return blank(count, self.geometry, self.device).zero_()

    def probabilities(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the probabilities for a batch as ``blank`` makes it: (n, outputs) float32."""
        with torch.no_grad():
            answer: torch.Tensor = self.call(batch)
        return answer


def batch_size(device: str, asked: int) -> int:
    """Return pictures per batch: what was asked for, on a GPU at least what fills it."""
    return max(asked, GPU_BATCH) if device.startswith("cuda") else asked


def build(classifier: TorchClassifier, asked: int) -> Network:
    """Return the network of a classifier, tried on two pictures; raise whatever it raises."""
    preprocessing, device = classifier.preprocessing, classifier.device
    geometry = preprocessing.geometry
    if geometry is None or geometry.interpolation not in KNOWN:
        raise ValueError("its preprocessing is more than resizing, cropping and normalising")
    number = torch.bfloat16 if device.startswith("cuda") else torch.float32
    module = _seeing(copy.deepcopy(classifier.module), preprocessing.mean, preprocessing.std, number).to(device)
    module = module.eval().requires_grad_(False)
    network = Network(module, geometry, preprocessing.crops_centre, batch_size(device, asked), device, module)
    answer = network.probabilities(network.blank(2))
    if tuple(answer.shape) != (2, len(classifier.labels)):
        raise ValueError(f"it answers with shape {tuple(answer.shape)}")
    return network


def _seeing(network: Any, mean: Sequence[float], std: Sequence[float], number: torch.dtype) -> torch.nn.Module:
    class Seeing(torch.nn.Module):
        """Turns bytes NCHW into probabilities."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network.to(number, memory_format=torch.channels_last)
            self.mean: torch.Tensor
            self.std: torch.Tensor
            self.register_buffer("mean", 255 * torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
            self.register_buffer("std", 255 * torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen = ((images.float() - self.mean) / self.std).to(number)
            logits: torch.Tensor = self.network(seen)
            return logits.float().softmax(1)

    # Otherwise all networks of a run would share the compiled code.
    Seeing.forward = with_own_code(Seeing.forward)  # type: ignore[method-assign]
    return Seeing()


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
    network.call = torch.compile(network.module, dynamic=False)
    try:
        network.probabilities(network.blank(network.batch))  # which compiles
    except Exception as error:  # the compiler fails in many ways; the network answers without it, too
        network.call = network.module
        return first_line(error)
    if network.device.startswith("cuda"):  # attention may have faster kernels of its own
        compiled, plain = (_seconds(network, call) for call in (network.call, network.module))
        if plain < compiled:
            network.call = network.module
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
        # The first network is left to this process, which has nothing else to do then.
        self._processes = {
            name: context.Process(target=_warm, args=(name, device, tuple(classes), asked, threads))
            for name in models[1:]
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
