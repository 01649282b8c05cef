"""Renders images under their conditions, asks the models, and yields rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import array_sha256, canonical_json, seed_from
from holdfast.core.protocols import StagedClassifier
from holdfast.core.schema import CLASSIFY, Task
from holdfast.core.types import Collection, Image, Rendered, Sample
from holdfast.engine import Executor, LocalExecutor, ahead, core_count, thread_pool
from holdfast.models import attacks
from holdfast.models.adaptation import AdaptedClassifier
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_models, proved
from holdfast.pipeline.evaluate.adaptation import AdaptationImages
from holdfast.pipeline.evaluation_rows import (
    RENDERED_COLUMNS,
    EvaluationIds,
    EvaluationJob,
    Part,
    Portion,
    row_key,
    stored_details,
)
from holdfast.pipeline.generate.backgrounds import Painter
from holdfast.pipeline.jobs.execute import Made, choose_executor, execute
from holdfast.pipeline.jobs.plan import Plan
from holdfast.pipeline.jobs.progress import Progress, Summary
from holdfast.pipeline.jobs.rows import Row, answer_each, answered, outcome_rows
from holdfast.pipeline.samples import Prepared, Rendering, over_matte, recorded_spec, render_conditions
from holdfast.pipeline.small_copies import keep_thumbnail
from holdfast.scenarios import Condition
from holdfast.store import Parts, Run

SAME_ERRORS = 100
"""A model that fails on so many images in the same way, and has answered for none before, is not asked further."""

RELEASED = Rendered(np.zeros((0, 0, 3), np.uint8))


@dataclass
class Loaded:
    """What a process keeps between shards: the models, what paints backgrounds, and threads that render."""

    tested: Sequence[Any]  # of TestedModel
    painter: Painter | None = None
    threads: ThreadPoolExecutor = field(default_factory=thread_pool)
    asking: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))  # that ask models on a GPU
    first_errors: dict[str, list[str]] = field(default_factory=dict)  # by model, until it answers once
    proved: set[int] = field(default_factory=set)  # models, by their place, whose networks see what ``predict`` shows


@dataclass
class ReadyRendering:
    """One rendering on its way to the models: preprocessed for each of them, its pixels released."""

    job: EvaluationJob
    rendering: Rendering
    owed: list[tuple[int, str]]  # positions of models, with row ids
    prepared: list[Any] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


WaitingRow = tuple[ReadyRendering, str, Any]  # A rendering, the id of the row it makes, and the model's input
AnsweredBatch = tuple[str, list[Row], Sequence[Any]]  # A model, its rows, and its answers or the errors in their place


class Evaluation:
    """The worker of ``holdfast eval``: renders in threads while the models compute.

    Another task replaces ``load`` and ``ask``, and ``ready`` or ``row`` where its rows hold more.
    """

    def __init__(
        self,
        spec: EvaluateSpec,
        prepared: Prepared,
        run: Path,
        adaptation: AdaptationImages | None = None,
        task: Task = CLASSIFY,
    ) -> None:
        self.spec, self.prepared, self.folder = spec, prepared.for_workers(), run
        self.adaptation, self.task = adaptation, task
        self.name = ", ".join(spec.models)

    def load(self) -> Loaded:
        """Load the models."""
        tested = load_models(self.spec, self.prepared.collection)
        return Loaded([self.adaptation.identified(model) for model in tested] if self.adaptation else tested)

    def fingerprints(self, resources: Loaded) -> list[str]:
        """Return the fingerprints of the models."""
        return [model.fingerprint for model in resources.tested]

    def run(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[Made]:
        """Yield the rows of these jobs, as batches fill."""
        for each in resources.tested:
            if isinstance(each.model, TorchClassifier):
                each.model.fuse_layers()
        if attacked := [job.item for job in jobs if any(condition.definition.attack for condition, _ in job.parts)]:
            yield self._prove(resources, attacked)
        batches = self._batches(resources, jobs)
        ask = lambda asked: self._answered(resources, *asked)  # noqa: E731
        answers = ahead(resources.asking, ask, batches, 2) if self._at_once(resources, jobs) else map(ask, batches)
        for model, rows, given in answers:
            yield from rows
            _stop_if_silent(model, given, resources.first_errors)

    def _prove(self, resources: Loaded, samples: Sequence[Sample]) -> Summary:
        """Return notes that the models see in an attack what they see elsewhere; raise a UserError if not."""
        notes: list[str] = []
        for position, model in enumerate(resources.tested):
            if position not in resources.proved:
                notes += proved(model.model, samples, self.spec.max_pixels)
                resources.proved.add(position)
        return Summary(notes=notes)

    def _at_once(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> bool:
        """Return whether two threads may ask: a GPU computes while the next batch is copied and rows are made."""
        plain = not any(condition.definition.attack for job in jobs for condition, _ in job.parts)
        on_gpu = all(
            isinstance(each.model, TorchClassifier) and each.model.device != "cpu" for each in resources.tested
        )
        return on_gpu and plain and self.adaptation is None

    def _batches(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[tuple[int, list[WaitingRow]]]:
        """Yield the batches that each model (by position) is asked about, as they fill, and pictures that failed."""
        # An attack is one call for one model and its own images, and a model that adapts is asked about one condition
        # at a time; everything else shares a model's batches.
        waiting: dict[tuple[int, Any], list[WaitingRow]] = {}
        for ready in self._ahead(resources, jobs):
            if ready.rendering.rendered is None:
                yield from ((position, [(ready, row_id, None)]) for position, row_id in ready.owed)
                continue
            condition = ready.rendering.condition
            for (position, row_id), prepared in zip(ready.owed, ready.prepared, strict=True):
                adapts = isinstance(resources.tested[position].model, AdaptedClassifier)
                apart = (condition, ready.job.item.condition) if adapts or condition.definition.attack else None
                batch = waiting.setdefault((position, apart), [])
                batch.append((ready, row_id, prepared))
                if len(batch) >= self.spec.batch_size:
                    yield position, waiting.pop((position, apart))
        for (position, _), batch in waiting.items():
            yield position, batch

    def _ahead(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[ReadyRendering]:
        """Yield renderings in order, a few samples ahead of the models and no more."""
        # Models that compute on this machine's cores use all of them, and rendering beside them makes every thread wait
        # for the slowest. Then a few samples are rendered on all cores, and after that the models compute.
        threads, painter = resources.threads, resources.painter
        at_once = max(painter.at_once if painter is not None else 0, core_count())
        on_cores = all(str(getattr(model.model, "device", "")) == "cpu" for model in resources.tested)
        if painter is not None or on_cores:
            for start in range(0, len(jobs), at_once):
                some = jobs[start : start + at_once]
                if painter is not None:
                    wanted = [(job.item, list(dict.fromkeys(condition for condition, _ in job.parts))) for job in some]
                    painter.prepare(wanted, self.spec.max_pixels)
                for ready in threads.map(lambda job: self._render(resources, job), some):
                    yield from ready
            return
        for ready in ahead(threads, partial(self._render, resources), jobs, core_count() + 1):
            yield from ready

    def _render(self, resources: Loaded, job: EvaluationJob) -> list[ReadyRendering]:
        owed = {
            condition: [(position, row_id) for (_, position), row_id in rows]
            for condition, rows in groupby(zip(job.parts, job.ids, strict=True), lambda row: row[0][0])
        }
        renderings = render_conditions(
            job.item, list(owed), self.prepared.pool, seed=self.spec.seed, max_pixels=self.spec.max_pixels,
            painter=resources.painter,
        )  # fmt: skip
        return [self.ready(resources, job, rendering, owed[rendering.condition]) for rendering in renderings]

    def ready(
        self, resources: Loaded, job: EvaluationJob, rendering: Rendering, owed: list[tuple[int, str]]
    ) -> ReadyRendering:
        """Return a rendering as the models take it, with the facts that its rows share."""
        ready = ReadyRendering(job, rendering, owed)
        rendered_details = rendering.details if rendering.rendered is None else rendering.rendered.details
        details = {**stored_details(job.item), **rendered_details}
        ready.facts = {name: details.get(name) for name in RENDERED_COLUMNS}
        if rendering.rendered is not None:
            native = rendering.rendered.image
            image = over_matte(native, self.spec.matte, job.item)
            ready.facts |= {"image_sha256": array_sha256(image)}
            if rendering.condition.definition.paints:
                keep_thumbnail(self.folder, job.item, rendering.condition, image, rendered_details)
            attack = bool(rendering.condition.definition.attack)
            alike: dict[Any, Any] = {}  # by preprocessing, which several models may share
            for position, _ in owed:
                model = resources.tested[position]
                key = position if attack or is_native(model) else _preprocessing(model.model) or position
                if key not in alike:
                    alike[key] = native.copy() if is_native(model) else _model_input(model, image, attack)
                ready.prepared.append(alike[key])
            ready.rendering = replace(rendering, rendered=RELEASED)
        return ready

    def _answered(self, resources: Loaded, position: int, batch: Sequence[WaitingRow]) -> AnsweredBatch:
        """Ask one model about a batch, and return its name, the rows, and what it gave or why it failed on each."""
        model: Any = resources.tested[position]
        first = batch[0][0]
        if first.rendering.rendered is None:
            failed = first.facts | {"status": first.rendering.status, "error": first.rendering.error}
            return model.model.name, [self.row(ready, model, row_id) | failed for ready, row_id, _ in batch], []
        answers = answer_each(lambda some: self.ask(model, some, resources.painter), batch)
        rows = [
            self.row(ready, model, row_id) | answered(answer)
            for (ready, row_id, _), answer in zip(batch, answers, strict=True)
        ]
        return model.model.name, rows, answers

    def ask(self, model: Tested, batch: Sequence[WaitingRow], painter: Painter | None) -> list[dict[str, Any]]:
        """Return the outcome columns of each row of a batch."""
        inputs = [prepared for _, _, prepared in batch]
        condition = batch[0][0].rendering.condition
        samples = [ready.job.item for ready, _, _ in batch]
        seen: list[dict[str, Any]] = [{}] * len(batch)
        if self.adaptation is not None and isinstance(model.classifier, AdaptedClassifier):
            self.adaptation.fit(model.classifier, samples[0], condition, self.spec, self.prepared, painter)
        if is_native(model):
            seen = [{"image_sha256": array_sha256(picture)} for picture in inputs]
        if condition.definition.attack:
            pictures, probabilities = attacks.run_attack(
                resolve_name(condition.definition.attack),
                model.classifier,
                inputs,
                [model.labels.classes.index(sample.label) for sample in samples],
                model.labels.members,
                seeds=[seed_from(self.spec.seed, sample.sample_id, condition.scenario) for sample in samples],
                parameters=condition.parameters,
            )
            seen = [{"image_sha256": array_sha256(picture)} for picture in pictures]
        elif isinstance(model.classifier, StagedClassifier):
            probabilities = model.classifier.predict_prepared(inputs)
        else:
            probabilities = model.classifier.predict(inputs)
        if probabilities.shape != (len(batch), len(model.classifier.labels)):
            raise SampleError(f"the model answered with an array of shape {probabilities.shape}")
        rows = outcome_rows(probabilities, model.labels, [sample.label for sample in samples])
        return [ready.facts | own | row for (ready, _, _), own, row in zip(batch, seen, rows, strict=True)]

    def row(self, ready: ReadyRendering, model: Any, row_id: str) -> Row:
        """Return a row without its outcome."""
        sample, condition = ready.job.item, ready.rendering.condition
        key = row_key(self.spec, self.prepared.collection.name, sample, condition, model.model.name, self.task)
        return key | {"label": sample.label or None, "row_id": row_id}


def _stop_if_silent(model: str, answers: Sequence[Any], first_errors: dict[str, list[str]]) -> None:
    """Raise a UserError where a model's first answers in this process all failed in the same way."""
    errors = first_errors.setdefault(model, [])
    if len(errors) >= SAME_ERRORS or not all(isinstance(answer, SampleError) for answer in answers):
        errors[:] = [""] * SAME_ERRORS  # it has answered, or its errors differ: never looked at again
        return
    errors += [re.sub(r"\d+", "", str(answer)) for answer in answers]
    if len(errors) >= SAME_ERRORS and len(set(errors)) == 1:
        raise UserError(f"{model} failed on its first {len(errors)} images in the same way: {answers[0]}")


def is_native(model: Any) -> bool:
    """Return whether a model under test asks for pictures at their native depth."""
    return bool(getattr(model.model, "native", False))


def _preprocessing(model: Any) -> Any:
    """Return what tells a model's preprocessing from another's; None where it is more than resizing and cropping."""
    how = model.preprocessing if isinstance(model, TorchClassifier) else None
    if how is None or how.geometry is None or type(model).prepare is not TorchClassifier.prepare:
        return None
    return how.geometry, how.size, how.mean, how.std, how.crops_centre, canonical_json(dict(how.description))


def _model_input(model: Any, image: Image, attack: bool) -> Any:
    if attack:
        return attacks.model_input(model.model, image)
    return model.model.prepare(image) if isinstance(model.model, StagedClassifier) else image


@dataclass(frozen=True)
class RunSetup:
    """What the portions of one run share, whatever the models are asked."""

    spec: EvaluateSpec
    prepared: Prepared
    tested: Sequence[Any]  # of TestedModel
    run: Run
    summary: Summary
    progress: Progress
    executor: Executor
    task: Task = CLASSIFY
    fast: Any = None  # the OnePass of ``--fast``
    adaptation: AdaptationImages | None = None

    def make_rows(
        self,
        conditions: Sequence[Condition],
        *,
        step: str,
        painter: Painter | None = None,
        renderings: bool = True,
        positions: tuple[int, ...] | None = None,  # of the classifiers that are asked; None: all
    ) -> None:
        """Make the rows of classifiers under these conditions that are not stored yet."""
        asked = tuple(range(len(self.tested))) if positions is None else positions
        whole = Portion(tuple(conditions), asked, tuple(conditions), renderings)
        fast = self.fast if painter is None else None
        for portion in fast.split(whole, self.summary) if fast is not None else [whole]:
            plan = self.plan(portion, painter=painter)
            if fast is not None and portion is fast.portion:
                self.summary.merge(fast.execute(plan, self.prepared, step, self.progress))
            else:
                worker = Evaluation(self.spec, self.prepared, self.run.path, self.adaptation)
                where = self.executor if self.adaptation is not None else choose_executor(
                    plan, worker, self.executor, self.spec.device, self.spec.models, conditions=portion.conditions,
                    parameters=sum(each.parameters for each in self.tested), batch=self.spec.batch_size,
                )  # fmt: skip
                self.execute(plan, worker, step=step, conditions=portion.conditions, painter=painter, executor=where)

    def plan(
        self, portion: Portion, *, painter: Painter | None = None, details: Mapping[str, Parts] | None = None
    ) -> Plan[Sample, Part]:
        """Return which rows of a portion are owed."""
        ids = EvaluationIds(self.spec, self.prepared, self.tested, painter, self.task)
        return ids.plan(
            self.run.predictions, portion, details=details, retry=self.spec.retry_errors, progress=self.progress
        )

    def execute(
        self, plan: Plan[Sample, Part], worker: Evaluation, *, step: str, conditions: Sequence[Condition] = (),
        size: int = 0, painter: Painter | None = None, executor: Executor | None = None,
    ) -> None:  # fmt: skip
        """Make the rows that a plan owes; ``size``: photos per part file. Painting is done in this process."""
        # Few enough that a kill costs little, hundreds of files in a big run, and some batches of each model.
        size = size or max(8, plan.count // 500, 4 * self.spec.batch_size // max(1, len(conditions)))
        # A generator is too large to be loaded once per worker.
        where = LocalExecutor(1) if painter is not None else executor or self.executor
        summary = execute(
            plan, worker, where, step=step, size=size, known=Loaded(self.tested, painter),
            samples=self.prepared.collection.samples, donors=self.prepared.pool.samples, progress=self.progress,
        )  # fmt: skip
        self.summary.merge(summary)


SAME_RUN = ("verb", "task", "dataset", "classes", "seed")  # what a continued run must share with the command before


def recorded_evaluation(
    spec: EvaluateSpec, collection: Collection, tested: Sequence[Any], run: Run, **facts: Any
) -> dict[str, Any]:
    """Return what ``spec.json`` says about an evaluation; ``facts``: further entries."""
    before = run.spec().get("model_parameters", {}) if (run.path / "spec.json").is_file() else {}
    return recorded_spec(
        spec, "evaluate", collection, model_names=[each.model.name for each in tested],
        model_parameters=before | {each.model.name: each.parameters for each in tested if each.parameters}, **facts,
    )  # fmt: skip
