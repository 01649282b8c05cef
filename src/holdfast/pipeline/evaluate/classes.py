"""``holdfast eval`` of images with one class each: attacks, adaptation, ``--search`` and the fast pass."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.fingerprint import array_sha256, seed_from
from holdfast.core.tasks import Task
from holdfast.core.types import Sample
from holdfast.engine import Executor
from holdfast.models import attacks
from holdfast.models.adaptation import AdaptedClassifier
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, check_attacks, know_models, load_models
from holdfast.pipeline.evaluate.adaptation import AdaptationImages, adaptation_images
from holdfast.pipeline.evaluate.evaluating import Evaluating
from holdfast.pipeline.evaluate.search import search, searched
from holdfast.pipeline.evaluate.worker import Evaluation, Loaded, WaitingRow, is_native
from holdfast.pipeline.evaluation_rows import Part, Portion
from holdfast.pipeline.fast import OnePass
from holdfast.pipeline.generate.backgrounds import Painter
from holdfast.pipeline.jobs.execute import choose_executor
from holdfast.pipeline.jobs.plan import Plan
from holdfast.pipeline.samples import Prepared, prepare


class ClassEvaluation(Evaluation):
    """The worker: classifiers may be attacked, adapted, or shown images at their native depth."""

    def __init__(
        self,
        spec: EvaluateSpec,
        prepared: Prepared,
        run: Path,
        task: Task,
        adaptation: AdaptationImages | None = None,
    ) -> None:
        super().__init__(spec, prepared, run, task)
        self.adaptation = adaptation

    def load(self) -> Loaded:
        """Load the models."""
        tested = load_models(self.spec, self.prepared.collection)
        return Loaded([self.adaptation.identified(model) for model in tested] if self.adaptation else tested)

    def ask(self, model: Tested, batch: Sequence[WaitingRow], painter: Painter | None) -> list[dict[str, Any]]:
        """Return the outcome columns of each row of a batch."""
        inputs = [prepared for _, _, prepared in batch]
        shown = [ready for ready, _, _ in batch]
        condition, samples = shown[0].condition, [ready.sample for ready in shown]
        if self.adaptation is not None and isinstance(model.classifier, AdaptedClassifier):
            self.adaptation.fit(model.classifier, samples[0], condition, self.spec, self.prepared, painter)
        if not (condition.definition.attack or is_native(model)):
            return super().ask(model, batch, painter)
        if condition.definition.attack:
            inputs, answers = attacks.run_attack(
                resolve_name(condition.definition.attack),
                model.classifier,
                inputs,
                [model.labels.classes.index(sample.label) for sample in samples],
                model.labels.members,
                seeds=[seed_from(self.spec.seed, sample.sample_id, condition.scenario) for sample in samples],
                parameters=condition.parameters,
            )
        else:
            answers = self.answers(model, inputs)
        seen = [{"image_sha256": array_sha256(picture)} for picture in inputs]
        rows = self.task.rows(model, shown, answers)
        return [ready.facts | own | row for ready, own, row in zip(shown, seen, rows, strict=True)]


class ClassEvaluating(Evaluating):
    """One command on classifiers."""

    fast: OnePass | None = None

    @cached_property
    def _over(self) -> threading.Event:
        return threading.Event()

    @cached_property
    def _beside(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1)

    def begin(self) -> None:
        """Load the models while files are hashed, if networks take long to get ready."""
        if self.spec.fast:
            self.fast = OnePass(self.spec, self.collection, self.conditions, self.run, self.executor)
            self._hashing = self._beside.submit(prepare, self.spec, self.collection, self._reported)
        super().begin()

    _hashing: Future[Prepared] | None = None

    def _reported(self, step: str, done: int, total: int) -> None:
        if self._over.is_set():
            raise HoldfastError("these hashes are no longer needed")
        self.progress(step, done, total)

    @cached_property
    def prepared(self) -> Prepared:
        """The data with its hashes."""
        if self._hashing is not None:
            return self._hashing.result()
        return prepare(self.spec, self.collection, self.progress)

    @cached_property
    def adaptation(self) -> AdaptationImages | None:
        """The images that models are fitted to."""
        if not any(getattr(model.classifier, "adapt_images", 0) for model in self._loaded):
            return None
        return adaptation_images(self.spec, self.prepared, self._loaded)

    @cached_property
    def _loaded(self) -> list[Tested]:
        # Loaded in this process, or only what a plan needs to know.
        here = self.executor.shares_memory or (self.fast is not None and not self.executor.remote)
        if not here and not any(condition.definition.paints for condition in self.conditions):
            inspect = self.fast.try_out if self.fast is not None else None
            return know_models(self.spec, self.collection, self.conditions, inspect)
        tested = load_models(self.spec, self.collection)
        check_attacks(self.conditions, tested)
        return [self.fast.try_out(model) for model in tested] if self.fast is not None else tested

    def load(self) -> Sequence[Tested]:
        """Return the models; those that adapt carry the images that they are fitted to in their fingerprint."""
        tested = self._loaded
        return [self.adaptation.identified(model) for model in tested] if self.adaptation else tested

    def make_rows(self) -> None:
        """Make all missing rows; of a search, only as many as it takes to find the first failures."""
        groups = searched(self.conditions) if self.spec.search else []
        looked_for = {condition for levels in groups for condition in levels}
        self.conditions = [condition for condition in self.conditions if condition not in looked_for]
        super().make_rows()
        search(self, groups)
        if self.summary.already:
            self.summary.notes += [
                f"{model.model.name}: stored answers were kept, and Holdfast cannot see whether its weights have "
                "changed since; name a new version with ?name=…, or give the object an attribute fingerprint"
                for model in self.tested if not getattr(model.model, "versioned", True)
            ]  # fmt: skip

    def portions(self, whole: Portion, prepared: Prepared, step: str) -> Sequence[Portion]:
        """Make what goes through the fast pass; return the portions that the worker makes."""
        if self.fast is None:
            return [whole]
        portions = self.fast.split(whole, self.summary)
        for portion in portions:
            if portion is self.fast.portion:
                plan = self.plan(portion, prepared, None)
                self.summary.merge(self.fast.execute(plan, prepared, step, self.progress))
        return [portion for portion in portions if portion is not self.fast.portion]

    def worker(self, portion: Portion, prepared: Prepared) -> Evaluation:
        """Return what turns jobs into rows."""
        return ClassEvaluation(self.spec, prepared, self.run.path, self.task, self.adaptation)

    def placed(self, plan: Plan[Sample, Part], worker: Evaluation, portion: Portion) -> tuple[Executor, int]:
        """Return where a plan is executed: in several processes that share a GPU if that is faster."""
        if self.adaptation is not None:
            return self.executor, 0
        where = choose_executor(
            plan, worker, self.executor, self.spec.device, self.spec.models, conditions=portion.conditions,
            parameters=sum(each.parameters for each in self.tested), batch=self.spec.batch_size,
        )  # fmt: skip
        return where, 0

    def close(self) -> None:
        """End the hashing and the fast pass's processes."""
        self._over.set()
        self._beside.shutdown(wait=False)
        if self.fast is not None:
            self.fast.close()
