"""Train the embedded classifiers: ``python recipes/classifiers.py --out DIR [--quick] [--only NAME]``.

Run again after an interruption it continues: finished models are left alone, the others resume from their last epoch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from cards import WNIDS
from command import train_several
from safetensors.torch import load_file
from strong_augment import cutmix, erase, recolour

from holdfast.core.networks import packed, unpacked
from holdfast.diorama import CLASSES
from holdfast.training import Epoch, Fitted, augment, robust
from holdfast.training.checkpoint import halve, write_model
from holdfast.training.loop import Loss
from holdfast.training.robust import cross_entropy, normalised
from holdfast_studies.drawn.classifiers import (
    FAMILIES,
    SIDE,
    NetworkFamily,
    Size,
    accuracy,
    family_config,
    fit_scenes,
    on_device,
    rendered,
    seeded,
)

FAMILIES_128 = {
    "resnet": NetworkFamily(
        "resnet18", {"channels": [16, 32, 48, 72], "layers": [1, 1, 2, 1], "stem_type": "deep", "stem_width": 16}
    ),
    "mobilenet": NetworkFamily("mobilenetv2_035", {}),
    "convnext": NetworkFamily(
        "convnext_atto", {"dims": [24, 32, 64, 80], "depths": [2, 2, 2, 2], "drop_path_rate": 0.05}
    ),
    "densenet": NetworkFamily("densenet121", {"growth_rate": 12, "block_config": [4, 6, 6, 5]}),
    "vit": NetworkFamily(
        "vit_tiny_patch16_224",
        {
            "img_size": 128, "patch_size": 16, "embed_dim": 64, "depth": 4, "num_heads": 4,
            "class_token": False, "global_pool": "avg", "drop_path_rate": 0.05,
        },
        rate=1.5e-3,
    ),
}  # fmt: skip
"""The same kinds for images of 128 px, with a third of the weights."""


@dataclass(frozen=True)
class ClassifierRecipe:
    """One classifier. The seed is of its training; scenes depend on ρ and their size alone."""

    family: str
    rho: float
    strong: bool = False
    seed: int = 0
    way: str = ""  # of ``robust.METHODS``, where training is robust
    side: int = SIDE

    @property
    def name(self) -> str:
        """Return the name behind ``embedded:``."""
        parts = [f"{self.family}_rho{round(100 * self.rho)}", "strong" if self.strong else "", self.way.split("+")[-1]]
        return "_".join(part for part in (*parts, "128" if self.side == 128 else "") if part)

    @property
    def network(self) -> NetworkFamily:
        """Return the network of its family for images of its size."""
        return (FAMILIES_128 if self.side == 128 else FAMILIES)[self.family]


EIGHT = (
    ClassifierRecipe("resnet", 0.0),
    ClassifierRecipe("resnet", 0.8),
    ClassifierRecipe("resnet", 0.95),
    ClassifierRecipe("resnet", 0.95, strong=True),
    *(ClassifierRecipe(family, 0.95) for family in FAMILIES if family != "resnet"),
)
ROBUST = (
    ClassifierRecipe("resnet", 0.95, way="adversarial", side=128),
    ClassifierRecipe("resnet", 0.95, way="deepaugment+augmix", side=128),
)
RECIPES = {recipe.name: recipe for recipe in (*EIGHT, *(replace(recipe, side=128) for recipe in EIGHT), *ROBUST)}


def make(name: str, size: Size, out: Path, work: Path, start: Path | None = None) -> str:
    """Train, measure and write one model, unless it is there already."""
    folder, recipe = out / name, RECIPES[name]
    if (folder / "README.md").is_file():
        return f"{name}: there already"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    way = robust.method(recipe.way, device=device) if recipe.way else None
    fitted = train(
        recipe,
        size,
        cache=work / "scenes",
        device=device,
        checkpoints=work / "checkpoints" / name,
        on_epoch=functools.partial(_say, recipe),
        robustly=(way.prepared, way.loss) if way else None,
        start=unpacked(load_file(start / "model.safetensors")) if start else None,
    )
    model, seconds = fitted.model, fitted.seconds
    weights = halve(model) if recipe.side == SIDE else packed_into(model)
    metrics = {
        f"accuracy_{split}_rho{round(100 * rho)}": round(
            accuracy(model, rendered(split, rho, size.test, cache=work / "scenes", side=recipe.side)), 4
        )
        for split, rho in dict.fromkeys([("test", recipe.rho), ("test", 0.0), ("ood", 0.0)])
    }
    facts = facts_of(recipe, size, model, metrics, seconds, start)
    config = family_config(recipe.network, model, rho=recipe.rho, side=recipe.side)
    write_model(folder, weights, config, facts, text_of(recipe))
    return f"{name}: {metrics}, {seconds:.0f} s"


def train(
    recipe: ClassifierRecipe,  # which
    size: Size,  # how many scenes and epochs
    *,
    cache: Path,  # folder of rendered scenes
    device: str,  # ``cpu`` or ``cuda``
    checkpoints: Path | None = None,  # folder to resume from and to write to
    on_epoch: Callable[[Epoch], None] | None = None,  # called after every epoch
    robustly: tuple[Callable[..., Any], Loss] | None = None,  # what robust training does to images, and its loss
    start: Mapping[str, torch.Tensor] | None = None,  # weights to continue from
) -> Fitted:
    """Train a classifier on ``device``. Everything random follows from the recipe."""
    images, labels = on_device(rendered("train", recipe.rho, size.train, cache=cache, side=recipe.side), device)
    family = recipe.network
    model = seeded(family, recipe.seed)
    if start is not None:
        model.load_state_dict(start)

    def prepared(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return augmented(images, labels, strong=recipe.strong)

    return fit_scenes(
        model, images, labels, size, *(robustly or (prepared, cross_entropy)),
        rate=family.rate, seed=recipe.seed, device=device, checkpoints=checkpoints, on_epoch=on_epoch,
    )  # fmt: skip


def augmented(images: torch.Tensor, labels: torch.Tensor, *, strong: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an augmented, normalised batch and its targets; only the strong form hides the background."""
    batch = images.permute(0, 3, 1, 2).float() / 255
    targets = torch.nn.functional.one_hot(labels, len(CLASSES)).float()
    moves = augment.Moves(rotation=20, zoom=0.25, shift=0.12) if strong else augment.Moves(rotation=12, zoom=0.15)
    batch = augment.move(batch, augment.move_grid(batch, moves))
    if strong:
        batch = erase(recolour(batch))
        batch, targets = cutmix(batch, targets)
    return normalised(augment.camera(batch, strength=0.2 if strong else 0.1)), targets


def packed_into(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights as ``packed`` does, and load them into the model, so that its metrics are theirs."""
    state = packed(model.state_dict())
    model.load_state_dict(unpacked(state))
    return state


def facts_of(
    recipe: ClassifierRecipe,
    size: Size,
    model: torch.nn.Module,
    metrics: Mapping[str, float],
    seconds: float,
    start: Path | None,
) -> dict[str, Any]:
    """Return what the card says."""
    return {
        "wnids": list(WNIDS),
        "rho": recipe.rho,
        "data": f"{size.train} training scenes of diorama at {recipe.side} px, context {recipe.rho}, seed 0",
        "held_out": f"{size.test} scenes; shape templates and textures that training never shows",
        "recipe": f"recipes/classifiers.py --only {recipe.name}" + (f" --start DIR/{start.name}" if start else ""),
        "epochs": size.epochs,
        "augmentation": robust.described(recipe.way)
        if recipe.way
        else "strong: moves, recolouring, erasing, cutmix"
        if recipe.strong
        else "light: moves, camera",
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "metrics": dict(metrics),
    }


def text_of(recipe: ClassifierRecipe) -> str:
    """Return the head of the card."""
    how = f" robustly ({recipe.way})" if recipe.way else ""
    how += " with strong augmentation" if recipe.strong else ""
    size = "" if recipe.side == SIDE else f" of {recipe.side} px"
    return f"""
# {recipe.name}

A small {recipe.network.architecture} of timm for the twelve classes of Diorama-12, trained{how} on drawn
scenes{size} in which class and background go together with ρ = {recipe.rho} (P(home background) = ρ + (1 − ρ)/16).
How much it can rely on the background is therefore known. Use it as `embedded:{recipe.name}`.
"""


def _say(recipe: ClassifierRecipe, epoch: Any) -> None:
    numbers = " ".join(f"{key} {value:.3f}" for key, value in epoch.metrics.items())
    print(f"{recipe.name} epoch {epoch.number}: {numbers}", flush=True)


def scenes(names: Sequence[str], size: Size) -> list[tuple[str, float, int, int]]:
    """(split, ρ, number, side) of what these models are trained and measured on."""
    wanted = []
    for side in sorted({RECIPES[name].side for name in names}):
        own = sorted({RECIPES[name].rho for name in names if RECIPES[name].side == side})
        wanted += [("train", rho, size.train, side) for rho in own]
        wanted += [("test", rho, size.test, side) for rho in sorted({0.0, *own})]
        wanted.append(("ood", 0.0, size.test, side))
    return wanted


if __name__ == "__main__":
    train_several(__doc__, list(RECIPES), Size(), scenes, make)
