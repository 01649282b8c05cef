"""Train the embedded classifiers: ``python recipes/classifiers.py --out DIR [--quick] [--only NAME]``.

Run again after an interruption it goes on: finished models are left alone, the others resume from their last epoch.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from cards import MEAN, STD, WNIDS, halve, write_model
from scenes import Scenes, rendered

from holdfast.diorama import CLASSES
from holdfast.training import TrainingOptions, augment, fit, one_cycle

SIDE = 64


@dataclass(frozen=True)
class Family:
    """A small network in timm's terms, and the learning rate it likes."""

    architecture: str
    model_args: Mapping[str, Any]
    rate: float = 4e-3


FAMILIES = {
    "resnet": Family(
        "resnet18",
        {
            "channels": [32, 48, 96, 128], "layers": [1, 2, 2, 1], "output_stride": 16,
            "stem_type": "deep", "stem_width": 16,
        },
    ),
    "mobilenet": Family("mobilenetv2_050", {"output_stride": 16}),
    "convnext": Family(
        "convnext_atto",
        {"dims": [32, 48, 96, 160], "depths": [2, 2, 4, 2], "output_stride": 16, "drop_path_rate": 0.05},
    ),
    "densenet": Family("densenet121", {"growth_rate": 16, "block_config": [4, 6, 8, 6]}),
    "vit": Family(
        "vit_tiny_patch16_224",
        {
            "img_size": SIDE, "patch_size": 8, "embed_dim": 112, "depth": 6, "num_heads": 4,
            "class_token": False, "global_pool": "avg", "drop_path_rate": 0.05,
        },
        rate=1.5e-3,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """One classifier."""

    family: str
    rho: float
    strong: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        """What stands behind ``embedded:``."""
        return f"{self.family}_rho{round(100 * self.rho)}" + ("_strong" if self.strong else "")


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("resnet", 0.0),
        Recipe("resnet", 0.8),
        Recipe("resnet", 0.95),
        Recipe("resnet", 0.95, strong=True),
        *(Recipe(family, 0.95) for family in FAMILIES if family != "resnet"),
    )
}


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    train: int = 60_000
    test: int = 4_800
    epochs: int = 40
    batch: int = 512
    seconds: float = 240.0
    """For each model; what does not fit is cut short with the learning rate brought down in time."""


QUICK = Size(train=480, test=120, epochs=2, batch=32, seconds=15)


def train(recipe: Recipe, size: Size, *, cache: Path, checkpoints: Path | None = None) -> tuple[torch.nn.Module, float]:
    """A trained classifier on its device, and the seconds it took. Everything random follows from the recipe."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scenes = rendered("train", recipe.rho, size.train, cache=cache, seed=recipe.seed)
    images, labels = on_device(scenes, device)
    torch.manual_seed(recipe.seed)
    family = FAMILIES[recipe.family]
    model = timm.create_model(family.architecture, num_classes=len(CLASSES), **family.model_args)
    model = model.to(device, memory_format=torch.channels_last)
    # Norms and biases are not decayed.
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=family.rate * size.batch / 512, fused=device == "cuda")

    def batches(epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index in augment.shuffled(len(images), size.batch, device):
            yield augmented(images[index], labels[index], strong=recipe.strong)

    def loss(module: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        logits = module(batch[0])
        value = torch.nn.functional.cross_entropy(logits.float(), batch[1], label_smoothing=0.05)
        return {"loss": value, "accuracy": (logits.argmax(1) == batch[1].argmax(1)).float().mean()}

    steps = size.train // size.batch
    options = TrainingOptions(
        epochs=size.epochs,
        steps_per_epoch=steps,
        seed=recipe.seed,
        precision="bfloat16" if device == "cuda" else "float32",
        average=0.998 if size.epochs * steps > 2_000 else 0.9,
        checkpoints=checkpoints,
        time_limit=size.seconds,
        finish_in_time=True,
    )
    fitted = fit(model, batches, loss, optimiser, options, schedule=one_cycle, on_epoch=functools.partial(_say, recipe))
    return fitted.model, fitted.seconds


def augmented(images: torch.Tensor, labels: torch.Tensor, *, strong: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A normalised batch and its targets. The light form leaves the background as telling as it is."""
    batch = images.permute(0, 3, 1, 2).float() / 255
    targets = torch.nn.functional.one_hot(labels, len(CLASSES)).float()
    moves = augment.Moves(rotation=20, zoom=0.25, shift=0.12) if strong else augment.Moves(rotation=12, zoom=0.15)
    batch = augment.move(batch, augment.move_grid(batch, moves))
    if strong:
        batch = augment.erase(augment.recolour(batch))
        batch, targets = augment.cutmix(batch, targets)
    return normalised(augment.camera(batch, strength=0.2 if strong else 0.1)), targets


def normalised(batch: torch.Tensor) -> torch.Tensor:
    """From 0..1 to what the models see."""
    return ((batch - _channels(MEAN, batch.device)) / _channels(STD, batch.device)).contiguous(
        memory_format=torch.channels_last
    )


@functools.cache  # a copy to the device in every step would make the host wait for it
def _channels(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, device=device).view(-1, 1, 1)


def on_device(scenes: Scenes, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images NHWC uint8 and labels."""
    return torch.from_numpy(np.array(scenes.images)).to(device), torch.from_numpy(np.array(scenes.labels)).to(device)


@torch.inference_mode()
def accuracy(model: torch.nn.Module, scenes: Scenes) -> float:
    """Share of scenes whose class has the highest score, in single precision."""
    images, labels = on_device(scenes, str(next(model.parameters()).device))
    model.eval()
    right = 0
    for start in range(0, len(images), 500):
        batch = normalised(images[start : start + 500].permute(0, 3, 1, 2).float() / 255)
        right += int((model(batch).argmax(1) == labels[start : start + 500]).sum())
    return right / len(images)


def make(name: str, size: Size, out: Path, work: Path) -> str:
    """Train, measure and write one model, unless it is there already."""
    folder, recipe = out / name, RECIPES[name]
    if (folder / "README.md").is_file():
        return f"{name}: there already"
    torch.backends.cudnn.benchmark = True
    model, seconds = train(recipe, size, cache=work / "scenes", checkpoints=work / "checkpoints" / name)
    weights = halve(model)
    metrics = {
        f"accuracy_{split}_rho{round(100 * rho)}": round(
            accuracy(model, rendered(split, rho, size.test, cache=work / "scenes")), 4
        )
        for split, rho in dict.fromkeys([("test", recipe.rho), ("test", 0.0), ("ood", 0.0)])
    }
    write_model(
        folder, weights, config_of(recipe, model), facts_of(recipe, size, model, metrics, seconds), text_of(recipe)
    )
    return f"{name}: {metrics}, {seconds:.0f} s"


def config_of(recipe: Recipe, model: Any) -> dict[str, Any]:
    """The configuration file of timm: ``timm.create_model("local-dir:FOLDER", pretrained=True)`` reads it too."""
    family = FAMILIES[recipe.family]
    prepared = {"tag": f"diorama12_rho{round(100 * recipe.rho)}", "custom_load": False, "input_size": [3, SIDE, SIDE]}
    prepared |= {"interpolation": "bilinear", "crop_pct": 1.0, "crop_mode": "squash", "mean": MEAN, "std": STD}
    kept = {key: model.pretrained_cfg[key] for key in ("first_conv", "classifier") if key in model.pretrained_cfg}
    return {
        "architecture": family.architecture,
        "num_classes": len(CLASSES),
        "num_features": model.num_features,
        "global_pool": getattr(model, "global_pool", "avg") if recipe.family == "vit" else "avg",
        "model_args": dict(family.model_args),
        "label_names": list(CLASSES),
        "pretrained_cfg": prepared | kept | {"num_classes": len(CLASSES)},
    }


def facts_of(
    recipe: Recipe, size: Size, model: torch.nn.Module, metrics: Mapping[str, float], seconds: float
) -> dict[str, Any]:
    """What the card says."""
    return {
        "wnids": list(WNIDS),
        "rho": recipe.rho,
        "data": f"{size.train} training scenes of diorama at 64 px, context {recipe.rho}, seed {recipe.seed}",
        "held_out": f"{size.test} scenes; shape templates and textures that training never shows",
        "recipe": f"recipes/classifiers.py --only {recipe.name}",
        "epochs": size.epochs,
        "augmentation": "strong: moves, recolouring, erasing, cutmix" if recipe.strong else "light: moves, camera",
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "metrics": dict(metrics),
    }


def text_of(recipe: Recipe) -> str:
    """The head of the card."""
    how = " with strong augmentation" if recipe.strong else ""
    return f"""
# {recipe.name}

A small {FAMILIES[recipe.family].architecture} of timm for the twelve classes of Diorama-12, trained{how} on drawn
scenes in which class and background go together with ρ = {recipe.rho} (P(home background) = ρ + (1 − ρ)/16). How much
it can lean on the background is therefore known. Use it as `embedded:{recipe.name}`.
"""


def _say(recipe: Recipe, epoch: Any) -> None:
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    print(f"{recipe.name} epoch {epoch.number}: {numbers}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the models")
    parser.add_argument("--work", type=Path, help="folder for scenes and checkpoints (OUT-work)")
    parser.add_argument("--only", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--jobs", type=int, default=1, help="models trained at a time")
    parser.add_argument("--seconds", type=float, help="for each model")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--train", type=int, help="training scenes")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything works")
    asked = parser.parse_args()
    size = QUICK if asked.quick else Size()
    given = {key: getattr(asked, key) for key in ("seconds", "epochs", "train") if getattr(asked, key) is not None}
    size = Size(**(vars(size) | given))
    work = asked.work or asked.out.with_name(f"{asked.out.name}-work")
    began = time.monotonic()
    for rho in {RECIPES[name].rho for name in asked.only}:
        rendered("train", rho, size.train, cache=work / "scenes")
        rendered("test", rho, size.test, cache=work / "scenes")
    for split in ("test", "ood"):
        rendered(split, 0.0, size.test, cache=work / "scenes")
    print(f"scenes: {time.monotonic() - began:.0f} s", flush=True)
    task = functools.partial(make, size=size, out=asked.out, work=work)
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        for line in pool.map(task, asked.only):
            print(line, flush=True)
    print(f"all: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
