"""Renders images under their conditions, asks the models, and yields rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import array_sha256, canonical_json, fingerprint
from holdfast.core.protocols import StagedClassifier
from holdfast.core.tasks import Task
from holdfast.core.types import Collection, Image, Rendered, Sample
from holdfast.data.labels import LabelMap
from holdfast.engine import ahead, core_count, thread_pool
from holdfast.models import attacks
from holdfast.models.adaptation import AdaptedClassifier
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.classifiers import EvaluateSpec, TestedModel, check_names, parameter_count, proved
from holdfast.pipeline.evaluation_rows import RENDERED_COLUMNS, EvaluationJob, row_key, stored_details
from holdfast.pipeline.generate.backgrounds import Painter
from holdfast.pipeline.jobs.execute import Made
from holdfast.pipeline.jobs.progress import Summary
from holdfast.pipeline.jobs.rows import Row, answer_each, answered
from holdfast.pipeline.samples import Prepared, Rendering, over_matte, render_conditions
from holdfast.pipeline.small_copies import keep_thumbnail
from holdfast.scenarios import Condition

SAME_ERRORS = 100
"""A model that fails on so many images in the same way, and has answered for none before, is not asked further."""

NO_LABELS = LabelMap((), (), (), "")
"""Of a model whose outputs are not classes."""

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

    @property
    def sample(self) -> Sample:
        """The sample that the image was made from."""
        return self.job.item

    @property
    def condition(self) -> Condition:
        """The condition that the image shows."""
        return self.rendering.condition


WaitingRow = tuple[ReadyRendering, str, Any]  # A rendering, the id of the row it makes, and the model's input
AnsweredBatch = tuple[str, list[Row], Sequence[Any]]  # A model, its rows, and its answers or the errors in their place


def load_tested(task: Task, spec: EvaluateSpec, collection: Collection) -> list[TestedModel]:
    """Return the models of a task, as its ``load`` makes them."""
    tested = []
    for name in spec.models:
        model = task.load(name, device=spec.device, collection=collection)
        tested.append(TestedModel(model, NO_LABELS, fingerprint([model.fingerprint]), "", parameter_count(model)))
    check_names([each.model.name for each in tested])
    return tested


class Evaluation:
    """The worker of ``holdfast eval``: renders in threads while the models compute, and asks what the task says.

    A subclass replaces ``load`` or ``ask``, and ``ready``, ``row`` or ``run`` if its rows hold more.
    """

    def __init__(self, spec: EvaluateSpec, prepared: Prepared, run: Path, task: Task) -> None:
        self.spec, self.prepared, self.folder, self.task = spec, prepared.for_workers(), run, task
        self.name = ", ".join(spec.models)

    def load(self) -> Loaded:
        """Load the models."""
        return Loaded(load_tested(self.task, self.spec, self.prepared.collection))

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
        return on_gpu and plain and not any(isinstance(each.model, AdaptedClassifier) for each in resources.tested)

    def _batches(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[tuple[int, list[WaitingRow]]]:
        """Yield the batches that each model (by position) is asked about, as they fill, and images that failed."""
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
        # Models that compute on this machine's cores use all of them, and rendering next to them makes every thread
        # wait for the slowest. Then a few samples are rendered on all cores, and after that the models compute.
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
        for row in rows:
            for line in (line for name in self.task.tables for line in row.get(name, ())):
                line["row_id"] = row["row_id"]
        return model.model.name, rows, answers

    def ask(self, model: Any, batch: Sequence[WaitingRow], painter: Painter | None) -> list[dict[str, Any]]:
        """Return the outcome columns of each row of a batch."""
        shown = [ready for ready, _, _ in batch]
        rows = self.task.rows(model, shown, self.answers(model, [prepared for _, _, prepared in batch]))
        return [ready.facts | {"status": "ok"} | row for ready, row in zip(shown, rows, strict=True)]

    def answers(self, model: Any, images: list[Any]) -> Any:
        """Return a model's answer to each image."""
        return self.task.ask(model, images)

    def row(self, ready: ReadyRendering, model: Any, row_id: str) -> Row:
        """Return a row without its outcome."""
        sample, condition = ready.job.item, ready.rendering.condition
        key = row_key(self.spec, self.prepared.collection.name, sample, condition, model.model.name, self.task)
        return key | {"label": sample.label or None, "row_id": row_id}


def _stop_if_silent(model: str, answers: Sequence[Any], first_errors: dict[str, list[str]]) -> None:
    """Raise a UserError if a model's first answers in this process all failed in the same way."""
    errors = first_errors.setdefault(model, [])
    if len(errors) >= SAME_ERRORS or not all(isinstance(answer, SampleError) for answer in answers):
        errors[:] = [""] * SAME_ERRORS  # it has answered, or its errors differ: never looked at again
        return
    errors += [re.sub(r"\d+", "", str(answer)) for answer in answers]
    if len(errors) >= SAME_ERRORS and len(set(errors)) == 1:
        raise UserError(f"{model} failed on its first {len(errors)} images in the same way: {answers[0]}")


def is_native(model: Any) -> bool:
    """Return whether a model under test asks for images at their native depth."""
    return bool(getattr(model.model, "native", False))


def _preprocessing(model: Any) -> Any:
    """Return the identity of a model's preprocessing; None if it is more than resizing and cropping."""
    how = model.preprocessing if isinstance(model, TorchClassifier) else None
    if how is None or how.geometry is None or type(model).prepare is not TorchClassifier.prepare:
        return None
    return how.geometry, how.size, how.mean, how.std, how.crops_centre, canonical_json(dict(how.description))


def _model_input(model: Any, image: Image, attack: bool) -> Any:
    if attack:
        return attacks.model_input(model.model, image)
    return model.model.prepare(image) if isinstance(model.model, StagedClassifier) else image
