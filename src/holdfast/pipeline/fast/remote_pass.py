"""The pass on many machines: workers keep networks and processes from one piece of the samples to the next."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.core.errors import HoldfastError, first_line
from holdfast.models.torch_classifier import TorchClassifier, resolve_device
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_models, unloaded
from holdfast.pipeline.evaluation_rows import EvaluationJob, Portion
from holdfast.pipeline.fast import networks
from holdfast.pipeline.fast.device_pass import Pass
from holdfast.pipeline.fast.networks import Network, Warming
from holdfast.pipeline.jobs.execute import Made
from holdfast.pipeline.samples import Prepared

SAMPLES, PIECES = 2048, 3
"""Samples per piece at most: one or two seconds of a large GPU, so that its end, when batches run empty, weighs little.
Fewer where a worker would have fewer pieces than that: a slow worker is not waited for."""


def piece_size(jobs: int, width: int) -> int:
    """Return how many jobs a piece has, for ``width`` workers."""
    return max(1, min(SAMPLES, -(-jobs // (PIECES * width))))


@dataclass(frozen=True)
class Piece:
    """Jobs of some samples, with the hashes of images and masks from which row ids are made."""

    jobs: list[EvaluationJob]
    images: dict[str, str]
    masks: dict[str, str]

    @classmethod
    def of(cls, jobs: list[EvaluationJob], prepared: Prepared) -> Piece:
        """Add the hashes to jobs."""
        ids = [job.item.sample_id for job in jobs]
        return cls(jobs, *({name: hashes[name] for name in ids} for hashes in (prepared.images, prepared.masks)))

    def parts(self, size: int) -> Iterator[list[EvaluationJob]]:
        """Yield the jobs, ``size`` at a time."""
        for start in range(0, len(self.jobs), size):
            yield self.jobs[start : start + size]


@dataclass
class OpenPass:
    """Loaded models and the pass that uses them; the launcher knows only the models."""

    tested: Sequence[Tested]
    device_pass: Pass | None = None
    closing: Callable[[], object] | None = None


class RemotePass:
    """The worker of ``eval --fast`` on other machines. It loads (and compiles) networks on first use."""

    def __init__(
        self,
        spec: EvaluateSpec,
        prepared: Prepared,
        portion: Portion,
        tested: Sequence[Tested],
        folder: Path,
        *,
        compiles: bool,
    ) -> None:
        self.name = ", ".join(spec.models[position] for position in portion.positions)
        self._spec = replace(spec, workers=1)  # the worker's own cores say how many processes decode
        self._prepared, self._portion, self._folder = prepared.for_workers(), portion, folder
        self._compiles = compiles  # networks on a GPU; elsewhere only where the user has said so
        self._tested = [*map(unloaded, tested)]

    def fingerprints(self, resources: OpenPass) -> list[str]:
        """Return the fingerprints of the models that go through the pass."""
        return [resources.tested[position].fingerprint for position in self._portion.positions]

    def run(self, resources: OpenPass, jobs: Piece) -> Iterator[Made]:
        """Yield the rows of a piece as tables."""
        assert resources.device_pass is not None and resources.closing is not None
        prepared = replace(self._prepared, images=jobs.images, masks=jobs.masks)
        owed = sum(len(job.parts) for job in jobs.jobs)
        try:
            yield from resources.device_pass.through(prepared, jobs.parts, [job.item for job in jobs.jobs], owed)
        except BaseException:
            resources.closing()  # rows of this piece are under way in it, and memory that nobody would give back
            raise

    def load(self) -> OpenPass:
        """Load the networks, and start the processes that decode."""
        positions, spec = self._portion.positions, self._spec
        device = resolve_device(spec.device)
        cuda = device.startswith("cuda")
        compiles = (self._compiles and cuda) if spec.compile is None else spec.compile
        models = tuple(spec.models[position] for position in positions)
        tested = list(self._tested)
        with ExitStack() as opening:
            warming = None
            if compiles and cuda and len(positions) > 1:  # while this process loads them
                warming = Warming(models, device, self._prepared.collection.classes, spec.batch_size)
                opening.callback(warming.close)
            for position, model in zip(
                positions, load_models(replace(spec, models=models), self._prepared.collection), strict=True
            ):
                tested[position] = model
            chosen = {position: _network(tested[position], spec.batch_size) for position in positions}
            device_pass = Pass(
                spec, self._prepared, self._portion, self._tested, chosen, self._folder, compiles=compiles,
                warming=warming, writes=False,
            )  # fmt: skip
            opening.callback(device_pass.close)
            opened = OpenPass(tested, device_pass)
            # Nobody tells a worker that a piece was the last.
            opened.closing = weakref.finalize(opened, opening.pop_all().close)
        return opened


def _network(model: Tested, asked: int) -> Network:
    assert isinstance(model.classifier, TorchClassifier), "it was one where the command was started"
    try:
        return networks.build(model.classifier, asked)
    except Exception as error:
        raise HoldfastError(
            f"{model.classifier.name} cannot be used with --fast on a worker ({first_line(error)}); leave out --fast"
        ) from error
