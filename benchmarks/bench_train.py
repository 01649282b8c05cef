"""Training throughput against a bare PyTorch loop on the same cached tensors, on the CPU.

Compared is processor time: what else the machine does would otherwise decide by ten per cent either way.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from common import Row

from holdfast.pipeline.train import architectures
from holdfast.pipeline.train.fitting import Fit
from holdfast.pipeline.train.pictures import InMemory
from holdfast.pipeline.train.plan import Places, TrainingJob, TrainSpec
from holdfast.scenarios import Condition

NETWORK, SIZE, BATCH, IMAGES, CLASSES, REPEATS = "timm:resnet18", 96, 16, 192, 12, 3


def ours(source: InMemory, folder: Path) -> tuple[float, float]:
    """Processor seconds of one epoch, and of the whole job: building, checkpoint and model on the disk included."""
    spec = TrainSpec("drawn", recipe="paper", epochs=1, size=SIZE, batch_size=BATCH)
    network = architectures.resolve(NETWORK, size=SIZE)
    job = TrainingJob(network, Condition("original"), "original", 0, "bench", ())
    names = tuple(f"class {place}" for place in range(CLASSES))
    marks = []  # when training begins, and when its epoch is over

    def watch(done: int, total: int) -> None:
        marks.append(time.process_time())

    fitting = Fit(spec, job, names, source, Places(list(range(IMAGES)), []), folder, "cpu", watch)
    start = time.process_time()
    fitting.train()
    return marks[1] - marks[0], time.process_time() - start


def bare(source: InMemory) -> float:
    """Processor seconds of one epoch of the loop that everybody writes."""
    network = architectures.resolve(NETWORK, size=SIZE)
    module = architectures.build(network, CLASSES, SIZE, seed=0)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (network.mean, network.std))
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-4)
    start = time.process_time()
    order = torch.randperm(IMAGES)
    for first in range(0, IMAGES, BATCH):
        index = order[first : first + BATCH]
        batch = (source.images[index].float() / 255 - mean) / std
        loss = torch.nn.functional.cross_entropy(module(batch), source.labels[index])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return time.process_time() - start


def rows() -> Iterator[Row]:
    images = torch.randint(0, 256, (IMAGES, 3, SIZE, SIZE), dtype=torch.uint8)
    source = InMemory(images, torch.arange(IMAGES) % CLASSES)
    epoch = job = plain = float("inf")
    with tempfile.TemporaryDirectory() as name:
        for repeat in range(REPEATS):  # they take turns, so that a machine that slows down does so for both
            plain = min(plain, bare(source))
            one, whole = ours(source, Path(name) / str(repeat))
            epoch, job = min(epoch, one), min(job, whole)
    yield Row(
        f"train, ResNet-18 at {SIZE} px on the CPU ({torch.get_num_threads()} threads)", IMAGES / epoch, "images/s"
    )
    yield Row("train: throughput against a bare PyTorch loop", plain / epoch, at_least=0.9)
    yield Row("train: start, checkpoint and saving of a job", job - epoch, "s")
