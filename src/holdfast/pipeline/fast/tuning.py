"""Make a network of the fast pass fast: a batch that fits into memory, compiled if a run is long.

A network is ready within a second without torch.compile, which takes 15 to 30 seconds. If that pays, it continues
next to reading and hashing, and the next run finds the kernels in torch's cache on disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from holdfast.core.errors import first_line, out_of_memory
from holdfast.core.lazy import torch
from holdfast.pipeline.fast.networks import Network

LOG = logging.getLogger(__name__)


def make_ready(chosen: Mapping[str, Network], *, compiles: bool) -> list[str]:
    """Make networks that are not ready yet fast, and fit them into memory; return notes."""
    notes = []
    for name, network in chosen.items():
        if network.ready:
            continue
        if network.device.startswith("cuda"):
            fit(network)
        if compiles:
            reason = compile_network(network)
            notes += [f"{name} is not compiled: {reason}"] if reason else []
        network.ready = True
    return notes


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
