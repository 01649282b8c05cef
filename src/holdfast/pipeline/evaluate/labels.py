"""``holdfast eval`` of photos with several labels each: a row per photo × condition × model × label.

A label is a yes-or-no question. The answer is yes where the model's score of the label reaches the threshold, and right
where the photo has the label. A photo is rendered and shown to a model once for all its labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.protocols import StagedClassifier
from holdfast.core.schema import MULTILABEL
from holdfast.core.types import Collection, Sample
from holdfast.data.labels import NOT_PROBABILITIES
from holdfast.engine import Executor
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_models
from holdfast.pipeline.evaluate.worker import SAME_RUN, Evaluation, Loaded, RunSetup, WaitingRow, recorded_evaluation
from holdfast.pipeline.evaluation_rows import EvaluationJob, Part, Portion
from holdfast.pipeline.jobs.plan import Job
from holdfast.pipeline.jobs.progress import Progress, Summary
from holdfast.pipeline.jobs.rows import Row
from holdfast.pipeline.samples import begin_run, prepare
from holdfast.scenarios import Condition
from holdfast.store import Run


def evaluate_labels(
    spec: EvaluateSpec,
    collection: Collection,
    conditions: Sequence[Condition],
    run: Run,
    executor: Executor,
    progress: Progress,
) -> Summary:
    """Make the rows that are not stored yet."""
    _check_asked(spec, conditions)
    spec = replace(spec, threshold=0.5 if spec.threshold is None else spec.threshold)
    photos, summary = prepare(spec, collection, progress), Summary()
    names = {part for sample in collection.samples for part in _labels(sample, collection)}
    labelled = replace(collection, classes=tuple(sorted(names)), separator="")
    tested = _load(spec, labelled)
    recorded = recorded_evaluation(spec, labelled, tested, run, task=MULTILABEL.name)
    begin_run(run, recorded, photos, summary, same=(*SAME_RUN, "threshold"))
    samples = [_asked(photo, label, collection) for photo in collection.samples for label in labelled.classes]
    images, masks = ({sample.sample_id: each[sample.attributes["photo"]] for sample in samples}
                     for each in (photos.images, photos.masks))  # fmt: skip
    prepared = replace(photos, collection=replace(labelled, samples=tuple(samples)), images=images, masks=masks)
    task = replace(MULTILABEL, protocol=f"score of {spec.threshold:g}")
    portion = Portion(tuple(conditions), tuple(range(len(tested))), tuple(conditions))
    setup = RunSetup(spec, prepared, tested, run, summary, progress, executor, task)
    size = len(labelled.classes) * max(8, 4 * spec.batch_size // len(conditions))  # whole photos, as a rule
    setup.execute(setup.plan(portion), LabelEvaluation(spec, prepared, run.path, task=task), step="eval", size=size)
    return summary


def _check_asked(spec: EvaluateSpec, conditions: Sequence[Condition]) -> None:
    asked = ["fast", "search", "expect_accuracy", "protocol"]
    options = [f"--{name.replace('_', '-')}" for name in asked if getattr(spec, name)]
    options += [each.name for each in conditions if each.definition.attack or each.definition.paints]
    if options:
        raise UserError(f"photos with several labels do not go with {options[0]}; leave it out")


def _labels(sample: Sample, collection: Collection) -> list[str]:
    labels = [part.strip() for part in sample.label.split(collection.separator) if part.strip()]
    if any("#" in label for label in labels):
        raise UserError(
            f"the label {sample.label!r} of {sample.sample_id} has a #, which rows of labels are named with"
        )
    return labels


def _asked(photo: Sample, label: str, collection: Collection) -> Sample:
    """Return the sample that asks whether a photo has a label."""
    truth = label if label in _labels(photo, collection) else f"no {label}"
    whole = {**photo.attributes, "photo": photo.sample_id, "labels": photo.label, "asked": label}
    return replace(photo, sample_id=f"{photo.sample_id}#{label}", label=truth, attributes=whole)


def _photo(asked: Sample) -> Sample:
    return replace(asked, sample_id=asked.attributes["photo"], label=asked.attributes["labels"])


def _load(spec: EvaluateSpec, collection: Collection) -> list[Tested]:
    """Return the models with a score of 0..1 for every output, whatever the others are."""
    tested = load_models(spec, collection)
    for model in tested:
        if not hasattr(model.classifier, "independent"):
            raise UserError(f"{model.classifier.name} chooses one class, so it cannot be asked for several labels")
        model.classifier.independent = True
    return tested


class LabelEvaluation(Evaluation):
    """The worker: asks as that of ``eval`` does, once a photo, and yields a row for each of its labels."""

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

    def ask(self, model: Tested, batch: Sequence[WaitingRow], painter: Any) -> list[dict[str, Any]]:
        """Return the scores of each picture of a batch."""
        classifier, inputs = model.classifier, [prepared for _, _, prepared in batch]
        ask = classifier.predict_prepared if isinstance(classifier, StagedClassifier) else classifier.predict
        scores = ask(inputs)
        if scores.shape != (len(batch), len(classifier.labels)):
            raise SampleError(f"the model answered with an array of shape {scores.shape}")
        return [ready.facts | {"scores": row} for (ready, _, _), row in zip(batch, scores, strict=True)]

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
