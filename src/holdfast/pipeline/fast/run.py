"""Which models and conditions of a run go through the fast pass, and where: here, on several GPUs or machines."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, first_line, no_exit
from holdfast.core.networks import resolve_device, several_gpus
from holdfast.core.types import Collection, Image, Sample
from holdfast.engine import Executor, LocalExecutor
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, first_images, load_models, unloaded
from holdfast.pipeline.evaluation_rows import EvaluationJob, Part, Portion, split_portion
from holdfast.pipeline.fast import networks
from holdfast.pipeline.fast.device_pass import EarlyStart, Pass, decoding_processes
from holdfast.pipeline.fast.networks import Network
from holdfast.pipeline.jobs.execute import Made, ProgressReport, execute
from holdfast.pipeline.jobs.plan import Plan
from holdfast.pipeline.jobs.progress import Progress, Summary
from holdfast.pipeline.samples import Prepared
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import supports
from holdfast.store import Run

SAMPLES, PIECES = 2048, 3
"""Samples per piece at most: one or two seconds of a large GPU, so that its end, when batches run empty, weighs little.
Fewer if a worker would have fewer pieces than that: a slow worker is not waited for."""


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
    networks: Mapping[int, Network] = field(default_factory=dict)  # by the place of their model
    proved: bool = False


class RemotePass:
    """The worker of ``eval --fast`` on other machines or GPUs. It loads (and compiles) networks on first use."""

    def __init__(
        self,
        spec: EvaluateSpec,
        prepared: Prepared,
        portion: Portion,
        tested: Sequence[Tested],
        folder: Path,
        *,
        compiles: bool,
        kernels: bool,
    ) -> None:
        self.name = ", ".join(spec.models[position] for position in portion.positions)
        self._spec = replace(spec, workers=1)  # the worker's own cores say how many processes decode
        self._prepared, self._portion, self._folder = prepared.for_workers(), portion, folder
        self._compiles = compiles  # networks on a GPU; elsewhere only if the user has said so
        self._kernels = kernels
        self._tested = [*map(unloaded, tested)]

    def fingerprints(self, resources: OpenPass) -> list[str]:
        """Return the fingerprints of the models that go through the pass."""
        return [resources.tested[position].fingerprint for position in self._portion.positions]

    def run(self, resources: OpenPass, jobs: Piece) -> Iterator[Made]:
        """Yield the rows of a piece as tables."""
        assert resources.device_pass is not None and resources.closing is not None
        if not resources.proved:
            images = first_images((job.item for job in jobs.jobs), self._spec.max_pixels)
            for position, network in resources.networks.items():
                model: Any = resources.tested[position].classifier
                networks.prove(network, model, images)  # raises; the process that planned notes how far they agree
            resources.proved = True
        prepared = replace(self._prepared, images=jobs.images, masks=jobs.masks)
        owed = sum(len(job.parts) for job in jobs.jobs)
        try:
            yield from resources.device_pass.through(prepared, jobs.parts, [job.item for job in jobs.jobs], owed)
        except BaseException:
            resources.closing()  # rows of this piece are under way in it, and memory that no one would give back
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
            for position, model in zip(
                positions, load_models(replace(spec, models=models), self._prepared.collection), strict=True
            ):
                tested[position] = model
            kernels = self._kernels and has_kernels(device)
            chosen = {position: _network(tested[position], spec.batch_size, kernels) for position in positions}
            device_pass = Pass(
                spec, self._prepared, self._portion, self._tested, chosen, self._folder, compiles=compiles,
                writes=False,
            )  # fmt: skip
            opening.callback(device_pass.close)
            opened = OpenPass(tested, device_pass, networks=chosen)
            # A worker does not know that a piece was the last.
            opened.closing = weakref.finalize(opened, opening.pop_all().close)
        return opened


def _network(model: Tested, asked: int, kernels: bool) -> Network:
    assert isinstance(model.classifier, TorchClassifier), "it was one where the command was started"
    try:
        return networks.build(model.classifier, asked, kernels=kernels)
    except Exception as error:
        raise HoldfastError(
            f"{model.classifier.name} cannot be used with --fast on a worker ({first_line(error)}); leave out --fast"
        ) from error


WORTH_KERNELS = 100_000
"""Images per device: below that, getting our kernels ready takes longer than they save. On a machine that has never
seen them, Triton compiles them for six seconds; afterwards it is half a second."""


def has_kernels(device: str) -> bool:
    """Return whether a device can run kernels of our own."""
    return device.startswith("cuda") and find_spec("triton") is not None


WORTH_COMPILING = 1_000_000  # images per model and device: below that, compiling takes longer than it saves


class OnePass:
    """The fast pass of one run: its models and conditions, and its execution, here or by Ray's workers."""

    def __init__(
        self,
        spec: EvaluateSpec,
        collection: Collection,
        conditions: Sequence[Condition],
        run: Run,
        executor: Executor,
    ) -> None:
        gpus = () if executor.remote else several_gpus(spec.device)
        self.spec, self.run, self._executor = spec, run, LocalExecutor(len(gpus), gpus) if gpus else executor
        self._elsewhere = executor.remote or bool(gpus)  # whether other processes hold the networks
        self.portion: Portion | None = None
        self._fast: list[int] = []
        self._networks: dict[int, Network] = {}
        self._tested: list[Tested] = []
        self._reasons: list[str] = []  # why models are not in the pass, and how those in it agree with themselves
        self._samples = collection.samples
        self._first: list[Image] | None = None
        self._told = False
        pictures = len(collection) * sum(map(supports, conditions))
        self._many = pictures >= WORTH_KERNELS * (self._executor.width if self._elsewhere else 1)
        self._worth = pictures >= WORTH_COMPILING * (self._executor.width if self._elsewhere else 1)
        self._start: EarlyStart | None = None
        self._closing = ExitStack()
        if not self._elsewhere:
            device = resolve_device(spec.device)
            cuda = device.startswith("cuda")
            self._compiles = (cuda and self._worth) if spec.compile is None else spec.compile
            if processes := decoding_processes(spec, cuda):
                here = [condition for condition in conditions if supports(condition)]
                self._start = EarlyStart(spec, here, processes, cuda=cuda)
                self._closing.callback(self._start.close)

    def close(self) -> None:
        """End processes that are no longer needed."""
        self._closing.close()

    def try_out(self, model: Tested) -> Tested:
        """Return the next of the models, with the fingerprint of an exact one if it cannot use the pass."""
        reason = "" if model.fast else "its preprocessing is not plain resizing, cropping and normalising"
        if model.fast and isinstance(model.classifier, TorchClassifier):
            try:
                network = networks.build(
                    model.classifier, self.spec.batch_size, kernels=self._many and has_kernels(model.classifier.device)
                )
                self._reasons += networks.prove(network, model.classifier, self._images())
            except Exception as error:  # whatever it is, the standard evaluator can do it
                reason = first_line(error)
            else:
                self._fast.append(len(self._tested))
                if not self._elsewhere:  # workers have their own
                    self._networks[len(self._tested)] = network
                    if self._start is not None:
                        self._start.make_ready(
                            self.spec.models[len(self._tested)], self._networks[len(self._tested)],
                            compiles=self._compiles,
                        )  # fmt: skip
        if reason:
            self._reasons.append(f"{model.classifier.name} cannot use --fast ({reason}); used the standard evaluator")
        tried = replace(model, fast="") if reason else model
        # Only workers hold the networks of all models at once.
        self._tested.append(unloaded(tried) if self._elsewhere else tried)
        return tried

    def _images(self) -> list[Image]:
        if self._first is None:
            self._first = first_images(self._samples, self.spec.max_pixels)
        return self._first

    def split(self, whole: Portion, summary: Summary) -> list[Portion]:
        """Return the portion that goes through the pass, then the portions that the standard evaluator makes."""
        portions = split_portion(whole, self._fast)
        self.portion = portions[0] if self._fast else None
        summary.notes += [] if self._told else self._reasons
        self._told = True
        names = ", ".join(condition.name for condition in whole.conditions if not supports(condition))
        if names and self.portion is not None:
            here = len(self.portion.conditions)
            summary.notes.append(f"{here} conditions in one pass; made by the standard evaluator: {names}")
        return portions

    def execute(self, plan: Plan[Sample, Part], prepared: Prepared, step: str, progress: Progress) -> Summary:
        """Make the missing rows of a plan of ``portion``, as ``jobs.execute`` does for other plans."""
        assert self.portion is not None
        if not plan.owed:
            return Summary(already=plan.already)
        samples, run = prepared.collection.samples, self.run.path
        if self._elsewhere:
            size = max(1, min(SAMPLES, -(-plan.count // (PIECES * self._executor.width))))
            return execute(
                plan,
                RemotePass(
                    self.spec, prepared, self.portion, self._tested, run, compiles=self._worth, kernels=self._many
                ),
                self._executor, step=step, size=size,
                known=OpenPass(self._tested), pack=lambda jobs: Piece.of(jobs, prepared), samples=samples,
                donors=prepared.pool.samples, progress=progress,
            )  # fmt: skip
        device_pass = Pass(
            self.spec, prepared, self.portion, self._tested, self._networks, run, compiles=self._compiles,
            start=self._start,
        )  # fmt: skip
        with closing(device_pass), no_exit():
            jobs = partial(plan.shards, with_ids=False)
            return ProgressReport(plan, step, progress).merged(device_pass.through(prepared, jobs, samples, plan.owed))
