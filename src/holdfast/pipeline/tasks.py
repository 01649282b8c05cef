"""The tasks of the core: what models are asked, one object each. Other packages add theirs by entry points.

What a task needs is imported when it is needed: the statistics of a run read these objects, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast import registry
from holdfast.core.errors import SampleError, UserError
from holdfast.core.schema import (
    ANSWERS,
    CLASSIFY,
    DETECT,
    DETECTIONS,
    IMAGES,
    MULTILABEL,
    OBJECTS,
    QUESTION,
    SEGMENT,
    SEGMENTS,
)
from holdfast.core.tasks import Task

if TYPE_CHECKING:
    from holdfast.core.types import Collection, Sample

_CLOSED = ("detect", "multilabel", "classify")  # tasks of the core, in the order in which they are asked


def recognised(collection: Collection, models: Sequence[str]) -> Task:
    """Return the task of a command: that of another package which recognises it, else one of the core."""
    every = {name: registry.tasks.get(name) for name in registry.tasks}
    claims = [task for name, task in every.items() if name not in _CLOSED and task.recognises(collection, models)]
    if len(claims) > 1:
        names = " and ".join(f"{task.name} ({task.title})" for task in claims)
        raise UserError(f"--models {','.join(models)}: the tasks {names} both recognise it; uninstall one of them")
    claims += [every[name] for name in _CLOSED if not claims and every[name].recognises(collection, models)]
    return claims[0]


class Classification(Task):
    """Which class does the image show? ``data.labels.outcomes`` turns probabilities into columns."""

    name, title, protocol = CLASSIFY, "images with one class each", "argmax"
    hub, average = "image-classification", "macro"
    supports = frozenset({
        "fast", "search", "attacks", "adaptation", "native-depth", "rounds", "protocol", "expect-accuracy", "painting",
    })  # fmt: skip
    sections = ("verdict", "scores", "scenarios", "classes")
    calls = (".verdicts()", ".accuracy()", ".drops()", '.plot("accuracy")')
    results = MappingProxyType({
        "accuracy": lambda run: run.accuracy(), "accuracy_restricted": lambda run: run.accuracy(outcome="restricted"),
        "drops": lambda run: run.drops(), "robustness_score": lambda run: run.scores(),
        "robustness_score_background": lambda run: run.scores(over="background"),
    })  # fmt: skip
    evaluation = "holdfast.pipeline.evaluate.classes:ClassEvaluating"

    def recognises(self, collection: Collection, models: Sequence[str]) -> bool:
        """Return True: what no other task recognises is classified."""
        return True

    def ask(self, model: Any, images: Sequence[Any]) -> Any:
        """Return the probabilities of each image, (images, outputs)."""
        from holdfast.core.protocols import StagedClassifier

        classifier = model.model
        staged = isinstance(classifier, StagedClassifier)
        probabilities = classifier.predict_prepared(images) if staged else classifier.predict(images)
        return checked_shape(probabilities, len(images), classifier)

    def rows(self, model: Any, shown: Sequence[Any], answers: Any) -> list[dict[str, Any]]:
        """Return the outcome columns of each answer."""
        from holdfast.pipeline.jobs.rows import outcome_rows

        return outcome_rows(answers, model.labels, [each.sample.label for each in shown])

    def broken(self, rows: Callable[[], Any], details: Callable[[str], Any]) -> Mapping[str, str]:
        """Return model → why no verdict can rest on it."""
        from holdfast.stats.core.reduce import reduce
        from holdfast.stats.effects.verdict_words import not_judged

        return not_judged(reduce(rows()))


def checked_shape(probabilities: Any, count: int, classifier: Any) -> Any:
    """Return probabilities; a SampleError if they are not one per image and output."""
    if probabilities.shape != (count, len(classifier.labels)):
        raise SampleError(f"the model answered with an array of shape {probabilities.shape}")
    return probabilities


class SeveralLabels(Task):
    """Which labels does the image have? A row per label; the protocol says from which score on the answer is yes."""

    name, title, unit = MULTILABEL, "images with several labels", "label"
    hub = "image-classification"
    supports = frozenset({"threshold"})
    sections = ("labels",)
    calls = (".labels()",)
    results = MappingProxyType({"labels": lambda run: run.labels()})
    tracked = MappingProxyType({"labels": {"drop": ("low", "high")}})
    evaluation = "holdfast.pipeline.evaluate.labels:LabelEvaluating"

    def __init__(self, protocol: str = "") -> None:
        if protocol:
            self.protocol = protocol

    def recognises(self, collection: Collection, models: Sequence[str]) -> bool:
        """Return whether the data separates several labels."""
        return bool(collection.separator)

    def load(self, name: str, *, device: str, collection: Collection) -> Any:
        """Return a classifier with a score of 0 to 1 for every output, whatever the others are."""
        from holdfast.models import load_classifier

        return independent(load_classifier(name, device=device, classes=collection.classes))

    def ask(self, model: Any, images: Sequence[Any]) -> Any:
        """Return the scores of each image, (images, outputs)."""
        return registry.tasks.get(CLASSIFY).ask(model, images)

    def rows(self, model: Any, shown: Sequence[Any], answers: Any) -> list[dict[str, Any]]:
        """Return the scores of each image; the worker makes a row for each of its labels."""
        return [{"scores": scores} for scores in answers]

    def units(self, rows: pa.Table, details: Callable[[str], pa.Table]) -> pa.Table:
        """Return a row per label of an image."""
        photos, names = (rows[name].to_pylist() for name in ("source_id", "sample_id"))
        units = [f"{photo}#{name.rpartition('#')[2]}" for photo, name in zip(photos, names, strict=True)]
        return rows.append_column("unit_id", pa.array(units, pa.string()))

    def broken(self, rows: Callable[[], Any], details: Callable[[str], Any]) -> Mapping[str, str]:
        """Return model → what is wrong with it."""
        from holdfast.stats.effects.sanity import broken_labels

        return broken_labels(rows().to_table())


def independent(classifier: Any) -> Any:
    """Return a classifier whose outputs no longer compete; a UserError if it chooses one class."""
    if not hasattr(classifier, "independent"):
        raise UserError(f"{classifier.name} chooses one class, so it cannot be asked for several labels")
    classifier.independent = True
    return classifier


class ObjectDetection(Task):
    """Which objects are where? ``details/objects`` has a row per true object, ``details/images`` one per image."""

    name, title, protocol, unit, success = DETECT, "object detection", "boxes", "object", "found"
    hub = "object-detection"
    tables = MappingProxyType({"objects": OBJECTS, "images": IMAGES, "detections": DETECTIONS})
    required = "images"
    supports = frozenset({"fast", "painting", "threshold"})
    sections = ("detectors", "object-groups")
    calls = (".verdicts()", ".objects()")
    results = MappingProxyType({"objects": lambda run: run.objects()})
    tracked = MappingProxyType({"objects": {"recall": ("recall_low", "recall_high")}})
    evaluation = "holdfast.pipeline.evaluate.detection:DetectorEvaluating"

    def recognises(self, collection: Collection, models: Sequence[str]) -> bool:
        """Return whether the models are detectors; a UserError if they are mixed, or there are no boxes."""
        from holdfast.models import is_detector
        from holdfast.pipeline.evaluate.matching import has_objects

        detectors = [name for name in models if is_detector(name)]
        if not detectors:
            return False
        if len(detectors) < len(models):
            others = ", ".join(name for name in models if name not in detectors)
            raise UserError(f"{', '.join(detectors)} find objects and {others} name images; use two commands")
        every = (*collection.samples, *collection.empty)
        if not has_objects(every) and all(sample.mask is None for sample in every):
            raise UserError(
                f"{detectors[0]} is a detector, and {collection.name} has no boxes and no masks; name a file of boxes "
                "with --boxes, or masks with --masks"
            )
        return True

    def truth(self, sample: Sample) -> str:
        """Return the hash of an image's boxes; empty if none are stated."""
        return "" if sample.objects is None else sample.objects.fingerprint()

    def load(self, name: str, *, device: str, collection: Collection) -> Any:
        """Return a detector."""
        from holdfast.models import load_detector

        return load_detector(name, device=device, collection=collection)

    def ask(self, model: Any, images: Sequence[Any]) -> Sequence[Any]:
        """Return the detections of each image."""
        return list(model.model.detect(images))

    def rows(self, model: Any, shown: Sequence[Any], answers: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the predictions of each image; the worker matches them with its objects."""
        from holdfast.pipeline.evaluate.detector_worker import GIVEN, predictions

        if len(answers) != len(shown):
            raise SampleError(f"the model gave {len(answers)} answers to {len(shown)} images")
        return [
            {"status": "ok", GIVEN: predictions(model, answer, each)}
            for each, answer in zip(shown, answers, strict=True)
        ]

    def units(self, rows: pa.Table, details: Callable[[str], pa.Table]) -> pa.Table:
        """Return a row per object that recall counts, correct if it was found."""
        from holdfast.stats.objects.answers import detector_answers

        tables = (details(name) for name in self.tables)
        objects = detector_answers(*tables, row_ids=rows["row_id"].to_pylist()).as_classified()
        return objects.append_column("unit_id", objects["sample_id"])

    def chance(self, units: pa.Table) -> float:
        """Return 0: an object that is found in its place cannot have been guessed."""
        return 0.0

    def broken(self, rows: Callable[[], Any], details: Callable[[str], Any]) -> Mapping[str, str]:
        """Return model → what is wrong with it."""
        from holdfast.stats.effects.sanity import broken_detectors

        return broken_detectors(details("objects"))


class Segmentation(Task):
    """Which pixels belong to which class? The protocol says at which size."""

    name, title = SEGMENT, "segmentation"
    hub = "image-segmentation"
    tables = MappingProxyType({"segments": SEGMENTS})
    required = "segments"
    success = "overlapped"
    supports = frozenset()
    sections = ("segmentation",)
    calls = (".segments()",)
    results = MappingProxyType({
        "segments": lambda run: run.segments(), "segments_by_class": lambda run: run.segments(classes=True)
    })  # fmt: skip
    tracked = MappingProxyType({"segments": {"miou": ("miou_low", "miou_high")}})
    evaluation = ""

    def truth(self, sample: Sample) -> str:
        """Return a name of the mask's contents; the ids of ``segment`` hash the mask itself."""
        return "" if sample.mask is None else "mask"

    def units(self, rows: pa.Table, details: Callable[[str], pa.Table]) -> pa.Table:
        """Return the rows with the overlap (IoU) of the classes that the image truly has, background aside."""
        from holdfast.stats.effects.segments import overlaps

        return overlaps(rows, details("segments"))

    def outcome(self, units: pa.Table) -> NDArray[np.float64]:
        """Return the mean overlap of each image."""
        return np.asarray(units["overlap"].to_numpy(zero_copy_only=False), np.float64)


class WordQuestions(Task):
    """What does a question in words get as an answer? The protocol says which options were named, in which order."""

    name, title = QUESTION, "questions in words"
    hub = "visual-question-answering"
    tables = MappingProxyType({"answers": ANSWERS})
    required = "answers"
    supports = frozenset({"rounds"})
    sections = ("questions",)
    calls = (".questions()",)
    results = MappingProxyType({"questions": lambda run: run.questions()})
    tracked = MappingProxyType({"questions": {"strict": ("strict_low", "strict_high")}})
    evaluation = ""


CLASSIFICATION, SEVERAL_LABELS, DETECTION = Classification(), SeveralLabels(), ObjectDetection()
SEGMENTATION, QUESTIONS = Segmentation(), WordQuestions()
