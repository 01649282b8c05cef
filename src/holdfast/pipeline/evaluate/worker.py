"""The work of evaluating: what a shard's worker needs, and what it does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError, SampleError, UserError, half_may_work, stop_or_sentence
from holdfast.core.fingerprint import array_sha256, fingerprint
from holdfast.core.protocols import Classifier, StagedClassifier
from holdfast.core.schema import PREDICTIONS, SCHEMA_VERSION
from holdfast.core.seeds import seed_from
from holdfast.core.types import ORIGINAL, Collection, Image, LabelSpace, Rendered, Sample
from holdfast.data.labels import LabelMap, map_labels, outcomes, read_label_file
from holdfast.engine import core_count
from holdfast.models import attacks, load_classifier
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.generate.backgrounds import Painter, keep_thumbnail
from holdfast.pipeline.jobs.sharding import check_same
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import (
    DataSpec,
    Prepared,
    Rendering,
    over_matte,
    render_conditions,
    stored_variant,
)
from holdfast.pipeline.specs import EvaluateSpec as EvaluateSpec
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import supports
from holdfast.store import Run


@dataclass(frozen=True)
class Tested:
    """A model with the way from its outputs to the dataset's classes.

    ``fast`` names it in rows that come of ``--fast`` (empty where it cannot go that way): those answers may differ in
    the last digits, and must never pass for exact ones.
    """

    classifier: Classifier
    labels: LabelMap
    fingerprint: str
    fast: str = ""

    def named(self, condition: Condition) -> str:
        """The fingerprint that goes into the name of a row under a condition."""
        return self.fast if self.fast and supports(condition) else self.fingerprint


@dataclass
class Job:
    """One sample and the rows it still owes: condition → positions in the list of models, with their row ids."""

    sample: Sample
    owed: list[tuple[Condition, list[tuple[int, str]]]]


@dataclass
class Named:
    """A classifier that only workers load: what a plan needs to know of it."""

    name: str
    labels: LabelSpace
    fingerprint: str

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Nobody asks for this here."""
        raise HoldfastError(f"{self.name} is not loaded in this process")


def unloaded(model: Tested) -> Tested:
    """What a plan needs to know of a model, without its weights."""
    one = model.classifier
    return replace(model, classifier=Named(one.name, one.labels, one.fingerprint))


TASK, PROTOCOL = "classify", "argmax"


def row_key(spec: DataSpec, dataset: str, sample: Sample, condition: Condition, model: str) -> dict[str, Any]:
    """The key columns of one row."""
    rendered_here = sample.condition == ORIGINAL
    return {
        "task": TASK,
        "kind": _kind(sample, condition),
        "dataset": dataset,
        "sample_id": sample.sample_id,
        "source_id": sample.source_id,
        "split": sample.split,
        "fold": sample.fold,
        "condition": condition.scenario if rendered_here else sample.condition,
        "variant": condition.variant if rendered_here else stored_variant(sample),
        "parameters": condition.parameters_json,
        "seed": spec.seed,
        "model": model,
        "trained_on": "",
        "protocol": PROTOCOL,
    }


def shared_key(sample: Sample, condition: Condition) -> tuple[Any, ...]:
    """Rows for which this is equal have equal keys, but for the sample's names and the model."""
    variant = "" if sample.condition == ORIGINAL else stored_variant(sample)
    return condition, sample.kind, sample.split, sample.fold, sample.condition, variant


def _kind(sample: Sample, condition: Condition) -> str:
    if condition.definition.attack:
        return "attack"
    return "generated" if condition.definition.paints else sample.kind


def load_models(spec: EvaluateSpec, collection: Collection) -> list[Tested]:
    """Load the models and map the dataset's classes to their outputs."""
    keys = dict(collection.keys)
    if spec.labels:
        keys.update(read_label_file(Path(spec.labels)))
    tested = []
    for name in spec.models:
        classifier = load_classifier(name, device=spec.device, classes=collection.classes)
        if hasattr(classifier, "batch_size"):  # those that split batches themselves, when memory runs out
            classifier.batch_size = spec.batch_size
        labels = map_labels(collection.classes, keys, classifier.labels)
        exact = fingerprint([classifier.fingerprint, labels.fingerprint])
        tensors = isinstance(classifier, TorchClassifier) and classifier.preprocessing.geometry is not None
        tested.append(Tested(classifier, labels, exact, fingerprint([exact, "fast"]) if spec.fast and tensors else ""))
    _check_names(tested)
    return tested


def know_models(
    spec: EvaluateSpec,
    collection: Collection,
    conditions: Sequence[Condition],
    look: Callable[[Tested], Tested] | None = None,
) -> list[Tested]:
    """What a plan needs of the models, one loaded at a time and on no GPU: workers load their own.

    ``look`` sees each while it is loaded, and may say something else of it.
    """
    known = []
    for name in spec.models:
        (model,) = load_models(replace(spec, models=(name,), device="cpu"), collection)
        check_attacks(conditions, [model])
        known.append(unloaded(look(model) if look is not None else model))
    _check_names(known)
    return known


def _check_names(tested: Sequence[Tested]) -> None:
    names = [model.classifier.name for model in tested]
    if len(set(names)) < len(names):
        raise UserError(f"two of the models have one name: {', '.join(names)}")


def check_attacks(conditions: Sequence[Condition], tested: Sequence[Tested]) -> None:
    """UserError where a model cannot be attacked as asked: better now than in every row."""
    for condition in conditions:
        if condition.definition.attack:
            for model in tested:
                attacks.check_attackable(model.classifier, condition.scenario)


def stored_details(sample: Sample) -> dict[str, Any]:
    """Whose background a stored rendering has, as its reader or ``synth``'s manifest says (there, perhaps as text)."""
    if sample.condition == ORIGINAL:
        return {}
    known = sample.attributes
    told: dict[str, Any] = {name: str(known[name]) for name in ("donor_id", "donor_label") if name in known}
    if "donor_unmasked" in known:
        told["donor_unmasked"] = str(known["donor_unmasked"]).lower() == "true"
    return told


DETAILS = ("donor_id", "donor_label", "donor_unmasked", "oracle", "oracle_accepted", "oracle_score")
_TOGETHER = 2000  # rows that become a part of a table
_RELEASED = Rendered(np.zeros((0, 0, 3), np.uint8))


@dataclass
class _Ready:
    """One rendering on its way to the models: preprocessed for each of them, the pixels already let go."""

    job: Job
    rendering: Rendering
    owed: list[tuple[int, str]]
    prepared: list[Any] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


class Evaluation:
    """The work of a shard: renders in threads while the models compute, then writes its part of the table.

    Travels to other processes without its models, which are loaded there on first use.
    """

    def __init__(
        self,
        spec: EvaluateSpec,
        prepared: Prepared,
        run: Path,
        tested: list[Tested] | None = None,
        painter: Painter | None = None,
    ) -> None:
        self.spec = spec
        self.prepared = prepared
        self.run = run
        self._tested = tested
        self._fingerprints = [model.fingerprint for model in tested] if tested else []
        self._painter = painter  # conditions that paint stay in one process: see evaluate
        self._threads: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        bare = self.prepared.for_workers()
        return {**self.__dict__, "prepared": bare, "_tested": None, "_painter": None, "_threads": None}

    @property
    def tested(self) -> list[Tested]:
        """The models, loaded now if they are not."""
        if self._tested is None:
            self._tested = load_models(self.spec, self.prepared.collection)
            if self._fingerprints:
                loaded = [model.fingerprint for model in self._tested]
                check_same(", ".join(self.spec.models), self._fingerprints, loaded)
        return self._tested

    def __call__(self, jobs: Sequence[Job]) -> Summary:
        """Do these jobs and write their rows."""
        summary, batches, rest = Summary(), [], self.rows(jobs)
        # Some at a time: of many images, conditions and models, a shard has more rows than memory holds as objects.
        while rows := list(islice(rest, _TOGETHER)):
            batches.append(pa.RecordBatch.from_pylist(rows, schema=PREDICTIONS))
            summary.count(rows)
        Run(self.run).predictions.write(pa.Table.from_batches(batches, PREDICTIONS).unify_dictionaries())
        return summary

    def rows(self, jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
        """Rows of these jobs, as batches fill."""
        # An attack is one call for one model and its own pictures; everything else shares a model's batches.
        waiting: dict[tuple[int, Condition | None], list[tuple[_Ready, str, Any]]] = {}
        for ready in self._ahead(jobs):
            if ready.rendering.rendered is None:
                failed = ready.facts | {"status": ready.rendering.status, "error": ready.rendering.error}
                yield from (self._row(ready, position, one) | failed for position, one in ready.owed)
                continue
            condition = ready.rendering.condition
            attack = condition if condition.definition.attack else None
            for (position, one), prepared in zip(ready.owed, ready.prepared, strict=True):
                batch = waiting.setdefault((position, attack), [])
                batch.append((ready, one, prepared))
                if len(batch) >= self.spec.batch_size:
                    yield from self._predict(position, waiting.pop((position, attack)))
        for (position, _), rest in waiting.items():
            yield from self._predict(position, rest)

    def _ahead(self, jobs: Sequence[Job]) -> Iterator[_Ready]:
        """Renderings in order, a few samples ahead of the models and no more.

        Models that compute on this machine's cores use all of them, and rendering beside them makes every thread wait
        for the slowest: then a few samples are rendered on all cores, and the models have their turn after that.
        """
        threads = self._threads = self._threads or ThreadPoolExecutor(core_count())
        if self._painter is not None:
            step = max(self._painter.at_once, core_count())
            for start in range(0, len(jobs), step):
                part = jobs[start : start + step]
                wanted = [(job.sample, [condition for condition, _ in job.owed]) for job in part]
                self._painter.prepare(wanted, self.spec.max_pixels)
                for ready in threads.map(self._render, part):
                    yield from ready
            return
        if all(str(getattr(model.classifier, "device", "")) == "cpu" for model in self.tested):
            for start in range(0, len(jobs), core_count()):
                for ready in threads.map(self._render, jobs[start : start + core_count()]):
                    yield from ready
            return
        queue: deque[Future[list[_Ready]]] = deque()
        for job in jobs:
            queue.append(threads.submit(self._render, job))
            if len(queue) > core_count() + 1:
                yield from queue.popleft().result()
        while queue:
            yield from queue.popleft().result()

    def _render(self, job: Job) -> list[_Ready]:
        ready = []
        owed = dict(job.owed)
        for rendering in render_conditions(
            job.sample, list(owed), self.prepared.pool, seed=self.spec.seed, max_pixels=self.spec.max_pixels,
            painter=self._painter,
        ):  # fmt: skip
            one = _Ready(job, rendering, owed[rendering.condition])
            made = rendering.details if rendering.rendered is None else rendering.rendered.details
            details = {**stored_details(job.sample), **made}
            one.facts = {name: details.get(name) for name in DETAILS}
            if rendering.rendered is not None:
                image = over_matte(rendering.rendered.image, self.spec.matte)
                one.facts |= {"image_sha256": array_sha256(image)}
                if rendering.condition.definition.paints:
                    keep_thumbnail(self.run, job.sample, rendering.condition, image)
                attack = bool(rendering.condition.definition.attack)
                one.prepared = [self._prepare(position, image, attack) for position, _ in one.owed]
                one.rendering = replace(rendering, rendered=_RELEASED)
            ready.append(one)
        return ready

    def _prepare(self, position: int, image: Image, attack: bool) -> Any:
        classifier = self.tested[position].classifier
        if attack:
            return attacks.model_input(classifier, image)
        return classifier.prepare(image) if isinstance(classifier, StagedClassifier) else image

    def _predict(self, position: int, batch: list[tuple[_Ready, str, Any]]) -> Iterator[dict[str, Any]]:
        model = self.tested[position]
        try:
            probabilities, hashes = self._answers(model, batch)
            if probabilities.shape != (len(batch), len(model.classifier.labels)):
                raise SampleError(f"the model answered with an array of shape {probabilities.shape}")
        except Exception as error:
            # A model that fails on a batch must not take the rest of the run with it: find the images it fails on.
            if len(batch) > 1 and half_may_work(error):
                half = len(batch) // 2
                yield from self._predict(position, batch[:half])
                yield from self._predict(position, batch[half:])
                return
            ready, one, _ = batch[0]
            yield self._row(ready, position, one) | {"status": "error", "error": stop_or_sentence(error)}
            return
        labels = [ready.job.sample.label for ready, _, _ in batch]
        columns = outcomes(probabilities, model.labels, labels)
        for index, (ready, one, _) in enumerate(batch):
            outcome = {name: values[index] for name, values in columns.items()}
            seen = {"image_sha256": hashes[index]} if hashes else {}
            yield self._row(ready, position, one) | ready.facts | seen | outcome

    def _answers(self, model: Tested, batch: list[tuple[_Ready, str, Any]]) -> tuple[NDArray[np.float32], list[str]]:
        """Probabilities, and hashes of the pictures where they are made here: against this model."""
        inputs = [prepared for _, _, prepared in batch]
        condition = batch[0][0].rendering.condition
        if condition.definition.attack:
            samples = [ready.job.sample for ready, _, _ in batch]
            pictures, probabilities = attacks.run_attack(
                resolve_name(condition.definition.attack),
                model.classifier,
                inputs,
                [model.labels.classes.index(sample.label) for sample in samples],
                model.labels.members,
                seeds=[seed_from(self.spec.seed, sample.sample_id, condition.scenario) for sample in samples],
                parameters=condition.parameters,
            )
            return probabilities, [array_sha256(picture) for picture in pictures]
        if isinstance(model.classifier, StagedClassifier):
            return model.classifier.predict_prepared(inputs), []
        return model.classifier.predict(inputs), []

    def _row(self, ready: _Ready, position: int, one: str) -> dict[str, Any]:
        sample = ready.job.sample
        name = self.tested[position].classifier.name
        key = row_key(self.spec, self.prepared.collection.name, sample, ready.rendering.condition, name)
        bookkeeping = {"row_id": one, "run_id": self.run.resolve().name, "schema_version": SCHEMA_VERSION}
        return key | {"label": sample.label} | bookkeeping
