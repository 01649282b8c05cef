"""The keys and ids of an evaluation's rows, and which rows a command asks for."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from json.encoder import encode_basestring
from typing import Any

import pyarrow.compute as pc

from holdfast import registry
from holdfast.core.fingerprint import canonical_json, fingerprint
from holdfast.core.schema import CLASSIFY, KEY, SCHEMA_VERSION
from holdfast.core.tasks import Task
from holdfast.core.types import ORIGINAL, Sample
from holdfast.pipeline.classifiers import EvaluateSpec, TestedModel
from holdfast.pipeline.generate.backgrounds import Painter
from holdfast.pipeline.jobs.plan import Job, Plan, Scope, plan
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.rows import sample_key
from holdfast.pipeline.samples import DataSpec, Prepared, applicable, stored_conditions, stored_variant
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import supports
from holdfast.store import Parts

OPEN = ("image", "model", "sample_id", "source_id", "mask", "fingerprint")
"""The places of a ``row_template``, in the order in which they are filled."""

quoted = encode_basestring  # return a string as canonical JSON spells it; templates are filled with quoted strings


def template(value: Any, open_places: Sequence[str]) -> str:
    """Return the canonical JSON of a value as a %-template."""
    # ``value``: holds the string ``place(name)`` wherever a string is still open. ``open_places``: the names, in the
    # order in which canonical JSON has them.
    pieces = re.split(r'"\\u0000(\w+)\\u0000"', canonical_json(value))
    assert tuple(pieces[1::2]) == tuple(open_places), "canonical JSON is sorted"
    return "%s".join(piece.replace("%", "%%") for piece in pieces[::2])


def place(name: str) -> str:
    """Return the string that marks an open place of a template."""
    return f"\0{name}\0"


def row_template(key: Mapping[str, Any]) -> str:
    """Return the text whose hash is ``core.schema.row_id``, with the places ``OPEN``."""
    # Filling and hashing it takes a tenth of the time of ``row_id``. The key's own ``sample_id``, ``source_id`` and
    # ``model`` are not used.
    named = {name: place(name) if name in OPEN else key[name] for name in KEY.names}
    whole = {"key": named, "image": place("image"), "mask": place("mask"), "model": place("fingerprint")}
    return template(whole | {"schema": SCHEMA_VERSION}, OPEN)


def hashed(text: str) -> str:
    """Return the row id of a filled template: 32 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


Part = tuple[Condition, int]  # A condition, and the position of a model in the command's list
EvaluationJob = Job[Sample, Part]

RENDERED_COLUMNS = ("donor_id", "donor_label", "donor_unmasked", "oracle", "oracle_accepted", "oracle_score")
"""Columns that a rendering fills, not a model."""


def row_key(
    spec: DataSpec, dataset: str, sample: Sample, condition: Condition, model: str, task: Task | None = None
) -> dict[str, Any]:
    """Return the key columns of one row; ``task``: by default, classification."""
    task = task or registry.tasks.get(CLASSIFY)
    rendered_here = sample.condition == ORIGINAL
    kind = "attack" if condition.definition.attack else "generated" if condition.definition.paints else sample.kind
    return sample_key(
        sample, dataset=dataset, kind=kind, condition=condition.scenario if rendered_here else sample.condition,
        variant=condition.variant if rendered_here else stored_variant(sample), parameters=condition.parameters_json,
        seed=spec.seed, model=model, task=task.name, protocol=task.protocol,
    )  # fmt: skip


def shared_key(sample: Sample, condition: Condition) -> tuple[Any, ...]:
    """Return a value that is equal for rows whose keys are equal, except for the sample's names and the model."""
    variant = "" if sample.condition == ORIGINAL else stored_variant(sample)
    return condition, sample.kind, sample.split, sample.fold, sample.condition, variant


def stored_details(sample: Sample) -> dict[str, Any]:
    """Return whose background a stored rendering has, as its reader or ``synth``'s manifest says (maybe as text)."""
    if sample.condition == ORIGINAL:
        return {}
    known = sample.attributes
    details: dict[str, Any] = {name: str(known[name]) for name in ("donor_id", "donor_label") if name in known}
    if "donor_unmasked" in known:
        details["donor_unmasked"] = str(known["donor_unmasked"]).lower() == "true"
    return details


class EvaluationIds:
    """Gives row ids as ``core.schema.row_id`` does, from templates that rows of a kind share."""

    def __init__(
        self,
        spec: EvaluateSpec,
        prepared: Prepared,
        tested: Sequence[TestedModel],
        painter: Painter | None = None,
        task: Task | None = None,  # by default, classification
    ) -> None:
        self._task = task or registry.tasks.get(CLASSIFY)
        self._spec, self._prepared, self._painter, self._tested = spec, prepared, painter, tested
        self._images: tuple[str, dict[tuple[str, str], str]] = ("", {})
        self._of_condition: dict[Condition, tuple[bool, tuple[str, str], list[tuple[str, str]]]] = {}
        self._templates: dict[Any, str] = {}

    @property
    def samples(self) -> Sequence[Sample]:
        """Return the samples of the data."""
        return self._prepared.collection.samples

    def __call__(self, job: EvaluationJob) -> list[str]:
        """Return the ids of a job's rows."""
        ids: list[str] = []
        start, parts = 0, job.parts
        while start < len(parts):  # one condition at a time: its models share most of the text
            condition, end = parts[start][0], start + 1
            while end < len(parts) and parts[end][0] is condition:
                end += 1
            ids += self.of(job.item, condition, [position for _, position in parts[start:end]])
            start = end
        return ids

    def of(self, sample: Sample, condition: Condition, positions: Sequence[int]) -> list[str]:
        """Return the ids of a sample's rows under a condition, one per model."""
        needs_mask, kind, models = self._settings(condition)
        mask = quoted(self._prepared.masks[sample.sample_id] if needs_mask else "")
        template = self._template(sample, condition)
        image, name, source = quoted(self._image(sample, kind)), quoted(sample.sample_id), quoted(sample.source_id)
        ids = []
        for position in positions:
            model, identity = models[position]
            ids.append(hashed(template % (image, model, name, source, mask, identity)))
        return ids

    def plan(
        self,
        table: Parts,
        portion: Portion,
        *,
        details: Mapping[str, Parts] | None = None,
        retry: bool = False,
        progress: Progress = silent,
    ) -> Plan[Sample, Part]:
        """Plan a portion of the evaluation."""
        task, samples = self._task, self.samples
        rows = (
            (pc.field("task") == task.name)
            & (pc.field("protocol") == task.protocol)
            & pc.field("model").isin([self._tested[position].model.name for position in portion.positions])
        )
        wanted = {(each.scenario, each.variant, each.parameters_json) for each in portion.conditions}
        by_id = functools.cache(lambda: {sample.sample_id: sample for sample in samples})  # if a row is not planned

        def covers(row: Mapping[str, Any]) -> bool:
            sample = by_id().get(row["sample_id"])
            if sample is None or sample.condition == ORIGINAL:
                return sample is not None and (row["condition"], row["variant"], row["parameters"]) in wanted
            return portion.renderings and bool(applicable(sample, portion.asked, ()))

        scope = Scope(rows, ("sample_id", "condition", "variant", "parameters"), covers)
        jobs = EvaluationJobs(samples, portion)
        return plan(table, jobs, self, scope=scope, retry=retry, details=details, progress=progress)

    def _settings(self, condition: Condition) -> tuple[bool, tuple[str, str], list[tuple[str, str]]]:
        """Return whether a condition uses the mask, what its image is made of, and names and weights of the models."""
        if condition not in self._of_condition:
            definition = condition.definition
            paints = self._painter is not None and definition.paints
            kind = ("painted" if paints else "", self._prepared.lent(definition))
            models = [(quoted(model.model.name), quoted(model.named(condition))) for model in self._tested]
            self._of_condition[condition] = definition.needs_mask, kind, models
        return self._of_condition[condition]

    def _template(self, sample: Sample, condition: Condition) -> str:
        shared = shared_key(sample, condition)
        if shared not in self._templates:
            key = row_key(self._spec, self._prepared.collection.name, sample, condition, "", self._task)
            self._templates[shared] = row_template(key)
        return self._templates[shared]

    def _image(self, sample: Sample, kind: tuple[str, str]) -> str:
        """Return the hash of what is measured, without the mask; the conditions of a sample share it."""
        held = self._images  # threads ask for several samples at a time: each reads and fills the pair that it holds
        if held[0] != sample.sample_id:
            held = self._images = (sample.sample_id, {})
        if kind not in held[1]:
            painting, lent = kind
            painted = [self._painter.identity(sample)] if self._painter is not None and painting else []
            if truth := self._task.truth(sample):
                painted.append(truth)
            held[1][kind] = fingerprint(
                [self._prepared.images[sample.sample_id], sample.label, lent, self._spec.matte, *painted]
            )
        return held[1][kind]


@dataclass(frozen=True)
class Portion:
    """Conditions and models of a command that are executed together."""

    conditions: tuple[Condition, ...]  # made from the originals
    positions: tuple[int, ...]  # of the models in the command's list
    asked: tuple[Condition, ...]  # all conditions of the command; they decide about images that are renderings already
    renderings: bool = True  # whether such images belong to this portion

    def of(self, sample: Sample, stored: set[str]) -> list[Condition]:
        """Return the conditions of this portion to make from a sample."""
        if sample.condition != ORIGINAL:
            return applicable(sample, self.asked, stored) if self.renderings else []
        return applicable(sample, self.conditions, stored)


def split_portion(whole: Portion, fast: Sequence[int]) -> list[Portion]:
    """Return what models at these positions see in a fast pass, which comes first, and what the evaluator makes."""
    here = tuple(condition for condition in whole.conditions if supports(condition))
    rest = tuple(condition for condition in whole.conditions if not supports(condition))
    others = tuple(position for position in whole.positions if position not in fast)
    portions = [replace(whole, conditions=here, positions=tuple(fast))] if fast else []
    if fast and rest:
        portions.append(replace(whole, conditions=rest, positions=tuple(fast), renderings=False))
    return [*portions, replace(whole, positions=others)] if others else portions


class EvaluationJobs:
    """The jobs of a portion: every sample with its conditions × models."""

    def __init__(self, samples: Sequence[Sample], portion: Portion) -> None:
        self._samples, self._portion = samples, portion
        self._stored = stored_conditions(samples)

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[EvaluationJob]:
        shared: dict[bool, list[Part]] = {}  # one list for all originals, and one for all renderings
        for sample in self._samples:
            original = sample.condition == ORIGINAL
            if original and True in shared:
                yield Job(sample, shared[True])
            elif conditions := self._portion.of(sample, self._stored):
                if original not in shared:
                    positions = self._portion.positions
                    shared[original] = [(condition, position) for condition in conditions for position in positions]
                yield Job(sample, shared[original])
