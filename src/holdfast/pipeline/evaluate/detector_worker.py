"""The detectors of an evaluation, and the worker that asks them: rows of images, with objects and predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import torch
from holdfast.core.protocols import Detections, Detector
from holdfast.core.tasks import Task
from holdfast.core.types import Collection, Mask
from holdfast.data.labels import class_keys, map_labels
from holdfast.models import load_detector
from holdfast.models.detectors.batched import BatchedDetector
from holdfast.pipeline.classifiers import EvaluateSpec, TestedModel, check_names, parameter_count
from holdfast.pipeline.donors import load_sample
from holdfast.pipeline.evaluate.matching import MaskedObject, is_right, judged, meant, shown_objects
from holdfast.pipeline.evaluate.worker import RELEASED, AnsweredBatch, Evaluation, Loaded, ReadyRendering, WaitingRow
from holdfast.pipeline.evaluation_rows import RENDERED_COLUMNS, EvaluationJob, stored_details
from holdfast.pipeline.fast import decoding
from holdfast.pipeline.fast.decoding import Arrival, Crew, Decoder, Facts, Group, Unit, unit_of
from holdfast.pipeline.fast.device_pass import decoding_processes
from holdfast.pipeline.fast.flow import channels_first
from holdfast.pipeline.generate.tools import load_filler
from holdfast.pipeline.jobs.rows import Row
from holdfast.pipeline.samples import Prepared, Rendering
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import at_once, render_batch

KEY_COLUMNS = ("row_id", "sample_id", "source_id", "condition", "variant", "parameters", "seed", "model", "donor_id")
TRUTH, GIVEN = "_objects", "_detections"  # what a row carries until its details are made


class TestedDetector(TestedModel):
    """A detector under test."""

    model: Detector

    @property
    def places(self) -> NDArray[np.int64]:
        """The place of each output's class in the dataset's list, -1 for none."""
        places = np.full(len(self.model.labels), -1, np.int64)
        for place, members in enumerate(self.labels.members):
            places[list(members)] = place
        return places

    @property
    def known(self) -> frozenset[str]:
        """The dataset's classes that the detector has an output for."""
        pairs = zip(self.labels.classes, self.labels.members, strict=True)
        return frozenset(name for name, members in pairs if members)


def load_detectors(spec: EvaluateSpec, collection: Collection) -> list[TestedDetector]:
    """Load the detectors and map the dataset's classes to their outputs; some classes may have none."""
    boxed = any(isinstance(sample.objects, MaskedObject) for sample in collection.samples)  # named by --labels already
    keys = class_keys(collection, None if boxed else spec.labels)
    tested = []
    for name in spec.models:
        detector = load_detector(name, device=spec.device, collection=collection)
        on_device = spec.fast and isinstance(detector, BatchedDetector) and detector.takes_tensors
        if hasattr(detector, "batch_size"):
            detector.batch_size = spec.batch_size if on_device else min(detector.batch_size, spec.batch_size)
        labels = map_labels(collection.classes, keys, detector.labels, some=True)
        exact = fingerprint([detector.fingerprint, labels.fingerprint])
        fast = fingerprint([exact, "fast"]) if on_device else ""
        tested.append(TestedDetector(detector, labels, exact, fast, parameter_count(detector)))
    check_names([each.model.name for each in tested])
    return tested


class Detection(Evaluation):
    """The worker: renders as ``Evaluation`` does, asks detectors, and gives every row its details."""

    def __init__(
        self, spec: EvaluateSpec, prepared: Prepared, run: Path, task: Task, thresholds: Mapping[str, float]
    ) -> None:
        super().__init__(spec, prepared, run, task)
        self.thresholds = dict(thresholds)

    def load(self) -> Loaded:
        """Load the detectors."""
        return Loaded(load_detectors(self.spec, self.prepared.collection))

    def run(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[Row]:
        """Yield the rows of these jobs with their objects and predictions, as batches fill."""
        known = {each.model.name: each.known for each in resources.tested}
        for row in self._undetailed(resources, jobs):
            yield self._with_details(row, known[row["model"]])

    def _undetailed(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[Row]:
        return super().run(resources, jobs)

    def _with_details(self, row: Row, known: frozenset[str]) -> Row:
        objects, predictions = row.pop(TRUTH, []), row.pop(GIVEN, [])
        key = {name: row.get(name) for name in KEY_COLUMNS}
        truth = [key | each for each in objects]
        for each in truth:
            if row["status"] != "ok" and each["status"] in ("ok", "removed"):
                each |= {"status": row["status"], "error": row.get("error")}
            elif each["label"] not in known and each["status"] == "ok":
                each |= {"status": "unknown_class", "error": "the model has no output for this class"}
        predictions = [key | each for each in predictions]
        answered, columns = judged(truth, predictions, self.thresholds.get(row["model"]))
        if row["status"] != "ok":
            columns |= {"n_predictions": None, "false_alarms": None}
        else:
            row["correct"] = is_right(answered, columns)
        images = [key | columns | {"status": row["status"], "error": row.get("error")}]
        return row | {"objects": answered, "images": images, "detections": predictions}

    def ready(
        self, resources: Loaded, job: EvaluationJob, rendering: Rendering, owed: list[tuple[int, str]]
    ) -> ReadyRendering:
        """Return a rendering as the detectors take it, with the facts and true objects that its rows share."""
        truth: list[Row] = []
        try:
            truth = self._truth(job, rendering)
        except SampleError as error:
            if rendering.rendered is not None:
                rendering = replace(rendering, rendered=None, status="error", error=str(error))
        ready = super().ready(resources, job, rendering, owed)
        ready.facts[TRUTH] = truth
        return ready

    def _truth(self, job: EvaluationJob, rendering: Rendering) -> list[Row]:
        rendered = rendering.rendered
        if rendered is not None and not rendering.moved:
            return shown_objects(job.item, rendering, rendered.image.shape[:2], None)
        image, mask, _ = load_sample(job.item, self.spec.max_pixels)
        return shown_objects(job.item, rendering, image.shape[:2], mask)

    def row(self, ready: ReadyRendering, model: Any, row_id: str) -> Row:
        """Return a row without its outcome, with the true objects of the image."""
        return super().row(ready, model, row_id) | {TRUTH: ready.facts.get(TRUTH, [])}


def predictions(model: TestedDetector, answer: Detections, ready: ReadyRendering) -> list[Row]:
    """Return the predictions of the dataset's classes as columns of ``DETECTIONS``, the best first."""
    places = model.places[answer.labels]
    rows = [
        {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "score": score, "label": model.labels.classes[place]}
        for (x1, y1, x2, y2), score, place in zip(
            answer.boxes.tolist(), answer.scores.tolist(), places.tolist(), strict=True
        )
        if place >= 0
    ]
    if answer.masks and rows and not ready.rendering.moved:
        own = [mask for mask, place in zip(answer.masks, places, strict=True) if place >= 0]
        _compare_masks(rows, own, ready)
    return rows


def _compare_masks(rows: list[Row], masks: Sequence[Mask], ready: ReadyRendering) -> None:
    """Give each prediction the IoU of its mask with that of the object it means; nothing if there is none."""
    truth, source = ready.facts.get(TRUTH, []), ready.job.item.objects
    assert source is not None
    height, width = masks[0].shape
    pixels: dict[str, Mask] = {}
    for row, mask in zip(rows, masks, strict=True):
        place = meant(truth, row)
        if place < 0:
            continue
        if not pixels:
            pixels = {each.object_id: each.pixels(height, width) for each in source.load(height, width)}
        other = pixels[truth[place]["object_id"]]
        row["mask_iou"] = float((mask & other).sum() / max(1, (mask | other).sum()))


UNIT = 16  # images that are decoded together
Owed = dict[Condition, list[tuple[int, str]]]  # by condition: the positions of models and the ids of their rows


class FastDetection(Detection):
    """The worker of ``--fast``: ``Detection`` with images that never leave the device."""

    # Threads ask the detectors: while one of them waits for the device, another takes out double boxes and makes rows.

    def _at_once(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> bool:
        self._device = str(resources.tested[jobs[0].parts[0][1]].model.device)
        self._cuda = self._device.startswith("cuda")
        return self._cuda

    def _answered(self, resources: Loaded, position: int, batch: Sequence[WaitingRow]) -> AnsweredBatch:
        """Return the rows of a batch, asked about on a stream of its own."""
        stream: Any = torch.cuda.Stream(self._device) if self._cuda else None  # type: ignore[no-untyped-call]
        if stream is not None:
            stream.wait_stream(torch.cuda.default_stream(torch.device(self._device)))
        with torch.cuda.stream(stream) if stream is not None else nullcontext():
            return super()._answered(resources, position, batch)

    def answers(self, model: Any, images: list[Any]) -> list[Detections]:
        """Return the detections of each image, a tensor on the device."""
        answers: list[Detections] = []
        for _, alike in groupby(images, key=lambda picture: picture.shape):
            answers += model.model.detect_tensors(torch.stack(list(alike)))
        return answers

    def _ahead(self, resources: Loaded, jobs: Sequence[EvaluationJob]) -> Iterator[ReadyRendering]:
        """Yield rendered images as tensors CHW uint8 on the device, in the order of decoding."""
        conditions = list(dict.fromkeys(condition for job in jobs for condition, _ in job.parts))
        decoder = Decoder(conditions, self.spec.max_pixels, load_filler(self.spec.fill))
        expected: dict[int, tuple[Unit, Sequence[EvaluationJob]]] = {}

        def units() -> Iterator[Unit]:
            for number, start in enumerate(range(0, len(jobs), UNIT)):
                some = jobs[start : start + UNIT]
                wanted = [(job.item, [conditions.index(condition) for condition in _owed(job)]) for job in some]
                unit = unit_of(number, wanted, conditions, self.prepared.pool, self.spec.seed)
                expected[number] = unit, some
                yield unit

        with ExitStack() as ending:
            processes = decoding_processes(self.spec, self._cuda)
            crew = Crew(decoder, processes=processes, gpu=self._cuda) if processes else None
            if crew is not None:
                ending.callback(crew.close)
            arrival = Arrival(units(), decoder, crew)
            ending.callback(arrival.close)
            for facts, groups, release in arrival:
                unit, some = expected.pop(facts.number)
                decoding.settle(facts, unit, groups, conditions, self.prepared.pool, self.spec.seed)
                for place, number, status, reason in facts.failed:
                    rendering = Rendering(conditions[number], None, status, reason)
                    yield self.ready(resources, some[place], rendering, _owed(some[place])[conditions[number]])
                failed = {(place, number) for place, number, _, _ in facts.failed}
                for group in groups:
                    yield from self._shown(resources, group, facts, failed, some, conditions)
                release()

    def _shown(
        self,
        resources: Loaded,
        group: Group,
        facts: Facts,
        failed: set[tuple[int, int]],
        jobs: Sequence[EvaluationJob],
        conditions: Sequence[Condition],
    ) -> Iterator[ReadyRendering]:
        """Render images of one size, some at a time, and yield each under every condition that can be rendered."""
        size = int(group.images.shape[1]), int(group.images.shape[2])
        for start in range(0, len(group.places), at_once(*size)):
            part = slice(start, start + at_once(*size))
            places = group.places[part]
            images, masks, backgrounds = (
                torch.from_numpy(array[part]).to(self._device)
                for array in (group.images, group.masks, group.backgrounds)
            )
            owed = [_owed(jobs[place]) for place in places]
            wanted = [condition for condition in conditions if any(condition in own for own in owed)]
            with torch.no_grad():
                rendered = render_batch(
                    wanted, channels_first(images), masks, sample_ids=[jobs[place].item.sample_id for place in places],
                    seed=self.spec.seed, donors=channels_first(backgrounds), matte=self.spec.matte,
                )  # fmt: skip
            for row, place in enumerate(places):
                # None of these conditions moves an object or takes one out.
                try:
                    truth, reason = shown_objects(jobs[place].item, Rendering(wanted[0], None), size, None), ""
                except SampleError as error:
                    truth, reason = [], str(error)
                for condition in wanted:
                    if condition not in owed[row] or (place, conditions.index(condition)) in failed:
                        continue
                    if reason:
                        broken = Rendering(condition, None, "error", reason)
                        yield self.ready(resources, jobs[place], broken, owed[row][condition])
                        continue
                    ready = ReadyRendering(jobs[place], Rendering(condition, RELEASED), owed[row][condition])
                    details = stored_details(jobs[place].item)
                    details |= facts.donors.get(place, {}) if condition.definition.donor else {}
                    ready.facts = {name: details.get(name) for name in RENDERED_COLUMNS} | {TRUTH: truth}
                    ready.prepared = [rendered[condition][row]] * len(ready.owed)
                    yield ready


def _owed(job: EvaluationJob) -> Owed:
    owed: Owed = {}
    for (condition, position), row_id in zip(job.parts, job.ids, strict=True):
        owed.setdefault(condition, []).append((position, row_id))
    return owed
