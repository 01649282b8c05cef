"""What of a run goes through one pass over its images, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from holdfast.core.errors import first_line
from holdfast.core.types import Collection
from holdfast.engine import Executor
from holdfast.models.torch_classifier import TorchClassifier, resolve_device
from holdfast.pipeline.evaluate.planning import Plan, Portion
from holdfast.pipeline.evaluate.worker import EvaluateSpec, Tested, unloaded
from holdfast.pipeline.fast import networks
from holdfast.pipeline.fast.device_pass import Pass
from holdfast.pipeline.fast.networks import Network, Warming
from holdfast.pipeline.fast.remote_pass import RemotePass, pieces
from holdfast.pipeline.jobs.sharding import seeing
from holdfast.pipeline.jobs.summary import Summary
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import supports
from holdfast.store import Run

WORTH_COMPILING = 50_000
"""Pictures a model and device: below that, compiling takes longer than it saves."""


class OnePass:
    """The fast way of one run: which models and conditions take it, and the pass, here or by Ray's workers."""

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
        """Let go of processes that are no longer needed."""
        if self._warming is not None:
            self._warming.close()

    def try_out(self, model: Tested) -> Tested:
        """The next of the models, named as an exact one where it cannot go this way."""
        reason = "" if model.fast else "its preparation is not plain resizing, cropping and normalising"
        if model.fast and isinstance(model.classifier, TorchClassifier):
            try:
                network = networks.build(model.classifier, self.spec.batch_size)
            except Exception as error:  # whatever it is, the ordinary way is there
                reason = first_line(error)
            else:
                self._fast.append(len(self._tested))
                if not self._executor.remote:  # workers have their own
                    self._networks[len(self._tested)] = network
        if reason:
            self._reasons.append(f"{model.classifier.name} goes the ordinary way: {reason}")
        tried = replace(model, fast="") if reason else model
        # Networks of all models at once are for workers to hold.
        self._tested.append(unloaded(tried) if self._executor.remote else tried)
        return tried

    def split(self, conditions: tuple[Condition, ...], summary: Summary) -> list[Portion]:
        """What goes this way, then what goes the ordinary one."""
        here = tuple(one for one in conditions if supports(one))
        rest = tuple(one for one in conditions if not supports(one))
        fast = tuple(self._fast)
        others = tuple(position for position in range(len(self._tested)) if position not in fast)
        self.portion = Portion(here, fast, conditions)
        self._tell(here, rest, summary)
        portions = [self.portion] if fast else []
        if fast and rest:
            portions.append(Portion(rest, fast, conditions, renderings=False))
        if others:
            portions.append(Portion(conditions, others, conditions))
        return portions

    def _tell(self, here: Sequence[Condition], rest: Sequence[Condition], summary: Summary) -> None:
        summary.notes += [] if self._told else self._reasons
        self._told = True
        if rest and self._fast:
            names = ", ".join(one.name for one in rest)
            summary.notes.append(f"{len(here)} conditions in one pass; the ordinary way: {names}")

    def work(self, plan: Plan) -> Iterator[Summary]:
        """Do what a plan owes; a summary for each part file."""
        if not plan.owed:
            return
        run, prepared = self.run.path, plan.prepared
        if self._executor.remote:
            work = RemotePass(self.spec, prepared, plan.portion, self._tested, run, compiles=self._worth)
            seen = seeing(work, prepared.collection.samples, self._executor, prepared.pool.samples)
            yield from self._executor.map(seen, pieces(plan, self._executor.width))
            return
        made = Pass(
            self.spec, prepared, plan.portion, self._tested, self._networks, run, compiles=self._compiles,
            warming=self._warming,
        )  # fmt: skip
        with closing(made):
            jobs = partial(plan.shards, named=False)
            yield from made.through(prepared, jobs, prepared.collection.samples, plan.owed)
