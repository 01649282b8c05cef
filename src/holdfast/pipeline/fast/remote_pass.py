"""The pass on many machines: workers that keep networks and processes from one piece of the samples to the next."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, first_line
from holdfast.models.torch_classifier import TorchClassifier, resolve_device
from holdfast.pipeline.evaluate.planning import Plan, Portion
from holdfast.pipeline.evaluate.worker import EvaluateSpec, Job, Tested, load_models, unloaded
from holdfast.pipeline.fast import networks
from holdfast.pipeline.fast.device_pass import Pass
from holdfast.pipeline.fast.networks import Network, Warming
from holdfast.pipeline.jobs.sharding import check_same
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared

SAMPLES, PIECES = 2048, 3
"""Samples a piece at most: one or two seconds of a large GPU, so that its end, when batches run empty, weighs little.
Fewer where a worker would have fewer pieces than that: a slow one is not waited for."""


@dataclass(frozen=True)
class Piece:
    """Jobs of some samples, with the hashes that their rows are named by."""

    jobs: list[Job]
    images: dict[str, str]
    masks: dict[str, str]

    @property
    def owed(self) -> int:
        """How many rows."""
        return sum(len(rows) for job in self.jobs for _, rows in job.owed)

    def parts(self, size: int) -> Iterator[list[Job]]:
        """The jobs, so many at a time."""
        for start in range(0, len(self.jobs), size):
            yield self.jobs[start : start + size]


def pieces(plan: Plan, width: int) -> Iterator[Piece]:
    """What a plan owes, for so many workers."""
    size = max(1, min(SAMPLES, -(-plan.jobs // (PIECES * width))))
    known = plan.prepared
    for jobs in plan.shards(size, named=False):
        ids = [job.sample.sample_id for job in jobs]
        yield Piece(jobs, {one: known.images[one] for one in ids}, {one: known.masks[one] for one in ids})


class RemotePass:
    """The work of a piece. Travels without its networks, which are loaded (and compiled) on first use and kept."""

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
        # How many processes decode is a matter of the worker's own cores.
        self._spec = replace(spec, workers=1)
        self._prepared, self._portion, self._folder = prepared.for_workers(), portion, folder
        self._compiles = compiles  # networks on a GPU; elsewhere only where the user has said so
        self._tested = [*map(unloaded, tested)]
        self._pass: Pass | None = None
        self._closing: Callable[[], object] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pass": None, "_closing": None}

    def __call__(self, piece: Piece) -> Summary:
        """Do these jobs and write their rows, as one part."""
        if self._pass is None:
            self._pass, opened = self._open()
            self._closing = weakref.finalize(self, opened.close)  # nobody tells a worker that it was the last piece
        prepared = replace(self._prepared, images=piece.images, masks=piece.masks)
        summary = Summary()
        try:
            for part in self._pass.through(prepared, piece.parts, [job.sample for job in piece.jobs], piece.owed):
                summary.merge(part)
        except BaseException:
            # Rows of this piece are under way in it, and memory that nobody gives back: the next would suffer for it.
            self._close()
            raise
        return summary

    def _close(self) -> None:
        closing, self._pass, self._closing = self._closing, None, None
        if closing is not None:
            closing()

    def _open(self) -> tuple[Pass, ExitStack]:
        """The pass, and what closes it."""
        positions, spec = self._portion.positions, self._spec
        device = resolve_device(spec.device)
        cuda = device.startswith("cuda")
        compiles = (self._compiles and cuda) if spec.compile is None else spec.compile
        mine = replace(spec, models=tuple(spec.models[position] for position in positions))
        with ExitStack() as opening:
            warming = None
            if compiles and cuda and len(positions) > 1:  # while this process loads them
                warming = Warming(mine.models, device, self._prepared.collection.classes, spec.batch_size)
                opening.callback(warming.close)
            loaded = load_models(mine, self._prepared.collection)
            planned = [self._tested[position].fingerprint for position in positions]
            check_same(", ".join(mine.models), planned, [model.fingerprint for model in loaded])
            chosen = {position: _network(one, spec.batch_size) for position, one in zip(positions, loaded, strict=True)}
            made = Pass(
                spec, self._prepared, self._portion, self._tested, chosen, self._folder, compiles=compiles,
                warming=warming, writes=False,
            )  # fmt: skip
            opening.callback(made.close)
            return made, opening.pop_all()


def _network(model: Tested, asked: int) -> Network:
    assert isinstance(model.classifier, TorchClassifier), "it was one where the command was started"
    try:
        return networks.build(model.classifier, asked)
    except Exception as error:
        raise HoldfastError(
            f"{model.classifier.name} cannot go the fast way on a worker ({first_line(error)}); leave out --fast"
        ) from error
