"""``holdfast segment``: train segmenters within scenarios, or test those there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.names import WITHOUT_OBJECT
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.data.labels import class_keys
from holdfast.engine import Executor, LocalExecutor
from holdfast.models import load_segmenter
from holdfast.pipeline.classifiers import check_names
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.files import check_apart
from holdfast.pipeline.jobs.execute import elsewhere, execute, shard_size
from holdfast.pipeline.jobs.plan import Job, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import Row, check_answered
from holdfast.pipeline.painted import with_generated
from holdfast.pipeline.samples import begin_run, prepare, read, recorded_spec
from holdfast.pipeline.segment import networks, testing
from holdfast.pipeline.specs import SegmentSpec as SegmentSpec
from holdfast.pipeline.train.fitting import MOVES, Fit
from holdfast.pipeline.train.pictures import Batch, showing
from holdfast.pipeline.train.plan import GivenModel, TestedPicture, TrainingJob, conditions_of, ids_of, scope_of
from holdfast.pipeline.train.train import TESTED, Answers, TrainingKind, TrainingResources, TrainingWorker, train
from holdfast.scenarios import Condition
from holdfast.stats.effects.segments import BACKGROUND
from holdfast.store import Run, writing
from holdfast.training import augment

Pair = tuple["torch.Tensor", "torch.Tensor"]


class SegmentFit(Fit):
    """One job's training. Images have four channels: colours, and 1 if the object is."""

    def build(self) -> torch.nn.Module:
        """Return the network before training."""
        return networks.build(self.job.architecture, len(self.classes), self.recipe.size, seed=self.seed)

    def batches(self, epoch: int) -> Iterator[Pair]:
        """Yield prepared images and class maps (NHW int64, 0 is background); both are moved alike."""
        for pictures, labels in self.source.batches(self.orders()):
            if len(labels) > 1:
                yield self.pair(self.cropped(pictures, at_random=True), labels, augmented=self.recipe.augment)

    def pair(self, pictures: torch.Tensor, labels: torch.Tensor, *, augmented: bool = False) -> Pair:
        """Return what the network sees, and the class of every pixel, of four channels uint8 and labels."""
        pictures, labels = self.moved(pictures), labels.to(self.device, non_blocking=True)
        images, mask = pictures[:, :3], pictures[:, 3:]
        if augmented:
            small = images.float().div_(255)
            grid = augment.move_grid(small, MOVES)
            images = augment.move(small, grid).mul_(255)
            mask = augment.move(mask.float(), grid, nearest=True)
        return self.prepared(images), mask[:, 0].long() * (labels + 1)[:, None, None]

    def loss(self, module: Any, batch: Pair) -> Mapping[str, torch.Tensor]:
        """Return cross-entropy per pixel; the fast recipe adds the overlap loss, so that small objects count."""
        scores = at_size_of(module(batch[0]).float(), batch[1])
        each = torch.nn.functional.cross_entropy(scores, batch[1], reduction="none")
        if self.spec.balance == "weights":
            each = each * torch.cat([torch.ones_like(self.weights[:1]), self.weights])[batch[1]]
        loss = each.mean()
        if self.recipe.augment:
            loss = loss + overlap_loss(scores, batch[1])
        return {"loss": loss, "miou": mean_iou(confusion(scores.detach(), batch[1]))}

    def measured(self, module: torch.nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        """Return loss and mean IoU on these images."""
        pairs: Any = 0
        loss = count = 0.0
        for pictures, labels in batches:
            images, maps = self.pair(self.cropped(pictures), labels)
            scores = at_size_of(module(images).float(), maps)
            loss += float(torch.nn.functional.cross_entropy(scores, maps)) * len(labels)
            count += len(labels)
            pairs = pairs + confusion(scores, maps)
        return {"validation_loss": loss / max(count, 1), "validation_miou": float(mean_iou(pairs)) if count else 0.0}

    def write(self, folder: Path, module: Any, weights: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Write the folder of the trained network."""
        architecture = self.job.architecture
        what = f"A segmenter of background and {len(self.classes)} classes"
        card = self.card(what, f"`{networks.loaded_as(architecture)}FOLDER`")
        networks.write(folder, architecture, module, weights, self.classes, self.recipe.size, facts, *card)


class SegmentTrainingWorker(TrainingWorker):
    """Trains and tests segmenters one after the other."""

    fitting = SegmentFit
    masks = True

    def model(self, resources: TrainingResources, job: TrainingJob) -> testing.TestedSegmenter:
        """Load the trained segmenter, to be tested."""
        segmenter = networks.load(job.architecture, self.run_path / "models" / job.folder, device=resources.device)
        segmenter.batch_size = max(16, self.spec.settled().batch_size)
        return testing.own(segmenter, self.classes)

    def tested_size(self, model: testing.TestedSegmenter) -> int:
        """Return the width and height of the images that a model is tested on."""
        return self.spec.settled().size

    def answers(self, model: testing.TestedSegmenter) -> Answers:
        """Return how class maps become outcome columns and counted pixels."""
        return testing.counted(model, self.collection, self.run_path)


def at_size_of(scores: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """Return scores (n, classes, h, w) at the size of class maps (n, H, W), as many networks answer at a quarter."""
    if scores.shape[-2:] == maps.shape[-2:]:
        return scores
    return torch.nn.functional.interpolate(scores, maps.shape[-2:], mode="bilinear", align_corners=False)


def overlap_loss(scores: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """Return one minus the soft Dice overlap, averaged over the classes that occur in the batch."""
    shares = scores.softmax(1)
    truth = torch.nn.functional.one_hot(maps, scores.shape[1]).movedim(-1, 1).float()
    both, either = (shares * truth).sum((0, 2, 3)), (shares + truth).sum((0, 2, 3))
    occurs = (truth.sum((0, 2, 3)) > 0).float()
    return 1 - (2 * both / either.clamp(min=1) * occurs).sum() / occurs.sum()


def confusion(scores: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """Return pixels by true class (rows) and answer (columns)."""
    classes = scores.shape[1]
    both = (maps * classes + scores.argmax(1)).flatten()
    # Not bincount, which waits for the device at every step.
    pairs = torch.zeros(classes**2, dtype=torch.int64, device=both.device)
    return pairs.scatter_add_(0, both, torch.ones_like(both)).view(classes, classes)


def mean_iou(pairs: torch.Tensor) -> torch.Tensor:
    """Return the mean IoU over the classes that are in the truth or the answers."""
    both = pairs.diagonal()
    either = pairs.sum(0) + pairs.sum(1) - both
    return (both / either.clamp(min=1)).sum() / (either > 0).sum().clamp(min=1)


SEGMENTERS = TrainingKind("segment", networks.resolve, networks.build, SegmentTrainingWorker, details="segments")


def segment(
    spec: SegmentSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None
) -> tuple[Run, Summary]:
    """Train and test, or test only, and write the rows that are not there yet."""
    if bool(spec.models) == bool(spec.architectures):
        which = "not both" if spec.models else "one of them"
        raise UserError(
            f"segment trains --architectures smp:FPN@resnet50,… or tests --models embedded:unet,…: name {which}"
        )
    collection = read(spec)
    _check(spec, collection)
    if spec.architectures:
        return train(spec, out, progress=progress, kind=SEGMENTERS, executor=executor)
    return _evaluate(spec, collection, out, progress, executor or LocalExecutor(1))


def _check(spec: SegmentSpec, collection: Collection) -> None:
    """Raise a UserError if there is nothing to segment, or class maps cannot hold the classes."""
    if BACKGROUND in collection.classes:
        raise UserError(f"a class is called {BACKGROUND!r}, and that is what is around the object; rename it")
    if len(collection.classes) > 255:
        raise UserError(f"class maps can have at most 255 classes, and the dataset has {len(collection.classes)}")
    if all(sample.mask is None for sample in collection.samples):
        raise UserError(
            f"segmentation needs masks, and none of the {len(collection)} images has one; --masks FOLDER names them, "
            "holdfast mask makes some"
        )
    gone = [
        condition.name for condition in conditions_of(spec, collection).values() if condition.scenario in WITHOUT_OBJECT
    ]
    if gone:
        raise UserError(f"{', '.join(gone)} takes the object out of the image: there is nothing to segment")


def _evaluate(
    spec: SegmentSpec, collection: Collection, out: Path, progress: Progress, executor: Executor
) -> tuple[Run, Summary]:
    """Test models as they are."""
    run, summary = Run(out), Summary()
    with writing(out):
        check_apart(collection.samples, out)
        # If others ask the models, this process only has to know them.
        own = replace(spec, device="cpu") if elsewhere(executor) else spec
        known = SegmentWorker(own, collection, DonorPool([]), run.path, own.device).load()
        conditions = conditions_of(spec, collection)
        collection, painted = with_generated(
            spec, collection, list(conditions.values()), run.path, summary=summary, progress=progress
        )
        prepared = prepare(spec, collection, progress)
        same = ("verb", "dataset", "classes", "seed", "tests", "matte", "feather")
        begin_run(
            run, recorded_spec(spec, "segment", collection, tests="given", **painted), prepared, summary, same=same
        )
        jobs = _jobs(conditions, prepared.collection.samples, known.given, executor)
        todo = plan(
            run.predictions, jobs, lambda job: ids_of(spec, prepared, job), retry=spec.retry_errors,
            scope=scope_of(spec, collection.name, jobs, ("model", "sample_id", "condition", "variant", "parameters")),
            details={"segments": run.details("segments")}, progress=progress,
        )  # fmt: skip
        worker = SegmentWorker(spec, prepared.collection, prepared.pool, run.path.absolute(), spec.device)
        worker.name = f"one of {', '.join(spec.models)}"
        segmented = execute(
            todo, worker, executor, step="segment", size=1, known=known, samples=collection.samples,
            donors=prepared.pool.samples, progress=progress,
        )  # fmt: skip
        summary.merge(segmented)
        from holdfast.stats.effects import sanity, segments

        original = pc.field("condition") == ORIGINAL
        rows = run.predictions.dataset().to_table(columns=segments.COLUMNS, filter=original)
        here = pc.field("row_id").isin(rows["row_id"].combine_chunks())  # typed if there are no rows
        counts = run.details("segments").dataset().to_table(filter=here)
        summary.notes += sanity.sentences(sanity.broken_segmenters(segments.measured(rows, counts)))
    check_answered(run, [model.segmenter.name for model in known.given])
    return run, summary


def _jobs(
    conditions: Mapping[str, Condition],
    samples: Sequence[Sample],
    tested: Sequence[testing.TestedSegmenter],
    executor: Executor,
) -> list[Job[GivenModel, TestedPicture]]:
    """Return every model with every image; a job has images of one condition, few enough for all workers."""
    pictures = {
        name: [TestedPicture(name, sample, rendered_as) for sample, rendered_as in showing(samples, condition)]
        for name, condition in conditions.items()
    }
    count = len(tested) * sum(map(len, pictures.values()))
    size = min(TESTED, shard_size(count, executor, TESTED)) if elsewhere(executor) else TESTED
    models = [GivenModel(place, model.segmenter.name, model.fingerprint) for place, model in enumerate(tested)]
    return [
        Job(model, own[start : start + size])
        for model in models
        for own in pictures.values()
        for start in range(0, len(own), size)
    ]


def _load(spec: SegmentSpec, collection: Collection) -> list[testing.TestedSegmenter]:
    keys = class_keys(collection, spec.labels)
    tested = []
    for name in spec.models:
        segmenter = load_segmenter(name, device=spec.device)
        if hasattr(segmenter, "batch_size"):
            segmenter.batch_size = spec.batch_size or segmenter.batch_size
        tested.append(testing.mapped(segmenter, collection.classes, keys))
    check_names([model.segmenter.name for model in tested])
    return tested


class SegmentWorker(SegmentTrainingWorker):
    """Shows images to segmenters that are trained already."""

    spec: SegmentSpec

    def load(self) -> TrainingResources:
        """Load the models."""
        return replace(super().load(), given=_load(self.spec, self.collection))

    def fingerprints(self, resources: TrainingResources) -> list[str]:
        """Return what row ids depend on."""
        return [model.fingerprint for model in resources.given]

    def run(self, resources: TrainingResources, jobs: Sequence[Any]) -> Iterator[Row]:
        """Yield a row per image, with the counts of its classes."""
        for job in jobs:
            yield from self.tested(resources, job, resources.given[job.item.place])
