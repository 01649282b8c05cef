"""Training a segmenter within a scenario: classifiers' jobs with masks, another loss, and tests that count pixels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import out_of_memory
from holdfast.pipeline.segment import networks, testing
from holdfast.pipeline.train.fitting import MOVES, Fit
from holdfast.pipeline.train.plan import TrainingJob, TrainingTest
from holdfast.pipeline.train.worker import Answers, TrainingResources, TrainingWorker
from holdfast.training import augment
from holdfast.training.saving import DRAWN_WORLD

if TYPE_CHECKING:
    import torch

    Pair = tuple[torch.Tensor, torch.Tensor]


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
        import torch
        import torch.nn.functional

        scores = at_size_of(module(batch[0]).float(), batch[1])
        each = torch.nn.functional.cross_entropy(scores, batch[1], reduction="none")
        if self.spec.balance == "weights":
            each = each * torch.cat([torch.ones_like(self.weights[:1]), self.weights])[batch[1]]
        loss = each.mean()
        if self.recipe.augment:
            loss = loss + overlap_loss(scores, batch[1])
        return {"loss": loss, "miou": mean_iou(confusion(scores.detach(), batch[1]))}

    def _attempt(self, module: torch.nn.Module, size: int) -> dict[str, float] | None:
        import torch
        import torch.nn.functional

        pairs: Any = 0
        loss = count = 0.0
        orders = torch.split(torch.tensor(self.places.validation), size)
        try:
            with torch.inference_mode():
                for pictures, labels in self.source.batches(orders):
                    images, maps = self.pair(self.cropped(pictures), labels)
                    scores = at_size_of(module(images).float(), maps)
                    loss += float(torch.nn.functional.cross_entropy(scores, maps)) * len(labels)
                    count += len(labels)
                    pairs = pairs + confusion(scores, maps)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            return None
        return {"validation_loss": loss / max(count, 1), "validation_miou": float(mean_iou(pairs)) if count else 0.0}

    def write(self, folder: Path, module: Any, weights: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Write the folder of the trained network."""
        architecture, size = self.job.architecture, self.recipe.size
        text = (
            f"# {architecture.name} trained on {self.job.trained_on}, fold {self.job.fold}\n\n"
            f"A segmenter of background and {len(self.classes)} classes for images of {size} pixels. Images of fold "
            f"{self.job.fold} took no part in its training. Use it as `{networks.loaded_as(architecture)}FOLDER`."
        )
        note = DRAWN_WORLD if self.spec.data.startswith("diorama") else ""
        networks.write(folder, architecture, module, weights, self.classes, size, facts, text, note)


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
    import torch.nn.functional

    if scores.shape[-2:] == maps.shape[-2:]:
        return scores
    return torch.nn.functional.interpolate(scores, maps.shape[-2:], mode="bilinear", align_corners=False)


def overlap_loss(scores: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """Return one minus the soft Dice overlap, averaged over the classes that occur in the batch."""
    import torch.nn.functional

    shares = scores.softmax(1)
    truth = torch.nn.functional.one_hot(maps, scores.shape[1]).movedim(-1, 1).float()
    both, either = (shares * truth).sum((0, 2, 3)), (shares + truth).sum((0, 2, 3))
    occurs = (truth.sum((0, 2, 3)) > 0).float()
    return 1 - (2 * both / either.clamp(min=1) * occurs).sum() / occurs.sum()


def confusion(scores: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """Return pixels by true class (rows) and answer (columns)."""
    import torch

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
