"""Holdfast's datasets, models, scenarios and metrics behind MAITE's protocols, for classification and detection.

Typing is structural: only type checkers import the package ``maite``. An image's mask is its metadata's ``mask``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.protocols import Classifier, Detector, as_array, box_areas
from holdfast.core.schema import DETECTIONS, IMAGES, OBJECTS
from holdfast.core.types import DEFAULT_MAX_PIXELS, ORIGINAL, Collection, Image, Sample
from holdfast.data import load_collection
from holdfast.data.boxes import ListedObjects, largest_label
from holdfast.data.images import ArrayImage
from holdfast.data.masks import ArrayMask
from holdfast.data.readers.maite import from_channels_first, listed_boxes
from holdfast.models import load_classifier, load_detector
from holdfast.models.detectors.python_detectors import scores_of_labels
from holdfast.pipeline.donors import make_pool
from holdfast.pipeline.evaluate.matching import UnionMask, best_threshold, boxes_of, has_objects, judged, shown_objects
from holdfast.pipeline.samples import render_conditions
from holdfast.results import Results
from holdfast.scenarios import parse_conditions
from holdfast.stats.core.cells import stratified
from holdfast.stats.objects.answers import detector_answers
from holdfast.stats.objects.effects import objects_under_conditions

if TYPE_CHECKING:
    from maite.protocols import (
        ArrayLike,
        AugmentationMetadata,
        DatasetMetadata,
        DatumMetadata,
        MetricMetadata,
        ModelMetadata,
    )
    from maite.protocols import image_classification as ic
    from maite.protocols import object_detection as od

    def _conform(
        images: ClassifiedImages,
        boxed: BoxedImages,
        classifier: MaiteClassifier,
        detector: MaiteDetector,
        augmentation: ScenarioAugmentation,
        accuracy: AccuracyMetric,
        recall: RecallMetric,
    ) -> tuple[ic.Dataset, od.Dataset, ic.Model, od.Model, ic.Augmentation, od.Augmentation, ic.Metric, od.Metric]:
        return images, boxed, classifier, detector, augmentation, augmentation, accuracy, recall  # fmt: skip


@dataclass(frozen=True)
class BoxTarget:
    """MAITE's ``ObjectDetectionTarget``: boxes (n, 4: x1, y1, x2, y2 in pixels), labels (n) and scores (n)."""

    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    scores: NDArray[np.float32]


def _channels_first(image: Image) -> NDArray[np.uint8]:
    return np.ascontiguousarray(image.transpose(2, 0, 1))


class _Pictures:
    """What both kinds of datasets share: a dataset of Holdfast's, by name, with the numbers of its classes."""

    def __init__(self, samples: Sequence[Sample], collection: Collection, classes: Sequence[str]) -> None:
        self.metadata: DatasetMetadata = {"id": collection.name, "index2label": dict(enumerate(classes))}
        self._samples, self._place = samples, {label: place for place, label in enumerate(classes)}

    def __len__(self) -> int:
        return len(self._samples)

    def _datum(self, index: int) -> tuple[Sample, NDArray[np.uint8], DatumMetadata]:
        sample = self._samples[index]
        image = sample.image.load()
        facts: Any = {**sample.attributes, "id": sample.sample_id}
        if sample.mask is not None:
            facts["mask"] = sample.mask.load(*image.shape[:2])
        return sample, _channels_first(image), facts


class ClassifiedImages(_Pictures):
    """A dataset as a MAITE one for image classification: ``ClassifiedImages("diorama:test?n=24")``."""

    def __init__(self, data: str, *, masks: str | None = None) -> None:
        collection = load_collection(data, masks=masks)
        super().__init__(collection.samples, collection, collection.classes)

    def __getitem__(self, index: int, /) -> tuple[NDArray[np.uint8], NDArray[np.float32], DatumMetadata]:
        """Return an image (3, height, width), its class as one-hot scores, and id, mask and attributes."""
        sample, picture, facts = self._datum(index)
        return picture, np.eye(len(self._place), dtype=np.float32)[self._place[sample.label]], facts


class BoxedImages(_Pictures):
    """A dataset with boxes as a MAITE one for object detection; groups under one box are left out."""

    def __init__(self, data: str) -> None:
        collection = load_collection(data)
        samples = (*collection.samples, *collection.empty)
        if not has_objects(samples):
            raise UserError(f"{data} has no boxes; ClassifiedImages hands out its images with their classes")
        super().__init__(samples, collection, collection.object_classes or collection.classes)

    def __getitem__(self, index: int, /) -> tuple[NDArray[np.uint8], BoxTarget, DatumMetadata]:
        """Return an image (3, height, width), its boxes, and id, mask and attributes."""
        sample, picture, facts = self._datum(index)
        objects = sample.objects.load(*picture.shape[1:]) if sample.objects is not None else ()
        usable = [each for each in objects if not each.problem and not each.crowd]
        return picture, _truth([each.box for each in usable], [self._place[each.label] for each in usable]), facts


def _truth(boxes: Any, labels: Sequence[int]) -> BoxTarget:
    scores = np.ones(len(labels), np.float32)
    return BoxTarget(np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int64), scores)


def _about(model: Classifier | Detector) -> ModelMetadata:
    return {"id": model.name, "index2label": dict(enumerate(model.labels.names))}


class MaiteClassifier:
    """A model of Holdfast's as a MAITE one for image classification: ``MaiteClassifier("timm:resnet50")``."""

    def __init__(self, name: str, *, device: str = "auto") -> None:
        self._model = load_classifier(name, device=device)
        self.metadata = _about(self._model)

    def __call__(self, batch_input: Sequence[ArrayLike], /) -> Sequence[NDArray[np.float32]]:
        """Return a probability for each output, for each image (3 or 1, height, width)."""
        return list(self._model.predict([from_channels_first(picture) for picture in batch_input]))


class MaiteDetector:
    """A detector of Holdfast's as a MAITE one for object detection: ``MaiteDetector("embedded:boxes_rho0")``."""

    def __init__(self, name: str, *, device: str = "auto") -> None:
        self._model = load_detector(name, device=device)
        self.metadata = _about(self._model)

    def __call__(self, batch_input: Sequence[ArrayLike], /) -> Sequence[BoxTarget]:
        """Return the boxes of each image (3 or 1, height, width)."""
        answers = self._model.detect([from_channels_first(picture) for picture in batch_input])
        return [BoxTarget(np.asarray(each.boxes, np.float32), each.labels, each.scores) for each in answers]


class ScenarioAugmentation:
    """A scenario as a MAITE ``Augmentation`` of images and of boxes: ``ScenarioAugmentation("blur_background@3")``.

    Images are those of ``eval`` with the same seed and ids; the other images of the batch lend backgrounds. Boxes
    go where the scenario moves their objects; without a mask, boxes are the foreground.
    """

    def __init__(self, scenario: str, *, seed: int = 0) -> None:
        conditions = parse_conditions(scenario)
        if len(conditions) != 1:
            raise UserError(f"an augmentation is one scenario; {scenario!r} names {len(conditions)}")
        self._conditions, self._seed = conditions, seed
        self.metadata: AugmentationMetadata = {"id": f"holdfast {conditions[0].name}"}

    def __call__(self, batch: tuple[Sequence[Any], Sequence[Any], Sequence[Any]], /) -> tuple[Any, Any, Any]:
        """Return images (C, H, W) under the scenario, their targets, and metadata with the condition and the mask."""
        samples = [_sample(*datum) for datum in zip(*batch, strict=True)]
        pool = make_pool(samples, None, max_pixels=DEFAULT_MAX_PIXELS)
        pictures, targets, metadata = [], [], []
        for sample, target, facts in zip(samples, *batch[1:], strict=True):
            (rendering,) = render_conditions(
                sample, self._conditions, pool, seed=self._seed, max_pixels=DEFAULT_MAX_PIXELS
            )
            if rendering.rendered is None:
                raise SampleError(f"{sample.sample_id}: {rendering.error}")
            pictures.append(_channels_first(ArrayImage(rendering.rendered.image).load()))
            if sample.objects is not None:
                size = sample.image.load().shape[:2]
                mask = sample.mask.load(*size) if sample.mask and rendering.moved else None
                rows = [row for row in shown_objects(sample, rendering, size, mask) if row["status"] == "ok"]
                target = _truth(boxes_of(rows), [int(row["label"]) for row in rows])
            targets.append(target)
            after = {"mask": rendering.rendered.mask} if rendering.moved and "mask" in facts else {}
            metadata.append({**facts, **after, "condition": self._conditions[0].name})
        return pictures, targets, metadata


def _sample(picture: Any, target: Any, facts: Mapping[str, Any]) -> Sample:
    image, mask = ArrayImage(from_channels_first(picture)), facts.get("mask")
    own = None if mask is None else ArrayMask(as_array(mask, np.bool_))
    if not hasattr(target, "boxes"):
        return Sample(str(facts["id"]), str(int(as_array(target).argmax())), image, own)
    objects = ListedObjects(listed_boxes(target, {}))
    foreground = own or (UnionMask(objects) if objects.objects else None)
    return Sample(str(facts["id"]), largest_label(objects.objects), image, foreground, objects=objects)


class AccuracyMetric:
    """Accuracy as the mean over classes, with its 95 % interval, as a MAITE ``Metric``: as ``Results.accuracy`` has it.

    Every class counts alike, however many images it has: if classes differ in size, that is not the share of
    images answered rightly.
    """

    def __init__(self) -> None:
        self.metadata: MetricMetadata = {"id": "holdfast accuracy, mean over classes"}
        self.reset()

    def reset(self) -> None:
        """Forget all predictions."""
        self._right: dict[int, list[bool]] = {}

    def update(self, pred_batch: Sequence[Any], target_batch: Sequence[Any], metadata_batch: Sequence[Any], /) -> None:
        """Add predictions; the largest score is the answer."""
        for answer, target in zip(pred_batch, target_batch, strict=True):
            label, scores = int(as_array(target).argmax()), as_array(answer)
            if np.isnan(scores).any():
                raise UserError("the model answered with a score that is not a number")
            self._right.setdefault(label, []).append(int(scores.argmax()) == label)

    def compute(self) -> dict[str, float]:
        """Return ``accuracy``, ``low``, ``high`` and ``n``."""
        if not self._right:
            raise UserError("there are no predictions yet: call update first")
        right, sizes = zip(*((sum(own), len(own)) for own in self._right.values()), strict=True)
        low, high = stratified(right, sizes)
        accuracy = float(np.mean(np.divide(right, sizes)))
        return {"accuracy": accuracy, "low": low, "high": high, "n": float(sum(sizes))}


class RecallMetric:
    """Recall and average precision with 95 % intervals as a MAITE ``Metric``: as ``Results.objects`` has them.

    ``threshold``: the score from which on boxes count for recall; the one of the best F1 if None, as in ``eval``.
    """

    def __init__(self, threshold: float | None = None) -> None:
        self.metadata: MetricMetadata = {"id": "holdfast recall and average precision"}
        self._threshold = threshold
        self.reset()

    def reset(self) -> None:
        """Forget all predictions."""
        self._pictures: list[tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = []

    def update(self, pred_batch: Sequence[Any], target_batch: Sequence[Any], metadata_batch: Sequence[Any], /) -> None:
        """Add the boxes of images; items with one ``id`` are one image."""
        for answer, target, facts in zip(pred_batch, target_batch, metadata_batch, strict=True):
            number = str(len(self._pictures))
            key = {"row_id": number, "sample_id": number, "source_id": str(facts["id"]), "condition": ORIGINAL}
            key |= {"variant": "", "parameters": "{}", "model": "", "status": "ok"}
            truth = [
                {**key, **row, "object_id": str(place), "crowd": False, "target": False}
                for place, row in enumerate(_rows(target))
            ]
            answers = sorted(({**key, **row} for row in _rows(answer)), key=lambda row: -row["score"])
            self._pictures.append((key, truth, answers))

    def compute(self) -> dict[str, float]:
        """Return ``recall``, ``ap``, ``ap50``, ``ap75`` with ``…_low`` and ``…_high``, ``objects`` and ``pictures``."""
        if not self._pictures:
            raise UserError("there are no predictions yet: call update first")
        threshold = self._threshold
        if threshold is None:
            threshold = best_threshold((truth, answers) for _, truth, answers in self._pictures)[0]
        tables: tuple[list[Any], list[Any], list[Any]] = [], [], []
        for key, truth, answers in self._pictures:
            outcome, columns = judged(truth, answers, threshold)
            for table, rows in zip(tables, (outcome, [key | columns], answers), strict=True):
                table += rows
        schemas = (OBJECTS, IMAGES, DETECTIONS)
        objects, images, detections = (
            pa.Table.from_pylist(rows, schema) for rows, schema in zip(tables, schemas, strict=True)
        )
        return _numbers(objects_under_conditions(detector_answers(objects, images, detections)).iloc[0])


def _rows(target: Any) -> list[dict[str, Any]]:
    """Return the boxes of a target as rows; of scores for every class, that of the label's class is taken."""
    boxes, labels = as_array(target.boxes, np.float64).reshape(-1, 4), as_array(target.labels, np.int64).reshape(-1)
    scores = as_array(scores_of_labels(target), np.float64).reshape(-1)
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
        raise UserError("the target needs boxes and scores that are finite numbers")
    areas = box_areas(boxes)
    return [
        {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "label": str(label), "score": score, "area": area}
        for (x1, y1, x2, y2), label, score, area in zip(boxes.tolist(), labels.tolist(), scores, areas, strict=True)
    ]


def _numbers(row: Any) -> dict[str, float]:
    names = [f"{name}{end}" for name in ("recall", "ap", "ap50", "ap75") for end in ("", "_low", "_high")]
    return {name: float(row[name]) for name in (*names, "objects", "pictures")}


def metric_result(results: Results, model: str, condition: str = ORIGINAL) -> Mapping[str, float]:
    """Return a run's accuracy as ``AccuracyMetric.compute`` does; of detectors, what ``RecallMetric`` has."""
    table = results.objects() if results.is_detection else results.accuracy()
    rows = table[(table["model"] == model) & (table["condition"] == condition)]
    if rows.empty:
        raise UserError(f"the run has no accuracy of {model} under {condition}")
    row = rows.iloc[0]
    return _numbers(row) if results.is_detection else {key: float(row[key]) for key in ("accuracy", "low", "high", "n")}
