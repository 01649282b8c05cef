"""What an evaluation owes, already has and throws away, against a list of all rows kept in the plainest way."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.fingerprint import fingerprint
from holdfast.core.schema import PREDICTIONS, row_id
from holdfast.core.tasks import Task
from holdfast.core.types import ORIGINAL, Collection, LabelSpace, Sample
from holdfast.data.images import FileImage
from holdfast.data.labels import map_labels
from holdfast.pipeline.classifiers import EvaluateSpec
from holdfast.pipeline.classifiers import Tested as Model
from holdfast.pipeline.evaluation_rows import EvaluationIds, Portion, row_key
from holdfast.pipeline.samples import Prepared, applicable, stored_conditions
from holdfast.pipeline.tasks import CLASSIFICATION, DETECTION, ObjectDetection
from holdfast.scenarios import Condition, parse_conditions
from holdfast.scenarios.tensors import supports
from holdfast.store import Run

LABELS = map_labels(("a", "b"), {}, LabelSpace(("a", "b")))
ASKED = ("original", "original,grey,random_background", "grey,rainbow@4,same_class_background,fog", "fog@3,fog@5")
SPEC = EvaluateSpec("data", seed=3)
Row = dict[str, Any]


@dataclass
class World:
    """Everything a row's name depends on."""

    samples: list[Sample]
    images: dict[str, str]
    masks: dict[str, str]
    weights: list[str]
    pool: str = "pool"
    painter: str = ""
    prepared: Any = field(init=False)
    tested: Any = field(init=False)

    def __post_init__(self) -> None:
        collection = Collection("data", ("a", "b"), tuple(self.samples))
        self.prepared = Prepared(collection, self.images, self.masks, {}, SimpleNamespace(tools=None), self.pool)  # type: ignore[arg-type]
        self.tested = [
            Model(SimpleNamespace(name=f"model {place}"), LABELS, one, f"{one} fast" if place == 1 else "")  # type: ignore[arg-type]
            for place, one in enumerate(self.weights)
        ]

    def names(self, task: Task = CLASSIFICATION) -> EvaluationIds:
        painter: Any = SimpleNamespace(identity=lambda sample: f"{self.painter} {sample.sample_id}")
        return EvaluationIds(SPEC, self.prepared, self.tested, painter if self.painter else None, task)

    def rows(self, conditions: list[Condition]) -> list[tuple[Row, tuple[str, Condition, int]]]:
        """Every row there is to be, named by ``core.schema.row_id``."""
        found = []
        stored = stored_conditions(self.samples)
        for sample in self.samples:
            for condition in applicable(sample, conditions, stored):
                definition = condition.definition
                pool = self.pool if definition.donor else ""
                painted = [f"{self.painter} {sample.sample_id}"] if self.painter and definition.paints else []
                image = fingerprint([self.images[sample.sample_id], sample.label, pool, SPEC.matte, *painted])
                mask = self.masks[sample.sample_id] if definition.needs_mask else ""
                for place, model in enumerate(self.tested):
                    key = row_key(SPEC, "data", sample, condition, model.classifier.name)
                    weights = model.fast if model.fast and supports(condition) else model.fingerprint
                    name = row_id(key, image=image, mask=mask, model=weights)
                    found.append((key | {"row_id": name, "label": sample.label}, (sample.sample_id, condition, place)))
        return found


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, World]:
    """What was there once, and what is there now."""
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    renderings: list[dict[str, Any]] = [{}, {}, {"condition": "grey"}, {"condition": "fog"}]
    renderings += [
        {"condition": "fog", "attributes": {"variant": one}} for one in ("severity_3", "paper", 3, True, [3])
    ]
    share = draw(st.sampled_from([0.0, 0.3]))
    made = []
    for _ in range(2):
        samples = [
            Sample(f"s{number}", str(chance.choice(["a", "b"])), FileImage("x"), split=str(number % 2), fold=number % 3,
                   **(renderings[int(chance.integers(len(renderings)))] if number / 8 < share else {}))
            for number in range(8)
            if chance.random() < 0.8
        ]  # fmt: skip
        names = [sample.sample_id for sample in samples]
        changed = lambda name: f"{name}{int(chance.random() < 0.3)}"  # noqa: E731
        weights = [changed(f"w{place}") for place in range(int(chance.integers(1, 4)))]
        made.append(World(samples, dict(zip(names, map(changed, names), strict=True)),
                          dict(zip(names, map(changed, names), strict=True)), weights, changed("pool")))  # fmt: skip
    return made[0], made[1]


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=PREDICTIONS)


def stands_for(row: Row, now: World, conditions: list[Condition]) -> bool:
    """Whether a stored row that is not asked for is an older measurement of one that is."""
    sample = next((one for one in now.samples if one.sample_id == row["sample_id"]), None)
    if sample is None or row["model"] not in [f"model {place}" for place in range(len(now.weights))]:
        return False
    if (row["task"], row["protocol"]) != ("classify", "argmax"):
        return False
    if sample.condition != ORIGINAL:
        return bool(applicable(sample, conditions, ()))
    return (row["condition"], row["variant"], row["parameters"]) in [
        (one.scenario, one.variant, one.parameters_json) for one in conditions
    ]


def portions(conditions: list[Condition], models: int, fast: bool) -> list[Portion]:
    everything, places = tuple(conditions), tuple(range(models))
    if not fast or models < 2:
        return [Portion(everything, places, everything)]
    here = tuple(one for one in conditions if supports(one))
    rest = tuple(one for one in conditions if not supports(one))
    others = tuple(place for place in places if place != 1)
    return [
        Portion(here, (1,), everything),
        Portion(rest, (1,), everything, renderings=False),
        Portion(everything, others, everything),
    ]


@given(worlds(), st.sampled_from(ASKED), st.sampled_from(ASKED), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_plans_are_those_of_a_plain_list(
    pair: tuple[World, World], then: str, asked: str, fast: bool, partial: bool
) -> None:
    before, now = pair
    conditions = parse_conditions(asked)
    stored = [row for row, _ in before.rows(parse_conditions(then))] + [row for row, _ in now.rows(conditions)[::3]]
    stored = list({row["row_id"]: row for row in (stored[::2] if partial else stored)}.values())
    if stored:  # rows of other work in the same table: never touched
        stored += [
            stored[0] | {"row_id": "another", "task": "segment"},
            stored[0] | {"row_id": "0" * 32, "protocol": "x"},
        ]
    wanted = now.rows(conditions)
    there = {row["row_id"] for row in stored}
    planned = {row["row_id"] for row, _ in wanted}
    dropped = {row["row_id"] for row in stored if row["row_id"] not in planned and stands_for(row, now, conditions)}
    owed = {(key, row["row_id"]) for row, key in wanted if row["row_id"] not in there}
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        if stored:
            run.predictions.write(table(stored))
        found, counts = set(), np.zeros(2, int)
        for portion in portions(conditions, len(now.weights), fast):
            plan = now.names().plan(run.predictions, portion)
            jobs = [job for shard in plan.shards(3) for job in shard]
            mine = [
                ((job.item.sample_id, condition, place), name)
                for job in jobs for (condition, place), name in zip(job.parts, job.ids, strict=True)
            ]  # fmt: skip
            assert (plan.owed, plan.count) == (len(mine), len(jobs))
            assert not found & set(mine)
            found |= set(mine)
            counts += plan.owed, plan.already
        assert found == owed
        assert counts.tolist() == [len(owed), len(planned & there)]
        assert run.predictions.stored_ids() == there - dropped


@pytest.mark.parametrize("scenarios", ["fgsm,grey", "generated_background"])
def test_attacks_and_painted_backgrounds_are_named_as_ever(scenarios: str) -> None:
    samples = [Sample(f"s{number}", "a", FileImage("x")) for number in range(3)]
    names = {sample.sample_id: sample.sample_id for sample in samples}
    world = World(samples, names, names, ["w0", "w1"], painter="" if "grey" in scenarios else "diffusion 7")
    for condition in parse_conditions(scenarios):
        expected = [row["row_id"] for row, key in world.rows([condition])]
        assert [one for sample in samples for one in world.names().of(sample, condition, (0, 1))] == expected


def test_the_boxes_are_named_under_every_protocol_of_detectors() -> None:
    """Other boxes make other ids, also of a task with another protocol; not those of classifiers."""
    (condition,) = parse_conditions("original")

    def ids(boxes: str, task: Task) -> list[str]:
        objects: Any = SimpleNamespace(fingerprint=lambda: boxes)
        sample = Sample("a", "a", FileImage("a.png"), objects=objects)
        return World([sample], {"a": "a"}, {"a": "a"}, ["w"]).names(task).of(sample, condition, [0])

    stricter = ObjectDetection()
    stricter.protocol = "boxes at 0.75"
    for task in (DETECTION, stricter):
        assert ids("one", task) == ids("one", task) != ids("two", task)
    assert ids("one", CLASSIFICATION) == ids("two", CLASSIFICATION)
