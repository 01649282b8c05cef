"""``holdfast eval`` of images with several labels each: a row per image × condition × model × label.

A label is a yes-or-no question. The answer is yes if the model's score of the label reaches the threshold, and right
if the image has the label. An image is rendered and shown to a model once for all its labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.tasks import Task
from holdfast.core.types import Collection, Sample
from holdfast.data.labels import NOT_PROBABILITIES
from holdfast.engine import Executor
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_models
from holdfast.pipeline.evaluate.evaluating import SAME_RUN, Evaluating
from holdfast.pipeline.evaluate.worker import Evaluation, Loaded
from holdfast.pipeline.evaluation_rows import EvaluationJob, Part, Portion
from holdfast.pipeline.jobs.plan import Job, Plan
from holdfast.pipeline.jobs.rows import Row
from holdfast.pipeline.samples import Prepared, prepare
from holdfast.pipeline.tasks import SeveralLabels, independent
from holdfast.scenarios import Condition
from holdfast.store import Run


class LabelEvaluating(Evaluating):
    """One command on images with several labels."""

    same = (*SAME_RUN, "threshold")

    def __init__(
        self, task: Task, spec: EvaluateSpec, collection: Collection, conditions: Sequence[Condition], run: Run,
        **options: Any,
    ) -> None:  # fmt: skip
        spec = replace(spec, threshold=0.5 if spec.threshold is None else spec.threshold)
        names = {part for sample in collection.samples for part in _labels(sample, collection)}
        labelled = replace(collection, classes=tuple(sorted(names)), separator="")
        super().__init__(SeveralLabels(f"score of {spec.threshold:g}"), spec, labelled, conditions, run, **options)
        self.separated = collection

    def load(self) -> Sequence[Tested]:
        """Return the models."""
        return _load(self.spec, self.collection)

    @cached_property
    def photos(self) -> Prepared:
        """The images with their hashes."""
        return prepare(self.spec, self.separated, self.progress)

    def recorded_data(self) -> Prepared:
        """Return the images, which ``samples.parquet`` lists."""
        return self.photos

    @cached_property
    def prepared(self) -> Prepared:
        """A sample for every image and label."""
        photos, labels = self.photos, self.collection.classes
        samples = [_asked(photo, label, self.separated) for photo in photos.collection.samples for label in labels]
        images, masks = ({sample.sample_id: each[sample.attributes["photo"]] for sample in samples}
                         for each in (photos.images, photos.masks))  # fmt: skip
        whole = replace(self.collection, samples=tuple(samples))
        return replace(photos, collection=whole, images=images, masks=masks)

    def worker(self, portion: Portion, prepared: Prepared) -> Evaluation:
        """Return what turns jobs into rows."""
        return LabelEvaluation(self.spec, prepared, self.run.path, self.task)

    def placed(self, plan: Plan[Sample, Part], worker: Evaluation, portion: Portion) -> tuple[Executor, int]:
        """Return where a plan is executed; whole images share a part file, as a rule."""
        size = len(self.collection.classes) * max(8, 4 * self.spec.batch_size // max(1, len(portion.conditions)))
        return self.executor, size


def _labels(sample: Sample, collection: Collection) -> list[str]:
    labels = [part.strip() for part in sample.label.split(collection.separator) if part.strip()]
    if any("#" in label for label in labels):
        raise UserError(f"the label {sample.label!r} of {sample.sample_id} has a #, which names reserve; rename it")
    return labels


def _asked(photo: Sample, label: str, collection: Collection) -> Sample:
    """Return the sample that asks whether an image has a label."""
    truth = label if label in _labels(photo, collection) else f"no {label}"
    whole = {**photo.attributes, "photo": photo.sample_id, "labels": photo.label, "asked": label}
    return replace(photo, sample_id=f"{photo.sample_id}#{label}", label=truth, attributes=whole)


def _photo(asked: Sample) -> Sample:
    return replace(asked, sample_id=asked.attributes["photo"], label=asked.attributes["labels"])


def _load(spec: EvaluateSpec, collection: Collection) -> list[Tested]:
    """Return the models with a score of 0..1 for every output, whatever the others are."""
    tested = load_models(spec, collection)
    for model in tested:
        independent(model.classifier)
    return tested


class LabelEvaluation(Evaluation):
    """The worker: asks as that of ``eval`` does, once an image, and yields a row for each of its labels."""

    def load(self) -> Loaded:
        """Load the models."""
        return Loaded(_load(self.spec, self.prepared.collection))

    def run(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[Row]:
        """Yield the rows of these jobs, as batches fill."""
        photos: dict[str, dict[Part, list[tuple[Sample, str]]]] = {}
        for job in jobs:
            owed = photos.setdefault(job.item.attributes["photo"], {})
            for part, row_id in zip(job.parts, job.ids, strict=True):
                owed.setdefault(part, []).append((job.item, row_id))
        leads: list[EvaluationJob] = []
        owners: dict[str, list[tuple[Sample, str]]] = {}
        for owed in photos.values():
            conditions = dict.fromkeys(condition for condition, _ in owed)
            parts = [part for condition in conditions for part in owed if part[0] == condition]
            leads.append(Job(_photo(owed[parts[0]][0][0]), parts, [owed[part][0][1] for part in parts]))
            owners |= {rows[0][1]: rows for rows in owed.values()}
        models = {model.classifier.name: model for model in resources.tested}
        for row in super().run(resources, leads):
            scores = row.pop("scores", None)
            for sample, row_id in owners[row["row_id"]]:
                decided = {} if scores is None else self._decided(sample, scores, models[row["model"]])
                yield row | {"sample_id": sample.sample_id, "label": sample.label, "row_id": row_id} | decided

    def _decided(self, sample: Sample, scores: Any, model: Tested) -> Row:
        """Return the outcome columns of one label."""
        asked = sample.attributes["asked"]
        score = float(np.max(scores[list(model.labels.members[model.labels.classes.index(asked)])]))
        if not 0 <= score <= 1:
            return {"status": "error", "error": NOT_PROBABILITIES}
        assert self.spec.threshold is not None
        yes = score >= self.spec.threshold
        prediction, confidence = (asked, score) if yes else (f"no {asked}", 1 - score)
        right = prediction == sample.label
        return {
            "prediction": prediction, "prediction_restricted": prediction, "correct": right,
            "correct_restricted": right, "confidence": confidence, "confidence_restricted": confidence,
            "probability_of_label": confidence if right else 1 - confidence, "status": "ok",
        }  # fmt: skip
