"""``holdfast segment``: train segmenters within scenarios, or test those there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.names import WITHOUT_OBJECT
from holdfast.core.schema import row_id
from holdfast.core.types import Collection, Sample
from holdfast.data.labels import class_keys
from holdfast.engine import Executor, LocalExecutor
from holdfast.models import load_segmenter
from holdfast.pipeline.classifiers import check_names
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.evaluation_rows import row_key
from holdfast.pipeline.files import check_apart
from holdfast.pipeline.jobs.execute import elsewhere, execute, shard_size
from holdfast.pipeline.jobs.plan import Job, Scope, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import Row
from holdfast.pipeline.samples import Prepared, begin_run, prepare, read
from holdfast.pipeline.segment import networks, testing
from holdfast.pipeline.specs import SegmentSpec as SegmentSpec
from holdfast.pipeline.train.fitting import MOVES, Fit
from holdfast.pipeline.train.pictures import Batch, Renderer, Showing, Team, showing
from holdfast.pipeline.train.plan import TrainingJob, TrainingTest, conditions_of, content_of
from holdfast.pipeline.train.train import (
    TESTED,
    Answers,
    TrainingKind,
    TrainingResources,
    TrainingWorker,
    picture_rows,
    team_of,
    train,
)
from holdfast.scenarios import Condition
from holdfast.store import Run, writing
from holdfast.training import augment

Pair = tuple["torch.Tensor", "torch.Tensor"]


class SegmentFit(Fit):
    """One job's training. Pictures have four channels: colours, and 1 where the object is."""

    def build(self) -> torch.nn.Module:
        """Return the network before training."""
        return networks.build(self.job.architecture, len(self.classes), self.recipe.size, seed=self.seed)

    def batches(self, epoch: int) -> Iterator[Pair]:
        """Yield prepared pictures and class maps (NHW int64, 0 is background); both are moved alike."""
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
        """Return the width and height of the pictures that a model is tested on."""
        return self.spec.settled().size

    def answers(self, job: TrainingTest, model: testing.TestedSegmenter) -> Answers:
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


SEGMENTERS = TrainingKind(
    "segment", networks.resolve, networks.build, SegmentTrainingWorker,
    details=lambda run: {testing.DETAILS: testing.details(run)},
)  # fmt: skip


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
    testing.check_classes(collection.classes)
    if all(sample.mask is None for sample in collection.samples):
        raise UserError(
            f"segmentation needs masks, and none of the {len(collection)} images has one; --masks FOLDER names them, "
            "holdfast mask makes some"
        )
    gone = [
        condition.name for condition in conditions_of(spec, collection).values() if condition.scenario in WITHOUT_OBJECT
    ]
    if gone:
        raise UserError(f"{', '.join(gone)} takes the object out of the picture: there is nothing to segment")


def _evaluate(
    spec: SegmentSpec, collection: Collection, out: Path, progress: Progress, executor: Executor
) -> tuple[Run, Summary]:
    run, summary = Run(out), Summary()
    with writing(out):
        check_apart(collection.samples, out)
        conditions = conditions_of(spec, collection)
        # Where others ask the models, this process only has to know them.
        tested = _load(replace(spec, device="cpu") if elsewhere(executor) else spec, collection)
        prepared = prepare(spec, collection, progress)
        recorded = asdict(spec) | {"verb": "segment", "dataset": collection.name, "classes": list(collection.classes)}
        recorded |= {"models": list(spec.models), "architectures": [], "matte": list(spec.matte), "tests": "given"}
        same = ("verb", "dataset", "classes", "seed", "tests", "matte", "feather")
        begin_run(run, recorded, prepared, summary, same=same)
        jobs = [
            Job(Shown(place, condition, sample, rendered_as), (place,))
            for place in range(len(tested))
            for condition in conditions.values()
            for sample, rendered_as in showing(prepared.collection.samples, condition)
        ]
        todo = plan(
            run.predictions, jobs, lambda job: [_row_id(spec, prepared, tested, job.item)],
            scope=_scope(tested, conditions.values(), jobs), retry=spec.retry_errors,
            details={testing.DETAILS: testing.details(run.path)}, progress=progress,
        )  # fmt: skip
        worker = SegmentWorker(spec, prepared.collection, prepared.pool, run.path.absolute())
        size = min(TESTED, shard_size(todo.owed, executor, TESTED)) if elsewhere(executor) else TESTED
        segmented = execute(
            todo, worker, executor, step="segment", size=size, known=tested,
            samples=collection.samples, donors=prepared.pool.samples, progress=progress,
        )  # fmt: skip
        summary.merge(segmented)
    return run, summary


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


@dataclass(frozen=True)
class Shown:
    """A sample that a model sees under a condition."""

    place: int  # of the model in the specification
    condition: Condition  # under which it is shown
    sample: Sample
    rendered_as: Condition


SegmentJob = Job[Shown, int]


def _key(spec: SegmentSpec, dataset: str, shown: Showing, model: str) -> dict[str, Any]:
    own = {"task": spec.task, "protocol": spec.protocol}
    return row_key(spec, dataset, *shown, model) | own


def _row_id(spec: SegmentSpec, prepared: Prepared, tested: Sequence[testing.TestedSegmenter], shown: Shown) -> str:
    model = tested[shown.place]
    image, mask = content_of(spec, prepared, shown.sample, shown.rendered_as)
    key = _key(spec, prepared.collection.name, (shown.sample, shown.rendered_as), model.segmenter.name)
    return row_id(key, image=image, mask=mask, model=model.fingerprint)


def _scope(
    tested: Sequence[testing.TestedSegmenter], conditions: Iterable[Condition], jobs: Sequence[SegmentJob]
) -> Scope:
    names = [model.segmenter.name for model in tested]
    asked = {(condition.scenario, condition.variant, condition.parameters_json) for condition in conditions}
    samples = {job.item.sample.sample_id for job in jobs}
    return Scope(
        pc.field("model").isin(names),
        ("sample_id", "condition", "variant", "parameters"),
        lambda row: row["sample_id"] in samples and (row["condition"], row["variant"], row["parameters"]) in asked,
    )


class SegmentWorker:
    """Shows pictures to segmenters and counts pixels."""

    def __init__(self, spec: SegmentSpec, collection: Collection, pool: DonorPool, run: Path) -> None:
        self.name = f"one of {', '.join(spec.models)}"
        self.spec, self.collection, self.pool, self.run_path = spec, collection, pool, run

    @cached_property
    def team(self) -> Team:
        """Return who renders pictures, made by the process that needs them."""
        return team_of(self.spec)

    def load(self) -> list[testing.TestedSegmenter]:
        """Load the models."""
        return _load(self.spec, self.collection)

    def fingerprints(self, tested: list[testing.TestedSegmenter]) -> list[str]:
        """Return what row ids depend on."""
        return [model.fingerprint for model in tested]

    def run(self, tested: list[testing.TestedSegmenter], jobs: Sequence[SegmentJob]) -> Iterator[Row]:
        """Yield a row per picture, with the counts of its classes."""
        spec, classes = self.spec, self.collection.classes
        renderer = Renderer(
            self.pool, spec.settled().size, spec.seed, spec.max_pixels, spec.matte, hashed=True,
            scaled=spec.settled().scaled, team=self.team,
        )  # fmt: skip
        for (place, _), alike in groupby(jobs, key=lambda job: (job.item.place, job.item.condition)):
            model = tested[place]
            shown = [((job.item.sample, job.item.rendered_as), job.ids[0]) for job in alike]
            answers = testing.counted(model, self.collection, self.run_path)
            for made_of, row in picture_rows(renderer, shown, classes, answers, masks=True):
                yield (
                    _key(spec, self.collection.name, made_of, model.segmenter.name) | {"label": made_of[0].label} | row
                )
