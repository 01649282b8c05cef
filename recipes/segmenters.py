"""Train the embedded segmenters: ``python recipes/segmenters.py --out DIR [--quick] [--only NAME]``.

Run again after an interruption it continues. Scenes are those of ``classifiers.py`` at ρ = 0, shared through --work.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import segmentation_models_pytorch as smp
import torch
from cards import WNIDS
from command import train_several

from holdfast.diorama import CLASSES
from holdfast.training import TrainingOptions, augment, fit, one_cycle
from holdfast.training.checkpoint import halve, write_model
from holdfast.training.robust import MEAN, STD, normalised
from holdfast_studies.drawn.classifiers import Scenes, Size, rendered

LABELS = ("background", *CLASSES)


@dataclass(frozen=True)
class Recipe:
    """A network in segmentation_models_pytorch's terms and the side of the square that it sees."""

    architecture: str
    model_args: Mapping[str, Any]
    side: int


ENCODER = {"encoder_name": "tu-resnet18", "encoder_weights": None, "classes": len(LABELS)}
RECIPES = {
    # Its decoder works at a quarter of its input's resolution, so it looks at scenes at twice their size.
    "deeplabv3plus": Recipe(
        "DeepLabV3Plus",
        {
            **ENCODER, "channels": [32, 48, 96, 128], "layers": [1, 1, 2, 1],
            "decoder_channels": 64, "decoder_atrous_rates": [1, 2, 4], "decoder_aspp_dropout": 0.1,
        },
        side=128,
    ),
    "unet": Recipe(
        "Unet",
        {**ENCODER, "channels": [24, 48, 72, 104], "layers": [1, 1, 2, 1], "decoder_channels": [64, 48, 32, 24, 16]},
        side=64,
    ),
}  # fmt: skip


SIZE = Size(train=60_000, test=4_800, epochs=30, batch=256, seconds=150)


def build(recipe: Recipe) -> Any:
    """Return the network, untrained."""
    return getattr(smp, recipe.architecture)(**recipe.model_args)


def train(name: str, size: Size, *, cache: Path, checkpoints: Path | None = None) -> tuple[torch.nn.Module, float]:
    """Return a trained segmenter on its device, and the seconds it took."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    recipe = RECIPES[name]
    images, targets = on_device(rendered("train", 0.0, size.train, cache=cache), device)
    torch.manual_seed(0)
    model = build(recipe).to(device, memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=4e-3 * size.batch / 256, weight_decay=0.02, fused=device == "cuda"
    )

    def batches(epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index in augment.shuffled(len(images), size.batch, device):
            batch = images[index].permute(0, 3, 1, 2).float() / 255
            grid = augment.move_grid(batch, augment.Moves(rotation=12, zoom=0.15))
            moved = augment.move(targets[index][:, None].float(), grid, nearest=True)[:, 0].long()
            yield normalised(augment.camera(augment.move(batch, grid))), moved

    def loss(module: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        scores = predicted(module, batch[0], recipe.side)
        cross = torch.nn.functional.cross_entropy(scores, batch[1])
        return {"loss": cross + dice(scores, batch[1]), "pixel_accuracy": (scores.argmax(1) == batch[1]).float().mean()}

    steps = size.train // size.batch
    options = TrainingOptions(
        epochs=size.epochs,
        steps_per_epoch=steps,
        precision="bfloat16" if device == "cuda" else "float32",
        average=0.998 if size.epochs * steps > 2_000 else 0.9,
        checkpoints=checkpoints,
        time_limit=size.seconds,
        finish_in_time=True,
    )
    fitted = fit(model, batches, loss, optimiser, options, schedule=one_cycle, on_epoch=functools.partial(_say, name))
    return fitted.model, fitted.seconds


def predicted(model: torch.nn.Module, batch: torch.Tensor, side: int) -> torch.Tensor:
    """Scores at the batch's own size from a model that sees squares of ``side`` pixels."""
    size = batch.shape[-2:]
    scores: torch.Tensor = model(resized(batch, (side, side))).float()
    return resized(scores, (size[0], size[1]))


def resized(batch: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Larger bilinearly, smaller by the mean of areas, as the adapter does it."""
    if batch.shape[-2] > size[0]:
        return torch.nn.functional.interpolate(batch, size, mode="area")
    return torch.nn.functional.interpolate(batch, size, mode="bilinear", align_corners=False)


def dice(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """One minus the soft overlap of classes in the batch, averaged over those that occur: small objects count."""
    shares = scores.softmax(1)
    truth = torch.nn.functional.one_hot(target, len(LABELS)).permute(0, 3, 1, 2).float()
    both, either = (shares * truth).sum((0, 2, 3)), (shares + truth).sum((0, 2, 3))
    occurs = (truth.sum((0, 2, 3)) > 0).float()
    overlap = 2 * both / either.clamp(min=1)
    return 1 - (overlap * occurs).sum() / occurs.sum()


def on_device(scenes: Scenes, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images NHWC uint8 and class maps NHW uint8: 0 background, then the classes."""
    maps = np.where(scenes.masks, (scenes.labels + 1)[:, None, None], 0).astype(np.uint8)
    return torch.from_numpy(np.array(scenes.images)).to(device), torch.from_numpy(maps).to(device)


@torch.inference_mode()
def mean_iou(model: torch.nn.Module, scenes: Scenes, side: int) -> float:
    """Mean over the thirteen classes of intersection over union, both counted over all scenes."""
    images, targets = on_device(scenes, str(next(model.parameters()).device))
    model.eval()
    pairs = torch.zeros(len(LABELS) ** 2, device=images.device)
    for start in range(0, len(images), 400):
        batch = normalised(images[start : start + 400].permute(0, 3, 1, 2).float() / 255)
        answer = predicted(model, batch, side).argmax(1)
        truth = targets[start : start + 400].long()
        pairs += torch.bincount((truth * len(LABELS) + answer).flatten(), minlength=len(pairs))
    confusion = pairs.view(len(LABELS), len(LABELS))
    both = confusion.diagonal()
    return float((both / (confusion.sum(0) + confusion.sum(1) - both)).mean())


def make(name: str, size: Size, out: Path, work: Path) -> str:
    """Train, measure and write one model, unless it is there already."""
    torch.backends.cudnn.benchmark = True
    folder, recipe = out / name, RECIPES[name]
    if (folder / "README.md").is_file():
        return f"{name}: there already"
    model, seconds = train(name, size, cache=work / "scenes", checkpoints=work / "checkpoints" / name)
    weights = halve(model)
    metrics = {
        f"mean_iou_{split}_rho0": round(
            mean_iou(model, rendered(split, 0.0, size.test, cache=work / "scenes"), recipe.side), 4
        )
        for split in ("test", "ood")
    }
    # The keys are those that segmentation_models_pytorch's own save_pretrained writes.
    config = {"_model_class": recipe.architecture, **build(recipe).config}
    write_model(folder, weights, config, facts_of(name, size, model, metrics, seconds), text_of(name))
    return f"{name}: {metrics}, {seconds:.0f} s"


def facts_of(
    name: str, size: Size, model: torch.nn.Module, metrics: Mapping[str, float], seconds: float
) -> dict[str, Any]:
    """Return what the card says, and how images are prepared."""
    return {
        "label_names": list(LABELS),
        "wnids": list(WNIDS),
        "input_size": [RECIPES[name].side, RECIPES[name].side],
        "mean": list(MEAN),
        "std": list(STD),
        "data": f"{size.train} training scenes of diorama at 64 px, context 0, seed 0",
        "held_out": f"{size.test} scenes; shape templates and textures that training never shows",
        "recipe": f"recipes/segmenters.py --only {name}",
        "epochs": size.epochs,
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "metrics": dict(metrics),
    }


def text_of(name: str) -> str:
    """Return the head of the card."""
    return f"""
# {name}

A small {RECIPES[name].architecture} of segmentation_models_pytorch: background and the twelve classes of Diorama-12,
pixel by pixel, trained on drawn scenes in which class and background are independent. Use it as `embedded:{name}`.
"""


def _say(name: str, epoch: Any) -> None:
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    print(f"{name} epoch {epoch.number}: {numbers}", flush=True)


def scenes(names: Sequence[str], size: Size) -> list[tuple[str, float, int, int]]:
    """(split, ρ, number, side) of what every one of them is trained and measured on."""
    return [("train", 0.0, size.train, 64), ("test", 0.0, size.test, 64), ("ood", 0.0, size.test, 64)]


if __name__ == "__main__":
    train_several(__doc__, list(RECIPES), SIZE, scenes, make)
