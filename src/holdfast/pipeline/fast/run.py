"""Which models and conditions of a run go through the fast pass, and where the pass runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from holdfast.core.errors import first_line, no_exit
from holdfast.core.types import Collection, Sample
from holdfast.engine import Executor
from holdfast.models.torch_classifier import TorchClassifier, resolve_device
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, unloaded
from holdfast.pipeline.evaluation_rows import Part, Portion
from holdfast.pipeline.fast import networks
from holdfast.pipeline.fast.device_pass import Pass
from holdfast.pipeline.fast.networks import Network, Warming
from holdfast.pipeline.fast.remote_pass import OpenPass, Piece, RemotePass, piece_size
from holdfast.pipeline.jobs.execute import ProgressReport, execute
from holdfast.pipeline.jobs.plan import Plan
from holdfast.pipeline.jobs.progress import Progress
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import supports
from holdfast.store import Run

WORTH_COMPILING = 50_000
"""Pictures per model and device: below that, compiling takes longer than it saves."""


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
        self.spec, self.run, self._executor = spec, run, executor
        self.portion: Portion | None = None
        self._fast: list[int] = []
        self._networks: dict[int, Network] = {}
        self._tested: list[Tested] = []
        self._reasons: list[str] = []
        self._told = False
        pictures = len(collection) * sum(map(supports, conditions))
        self._worth = pictures >= WORTH_COMPILING * (executor.width if executor.remote else 1)
        self._warming: Warming | None = None
        if not executor.remote:
            device = resolve_device(spec.device)
            cuda = device.startswith("cuda")
            self._compiles = (cuda and self._worth) if spec.compile is None else spec.compile
            if self._compiles and cuda and len(spec.models) > 1:
                self._warming = Warming(spec.models, device, collection.classes, spec.batch_size)

    def close(self) -> None:
        """End processes that are no longer needed."""
        if self._warming is not None:
            self._warming.close()

    def try_out(self, model: Tested) -> Tested:
        """Return the next of the models, with the fingerprint of an exact one where it cannot use the pass."""
        reason = "" if model.fast else "its preprocessing is not plain resizing, cropping and normalising"
        if model.fast and isinstance(model.classifier, TorchClassifier):
            try:
                network = networks.build(model.classifier, self.spec.batch_size)
            except Exception as error:  # whatever it is, the standard evaluator can do it
                reason = first_line(error)
            else:
                self._fast.append(len(self._tested))
                if not self._executor.remote:  # workers have their own
                    self._networks[len(self._tested)] = network
        if reason:
            self._reasons.append(f"{model.classifier.name} cannot use --fast ({reason}); used the standard evaluator")
        tried = replace(model, fast="") if reason else model
        # Only workers hold the networks of all models at once.
        self._tested.append(unloaded(tried) if self._executor.remote else tried)
        return tried

    def split(self, whole: Portion, summary: Summary) -> list[Portion]:
        """Return the portion that goes through the pass, then the portions that the standard evaluator makes."""
        here = tuple(condition for condition in whole.conditions if supports(condition))
        rest = tuple(condition for condition in whole.conditions if not supports(condition))
        fast = tuple(self._fast)
        others = tuple(position for position in whole.positions if position not in fast)
        self.portion = replace(whole, conditions=here, positions=fast)
        self._tell(here, rest, summary)
        portions = [self.portion] if fast else []
        if fast and rest:
            portions.append(replace(whole, conditions=rest, positions=fast, renderings=False))
        if others:
            portions.append(replace(whole, positions=others))
        return portions

    def _tell(self, here: Sequence[Condition], rest: Sequence[Condition], summary: Summary) -> None:
        summary.notes += [] if self._told else self._reasons
        self._told = True
        if rest and self._fast:
            names = ", ".join(condition.name for condition in rest)
            summary.notes.append(f"{len(here)} conditions in one pass; made by the standard evaluator: {names}")

    def execute(self, plan: Plan[Sample, Part], prepared: Prepared, step: str, progress: Progress) -> Summary:
        """Make the rows that a plan of ``portion`` owes, as ``jobs.execute`` does for other plans."""
        assert self.portion is not None
        if not plan.owed:
            return Summary(already=plan.already)
        samples, run = prepared.collection.samples, self.run.path
        if self._executor.remote:
            return execute(
                plan, RemotePass(self.spec, prepared, self.portion, self._tested, run, compiles=self._worth),
                self._executor, step=step, size=piece_size(plan.count, self._executor.width),
                known=OpenPass(self._tested), pack=lambda jobs: Piece.of(jobs, prepared), samples=samples,
                donors=prepared.pool.samples, progress=progress,
            )  # fmt: skip
        device_pass = Pass(
            self.spec, prepared, self.portion, self._tested, self._networks, run, compiles=self._compiles,
            warming=self._warming,
        )  # fmt: skip
        with closing(device_pass), no_exit():
            jobs = partial(plan.shards, with_ids=False)
            return ProgressReport(plan, step, progress).merged(device_pass.through(prepared, jobs, samples, plan.owed))
