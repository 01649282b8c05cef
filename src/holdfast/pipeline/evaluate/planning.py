"""What an evaluation owes: names of rows before they are computed, counted first and then made shard by shard.

Nothing here grows with images × conditions × models, but for 16 bytes of each row that is stored already.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.core.fingerprint import canonical_json, fingerprint
from holdfast.core.schema import KEY, SCHEMA_VERSION
from holdfast.core.types import ORIGINAL, Sample
from holdfast.pipeline.evaluate.worker import PROTOCOL, TASK, EvaluateSpec, Job, Tested, row_key, shared_key
from holdfast.pipeline.generate.backgrounds import Painter
from holdfast.pipeline.jobs.progress import Progress, silent, told
from holdfast.pipeline.samples import Prepared, applicable, stored_conditions
from holdfast.scenarios import Condition
from holdfast.store import Run
from holdfast.store.stored_ids import StoredIds

_OWN = ("image", "model", "sample_id", "source_id", "mask", "fingerprint")
"""What stands in the hashed text of a row and differs between samples or models that are otherwise alike, in order."""


class Names:
    """The names of rows, as ``core.schema.row_id`` gives them, in a tenth of the time.

    The text that is hashed is the same for many rows but for a few places, so it is put together of pieces.
    """

    def __init__(
        self, spec: EvaluateSpec, prepared: Prepared, tested: Sequence[Tested], painter: Painter | None = None
    ) -> None:
        self._spec, self._prepared, self._painter, self._tested = spec, prepared, painter, tested
        self._images: tuple[str, dict[str, str]] = ("", {})
        self._of_condition: dict[Condition, tuple[bool, str, list[tuple[str, str]]]] = {}
        self._of_kind: dict[Any, list[str]] = {}

    def of(self, sample: Sample, condition: Condition, positions: Sequence[int]) -> list[str]:
        """The names of a sample's rows under a condition, one a model."""
        needs_mask, kind, models = self._settings(condition)
        mask = self._prepared.masks[sample.sample_id] if needs_mask else ""
        before, first, second, third, fourth, fifth, after = self._pieces(sample, condition)
        head = f"{before}{encode_basestring(self._image(sample, kind))}{first}"
        middle = f"{second}{encode_basestring(sample.sample_id)}{third}{encode_basestring(sample.source_id)}{fourth}"
        middle = f"{middle}{encode_basestring(mask)}{fifth}"
        ids = []
        for position in positions:
            name, identity = models[position]
            ids.append(hashlib.sha256(f"{head}{name}{middle}{identity}{after}".encode()).hexdigest()[:32])
        return ids

    def _settings(self, condition: Condition) -> tuple[bool, str, list[tuple[str, str]]]:
        """Whether a condition looks at the mask, what its picture is made of, and the models' names under it."""
        if condition not in self._of_condition:
            definition = condition.definition
            paints = self._painter is not None and definition.paints
            kind = f"{'painted' if paints else ''}{'pasted' if definition.donor else ''}"
            models = [
                (encode_basestring(model.classifier.name), encode_basestring(model.named(condition)))
                for model in self._tested
            ]
            self._of_condition[condition] = definition.needs_mask, kind, models
        return self._of_condition[condition]

    def _pieces(self, sample: Sample, condition: Condition) -> list[str]:
        """The text around ``_OWN``, which samples of a kind share."""
        shared = shared_key(sample, condition)
        if shared not in self._of_kind:
            key = row_key(self._spec, self._prepared.collection.name, sample, condition, "")
            marks = {name: f"\0{name}\0" for name in _OWN}
            key = {name: marks.get(name, key[name]) for name in KEY.names}
            whole = {"key": key, "image": marks["image"], "mask": marks["mask"], "model": marks["fingerprint"]}
            parts = re.split(r'"\\u0000(\w+)\\u0000"', canonical_json(whole | {"schema": SCHEMA_VERSION}))
            assert tuple(parts[1::2]) == _OWN, "canonical JSON is sorted"
            self._of_kind[shared] = parts[::2]
        return self._of_kind[shared]

    def _image(self, sample: Sample, kind: str) -> str:
        """Hash of what is measured but for the mask; the conditions of a sample share it."""
        if self._images[0] != sample.sample_id:
            self._images = (sample.sample_id, {})
        if kind not in self._images[1]:
            pool = self._prepared.pool_fingerprint if "pasted" in kind else ""
            painted = [self._painter.identity(sample)] if self._painter is not None and "painted" in kind else []
            self._images[1][kind] = fingerprint(
                [self._prepared.images[sample.sample_id], sample.label, pool, self._spec.matte, *painted]
            )
        return self._images[1][kind]


@dataclass(frozen=True)
class Portion:
    """Conditions and models of a run that go the same way.

    Attributes:
        conditions: made of the originals.
        positions: of the models among those of the run.
        asked: all conditions of the run, which decide on images that are renderings already.
        renderings: whether such images belong to this portion.
    """

    conditions: tuple[Condition, ...]
    positions: tuple[int, ...]
    asked: tuple[Condition, ...]
    renderings: bool = True

    def of(self, sample: Sample, stored: set[str]) -> list[Condition]:
        """The conditions of this portion to make of a sample."""
        if sample.condition != ORIGINAL:
            return applicable(sample, self.asked, stored) if self.renderings else []
        return applicable(sample, self.conditions, stored)


@dataclass(frozen=True)
class Plan:
    """A portion with the rows of it that are there: ``jobs`` samples owe ``owed`` rows, ``already`` are stored."""

    prepared: Prepared
    portion: Portion
    names: Names
    stored: StoredIds
    owed: int
    already: int
    jobs: int

    def shards(self, size: int, *, named: bool = True) -> Iterator[list[Job]]:
        """The jobs, so many at a time, made when they are asked for.

        Without ``named``, rows have empty names: they would be most of what travels to a worker.
        """
        shard: list[Job] = []
        for sample, conditions in _wanted(self.prepared, self.portion):
            job = self._job(sample, conditions, named=named)
            if job.owed:
                shard.append(job)
            if len(shard) == size:
                yield shard
                shard = []
        if shard:
            yield shard

    def _job(self, sample: Sample, conditions: Sequence[Condition], *, named: bool) -> Job:
        if not named and not len(self.stored):
            nameless = [(position, "") for position in self.portion.positions]
            return Job(sample, [(condition, nameless) for condition in conditions])
        positions = self.portion.positions
        ids = [one for condition in conditions for one in self.names.of(sample, condition, positions)]
        owed = (self.stored.places(ids) < 0).tolist()  # once a sample: asking takes longer than looking
        ids = ids if named else [""] * len(ids)
        job = Job(sample, [])
        for place, condition in enumerate(conditions):
            own = range(place * len(positions), (place + 1) * len(positions))
            left = [(position, ids[row]) for position, row in zip(positions, own, strict=True) if owed[row]]
            if left:
                job.owed.append((condition, left))
        return job


def make_plan(
    run: Run,
    names: Names,
    prepared: Prepared,
    tested: Sequence[Tested],
    portion: Portion,
    progress: Progress = silent,
) -> Plan:
    """Count what a portion owes, and drop the rows of the run that its rows stand in for."""
    stored = StoredIds(run.predictions.dataset())
    planned = np.zeros(len(stored), np.bool_)
    owed = already = jobs = 0
    tell = progress if len(stored) else silent  # else there is hardly anything to do
    for sample, conditions in told(_wanted(prepared, portion), tell, "plan", len(prepared.collection.samples)):
        rows, there = len(conditions) * len(portion.positions), 0
        if len(stored):
            ids = [one for condition in conditions for one in names.of(sample, condition, portion.positions)]
            places = stored.places(ids)
            planned[places[places >= 0]] = True
            there = int((places >= 0).sum())
        owed, already, jobs = owed + rows - there, already + there, jobs + (rows > there)
    if len(stored):
        run.predictions.drop_ids(_superseded(run, prepared, tested, portion, stored, planned))
    return Plan(prepared, portion, names, stored, owed, already, jobs)


def planned_ids(names: Names, prepared: Prepared, portion: Portion) -> Iterator[str]:
    """Yield the row ids of a portion, stored or not."""
    for sample, conditions in _wanted(prepared, portion):
        for condition in conditions:
            yield from names.of(sample, condition, portion.positions)


def _wanted(prepared: Prepared, portion: Portion) -> Iterator[tuple[Sample, list[Condition]]]:
    samples = prepared.collection.samples
    stored = stored_conditions(samples)
    for sample in samples:
        conditions = portion.of(sample, stored)
        if conditions:
            yield sample, conditions


def _superseded(
    run: Run,
    prepared: Prepared,
    tested: Sequence[Tested],
    portion: Portion,
    stored: StoredIds,
    planned: NDArray[np.bool_],
) -> list[str]:
    """Which of the stored rows that are not planned stand for a planned one, measured before something changed.

    The image, the mask, the label, the donors, the weights: kept beside the new row, the old one would count twice.
    """
    if planned.all():
        return []
    samples = {sample.sample_id: sample for sample in prepared.collection.samples}
    wanted = {(one.scenario, one.variant, one.parameters_json) for one in portion.conditions}
    columns = ["row_id", "sample_id", "condition", "variant", "parameters"]
    here = (
        (pc.field("task") == TASK)
        & (pc.field("protocol") == PROTOCOL)
        & pc.field("model").isin([tested[position].classifier.name for position in portion.positions])
    )
    found = []
    for batch in run.predictions.dataset().to_batches(columns=columns, filter=here):
        strange = ~planned[stored.places(batch["row_id"].to_pylist())]
        for row in batch.filter(strange).to_pylist() if strange.any() else ():
            sample = samples.get(row["sample_id"])
            if sample is None:
                continue
            if sample.condition == ORIGINAL:
                stands = (row["condition"], row["variant"], row["parameters"]) in wanted
            else:
                stands = portion.renderings and bool(applicable(sample, portion.asked, ()))
            if stands:
                found.append(row["row_id"])
    return found
